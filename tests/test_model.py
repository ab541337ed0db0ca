"""The roofline model on a device with round numbers: 100 SMs, 1 PFLOP/s, 1 TB/s."""

from dataclasses import replace

import pytest

from roofline.cost import Cost, Launch, Traffic
from roofline.dtypes import DTYPES
from roofline.errors import RooflineError
from roofline.model import Prediction, predict
from roofline.profiles import Ceiling, Profile

BF16, FP32 = DTYPES["bf16"], DTYPES["fp32"]
RATES = {
    "hbm_bytes_per_s": 1e12,
    "bf16_flop_per_s": 1e15,
    "fp32_flop_per_s": 1e14,
    "exp_per_s": 1e12,
    "vector_op_per_s": 1e13,
}


def device(**more: float | None) -> Profile:
    """The device, with other data-sheet rates; ``None`` leaves one out."""
    rates = {key: value for key, value in {**RATES, **more}.items() if value is not None}
    datasheet = {key: Ceiling(value, "datasheet", "test") for key, value in rates.items()}
    return Profile("test", "Test", "Test", "test", "0.0", sm_count=100, l2_bytes=2**30, datasheet=datasheet)


def launch(
    hbm: int = 0, flops: int = 0, executed: int | None = None, exp: int = 0, vector: int = 0, ctas: int = 100, count: int = 1
) -> Launch:
    traffic = (Traffic("Q", "input", hbm, 0, hbm),)
    return Launch("test", ctas, traffic, flops, flops if executed is None else executed, exp, vector, count)


def predicted(*launches: Launch, profile: Profile | None = None, **more: object) -> Prediction:
    return predict(Cost(launches), profile or device(), more.pop("dtype", BF16), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("work", "bound", "time_s"),
    [
        ({"hbm": 10**9}, "hbm", 1e-3),
        ({"flops": 10**12}, "tensor", 1e-3),
        ({"exp": 10**9}, "exp", 1e-3),
        ({"vector": 10**10}, "vector", 1e-3),
        ({"hbm": 10**9, "flops": 10**11, "exp": 10**8, "vector": 10**9}, "hbm", 1e-3),
        ({"hbm": 10**8, "flops": 10**12, "exp": 10**8, "vector": 10**9}, "tensor", 1e-3),
    ],
)
def test_the_unit_that_takes_longest_is_the_bound(work: dict[str, int], bound: str, time_s: float) -> None:
    prediction = predicted(launch(**work))
    assert prediction.bound == bound
    assert prediction.time_s == pytest.approx(time_s)


def test_launches_add_up_and_the_largest_share_binds() -> None:
    prediction = predicted(launch(hbm=3 * 10**9), launch(flops=2 * 10**12), launch(flops=2 * 10**12))
    assert prediction.time_s == pytest.approx(7e-3)
    assert prediction.bound == "tensor"  # 4 ms of 7, although the longest launch is HBM's
    assert prediction.launch_bounds == ("hbm", "tensor", "tensor")
    assert prediction.launch_times_s == pytest.approx((3e-3, 2e-3, 2e-3))


def test_time_uses_executed_flops_and_intensity_useful_ones() -> None:
    prediction = predicted(launch(hbm=10**8, flops=10**12, executed=2 * 10**12))
    assert prediction.time_s == pytest.approx(2e-3)
    assert prediction.levels["hbm"].intensity == 10**4


def test_ridge_is_peak_over_bandwidth() -> None:
    hbm = predicted(launch(hbm=10**9, flops=10**9)).levels["hbm"]
    assert (hbm.work, hbm.ceiling, hbm.ridge, hbm.intensity, hbm.time_s) == (10**9, 1e12, 1000, 1.0, 1e-3)


def test_few_ctas_get_their_share_of_the_sms() -> None:
    # 10 of 100 SMs: 1e12 FLOP take 10 ms instead of 1. With all SMs the HBM, 2 ms, would be the limit.
    prediction = predicted(launch(hbm=2 * 10**9, flops=10**12, ctas=10))
    assert prediction.time_s == pytest.approx(10e-3)
    assert prediction.bound == "parallelism"
    assert prediction.sms_used == 10


def test_a_part_of_the_sms_can_still_read_all_of_hbm_where_the_rate_of_a_cta_is_unknown() -> None:
    prediction = predicted(launch(hbm=10**9, ctas=1))
    assert (prediction.bound, prediction.time_s) == ("hbm", pytest.approx(1e-3))


def test_few_ctas_read_no_faster_than_each_alone() -> None:
    profile = device(cta_read_bytes_per_s=2e10)
    prediction = predicted(launch(hbm=10**9, ctas=5), profile=profile)
    assert prediction.time_s == pytest.approx(10**9 / (5 * 2e10))
    assert prediction.bound == "parallelism"
    full = predicted(launch(hbm=10**9, ctas=100), profile=profile)  # 100 x 20 GB/s pass what HBM gives
    assert (full.bound, full.time_s) == ("hbm", pytest.approx(1e-3))


def test_more_ctas_than_sms_are_no_faster_and_one_a_sm_may_use_all_of_it() -> None:
    assert predicted(launch(flops=10**12, ctas=5000)).time_s == pytest.approx(1e-3)
    # A plan that fits two CTAs on an SM spreads 100 of them over all 100 SMs: half the peak would be no lower bound.
    two = launch(flops=10**12, ctas=100)._replace(ctas_per_sm=2)
    assert predicted(two).time_s == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("key", "work", "level"),
    [
        ("exp_per_s", {"exp": 10**15, "hbm": 10**9}, "exp"),
        ("vector_op_per_s", {"vector": 10**15, "hbm": 10**9}, "vector"),
        ("bf16_flop_per_s", {"flops": 10**15, "hbm": 10**9}, "tensor"),
    ],
)
def test_an_unknown_ceiling_never_binds_and_is_named(key: str, work: dict[str, int], level: str) -> None:
    prediction = predicted(launch(**work), profile=device(**{key: None}))
    assert (prediction.bound, prediction.time_s) == ("hbm", pytest.approx(1e-3))
    assert prediction.units[level].time_s is None
    assert prediction.units[level].ceiling is None
    assert level in prediction.unknown


def test_an_unknown_bandwidth_leaves_the_time_of_the_flops() -> None:
    prediction = predicted(launch(hbm=10**12, flops=10**12), profile=device(hbm_bytes_per_s=None))
    assert (prediction.bound, prediction.time_s) == ("tensor", pytest.approx(1e-3))
    hbm = prediction.levels["hbm"]
    assert (hbm.work, hbm.time_s, hbm.ridge) == (10**12, None, None)
    assert prediction.unknown[0] == "hbm"


def test_the_l2_level_is_not_modelled_and_says_null() -> None:
    l2 = predicted(launch(hbm=10**9)).levels["l2"]
    assert (l2.work, l2.ceiling, l2.time_s, l2.intensity, l2.ridge) == (None, None, None, None, None)


def test_launch_overhead_counts_every_launch() -> None:
    profile = device(launch_s=5e-6)
    prediction = predicted(launch(hbm=10**9, count=1000), profile=profile)
    assert prediction.time_s == pytest.approx(1e-3 + 1000 * 5e-6)
    assert prediction.bound == "launch"
    assert prediction.units["launch"].time_s == pytest.approx(5e-3)
    unknown = predicted(launch(hbm=10**9))
    assert "launch" in unknown.unknown
    assert unknown.units["launch"].time_s is None


def test_ieee_fp32_runs_on_the_vector_units_with_the_softmax() -> None:
    prediction = predicted(launch(flops=10**11, vector=10**10), dtype=FP32)
    assert prediction.time_s == pytest.approx(1e-3 + 1e-3)
    assert prediction.bound == "vector"
    assert prediction.units["tensor"].work == 0
    assert prediction.levels["hbm"].ridge == 100


def test_an_unknown_fp32_rate_is_named_too() -> None:
    prediction = predicted(launch(hbm=10**9, flops=10**15), dtype=FP32, profile=device(fp32_flop_per_s=None))
    assert (prediction.bound, prediction.time_s) == ("hbm", pytest.approx(1e-3))
    assert "vector" in prediction.unknown
    assert prediction.units["vector"].time_s is None


def test_tf32_is_a_tensor_dtype_of_its_own() -> None:
    profile = device(tf32_flop_per_s=5e14)
    assert predicted(launch(flops=10**12), dtype=DTYPES["tf32"], profile=profile).time_s == pytest.approx(2e-3)


def test_the_measured_roof_replaces_what_was_measured_only() -> None:
    profile = replace(device(), measured={"hbm_bytes_per_s": Ceiling(5e11, "measured", "copy")})
    work = launch(hbm=10**9, flops=10**11)
    assert predicted(work, profile=profile).time_s == pytest.approx(1e-3)
    measured = predicted(work, profile=profile, roof="measured")
    assert measured.time_s == pytest.approx(2e-3)
    assert measured.levels["hbm"].ridge == 2000
    assert measured.units["tensor"].ceiling == 1e15


def test_a_measured_roof_above_the_data_sheet_is_cut_at_the_speed_of_light() -> None:
    profile = replace(device(), measured={"hbm_bytes_per_s": Ceiling(2e12, "measured", "copy")})
    assert predicted(launch(hbm=10**9), profile=profile, roof="measured").time_s == pytest.approx(1e-3)


def test_a_time_below_the_speed_of_light_is_an_error() -> None:
    """A cost that claims more useful than executed FLOPs, and fewer bytes than its minimum, is refused."""
    split = Cost((Launch("test", 100, (Traffic("Q", "input", 10**6, 0, 10**6, tensor_bytes=10**9),)),))
    with pytest.raises(RooflineError, match="faster than the speed of light"):
        predict(split, device(), BF16)


def test_the_convention_of_flops_changes_no_time() -> None:
    exact, full = (predict(Cost((launch(hbm=10**6, flops=10**12),)), device(), BF16, flops=f) for f in (None, 2 * 10**12))
    assert exact.time_s == full.time_s
    assert full.levels["hbm"].intensity == 2 * exact.levels["hbm"].intensity  # type: ignore[operator]


def test_without_launches_there_is_no_time() -> None:
    prediction = predict(Cost(()), device(), BF16)
    assert (prediction.time_s, prediction.sms_used) == (0.0, None)
