import json

import pytest

from roofline.configurations import Request
from roofline.errors import RooflineError
from roofline.measure.calibrate import PROBES, calibrate, ceilings, details, details_path, evaluate
from roofline.measure.clocks import REASONS
from roofline.measure.options import Options
from roofline.measure.session import measure
from roofline.profiles.local import Gpu
from roofline.profiles.profile import CEILING_UNITS
from roofline.profiles.store import read
from roofline.records import read as read_run
from tests.measure.test_supervisor import FAKE_WORKER

READ = PROBES[0]
LAUNCH = next(probe for probe in PROBES if probe.ceiling == "launch_s")


def way(seconds: list[float], work: float = 1.0, **fields: object) -> dict:
    return {"how": "", "work": work, "samples": seconds, "clock_hz": 1.98e9, "power_w": 400.0, "reasons": 0, **fields}


def test_every_ceiling_has_the_unit_of_the_profile() -> None:
    for probe in PROBES:
        if probe.ceiling is not None:
            assert probe.unit == CEILING_UNITS[probe.ceiling]
    named = [probe.ceiling for probe in PROBES if probe.ceiling]
    assert len(named) == len(set(named))


def test_the_ceiling_is_what_the_fastest_tenth_of_the_fastest_way_reaches() -> None:
    slow, fast = way([1.0] * 10, 4.0, how="slow"), way([0.9, *[1.0] * 9, 1.1], 5.0, how="fast")
    probed = evaluate(READ, {"ways": [slow, fast]})
    assert probed.how == "fast"
    assert probed.value == pytest.approx(5.0)
    assert probed.median == pytest.approx(5.0)
    assert probed.spread == pytest.approx(0.0)
    wide = evaluate(READ, {"ways": [way([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0], 2.2)]})
    assert wide.value == pytest.approx(2.0)
    assert wide.spread == pytest.approx(0.8 / 1.5)


def test_a_time_is_not_turned_into_a_rate() -> None:
    assert evaluate(LAUNCH, {"ways": [way([1.2e-6] * 10)]}).value == pytest.approx(1.2e-6)


def test_heat_is_flagged_and_a_power_cap_is_not() -> None:
    hot = evaluate(READ, {"ways": [way([1.0], reasons=REASONS["thermal slowdown (hardware)"])]})
    capped = evaluate(READ, {"ways": [way([1.0], reasons=REASONS["power cap"])]})
    assert (hot.spoilt, capped.spoilt) == (True, False)
    assert capped.throttle_reasons == ("power cap",)


def test_sources_say_how_a_ceiling_was_measured() -> None:
    probed = evaluate(READ, {"ways": [way([1e-3] * 10, 4.6e9, how="4 CTAs a SM")], "sustained": 4.5e12})
    (ceiling,) = ceilings([probed]).values()
    assert ceiling.kind == "measured"
    for part in ("HBM read, 4 CTAs a SM", "spread 0 %", "at 1.98 GHz", "400 W", "sustained 4.50 TB/s"):
        assert part in ceiling.source


def test_ceilings_are_kept_apart_from_the_data_sheet(gpu: Gpu) -> None:
    told: list[str] = []
    done = calibrate(listener=told.append, worker=FAKE_WORKER)
    overlay = read(gpu.uuid)
    assert overlay is not None
    assert overlay.measured["hbm_bytes_per_s"].value == pytest.approx(4.6e12, rel=1e-3)
    assert overlay.measured["cta_read_bytes_per_s"].value == pytest.approx(4.6e12, rel=1e-3)
    assert overlay.measured["launch_s"].value == pytest.approx(1.2e-6, rel=1e-2)
    assert done.profile.datasheet["hbm_bytes_per_s"].value == 4.8e12
    assert done.path.exists()
    assert len(told) == len(PROBES)


def test_a_probe_that_breaks_costs_its_own_ceiling(gpu: Gpu) -> None:
    done = calibrate(worker=FAKE_WORKER)
    assert "fp8_flop_per_s" not in done.profile.measured
    assert "exp_per_s" not in done.profile.measured
    assert "bf16_flop_per_s" in done.profile.measured
    assert any(note == "matmul fp8: no value: RuntimeError: no fp8 here" for note in done.notes)
    assert any(note.startswith("exponentials: no value: the worker was killed by SIGSEGV") for note in done.notes)


def test_curves_and_spreads_are_kept_and_go_into_the_header_of_a_run(gpu: Gpu) -> None:
    calibrate(worker=FAKE_WORKER)
    kept = json.loads(details_path(gpu).read_text())
    assert kept["uuid"] == gpu.uuid
    names = [probe["name"] for probe in details(gpu)]
    assert {"read of 8 MB", "read of 4096 MB", "read by 8 CTAs"} <= set(names)
    options = Options(request=Request(n=64, variants=("chunked",)), counters="off", worker=FAKE_WORKER)
    header = read_run(measure(options).path).header
    assert header.environment["calibration"] == details(gpu)


def test_nothing_at_all_is_an_error(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roofline.measure.calibrate.PROBES", tuple(p for p in PROBES if p.operation == "exp"))
    with pytest.raises(RooflineError, match="no probe worked: the worker was killed"):
        calibrate(worker=FAKE_WORKER)
