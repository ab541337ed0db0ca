"""Run points in a worker process and survive whatever happens to it.

Supervisor and worker speak JSON lines. The worker says what it is about to do (``start``: case and stage), so that when it dies
or falls silent the case at fault is known: that case is failed, and the others run again in a fresh worker.
"""

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from roofline.errors import MissingError, RooflineError

Event = Mapping[str, Any]

# Seconds that a stage may take before its case counts as hung: ``launch`` compiles (FlashInfer runs nvcc), ``wait`` is a call.
STAGE_LIMITS_S: Mapping[str, float] = {
    "begin": 180.0,
    "inputs": 120.0,
    "launch": 400.0,
    "wait": 30.0,
    "check": 180.0,
    "time": 60.0,
}
MAX_REASON = 300
_SAID_BY_EVERY_WORKER = ("Aborted", "core dumped")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one case: a status of the record format with its fields, as the worker sent them."""

    case: int
    status: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reason(self) -> str | None:
        """Why the case is not ok."""
        reason = self.fields.get("reason")
        return str(reason)[:MAX_REASON] if reason is not None else None


class WorkerDied(Exception):
    """The worker process ended or fell silent; the message says how."""


class Worker:
    """One worker process."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], limits: Mapping[str, float]) -> None:
        """Start ``command``. It gets a session of its own: Ctrl-C reaches the supervisor alone, which then stops it."""
        self._limits = limits
        self._stderr: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the worker
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        except OSError:
            self._stderr.close()
            raise
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one request; raise ``WorkerDied`` if nobody is there."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise WorkerDied(self._epitaph()) from None

    def receive(self, stage: str) -> Event:
        """Return the next event; raise ``WorkerDied`` if it does not come within the limit of ``stage``."""
        limit = self._limits.get(stage, self._limits["begin"])
        while True:
            try:
                line = self._lines.get(timeout=limit)
            except queue.Empty:
                self.stop()
                raise WorkerDied(f"no answer for {limit:g} s while in stage '{stage}'; killed") from None
            if line is None:
                raise WorkerDied(self._epitaph())
            try:
                event = json.loads(line)
            except ValueError:
                continue  # a library that printed through a copy of our descriptor
            if isinstance(event, dict) and "event" in event:
                return event

    def stop(self) -> None:
        """End the process and all it started; a process that hangs in the driver is given up after some seconds."""
        if self._process.poll() is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                self._process.kill()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            raise RooflineError(f"worker {self._process.pid} cannot be killed: the GPU driver hangs") from None
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # buffered bytes for a reader that is gone
                    pipe.close()
        self._stderr.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._lines.put(line)
        except ValueError:  # closed by stop
            pass
        self._lines.put(None)

    def _epitaph(self) -> str:
        """How the process ended, with the last words it said on stderr."""
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return "the worker closed its output"
        if code < 0:
            name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
            how = f"the worker was killed by {name}"
            if -code == signal.SIGKILL:
                how += " (out of host memory?)"
        else:
            how = f"the worker ended with exit code {code}"
        words = self._last_words()
        return f"{how}: {words}"[:MAX_REASON] if words else how

    def _last_words(self) -> str:
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(self._stderr.tell() - 4096, 0))
        lines = [line.strip() for line in self._stderr.read().decode(errors="replace").splitlines()]
        lines = [line for line in lines if line and not any(word in line for word in _SAID_BY_EVERY_WORKER)]
        return lines[-1] if lines else ""


class Supervisor:
    """Keeps one worker at hand, and replaces it when it breaks."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        limits: Mapping[str, float] = STAGE_LIMITS_S,
    ) -> None:
        """``command`` starts a worker; ``environment`` is added to this process's own."""
        self._command = tuple(command)
        self._environment = dict(environment or {})
        self._limits = limits
        self._worker: Worker | None = None
        self.ready: Event = {}
        self.workers_started = 0

    def start(self) -> Event:
        """Start a worker if none runs, and return what it says of its software and device.

        Raises ``MissingError`` if the worker says that it lacks something, ``RooflineError`` if it cannot start.
        """
        if self._worker is None:
            try:
                self._worker = Worker(self._command, self._environment, self._limits)
                self.workers_started += 1
                self.ready = self._worker.receive("begin")
            except OSError as error:
                raise RooflineError(f"cannot start a worker: {error.strerror}") from None
            except WorkerDied as error:
                self.stop()
                raise RooflineError(f"cannot start a worker: {error}") from None
            if self.ready["event"] == "missing":
                reason = str(self.ready.get("reason"))
                self.stop()
                raise MissingError(reason)
        return self.ready

    def stop(self) -> None:
        """End the worker, if one runs."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()

    def run(
        self, request: Mapping[str, Any], cases: Sequence[Mapping[str, Any]], progress: Callable[[int, str], None] | None = None
    ) -> Iterator[Outcome]:
        """Run ``cases`` of one request and yield exactly one outcome for each, as they come.

        ``progress`` is told the case and the stage that begins. A case that breaks its worker is failed; the rest, which were
        not answered yet, are run again in a fresh one.
        """
        waiting = list(range(len(cases)))
        while waiting:
            suspect, stage = waiting[0], "begin"
            try:
                self.start()
                assert self._worker is not None
                self._worker.send({**request, "cases": [cases[index] for index in waiting]})
                asked = tuple(waiting)
                while True:
                    event = self._worker.receive(stage)
                    if event["event"] == "start":
                        suspect, stage = asked[event["case"]], event["stage"]
                        if progress is not None:
                            progress(suspect, stage)
                    elif event["event"] == "result":
                        case = asked[event["case"]]
                        if case in waiting:
                            waiting.remove(case)
                            yield Outcome(case, event["status"], event)
                    elif event["event"] == "done":
                        break
            except WorkerDied as error:
                self.stop()
                # One that had answered before it broke its worker has its record already.
                if suspect in waiting:
                    waiting.remove(suspect)
                    yield Outcome(suspect, "failed", {"reason": f"{error} (stage {stage})"})
                continue
            if event.get("fresh"):  # the worker asks to be replaced: an out-of-memory may have left it in pieces
                self.stop()
            for case in waiting:
                yield Outcome(case, "failed", {"reason": "the worker gave no result"})
            waiting.clear()

    def ask(self, request: Mapping[str, Any], stage: str = "launch") -> Event:
        """Send one request that has no cases and return its answer; raise ``RooflineError`` if the worker breaks."""
        self.start()
        assert self._worker is not None
        try:
            self._worker.send(request)
            while (event := self._worker.receive(stage))["event"] not in ("answer", "error"):
                pass
        except WorkerDied as error:
            self.stop()
            raise RooflineError(str(error)) from None
        if event["event"] == "error":
            raise RooflineError(str(event.get("reason")))
        return event

    def __enter__(self) -> "Supervisor":
        """Return the supervisor itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the worker."""
        self.stop()
