"""The L2 model against what counters of an H200 (132 SMs, 60 MiB of L2) read, within stated tolerances."""

from dataclasses import replace

import pytest

from roofline.cache import PRODUCED, REREAD, REWRITTEN, SHARED, HbmTraffic, Reuse, _touched_streams, hbm_traffic
from roofline.cost import Cost
from roofline.masks import CAUSAL, FULL, Mask
from roofline.plan import Plan
from roofline.problem import GroupedKV, LatentKV, Problem, uniform
from roofline.profiles import load
from roofline.variants import VARIANTS

H200 = load("h200-sxm-141gb")
L2 = 60 * 2**20


def predicted(variant: str, problem: Problem, d: int = 128, **more: object) -> tuple[Cost, HbmTraffic]:
    """With tiles of 128 and one CTA a SM, as the measured kernels ran."""
    q_tile = 16 if problem.is_decode else 128
    cost = VARIANTS[variant](problem, Plan("test", q_tile, 128, d, d, **more))  # type: ignore[arg-type]
    return cost, hbm_traffic(cost, H200)


def square(batch: int, heads: int, n: int, d: int = 128, mask: Mask = FULL) -> Problem:
    return Problem(heads, GroupedKV(heads, d, d), uniform(batch, n, n), mask)


def reads(traffic: HbmTraffic) -> int:
    return sum(entry.read_bytes for launch in traffic.launches for entry in launch)


def writes(traffic: HbmTraffic) -> int:
    return sum(entry.write_bytes for launch in traffic.launches for entry in launch)


def least_reads(cost: Cost) -> int:
    return sum(traffic.read_bytes_min for launch in cost.launches for traffic in launch.traffic)


@pytest.mark.parametrize(
    ("batch", "heads", "n", "mask", "measured", "tolerance"),
    [
        (4, 16, 4096, FULL, 1.00, 0.005),  # K+V of the heads in flight fit
        (4, 16, 16384, FULL, 1.02, 0.03),
        (1, 4, 65536, FULL, 3.5, 0.03),
        (1, 2, 131072, FULL, 6.0, 0.02),
        (1, 2, 131072, CAUSAL, 3.1, 0.045),
    ],
)
def test_reads_of_flash_prefill_over_their_minimum(
    batch: int, heads: int, n: int, mask: Mask, measured: float, tolerance: float
) -> None:
    cost, traffic = predicted("flash", square(batch, heads, n, mask=mask))
    assert reads(traffic) / least_reads(cost) == pytest.approx(measured, rel=tolerance)
    assert writes(traffic) == batch * heads * n * 128 * 2  # O once


def test_waves_and_the_heads_they_touch_are_integers() -> None:
    """4 heads of 512 q tiles are 2048 CTAs, 16 waves of 132; 3 of them reach into a second head: K+V of 19 heads."""
    cost, traffic = predicted("flash", square(1, 4, 65536))
    head = 2 * 65536 * 128 * 2
    (launch,), share = cost.launches, cost.launches[0].traffic[1].sharing
    assert share is not None
    assert _touched_streams(launch, share, 132) == (16, 19)
    assert reads(traffic) - 4 * 65536 * 128 * 2 == pytest.approx(19 * head, rel=0.04)  # few lines survive a wave
    assert "16 waves" in traffic.reasons[0]
    # Two CTAs a SM halve the waves: 8 waves of 264, 3 of which reach into a second head.
    assert _touched_streams(launch, share, 264) == (8, 11)


@pytest.mark.parametrize(
    ("heads", "read_mb", "write_mb"),
    [(1, 0.79, 0.28), (2, 1.6, 22), (4, 30, 68), (8, 125, 137), (16, 273, 273), (64, 1124, 1092)],
)
def test_naive_attention_keeps_in_l2_what_fits(heads: int, read_mb: float, write_mb: float) -> None:
    """n 2048, d 64: a head's S is 8.4 MB. Within 20 % of the counters, and 3 % from 16 heads on."""
    cost, traffic = predicted("naive", square(1, heads, 2048, 64), 64, passes=3)
    tolerance = 0.2 if heads < 16 else 0.03
    assert reads(traffic) == pytest.approx(read_mb * 1e6, rel=tolerance)
    assert writes(traffic) == pytest.approx(write_mb * 1e6, rel=tolerance)
    if heads == 64:  # only now the textbook count
        assert traffic.hbm_bytes == pytest.approx(cost.hbm_bytes_cold, rel=0.01)
    if heads <= 2:
        assert traffic.hbm_bytes < cost.hbm_bytes_cold / 3
        assert "S stays in L2 between its launches" in traffic.reasons


def test_decode_reads_k_and_v_once() -> None:
    """Batch 32, 8 KV heads, 8192 keys: 1073.7 MB computed, 1075.8 MB counted."""
    problem = Problem(32, GroupedKV(8, 128, 128), uniform(32, 1, 8192))
    _, traffic = predicted("split-kv", problem, splits=1, packed=True)
    k_and_v = traffic.launches[0][1].read_bytes + traffic.launches[0][2].read_bytes
    assert k_and_v == 2 * 32 * 8192 * 8 * 128 * 2 == 1_073_741_824
    assert k_and_v == pytest.approx(1075.8e6, rel=0.003)


@pytest.mark.parametrize(
    ("curve", "missed"),
    [
        (PRODUCED, {20: 0, 28: 0, 32: 0, 36: 0.3, 40: 0.9, 48: 22, 56: 44, 64: 58}),  # written, then read
        (REWRITTEN, {20: 0.1, 28: 1.6, 32: 8.7, 36: 22, 40: 34, 48: 48, 56: 56, 64: 64}),  # written over and over
    ],
)
def test_curves_of_scratch_memory_agree_with_passes_over_one_buffer(curve: Reuse, missed: dict[int, float]) -> None:
    """MB of DRAM traffic per pass over a buffer of the given MB, within 17 % of the buffer: other kernels, other points."""
    for megabytes, expected in missed.items():
        assert curve.miss(megabytes * 1e6 / L2) * megabytes == pytest.approx(expected, abs=0.17 * megabytes)


@pytest.mark.parametrize("curve", [SHARED, PRODUCED, REREAD, REWRITTEN])
def test_a_curve_grows_from_none_to_all(curve: Reuse) -> None:
    shares = [curve.miss(step / 50) for step in range(500)]
    assert shares == sorted(shares)
    assert shares[0] == curve.miss(curve.start) == 0
    assert curve.miss(curve.end) == pytest.approx(curve.miss_at_end)
    assert curve.miss(1e6) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("curve", [SHARED, PRODUCED, REREAD, REWRITTEN])
@pytest.mark.parametrize(("least", "most"), [(0.0, 0.4), (0.3, 0.7), (0.5, 1.6), (0.0, 9.0), (2.0, 2.5)])
def test_the_mean_of_a_curve_is_its_integral(curve: Reuse, least: float, most: float) -> None:
    steps = 20_000
    middle = [least + (most - least) * (step + 0.5) / steps for step in range(steps)]
    assert curve.mean_miss(least, most) == pytest.approx(sum(map(curve.miss, middle)) / steps, abs=1e-4)
    assert curve.mean_miss(most, most) == curve.miss(most)


def test_a_curve_by_hand() -> None:
    """Linear from 0 at 0.4 to 0.8 at 0.8; at twice that distance hits fall to a quarter of 0.2."""
    curve = Reuse(0.4, 0.8, 0.8, 2.0)
    assert [curve.miss(distance) for distance in (0.4, 0.6, 0.8, 1.6)] == pytest.approx([0, 0.4, 0.8, 0.95])


def test_a_window_lets_each_head_of_a_group_read_keys_again() -> None:
    """65536 tokens, 4096 keys a query: a pass over a head moves 100 MB, so four heads of a KV head read it four times."""
    problem = Problem(8, GroupedKV(2, 128, 128), uniform(1, 65536, 65536), Mask(True, 4096))
    _, traffic = predicted("flash", problem)
    k_and_v = sum(entry.read_bytes for entry in traffic.launches[0][1:3])
    assert k_and_v / (2 * 2 * 65536 * 128 * 2) == pytest.approx(4, rel=0.03)  # counted: 4.01
    short = replace(problem, lengths=uniform(8, 8192, 8192))
    assert reads(predicted("flash", short)[1]) == pytest.approx(least_reads(predicted("flash", short)[0]), rel=0.02)


def test_light_tiles_at_the_end_come_back_to_the_first_keys() -> None:
    """Hopper, causal, 16 heads of 16384: a quarter of K and V again, but for what the L2 still has of the last heads."""
    problem = square(1, 16, 16384, mask=CAUSAL)
    plan = Plan("test", 128, 128, 128, 128)
    last, first = (VARIANTS["flash"](problem, replace(plan, kernel=name)).launches[0] for name in ("hopper", None))
    share = last.traffic[1].sharing
    assert share is not None
    assert (share.order, share.light_share) == ("light-last", 0.25)
    assert share._replace(order="together", light_share=0.0) == first.traffic[1].sharing
    keys = 2 * 16 * 16384 * 128 * 2
    passed = (2 * keys + keys) * 5 / 6 / L2  # K and V twice, Q and O, since the first of six groups; nothing since the last
    again = 0.25 * SHARED.mean_miss(0, passed)
    assert 0.2 < again < 0.25
    without = share._replace(light_share=0.0)
    same = last._replace(traffic=tuple(t._replace(sharing=without) if t.sharing else t for t in last.traffic))
    extra = reads(hbm_traffic(Cost((last,)), H200)) - reads(hbm_traffic(Cost((same,)), H200))
    assert extra == pytest.approx(again * keys, rel=0.35)  # the heavy ones alone are fewer waves
    assert any("run last" in reason for reason in hbm_traffic(Cost((last,)), H200).reasons)


def test_memory_that_a_later_tensor_takes_is_counted_once() -> None:
    """Six passes: P takes the place of S, so the scratch memory of three tensors is that of two."""
    cost, traffic = predicted("naive", square(1, 1, 2048, 64), 64, passes=6)
    assert [t.buffer for launch in cost.launches for t in launch.traffic if t.tensor == "P"] == ["S", "S"]
    assert writes(traffic) == 2048 * 64 * 2  # 16.8 MB of scratch memory stay in the L2: O only


def test_partials_are_written_as_ctas_end_so_the_combine_finds_them() -> None:
    """One wave of MLA: 16.8 MB of partials behind 75 MB of cache; all that the combine reads is in the L2."""
    problem = Problem(128, LatentKV(512, 64, 128, 128), uniform(16, 1, 4096))
    plan = Plan("test", 64, 64, 576, 512, form="absorbed", splits=4, packed=True)
    cost = VARIANTS["mla"](problem, plan)
    traffic = hbm_traffic(cost, H200)
    combine = traffic.launches[-1]
    assert cost.launches[-1].name == "combine"
    assert sum(entry.read_bytes for entry in combine) == 0


def test_without_a_known_l2_every_launch_starts_cold_and_the_reason_says_so() -> None:
    cost, _ = predicted("naive", square(1, 1, 2048, 64), 64, passes=3)
    traffic = hbm_traffic(cost, replace(H200, l2_bytes=None))
    assert traffic.hbm_bytes == cost.hbm_bytes_cold
    assert traffic.reasons == ("the L2 size of this device is unknown: every launch is counted from a cold cache",)


def test_an_infinite_cache_moves_the_minimum() -> None:
    for variant, more in (("naive", {"passes": 3}), ("flash", {}), ("split-kv", {"splits": 8, "packed": True})):
        cost, _ = predicted(variant, square(1, 8, 2048), **more)
        assert hbm_traffic(cost, replace(H200, l2_bytes=2**50)).hbm_bytes == cost.hbm_bytes_min


def test_without_a_known_sm_count_there_are_no_waves_to_count() -> None:
    cost, _ = predicted("flash", square(1, 4, 65536))
    assert hbm_traffic(cost, replace(H200, sm_count=None)).hbm_bytes == cost.hbm_bytes_min
