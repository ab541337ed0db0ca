import json

import pytest

from roofline.configurations import Request, configurations
from roofline.errors import InputError
from roofline.fields import plan_from, problem_from
from roofline.measure import suites
from roofline.measure.cases import cases
from roofline.measure.verdicts import complete, verdicts
from roofline.peers import PEERS, named, of_variant
from roofline.profiles.load import load
from roofline.profiles.profile import Ceiling
from roofline.records import Prediction
from tests.records.example import measurement

PROFILE = load("h200-sxm-141gb")


@pytest.mark.parametrize("name", suites.SUITES)
def test_a_suite_has_no_point_twice_and_can_be_predicted(name: str) -> None:
    found = suites.suite(name)
    for group in cases(found, PROFILE, tuple(PEERS)):
        assert len({case.configuration.problem for case in group}) == 1
        keys = [(case.configuration.name, case.implementation, case.configuration.choices) for case in group]
        assert len(keys) == len(set(keys))
        for case in group:
            Prediction.model_validate(case.prediction)


def test_suites_grow() -> None:
    quick, default, full = (suites.suite(name) for name in ("quick", "default", "full"))
    assert all(one in default for one in quick)
    assert all(one in full for one in default)
    assert (len(quick), len(default)) == (17, 27)


def test_cases_survive_the_way_to_the_worker() -> None:
    for group in cases(suites.suite("full"), PROFILE):
        for case in group:
            sent = json.loads(json.dumps({**case.wire(), "problem": case.fields()["problem"]}))
            assert problem_from(sent["problem"]) == case.configuration.problem
            assert plan_from(sent["plan"]) == case.result.plan


def test_a_peer_stands_beside_the_variant_that_moves_bytes_as_it_does() -> None:
    groups = cases(configurations(Request(n=2048, phase="decode")), PROFILE, tuple(PEERS))
    mha = next(group for group in groups if group[0].configuration.name == "mha/naive")
    beside = {case.implementation: case.configuration.name for case in mha if not case.is_ours}
    assert beside["torch/math"] == "mha/naive"
    assert beside["torch/flash"] == beside["fa3/fwd"] == "mha/split-kv"
    assert {case.implementation for case in mha if case.is_ours} >= {"roofline/naive", "roofline/flash", "roofline/split-kv"}


def test_peers_are_chosen_by_name() -> None:
    assert named(["torch/cudnn"]) == ("torch/cudnn",)
    assert named(["flashinfer", "fa3/fwd"]) == ("fa3/fwd", "flashinfer/prefill", "flashinfer/paged")
    with pytest.raises(InputError, match="--peers: unknown peer 'fa4'; expected some of torch/flash"):
        named(["fa4"])
    groups = cases(configurations(Request(n=64, variants=("flash",), phase="prefill")), PROFILE, ("fa3/fwd",))
    assert {case.implementation for group in groups for case in group} == {"roofline/flash", "fa3/fwd"}


def test_every_peer_stands_for_some_variant() -> None:
    assert of_variant("paged", "decode") == ("flashinfer/paged",)
    assert of_variant("mla", "prefill") == ()
    assert all(peer.prefill or peer.decode for peer in PEERS.values())


def only_case(request: Request, profile=PROFILE):
    return cases(configurations(request), profile)[0][0]


DECODE = only_case(Request(n=8192, batch=32, phase="decode", variants=("split-kv",)))


def told(median: float, case=DECODE, profile=PROFILE, counted=None, **fields) -> str:
    sent = {"clock_hz": 1.98e9, "all_throttled": False, **measurement(median), **fields}
    return "; ".join(verdicts(case, sent, profile, counted))


def test_a_warm_point_above_the_hbm_roof_is_served_by_l2() -> None:
    from dataclasses import replace

    calibrated = replace(PROFILE, measured={"hbm_bytes_per_s": Ceiling(4.6e12, "measured", "calibrate")})
    seconds = DECODE.prediction["hbm_bytes_min"] / 4.6e12
    assert told(seconds * 1.001, profile=calibrated) == ""
    assert "served by L2" in told(seconds * 0.5, profile=calibrated, l2="warm")
    assert "calibrate again" in told(seconds * 0.9, profile=calibrated)
    case = only_case(Request(n=8192, batch=32, phase="decode", variants=("split-kv",)), calibrated)
    assert "faster than its prediction" in told(seconds * 0.9, case, calibrated)


def test_a_peer_is_held_to_what_the_problem_alone_demands() -> None:
    from dataclasses import replace

    calibrated = replace(PROFILE, measured={"hbm_bytes_per_s": Ceiling(4.6e12, "measured", "calibrate")})
    request = Request(kv_len=4096, q_len=8, variants=("split-kv",), phase="decode")
    ours, peer = cases(configurations(request), calibrated, ("torch/flash",))[0]
    least = peer.prediction["time_measured_roof_s"]
    assert least == pytest.approx(peer.prediction["hbm_bytes_min"] / 4.6e12)
    assert least <= ours.prediction["time_measured_roof_s"]
    assert told(least, peer, calibrated) == ""
    assert "faster than its prediction" in told(least * 0.98, peer, calibrated)
    assert cases(configurations(request), PROFILE)[0][0].prediction["time_measured_roof_s"] is None


def test_one_cta_reads_no_faster_than_was_measured() -> None:
    from dataclasses import replace

    rates = {"hbm_bytes_per_s": 4.6e12, "cta_read_bytes_per_s": 1.46e11}
    calibrated = replace(PROFILE, measured={key: Ceiling(rate, "measured", "calibrate") for key, rate in rates.items()})
    case = only_case(Request(n=2048, heads=1, kv_heads=1, variants=("flash",), phase="decode"), calibrated)
    assert [launch["ctas"] for launch in case.prediction["launches"]] == [1]
    assert case.prediction["time_measured_roof_s"] == pytest.approx(case.prediction["hbm_bytes"] / 1.46e11)


def test_a_point_that_could_not_be_captured_says_so() -> None:
    assert "cannot be captured in a graph" in told(1e-3, method="events")


def test_more_flops_than_the_clock_allows_is_an_error_in_the_count() -> None:
    prefill = only_case(Request(n=4096, phase="prefill", variants=("flash",)))
    peak = 132 * 4096 * 1.755e9
    seconds = prefill.prediction["flops"] / peak
    assert told(seconds * 1.2, prefill, clock_hz=1.755e9) == ""
    assert "an error in the count" in told(seconds * 0.9, prefill, clock_hz=1.755e9)


def test_counted_flops_that_differ_are_said() -> None:
    counted = {"tensor_flops": float(DECODE.prediction["flops_executed"])}
    assert told(1e-3, counted=counted) == ""
    assert "tensor FLOPs, predicted" in told(1e-3, counted={"tensor_flops": 1.0})
    recurrent = only_case(Request(n=2048, phase="decode", variants=("linear/recurrent",)))
    assert told(1e-3, recurrent, counted={"tensor_flops": 0.0}) == ""  # it runs on the vector units


def test_bandwidth_says_which_bytes_it_is_of() -> None:
    predicted = complete(measurement(1e-3), DECODE)
    assert predicted["hbm_bytes_source"] == "predicted"
    counted = complete(measurement(1e-3), DECODE, {"hbm_read_bytes": 3e9, "hbm_write_bytes": 1e9})
    assert (counted["hbm_bytes_per_s"], counted["hbm_bytes_source"]) == (4e12, "counted")
