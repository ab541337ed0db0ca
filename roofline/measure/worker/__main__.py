"""The worker process: reads requests as JSON lines, runs points on the GPU, writes events as JSON lines.

``python -m roofline.measure.worker``. Whatever breaks here breaks this process alone; the supervisor sees the last ``start``.
"""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from roofline.measure.gpu import WORKS_WITHOUT
from roofline.measure.worker import Emit

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve requests until the input ends."""
    _die_with_parent()
    output = _private_stdout()

    def emit(event: str, **fields: Any) -> None:
        output.write(json.dumps({"event": event, **fields}).encode() + b"\n")
        output.flush()

    try:
        from roofline.measure.worker import points, probing, software
    except ImportError as error:
        absent = f"{error.name or error} is not installed here; measuring needs: pip install 'roofline[gpu]'"
        emit("missing", reason=f"{absent}; {WORKS_WITHOUT}")
        return
    if reason := software.missing():
        emit("missing", reason=reason)
        return
    emit("ready", **software.describe())
    operations: Mapping[str, Callable[[Mapping[str, Any], Emit], None]] = {"measure": points.run, "probe": probing.run}
    for line in sys.stdin.buffer:
        request = json.loads(line)
        operations[request["op"]](request, emit)


def _private_stdout() -> BinaryIO:
    """Keep the real output for events, and send what libraries print to stderr."""
    descriptor = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(descriptor, "wb")


def _die_with_parent() -> None:
    """Do not outlive a supervisor that was killed: a worker without one would hold the GPU."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
