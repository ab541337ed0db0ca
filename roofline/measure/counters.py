"""Hardware counters of measured cases: ncu runs ``replay``, which makes a range of calls for each; sums are divided by calls.

Steady state: inputs rotate over several times the L2, caches are not flushed and clocks not locked (``--cache-control none
--clock-control none``), and the whole application is replayed for each pass (``app-range``: plain ``range`` refuses kernels
whose tensor descriptors are encoded on the host). Cold: ranges of one call, before which ncu invalidates the caches; what is
still dirty in the L2 at its end is not written yet. Names as in Nsight Compute 2025.3 on sm_90.
"""

import csv
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from roofline.cost import SECTOR_BYTES
from roofline.errors import RooflineError
from roofline.measure.cases import Case
from roofline.measure.environment import worker_environment
from roofline.profiles.local import Gpu
from roofline.profiles.profile import Profile

Mode = Literal["steady", "cold"]
CACHE_CONTROL: Mapping[Mode, str] = {"steady": "none", "cold": "all"}  # what ncu does to the caches before a range
# field of a record -> metrics summed over the range, and the factor to the field's unit
SUMS: Mapping[str, tuple[tuple[str, ...], float]] = {
    "hbm_read_bytes": (("dram__bytes_read.sum",), 1),
    "hbm_write_bytes": (("dram__bytes_write.sum",), 1),
    "l2_bytes": (("lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_write.sum"), SECTOR_BYTES),
    "sm_read_bytes": (("l1tex__m_xbar2l1tex_read_bytes.sum",), 1),
    "sm_write_bytes": (("l1tex__m_l1tex2xbar_write_bytes.sum",), 1),
    "xu_instructions": (("sm__inst_executed_pipe_xu.sum",), 1),
}
# dtype of the factors -> operations on the tensor cores, as sm_90 names them
TENSOR_OPS: Mapping[str, str] = {
    "bf16": "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
    "fp16": "sm__ops_path_tensor_src_fp16.sum",
    "tf32": "sm__ops_path_tensor_src_tf32_dst_fp32.sum",
    "fp8": "sm__ops_path_tensor_src_fp8.sum",
    "int8": "sm__ops_path_tensor_src_int8.sum",
}
ALWAYS_COUNTED = ("bf16", "fp16")  # kernels widen narrower elements to one of these
L2_HITS = "lts__t_sectors_srcunit_tex_lookup_hit.sum"
L2_MISSES = "lts__t_sectors_srcunit_tex_lookup_miss.sum"
DRAM_PEAK = ("dram__bytes.sum.peak_sustained", "dram__cycles_elapsed.avg.per_second")
SM_CLOCK = "sm__cycles_elapsed.avg.per_second"

CASES_PER_RUN = 32  # a run that breaks loses the counters of its own cases only
SECONDS_TO_START, SECONDS_PER_CASE = 180, 25  # all passes of one run


class Refused(Exception):
    """Counters cannot be read here; the message names what is missing."""


# What ncu says -> what to tell the user.
REFUSALS = {
    "ERR_NVGPUCTRPERM": "the driver lets only administrators read them (ERR_NVGPUCTRPERM): run as root or with CAP_SYS_ADMIN, "
    "or load the driver with NVreg_RestrictProfilingToAdminUsers=0",
    "LibraryNotLoaded": "the profiling library cannot be loaded here, as in some containers and sandboxes (LibraryNotLoaded)",
    "Profiling is not supported on device": "ncu does not support this GPU, or a virtual GPU hides its counters",
    "ERR_NVGPUCTR": "the driver refused the counters",
    "already in use": "another profiler holds the counters",
}


def find_ncu() -> str | None:
    """Return the path of ncu: on the PATH, else where its installers put it."""
    found = shutil.which("ncu")
    if found:
        return found
    places = [*Path("/opt/nvidia/nsight-compute").glob("*/ncu"), Path("/usr/local/cuda/bin/ncu")]
    return next((str(path) for path in sorted(places, reverse=True) if os.access(path, os.X_OK)), None)


def metrics(dtypes: Iterable[str] = tuple(TENSOR_OPS), fields: Iterable[str] | None = None) -> tuple[str, ...]:
    """Return every metric asked for, once; tensor operations of ``dtypes`` only, because each more may cost a pass.

    ``fields``: of ``SUMS``, those wanted, without what describes the L2 and the clocks; ``None``: everything.
    """
    names = [name for key, (sums, _) in SUMS.items() if fields is None or key in fields for name in sums]
    wanted = {*ALWAYS_COUNTED, *dtypes}
    names += [name for dtype, name in TENSOR_OPS.items() if dtype in wanted]
    return (*names, L2_HITS, L2_MISSES, *DRAM_PEAK, SM_CLOCK) if fields is None else tuple(names)


def build_command(
    ncu: str,
    plan: Path,
    log: Path,
    dtypes: Iterable[str] = tuple(TENSOR_OPS),
    mode: Mode = "steady",
    fields: Iterable[str] | None = None,
    python: str = sys.executable,
) -> list[str]:
    """Return the command that counts the ranges of the replay ``plan`` and writes a CSV to ``log``."""
    return [
        ncu,
        "--replay-mode=app-range",
        f"--cache-control={CACHE_CONTROL[mode]}",
        "--clock-control=none",
        "--target-processes=application-only",
        f"--metrics={','.join(metrics(dtypes, fields))}",
        "--csv",
        "--page=raw",
        "--print-units=base",
        f"--log-file={log}",
        python,
        "-m",
        "roofline.measure.worker.replay",
        str(plan),
    ]


def parse(text: str) -> list[dict[str, float]]:
    """Return the metrics of each range in ncu's CSV, in order; text around the table is skipped.

    Takes the raw page (one row a range, one column a metric, units in the second row) and the details page (one row a metric).
    A metric that this chip does not know has no column: ncu goes on without it.
    Raises ``Refused`` when ncu says that counters are not to be had, ``RooflineError`` when there is no table.
    """
    for said, meaning in REFUSALS.items():
        if said in text:
            raise Refused(meaning)
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise RooflineError(f"ncu printed no table: {_complaint(lines)}")
    rows = list(csv.DictReader(line for line in lines[start:] if line.strip() and not line.startswith("==")))
    if rows and "Metric Name" in rows[0]:
        ranges: dict[str, dict[str, float]] = {}
        for row in rows:
            if (value := _number(row["Metric Value"])) is not None:
                ranges.setdefault(row["ID"], {})[row["Metric Name"]] = value
        return list(ranges.values())
    wanted = set(metrics())
    return [
        {name: value for name, text in row.items() if name in wanted and (value := _number(text)) is not None}
        for row in rows
        if row["ID"]  # the row of units has none, and what the program printed is no row
    ]


def per_call(values: Mapping[str, float], calls: int, dtype: str, mode: Mode = "steady") -> dict[str, Any]:
    """Return the counters of one call as a record holds them, from the metrics of a range of ``calls`` calls."""
    counted: dict[str, Any] = {"mode": mode, "calls": calls}
    for name, (sums, factor) in SUMS.items():
        known = all(metric in values for metric in sums)
        counted[name] = sum(values[metric] for metric in sums) * factor / calls if known else None
    # Without the operations of its own dtype the sum would be too low: unknown, not zero. Others may be missing.
    operations = [values[metric] for metric in TENSOR_OPS.values() if metric in values]
    counted["tensor_flops"] = sum(operations) / calls if TENSOR_OPS.get(dtype) in values else None
    lookups = values.get(L2_HITS, 0) + values.get(L2_MISSES, 0)
    counted["l2_hit_rate"] = values[L2_HITS] / lookups if lookups and L2_HITS in values else None
    peak = values.get(DRAM_PEAK[0], 0) * values.get(DRAM_PEAK[1], 0)
    counted["hbm_peak_bytes_per_s"] = peak or None
    counted["clock_hz"] = values.get(SM_CLOCK) or None
    return counted


@dataclass(slots=True)
class Replay:
    """Counts cases in runs of ncu. ``fields``: of ``SUMS``, or all; ``notes`` says what could not be counted."""

    gpu: Gpu
    profile: Profile
    seed: int
    mode: Mode = "steady"
    fields: tuple[str, ...] | None = None
    notes: list[str] = field(default_factory=list)
    ncu: str | None = field(default_factory=find_ncu)

    def count(self, cases: Sequence[Case]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the index and the counters of each case that could be counted; raise ``Refused`` if none can be."""
        if self.ncu is None:
            raise Refused("ncu (Nsight Compute) is not installed, or not on the PATH")
        waiting = iter(enumerate(cases))
        while chunk := list(islice(waiting, CASES_PER_RUN)):
            yield from self._count(chunk)

    def _count(self, chunk: Sequence[tuple[int, Case]]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Count in one run, and where that breaks in two of half as many cases each."""
        try:
            yield from self._run(chunk)
        except RooflineError as error:
            if len(chunk) == 1:
                self._note(chunk[0][1], str(error))
                return
            middle = len(chunk) // 2
            yield from self._count(chunk[:middle])
            yield from self._count(chunk[middle:])

    def _note(self, case: Case, reason: str) -> None:
        self.notes.append(f"{case.configuration.name} {case.implementation} was not counted: {reason}")

    def _run(self, chunk: Sequence[tuple[int, Case]]) -> list[tuple[int, dict[str, Any]]]:
        assert self.ncu is not None
        with tempfile.TemporaryDirectory(prefix="roofline-ncu-") as folder:
            plan, log, done = Path(folder, "plan.json"), Path(folder, "ncu.csv"), Path(folder, "done.jsonl")
            plan.write_text(json.dumps(self._plan([case for _, case in chunk], done)))
            limit = SECONDS_TO_START + SECONDS_PER_CASE * len(chunk)
            dtypes = {case.configuration.problem.dtype.name for _, case in chunk}
            said = _call(
                build_command(self.ncu, plan, log, dtypes, self.mode, self.fields), worker_environment(self.gpu), limit
            )
            table = log.read_text(errors="replace") if log.exists() else ""
            ranges = parse(f"{table}\n{said}")
            made = [json.loads(line) for line in done.read_text().splitlines()] if done.exists() else []
        counted = [line for line in made if line.get("calls")]
        if len(counted) != len(ranges):
            raise RooflineError(f"ncu counted {len(ranges)} ranges, the replay made {len(counted)}")
        for line in made:
            if not line.get("calls"):
                self._note(chunk[line["case"]][1], line["reason"])
        return [
            (index, per_call(values, line["calls"], case.configuration.problem.dtype.name, self.mode))
            for line, values in zip(counted, ranges, strict=True)
            for index, case in (chunk[line["case"]],)
        ]

    def _plan(self, cases: Sequence[Case], done: Path) -> dict[str, Any]:
        return {
            "done": str(done),
            "seed": self.seed,
            "mode": self.mode,
            "l2_bytes": self.profile.l2_bytes or 2**26,
            "cases": [{**case.wire(), "problem": case.fields()["problem"]} for case in cases],
        }


def _call(command: Sequence[str], environment: Mapping[str, str], limit_s: float) -> str:
    # ncu writes numbers in the user's locale, where a full stop may separate thousands.
    environment = {**os.environ, **environment, "LC_ALL": "C"}
    try:
        result = subprocess.run(
            command, env=environment, capture_output=True, timeout=limit_s, text=True, errors="replace", check=False
        )
    except subprocess.TimeoutExpired:
        raise RooflineError(f"ncu did not end within {limit_s:g} s") from None
    except OSError as error:
        raise Refused(f"ncu cannot be started: {error.strerror}") from None
    return f"{result.stdout}\n{result.stderr}"


def _complaint(lines: Sequence[str]) -> str:
    said = [line.removeprefix("==ERROR==").strip() for line in lines if line.startswith("==ERROR==")]
    return said[0] if said else next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def _number(text: str | None) -> float | None:
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:  # "n/a", or a unit
        return None
    return value if math.isfinite(value) else None
