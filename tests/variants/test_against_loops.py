"""Every tiled variant against the slow counts of ``tests/counting.py`` on small problems of all kinds."""

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.cost import Cost
from roofline.masks import FULL, Mask
from roofline.plan import Plan
from roofline.problem import Problem
from roofline.variants import VARIANTS
from tests import counting

masks = st.one_of(st.just(FULL), st.just(Mask(True)), st.integers(1, 14).map(lambda window: Mask(True, window)))


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    kv_heads = draw(st.integers(1, 2))
    return counting.grouped(
        kv_heads * draw(st.integers(1, 3)),
        kv_heads,
        draw(st.sampled_from([4, 12, 16, 40])),
        draw(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 11)), min_size=1, max_size=3)),
        draw(masks),
        dv=draw(st.sampled_from([4, 24])),
        dtype=draw(st.sampled_from(["fp32", "bf16"])),
        kv_dtype=draw(st.sampled_from([None, "fp16"])),
    )


def plan(q_tile: int, kv_tile: int, **more: int | bool) -> Plan:
    return Plan("test", q_tile, kv_tile, 64, 32, **more)  # type: ignore[arg-type]


def traffic_of(cost: Cost) -> dict[str, counting.Bytes]:
    """Bytes by tensor, over all launches."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for launch in cost.launches:
        for t in launch.traffic:
            for index, value in enumerate((t.read_bytes_min, t.write_bytes_min, t.sm_read_bytes, t.sm_write_bytes)):
                sums[t.tensor][index] += value
    return {tensor: counting.Bytes(*values) for tensor, values in sums.items()}


tile = st.integers(1, 7)


@settings(max_examples=150, deadline=None)
@given(problem=problems(), q_tile=tile, kv_tile=tile)
def test_flash(problem: Problem, q_tile: int, kv_tile: int) -> None:
    cost = VARIANTS["flash"](problem, plan(q_tile, kv_tile))
    traffic, work = counting.flash(problem, plan(q_tile, kv_tile))
    (launch,) = cost.launches
    assert traffic_of(cost) == traffic
    assert {name: getattr(launch, name) for name in work} == work
    assert cost.workspace_bytes == 0


@settings(max_examples=300, deadline=None)
@given(problem=problems(), q_tile=tile, kv_tile=tile, splits=st.integers(1, 6), fused=st.booleans())
def test_split_kv(problem: Problem, q_tile: int, kv_tile: int, splits: int, fused: bool) -> None:
    launched = plan(q_tile, kv_tile, splits=splits, packed=True, fused=fused)
    cost = VARIANTS["split-kv"](problem, launched)
    traffic, work = counting.split_kv(problem, launched)
    assert traffic_of(cost) == traffic
    assert cost.workspace_bytes == work.pop("workspace")
    assert {name: getattr(cost.launches[0], name) for name in work} == work
    assert len(cost.launches) == (1 if splits == 1 or fused else 2)


@settings(max_examples=150, deadline=None)
@given(problem=problems(), q_tile=tile, kv_tile=tile, passes=st.sampled_from([3, 6]))
def test_naive(problem: Problem, q_tile: int, kv_tile: int, passes: int) -> None:
    launched = plan(q_tile, kv_tile, passes=passes)
    cost = VARIANTS["naive"](problem, launched)
    traffic, work = counting.naive(problem, launched)
    assert traffic_of(cost) == traffic
    assert (cost.launches[0].ctas, cost.launches[-1].ctas) == (work["score_ctas"], work["value_ctas"])
    assert (cost.flops, cost.flops_executed, cost.workspace_bytes) == (
        work["flops"],
        work["flops_executed"],
        work["workspace"],
    )


@settings(max_examples=300, deadline=None)
@given(problem=problems(), q_tile=tile, kv_tile=tile, q_chunk=st.integers(1, 9), kv_chunk=st.integers(1, 9))
def test_chunked(problem: Problem, q_tile: int, kv_tile: int, q_chunk: int, kv_chunk: int) -> None:
    launched = plan(q_tile, kv_tile, q_chunk=q_chunk, kv_chunk=kv_chunk)
    cost = VARIANTS["chunked"](problem, launched)
    traffic, work = counting.chunked(problem, launched)
    assert traffic_of(cost) == traffic
    assert [launch.count for launch in cost.launches] == [work["launches"]] * 3
    assert (cost.flops, cost.flops_executed, cost.workspace_bytes) == (
        work["flops"],
        work["flops_executed"],
        work["workspace"],
    )
