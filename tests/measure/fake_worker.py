"""Stands in for the GPU worker: the same protocol, no GPU. What happens to a case is in the name of its implementation.

``fault/NAME`` breaks in that way; everything else is measured as ``SECONDS`` a call. Standard library only, to start fast.
"""

import json
import os
import signal
import sys
import time

SECONDS = 1e-3
DEVICE = {"torch": "2.11.0", "triton": "3.6.0", "sm_count": 132, "l2_bytes": 60 * 2**20, "memory_bytes": 141 * 2**30}


def emit(event, **fields):
    os.write(1, json.dumps({"event": event, **fields}).encode() + b"\n")


def measured(name, seconds=SECONDS):
    samples = [seconds * (1 + 0.001 * (index % 7)) for index in range(21)]
    ordered = sorted(samples)
    return {
        "implementation": name,
        "time_s": {"median": ordered[10], "p10": ordered[2], "p90": ordered[18], "samples": samples},
        "method": "graph",
        "l2": "cold",
        "discarded": 0,
        "all_throttled": False,
        "clock_hz": 1.98e9,
        "power_w": 400.0,
        "throttle_reasons": [],
        "max_memory_bytes": 10**6,
        "error": 1e-3,
        "tolerance": 4e-3,
        "backend_confirmed": None,
    }


def prepare(index, name):
    emit("start", case=index, stage="launch")
    fault = name.partition("/")[2] if name.startswith("fault/") else ""
    if fault == "crash":
        os.write(2, b"CUDA error: an illegal memory access was encountered\n")
        os.kill(os.getpid(), signal.SIGSEGV)
    elif fault == "exit":
        sys.exit(70)
    elif fault == "hang":
        emit("start", case=index, stage="wait")
        time.sleep(60)
    elif fault == "oom":
        emit("result", case=index, status="failed", reason="out of GPU memory: tried to allocate 200 GiB")
    elif fault == "wrong":
        emit("result", case=index, status="wrong", reason="relative error 1.4, allowed 0.004")
    elif fault == "unsupported":
        emit("result", case=index, status="unsupported", reason="no sliding window")
    elif fault == "answered-then-crash":
        emit("result", case=index, status="failed", reason="RuntimeError: CUDA error")
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "nonsense":
        emit("result", case=index, status="ok", measurement={"time_s": {"median": float("nan")}})
    elif fault == "babble":
        os.write(1, b'a library prints here\n{"not": "an event"}\n[1, 2]\n')
        return True
    elif fault == "silent":
        return False
    elif fault == "interrupt":
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(60)
    else:
        return True
    return False


def measure(request):
    names = [case["implementation"] for case in request["cases"]]
    ready = [(index, name) for index, name in enumerate(names) if prepare(index, name)]
    for index, name in ready:
        emit("start", case=index, stage="time")
        if name == "fault/crash-in-timing":
            os.kill(os.getpid(), signal.SIGSEGV)
    for index, name in ready:
        emit("result", case=index, status="ok", measurement=measured(name))
    emit("done", fresh=False)


def probe(request):
    if request["operation"] == "matmul" and request["parameters"]["dtype"] == "fp8":
        return emit("answer", missing="RuntimeError: no fp8 here")
    if request["operation"] == "exp":
        os.kill(os.getpid(), signal.SIGSEGV)
    work = 1 if request["operation"] == "launch" else 4.6e9
    seconds = 1.2e-6 if request["operation"] == "launch" else 1e-3
    samples = [seconds * (1 + 0.001 * (index % 5)) for index in range(20)]
    way = {"work": work, "samples": samples, "clock_hz": 1.98e9, "power_w": 400.0, "reasons": 4}
    emit("answer", ways=[{**way, "how": "slow", "work": work / 2 if work > 1 else 1}, {**way, "how": "fast"}], sustained=None)


def main():
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    if how == "missing":
        return emit("missing", reason="no usable GPU: torch sees no CUDA device")
    if how == "broken":
        sys.exit("libcuda.so.1: cannot open shared object file")
    emit("ready", **DEVICE)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        measure(request) if request["op"] == "measure" else probe(request)


if __name__ == "__main__":
    main()
