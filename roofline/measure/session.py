"""``measure``: one run from the choice of a GPU to a file that holds its points, whatever breaks on the way."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from roofline import peers
from roofline.errors import InputError
from roofline.measure import calibrate, environment
from roofline.measure.cases import cases
from roofline.measure.gpu import device_profile, required_gpu
from roofline.measure.loop import Loop
from roofline.measure.options import Listener, Measured, Options, Progress
from roofline.measure.supervisor import Supervisor
from roofline.profiles.local import Gpu
from roofline.profiles.profile import Profile
from roofline.records import SCHEMA, Header, Run, Writer, profile_fields


def measure(options: Options, listener: Listener = lambda progress: None) -> Measured:
    """Measure what ``options`` ask for and return what came of it.

    Calibrates the GPU first if it has not been. Ctrl-C ends the run and keeps its points. Raises ``MissingError`` without a GPU
    or torch, ``InputError`` for bad options, and ``RooflineError`` if the run cannot go on (a full disk, a dead driver).
    """
    chosen, wanted_peers = options.configurations(), peers.named(options.peers)
    gpu = required_gpu(options.gpu, "measure")
    state = environment.gpu_state(gpu.uuid)
    with Supervisor(options.worker, environment.worker_environment(gpu), options.limits()) as supervisor:
        listener(Progress(0, 0, "starting a worker"))
        software = supervisor.start()
        profile = device_profile(gpu, software)
        if options.calibrate and not profile.measured:
            profile = calibrate.calibrate_with(supervisor, gpu, profile, lambda doing: listener(Progress(0, 0, doing))).profile
        groups = cases(chosen, profile, wanted_peers, options.implementations)
        header = _header(options, gpu, state, profile, software)
        writer, earlier = _open(options, header, profile)
        with writer:
            loop = Loop(options, gpu, profile, supervisor, writer, earlier or Run(writer.path, header, ()), listener)
            loop.notes += state.disturbances
            return loop.run(groups)


def default_path(profile: Profile) -> Path:
    """Return the file of a run that was given no name."""
    return Path(f"roofline-{profile.id}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.jsonl")


def _header(options: Options, gpu: Gpu, state: environment.GpuState, profile: Profile, software: Mapping[str, Any]) -> Header:
    told = {key: value for key, value in software.items() if key != "event"}
    settings = {"l2": options.l2, "seed": options.seed, "rule": asdict(options.rule()), "counters": options.counters}
    found = {"worker": told, "settings": settings, "calibration": calibrate.details(gpu)}
    return Header(
        schema=SCHEMA,
        run_id=uuid4().hex,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=list(options.command),
        environment={**environment.describe(gpu, state), **found},
        profile=profile_fields(profile),
    )


def _open(options: Options, header: Header, profile: Profile) -> tuple[Writer, Run | None]:
    if options.resume is not None:
        if options.output is not None:
            raise InputError("--resume and -o contradict each other: a resumed run goes on in its own file")
        writer, run = Writer.resume(options.resume)
        if (theirs := run.header.profile.id) != profile.id:
            writer.close()
            raise InputError(f"--resume {options.resume}: made on {theirs}, this is {profile.id}; expected the same device")
        return writer, run
    if options.output is not None:
        return Writer.create(options.output, header, force=options.force), None
    return Writer.unique(default_path(profile), header), None
