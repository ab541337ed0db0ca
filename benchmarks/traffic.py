"""HBM bytes of attention by hardware counters: the points that ``roofline.cache`` is fitted to and held against.

    python benchmarks/traffic.py FILE [--only WORD] [--modes steady cold]
    python benchmarks/traffic.py FILE --modes --plot PICTURE.png      # any machine: FILE as it is

Run on a GPU whose counters ncu may read. FILE gets one JSON line a point: problem, plan, and the counters of one call in steady
state (inputs rotate over several times the L2) and of one call from an invalidated cache. Lines are written as they are made;
points that FILE holds already are skipped. The table of predicted against counted bytes comes last.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from roofline.analysis import analyze
from roofline.cache import hbm_traffic
from roofline.configurations import Configuration, Request, configurations
from roofline.cost import Cost
from roofline.fields import plan_fields, plan_from, problem_fields, problem_from
from roofline.measure.cases import Case
from roofline.measure.counters import Mode, Replay
from roofline.profiles import gpus, load, profile_of
from roofline.profiles.profile import Profile
from roofline.variants import VARIANTS

SEED = 0
# A range of 8 calls holds 0.4 to 0.8 MB of writes that are none of theirs, in two ranges 9 and 13 MB: below this many bytes a
# call, the counter says little of the model.
RESOLVED_WRITES = 3e6
FIELDS = ("hbm_read_bytes", "hbm_write_bytes", "sm_read_bytes")  # each more may cost a pass over all points


class Point(NamedTuple):
    """One point: the options of the problem, and whose kernel runs it. ``plan``: what is known of the plan of a peer."""

    options: dict[str, Any]
    implementation: str = ""
    plan: tuple[tuple[str, Any], ...] = ()


def naive() -> Iterator[dict[str, Any]]:
    """Chains of launches through the L2: S from far below to far above it."""
    for heads in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 64):
        yield {"n": 2048, "d": 64, "heads": heads}
    for heads in (2, 8, 12, 16, 20, 32, 96):
        yield {"n": 1024, "d": 128, "heads": heads}
    for heads in (1, 2, 3, 8):
        yield {"n": 4096, "d": 128, "heads": heads}
    for batch in (2, 5, 9):
        yield {"n": 512, "d": 64, "heads": 12, "batch": batch}
    for heads in (2, 4, 16):
        yield {"n": 2048, "d": 128, "heads": heads, "kv_heads": 1, "causal": True}
    for heads in (1, 3, 6):
        yield {"n": 2048, "d": 64, "heads": heads, "naive_passes": 6}
    yield {"n": 3000, "d": 64, "heads": 2}
    yield {"n": 1500, "d": 128, "heads": 8}
    yield {"n": 2048, "d": 256, "heads": 3}
    yield {"n": 8192, "d": 64, "heads": 1}
    yield {"decode": True, "kv_len": 65536, "d": 128, "heads": 32}
    yield {"decode": True, "kv_len": 8192, "d": 128, "heads": 32, "batch": 16}


def chunked() -> Iterator[dict[str, Any]]:
    """Rabe and Staats: S of one pair of chunks through the L2, K and V once a chunk of queries."""
    for heads, chunk in ((1, (1024, 4096)), (2, (1024, 4096)), (4, (1024, 4096)), (8, (1024, 2048)), (2, (512, 1024))):
        yield {"n": 4096, "d": 64, "heads": heads, "chunk": chunk}
    for heads, chunk in ((2, (1024, 1024)), (8, (2048, 2048)), (32, (1024, 4096))):
        yield {"n": 4096, "d": 128, "heads": heads, "chunk": chunk, "causal": True}
    yield {"n": 8192, "d": 128, "heads": 2, "chunk": (1024, 4096)}
    yield {"n": 16384, "d": 128, "heads": 1, "chunk": (1024, 4096)}
    yield {"n": 16384, "d": 128, "heads": 8, "chunk": (512, 2048)}
    yield {"n": 32768, "d": 128, "heads": 2, "chunk": (1024, 4096), "causal": True}


def streaming() -> Iterator[dict[str, Any]]:
    """Flash attention while K and V of the heads in flight fit the L2."""
    for n, heads, batch in ((512, 16, 8), (1024, 16, 16), (2048, 32, 1), (4096, 16, 4), (8192, 32, 1), (16384, 16, 1)):
        for causal in (False, True):
            yield {"n": n, "d": 128, "heads": heads, "batch": batch, "causal": causal}
    for n, heads, kv_heads in ((1024, 32, 8), (4096, 32, 32), (16384, 32, 4)):
        yield {"n": n, "d": 64, "heads": heads, "kv_heads": kv_heads}
    for n, heads, kv_heads in ((2048, 16, 4), (8192, 8, 8)):
        yield {"n": n, "d": 256, "heads": heads, "kv_heads": kv_heads, "causal": True}
    yield {"n": 8192, "d": 128, "heads": 32, "kv_heads": 8, "window": 1024}
    yield {"n": 65536, "d": 128, "heads": 8, "kv_heads": 2, "window": 4096}
    yield {"q_len": 1024, "kv_len": 32768, "d": 128, "heads": 32, "kv_heads": 8, "causal": True}
    yield {"kv_lens": (512, 3000, 8192, 100), "d": 128, "heads": 16, "kv_heads": 4}
    yield {"kv_lens": (16384, 16384, 1024), "d": 128, "heads": 8, "kv_heads": 8, "causal": True}


def multipass() -> Iterator[dict[str, Any]]:
    """Flash attention where K and V of the heads in flight are about as large as the L2, or larger."""
    for n, heads in (
        (24576, 8),
        (32768, 4),
        (32768, 8),
        (40960, 4),
        (49152, 4),
        (65536, 2),
        (65536, 4),
        (98304, 1),
        (131072, 2),
    ):
        yield {"n": n, "d": 128, "heads": heads}
    for n, heads in ((32768, 8), (49152, 4), (65536, 1), (65536, 4), (98304, 2), (131072, 2)):
        yield {"n": n, "d": 128, "heads": heads, "causal": True}
    for n, heads in ((65536, 8), (98304, 2), (131072, 2)):
        yield {"n": n, "d": 64, "heads": heads}
    yield {"n": 131072, "d": 64, "heads": 4, "causal": True}
    for n, heads in ((16384, 8), (24576, 4), (32768, 2), (65536, 1)):
        yield {"n": n, "d": 256, "heads": heads}
    yield {"n": 32768, "d": 256, "heads": 4, "causal": True}
    for n, heads, kv_heads in ((65536, 8, 2), (98304, 4, 1), (131072, 4, 2)):
        yield {"n": n, "d": 128, "heads": heads, "kv_heads": kv_heads}
    yield {"n": 65536, "d": 128, "heads": 8, "kv_heads": 2, "causal": True}
    yield {"n": 65536, "d": 128, "heads": 2, "window": 40000}
    yield {"q_len": 16384, "kv_len": 131072, "d": 128, "heads": 4}
    yield {"q_len": 8192, "kv_len": 131072, "d": 128, "heads": 8, "kv_heads": 4, "causal": True}
    yield {"n": 32768, "d": 128, "heads": 4, "batch": 2}


def decode() -> Iterator[dict[str, Any]]:
    """Split-KV: caches from far below the L2 to far above it."""
    for batch, heads, kv_heads, kv_len in (
        (1, 32, 8, 1024), (1, 32, 8, 8192), (1, 32, 32, 4096), (16, 32, 8, 2048), (8, 64, 8, 8192), (32, 32, 8, 8192),
        (1, 32, 8, 131072), (64, 32, 32, 2048), (4, 32, 1, 16384), (1, 8, 1, 262144),
    ):  # fmt: skip
        yield {"decode": True, "kv_len": kv_len, "heads": heads, "kv_heads": kv_heads, "batch": batch}
    yield {"decode": True, "kv_len": 8192, "heads": 32, "kv_heads": 8, "batch": 8, "d": 64}
    yield {"decode": True, "kv_len": 4096, "heads": 16, "kv_heads": 4, "batch": 8, "d": 256}
    yield {"decode": True, "kv_len": 32768, "heads": 32, "kv_heads": 8, "batch": 8, "window": 2048}
    yield {"q_len": 4, "kv_len": 8192, "heads": 32, "kv_heads": 8, "batch": 16, "causal": True}
    yield {"decode": True, "kv_lens": (512, 2048, 65536, 8192, 1000), "heads": 32, "kv_heads": 8}
    yield {"decode": True, "kv_lens": (1024, 1024, 4096, 4096, 16384, 300), "heads": 32, "kv_heads": 32}
    for kv_dtype in ("fp8", "int8"):
        yield {"decode": True, "kv_len": 8192, "heads": 32, "kv_heads": 8, "batch": 16, "kv_dtype": kv_dtype}


def paged() -> Iterator[dict[str, Any]]:
    """Pages of 1 to 256 tokens."""
    for page_size in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        yield {"decode": True, "kv_len": 8192, "heads": 32, "kv_heads": 8, "batch": 8, "page_size": page_size}
    for page_size in (1, 16, 256):
        yield {"decode": True, "kv_lens": (512, 5000, 32768, 100), "heads": 32, "kv_heads": 8, "page_size": page_size}
    yield {"decode": True, "kv_len": 2048, "heads": 32, "kv_heads": 32, "batch": 16}
    yield {"decode": True, "kv_len": 4096, "heads": 32, "kv_heads": 8, "batch": 16, "kv_dtype": "fp8"}


def mla() -> Iterator[dict[str, Any]]:
    """Latent caches, and the expanded form."""
    for batch, heads, kv_len in ((1, 128, 16384), (16, 128, 4096), (128, 16, 4096), (8, 64, 8192), (128, 128, 4096)):
        yield {"variant": "mla/absorbed", "decode": True, "kv_len": kv_len, "heads": heads, "batch": batch}
    yield {"variant": "mla/absorbed", "q_len": 2, "kv_len": 8192, "heads": 16, "batch": 16, "causal": True}
    yield {"variant": "mla/absorbed", "decode": True, "kv_lens": (500, 32768, 4096), "heads": 32}
    for n, heads in ((2048, 16), (8192, 8), (49152, 2)):
        yield {"variant": "mla/expanded", "n": n, "heads": heads, "causal": True}


def linear() -> Iterator[dict[str, Any]]:
    """Chunked with its states through the L2, recurrent, and the parallel form."""
    for n, d, heads, batch in (
        (4096, 128, 4, 1), (4096, 128, 16, 1), (8192, 128, 32, 1), (2048, 64, 16, 1), (16384, 64, 32, 2), (8192, 64, 16, 1),
    ):  # fmt: skip
        yield {"variant": "linear/chunked", "n": n, "d": d, "heads": heads, "batch": batch, "causal": True}
    yield {"variant": "linear/chunked", "n": 8192, "d": 128, "heads": 16, "kv_heads": 4, "causal": True}
    for batch, heads in ((1, 32), (8, 32), (64, 32)):
        yield {"variant": "linear/recurrent", "decode": True, "kv_len": 4096, "d": 128, "heads": heads, "batch": batch}
    yield {"variant": "linear/parallel", "n": 8192, "d": 64, "heads": 16, "causal": True}


FAMILIES = {
    "naive": naive, "chunked": chunked, "flash": streaming, "multipass": multipass, "split-kv": decode, "paged": paged,
    "mla": mla, "linear": linear,
}  # fmt: skip
CUDNN = (("q_tile", 128), ("kv_tile", 128), ("ctas_per_sm", 1))
FLASH_2 = (("q_tile", 128), ("kv_tile", 64), ("ctas_per_sm", 2))


def points() -> Iterator[Point]:
    """Every point, in order: the place of a point in this list decides whether it is held back from fitting."""
    for family, found in FAMILIES.items():
        variant = "flash" if family == "multipass" else family
        for options in found():
            yield Point({"variant": variant, **options})
    for n, heads in ((4096, 16), (65536, 2), (65536, 4), (131072, 1)):
        for name, plan in (("torch/cudnn", CUDNN), ("torch/flash", FLASH_2)):
            yield Point({"variant": "flash", "n": n, "heads": heads, "d": 128}, name, plan)


def configuration_of(options: dict[str, Any]) -> Configuration:
    """The one configuration that the options of a point name; KV heads are those of the queries unless said."""
    fields = {**options, "variants": (options["variant"],), "kv_heads": options.get("kv_heads", options["heads"])}
    del fields["variant"]
    if fields["variants"][0].startswith("mla"):
        del fields["kv_heads"]
    if fields.pop("decode", False):
        fields |= {"q_len": 1, "phase": "decode"}
    elif "q_len" not in fields:
        fields["phase"] = "prefill"
    (first, *_) = configurations(Request(**fields))
    return first


def case_of(point: Point, profile: Profile) -> Case:
    """The case that counters replay."""
    configuration = configuration_of(point.options)
    result = analyze(configuration, profile)
    if point.plan:
        plan = replace(result.plan, **dict(point.plan))
        result = result._replace(plan=plan, cost=VARIANTS[configuration.variant](configuration.problem, plan))
    return Case(configuration, point.implementation or f"roofline/{configuration.variant}", result, {})


def line_of(index: int, point: Point, case: Case, mode: Mode, counters: dict[str, Any]) -> dict[str, Any]:
    """What is stored of one point in one mode: enough to predict it again, and what was counted."""
    return {
        "point": index,
        "mode": mode,
        "request": point.options,
        "configuration": case.configuration.name,
        "variant": case.configuration.variant,
        "implementation": case.implementation,
        "problem": problem_fields(case.configuration.problem),
        "plan": plan_fields(case.result.plan),
        "counters": counters,
    }


def count(path: Path, modes: list[Mode], word: str) -> None:
    """Count what ``path`` does not hold yet."""
    gpu = gpus()[0]
    profile = profile_of(gpu)
    done = {(line["point"], line["mode"]) for line in read(path)} if path.exists() else set()
    wanted = [(index, point) for index, point in enumerate(points()) if word in str(point)]
    with path.open("a") as stream:
        for mode in modes:
            todo = [(index, point, case_of(point, profile)) for index, point in wanted if (index, mode) not in done]
            replay = Replay(gpu, profile, SEED, mode, FIELDS)
            for place, counters in replay.count([case for *_, case in todo]):
                stream.write(json.dumps(line_of(*todo[place], mode, counters), separators=(",", ":")) + "\n")
                stream.flush()
            print(*replay.notes, sep="\n")


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of points."""
    return [json.loads(line) for line in path.read_text().splitlines()]


class Compared(NamedTuple):
    """A point with its prediction, made anew: bytes of one call as counted, predicted, and as the textbook counts have them."""

    line: dict[str, Any]
    cost: Cost
    reads: float
    writes: float
    predicted_reads: int
    predicted_writes: int
    least_reads: int  # each input once
    cold_reads: int  # of launches that each find an empty cache
    cold_writes: int

    @property
    def number(self) -> int:
        """Its place in the list."""
        return int(self.line["point"])

    @property
    def name(self) -> str:
        """Whose kernel ran what."""
        return f"{self.line['implementation']} {self.line['request']}"

    @property
    def is_held(self) -> bool:
        """Whether it is held back from fitting."""
        return self.number % 3 == 2

    @property
    def is_streaming(self) -> bool:
        """Whether hardly more than the minimum was read."""
        return self.reads <= 1.03 * self.least_reads

    @property
    def is_hard(self) -> bool:
        """Whether the L2 decided what was read."""
        return self.reads > 1.05 * self.least_reads

    @property
    def scratch_stays(self) -> bool:
        """Whether less than half of what launches hand on was read from HBM."""
        handed_on = sum(t.read_bytes_min for launch in self.cost.launches for t in launch.traffic if t.role == "intermediate")
        return handed_on > 0 and self.reads - self.least_reads < handed_on / 2

    @property
    def read_error(self) -> float:
        """Relative; to the reads of cold launches where an intermediate mostly stays in the L2."""
        return abs(self.predicted_reads - self.reads) / (self.cold_reads if self.scratch_stays else self.reads)

    @property
    def write_error(self) -> float:
        """Relative; to all bytes of cold launches where an intermediate mostly stays in the L2."""
        return abs(self.predicted_writes - self.writes) / (self.cost.hbm_bytes_cold if self.scratch_stays else self.writes)

    @property
    def strict_write_error(self) -> float:
        """The same relative to the writes of cold launches."""
        return abs(self.predicted_writes - self.writes) / (self.cold_writes if self.scratch_stays else self.writes)

    def error_of(self, moved: float) -> float:
        """Relative error of ``moved`` as the HBM bytes of the point."""
        return abs(moved / (self.reads + self.writes) - 1)


def compared(path: Path, profile: Profile, mode: Mode = "steady") -> Iterator[Compared]:
    """Predict each point of ``path`` again."""
    for line in read(path):
        if line["mode"] == mode:
            yield _compared(line, profile)


def _compared(line: dict[str, Any], profile: Profile) -> Compared:
    cost = VARIANTS[line["variant"]](problem_from(line["problem"]), plan_from(line["plan"]))
    traffic, counters = hbm_traffic(cost, profile), line["counters"]
    moved = [each for launch in cost.launches for each in launch.traffic]
    inputs: dict[str, int] = {}
    for each in moved:
        if each.role == "input":
            once = each.read_bytes_min if each.tensor_bytes is None else each.tensor_bytes
            inputs[each.tensor] = max(inputs.get(each.tensor, 0), once)
    return Compared(
        line,
        cost,
        counters["hbm_read_bytes"],
        counters["hbm_write_bytes"],
        traffic.read_bytes,
        traffic.write_bytes,
        sum(inputs.values()),
        sum(each.read_bytes_min for each in moved),
        sum(each.write_bytes_min for each in moved),
    )


def quantile(sizes: Sequence[float], share: float) -> float:
    """The size that ``share`` of ``sizes`` do not pass."""
    return sorted(sizes)[ceil(share * len(sizes)) - 1]


def show(path: Path, profile: Profile) -> None:
    """One line a point, an asterisk where it is held back from fitting; then the tables of docs/traffic-model.md."""
    points = list(compared(path, profile))
    for point in points:
        print(
            f"{point.number:>4}{'*' if point.is_held else ' '}{point.line['implementation']:<20}"
            f" reads {point.reads / 1e6:>8.1f} MB, predicted {100 * (point.predicted_reads / point.reads - 1):>+6.1f} %"
            f"  writes {point.writes / 1e6:>8.2f} MB {100 * (point.predicted_writes / max(point.writes, 1) - 1):>+6.1f} %"
            f"  {point.line['request']}"
        )
    for held in (True, False):
        of = [point for point in points if point.is_held is held]
        name = "held back" if held else "fitted"
        _row(f"reads, streaming, {name}", [point.read_error for point in of if point.is_streaming])
        _row(f"reads, re-reading, {name}", [point.read_error for point in of if point.is_hard])
        _row("  of counted reads", [abs(point.predicted_reads / point.reads - 1) for point in of if point.is_hard])
        _row(f"writes, {name}", [point.write_error for point in of])
        _row("  strict", [point.strict_write_error for point in of])
        _row("  strict, from 3 MB", [point.strict_write_error for point in of if point.writes >= RESOLVED_WRITES])
    groups = {variant: [p for p in points if p.line["implementation"] == f"roofline/{variant}"] for variant in VARIANTS}
    for name, of in {**groups, "re-reading": [point for point in points if point.is_hard]}.items():
        _row(f"HBM bytes, {name}", [point.error_of(point.predicted_reads + point.predicted_writes) for point in of])
        _row("  minimum", [point.error_of(point.cost.hbm_bytes_min) for point in of])
        _row("  cold launches", [point.error_of(point.cost.hbm_bytes_cold) for point in of])
        _row("  SM side", [point.error_of(point.cost.sm_bytes) for point in of])


def _row(name: str, errors: Sequence[float]) -> None:
    if errors:
        figures = (100 * median(errors), 100 * quantile(errors, 0.9), 100 * max(errors))
        print(f"{name:<32}{len(errors):>4} points, median {figures[0]:.3g} %, p90 {figures[1]:.3g} %, worst {figures[2]:.3g} %")


def plot(path: Path, profile: Profile, picture: Path) -> None:
    """Draw HBM bytes of the model and of the three textbook counts over counted ones."""
    import plotly.graph_objects as go

    points = list(compared(path, profile))
    counted = [point.reads + point.writes for point in points]
    models = {
        "minimum": [point.cost.hbm_bytes_min for point in points],
        "cold launches": [point.cost.hbm_bytes_cold for point in points],
        "SM side": [point.cost.sm_bytes for point in points],
        "prediction": [point.predicted_reads + point.predicted_writes for point in points],
    }
    figure = go.Figure()
    for (name, moved), colour in zip(models.items(), ("#9aa5b1", "#d9a441", "#c0504d", "#1f77b4"), strict=True):
        ratio = [each / of for each, of in zip(moved, counted, strict=True)]
        size = 8 if name == "prediction" else 5
        figure.add_scatter(x=counted, y=ratio, name=name, mode="markers", marker={"color": colour, "size": size})
    figure.add_hline(y=1, line={"color": "#444", "width": 1})
    figure.update_xaxes(type="log", title="HBM bytes counted per call")
    figure.update_yaxes(type="log", title="predicted / counted", range=[-2, 2.5])
    title = f"{len(points)} points on an H200: HBM bytes over DRAM counters"
    figure.update_layout(template="plotly_white", title=title, width=1000, height=560)
    figure.write_image(picture)


def main() -> None:
    """Count, then show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="points whose options hold this word")
    parser.add_argument("--modes", nargs="*", default=["steady", "cold"])
    parser.add_argument("--plot", type=Path, metavar="PICTURE")
    arguments = parser.parse_args()
    if arguments.modes:
        count(arguments.file, arguments.modes, arguments.only)
    show(arguments.file, load("h200-sxm-141gb"))
    if arguments.plot:
        plot(arguments.file, load("h200-sxm-141gb"), arguments.plot)


if __name__ == "__main__":
    main()
