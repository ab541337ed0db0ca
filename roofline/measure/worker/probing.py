"""Run one calibration probe in several ways and return their samples."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from roofline.cost import ceil_div
from roofline.kernels import probes
from roofline.kernels.probes import WORD_BYTES, Probe
from roofline.measure.clocks import ClockSource
from roofline.measure.timing import StoppingRule, interleave
from roofline.measure.worker import Emit
from roofline.measure.worker.bursts import best_and_sustained
from roofline.measure.worker.lane import GRAPH_TIME_S, CudaLane, timer_event
from roofline.measure.worker.points import clock_source
from roofline.measure.worker.rotation import set_count

RULE = StoppingRule(min_samples=20, max_samples=100, max_time_s=0.12, precision=0.001)
CURVE_RULE = StoppingRule(min_samples=10, max_samples=50, max_time_s=0.04, precision=0.002)  # of points that are no ceiling
CEILING_GRAPH_S = 5e-3  # calls in one graph: what a launch costs is a ceiling of its own
WARM_UP_S = 0.03
BLOCK_MOST = 32768  # words; buffers are multiples of the largest block
# (CTAs a SM, words a block, warps): bytes in flight are CTAs x block x 4; which is best differs from device to device
STREAM_WAYS = (
    (1, 16384, 16),
    (2, 8192, 8),
    (2, 8192, 16),
    (2, 16384, 16),
    (4, 4096, 4),
    (4, 8192, 4),
    (4, 8192, 8),
    (8, 4096, 4),
    (16, 2048, 4),
)
CURVE_WAYS = ((4, 8192, 8), (8, 4096, 4), (16, 2048, 4))  # those that were the best at one size or another on an H200
ONE_CTA_WAYS = ((16384, 16), (32768, 32))
READ_PASSES = 4  # over a buffer far above the L2, in one launch
L2_PARTS = (0.15, 0.3)  # of the L2: read over and over, all of it stays there
L2_PASSES = 40
MATMUL_SIZES = (4096, 8192)
LAUNCHES = 500  # of an empty kernel in one graph
REREAD_L2 = 4  # sizes of the L2 between two reads of one buffer


@dataclass(frozen=True, slots=True)
class _Turns:
    """Probes that take turns, as ``CudaLane`` wants them."""

    calls: Sequence[Callable[[], object]]

    @property
    def turn(self) -> int:
        return len(self.calls)

    def call(self, index: int) -> object:
        return self.calls[index % len(self.calls)]()


@dataclass(slots=True)
class _Bench:
    """What every probe needs of the device."""

    clocks: ClockSource
    l2_bytes: int
    device: torch.device = field(default_factory=lambda: torch.device("cuda"))
    sm_count: int = field(default_factory=lambda: torch.cuda.get_device_properties(0).multi_processor_count)

    def words(self, num_bytes: int) -> torch.Tensor:
        """Random words, rounded up to whole blocks: constant data can run faster than real data does."""
        count = ceil_div(num_bytes // WORD_BYTES, BLOCK_MOST) * BLOCK_MOST
        return torch.randint(0, 2**31 - 1, (count,), dtype=torch.int32, device=self.device)

    def ways(self, ways: Mapping[str, Sequence[Probe]], curve: bool = False) -> list[dict[str, Any]]:
        """Time each way, a list of probes that take turns, interleaved with the others; a ``curve`` as points are timed."""
        graph_s = GRAPH_TIME_S if curve else CEILING_GRAPH_S
        turns_of = [_Turns([probe.run for probe in turns]) for turns in ways.values()]
        lanes = [CudaLane(turns, self.clocks, graph_s=graph_s, warm_up_s=WARM_UP_S) for turns in turns_of]
        timed = interleave(lanes, CURVE_RULE if curve else RULE)
        return [
            {
                "how": how,
                "work": turns[0].amount,
                "samples": list(samples.samples),
                "clock_hz": samples.clocks.clock_hz,
                "power_w": samples.clocks.power_w,
                "reasons": samples.clocks.reasons,
            }
            for (how, turns), samples in zip(ways.items(), timed, strict=True)
        ]


def run(request: Mapping[str, Any], emit: Emit) -> None:
    """Answer one ``probe`` request; what cannot run here is ``missing``, with the reason."""
    bench = _Bench(clock_source(request.get("uuid")), request["l2_bytes"])
    try:
        answer = _OPERATIONS[request["operation"]](bench, **request["parameters"])
    except torch.cuda.OutOfMemoryError:
        answer = {"missing": "out of GPU memory"}
    except Exception as error:  # an operation that this GPU or build of torch lacks
        answer = {"missing": f"{type(error).__name__}: {error}".splitlines()[0]}
    torch.cuda.empty_cache()
    emit("answer", **answer)


def _read(bench: _Bench, bytes: int) -> dict[str, Any]:
    return {"ways": bench.ways(_streams(bench, [bench.words(bytes)], partial(probes.read, passes=READ_PASSES)))}


def _read_cold(bench: _Bench, bytes: int) -> dict[str, Any]:
    """Read buffers of one size in turn, as points rotate over their inputs."""
    buffers = [bench.words(bytes) for _ in range(set_count(bytes, bench.l2_bytes))]
    return {"ways": bench.ways(_streams(bench, buffers, probes.read, CURVE_WAYS), curve=True)}


def _copy(bench: _Bench, bytes: int) -> dict[str, Any]:
    target = bench.words(bytes)
    return {"ways": bench.ways(_streams(bench, [bench.words(bytes)], lambda source, **how: probes.copy(source, target, **how)))}


def _write(bench: _Bench, bytes: int) -> dict[str, Any]:
    return {"ways": bench.ways(_streams(bench, [bench.words(bytes)], probes.write))}


def _streams(
    bench: _Bench,
    buffers: Sequence[torch.Tensor],
    make: Callable[..., Probe],
    ways: Sequence[tuple[int, int, int]] = STREAM_WAYS,
) -> dict[str, list[Probe]]:
    return {
        f"{per_sm} CTAs a SM, {block * WORD_BYTES // 1024} KiB a CTA in flight by {warps} warps": [
            make(buffer, ctas=per_sm * bench.sm_count, block=block, warps=warps) for buffer in buffers
        ]
        for per_sm, block, warps in ways
    }


def _l2_read(bench: _Bench) -> dict[str, Any]:
    ways = {}
    for part in L2_PARTS:
        buffer = bench.words(int(part * bench.l2_bytes))
        for per_sm, block, warps in CURVE_WAYS:
            how = f"{part:.0%} of the L2, {per_sm} CTAs a SM, {block * WORD_BYTES // 1024} KiB a CTA in flight by {warps} warps"
            ways[how] = [probes.read(buffer, per_sm * bench.sm_count, block, warps, L2_PASSES)]
    return {"ways": bench.ways(ways)}


def _read_ctas(bench: _Bench, ctas: int) -> dict[str, Any]:
    # Long enough to pass over the L2, short enough for one CTA.
    buffer = bench.words(REREAD_L2 * bench.l2_bytes)
    ways = {
        f"{block * WORD_BYTES // 1024} KiB a CTA in flight": [probes.read(buffer, ctas, block, warps)]
        for block, warps in ONE_CTA_WAYS
    }
    return {"ways": bench.ways(ways, curve=ctas > 1)}


def _launch(bench: _Bench) -> dict[str, Any]:
    """Time graphs of many and of half as many empty kernels: the difference leaves out what a graph costs by itself."""
    probe = probes.empty(bench.device)
    graphs = [_graph(probe, launches) for launches in (LAUNCHES, 2 * LAUNCHES)]
    samples = []
    for _ in range(60):
        half, whole = (_replay_s(graph) for graph in graphs)
        samples.append((whole - half) / LAUNCHES)
    reading = bench.clocks.read()
    kept = [sample for sample in samples[10:] if sample > 0]
    how = f"difference of graphs of {2 * LAUNCHES} and {LAUNCHES} empty kernels"
    way = {"how": how, "work": 1, "samples": kept, "clock_hz": reading.clock_hz, "power_w": reading.power_w}
    return {"ways": [{**way, "reasons": reading.reasons}]}


def _graph(probe: Probe, launches: int) -> torch.cuda.CUDAGraph:
    probe.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            probe.run()
    return graph


def _replay_s(graph: torch.cuda.CUDAGraph) -> float:
    start, end = (timer_event() for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e-3


def _exponentials(bench: _Bench) -> dict[str, Any]:
    ways = {
        f"{per_sm} CTAs a SM": [probes.exponentials(per_sm * bench.sm_count, bench.device, rounds=4096)] for per_sm in (4, 8)
    }
    return {"ways": bench.ways(ways)}


def _matmul(bench: _Bench, dtype: str) -> dict[str, Any]:
    ways = {f"{size} x {size} x {size}, a burst from rest": probes.matmul(size, dtype, bench.device) for size in MATMUL_SIZES}
    return best_and_sustained(ways, bench.clocks, sustained=dtype != "fp32")


_OPERATIONS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "read": _read,
    "read_cold": _read_cold,
    "copy": _copy,
    "write": _write,
    "l2_read": _l2_read,
    "read_ctas": _read_ctas,
    "launch": _launch,
    "exp": _exponentials,
    "matmul": _matmul,
}
