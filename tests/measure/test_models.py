"""``measure --model`` without a GPU: which configurations it asks for, what it refuses, and that a run holds them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from roofline import options
from roofline.errors import InputError
from roofline.measure.cases import cases
from roofline.measure.models import layers_note, model_configurations
from roofline.measure.options import Options
from roofline.measure.session import measure
from roofline.models import analyze_model, load_model, shipped_models
from roofline.problem import LatentKV
from roofline.profiles import local
from roofline.profiles.load import load
from roofline.profiles.local import Gpu
from roofline.records import read
from tests.command_line import runner
from tests.measure.test_supervisor import FAKE_WORKER

H200 = load("h200-sxm-141gb")
MAMBA = {"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 2, "state_size": 16, "vocab_size": 100}


def parsed(**texts: str) -> Options:
    empty = {option.parameter: False if option.kind == "flag" else None for option in options.PROBLEM_OPTIONS}
    wanted, _ = options.measure_options({**empty, "model": None, **texts}, None, None, "off", "cold")
    assert isinstance(wanted, Options)
    return wanted


def test_the_attention_of_a_model_by_kind_and_phase() -> None:
    """Gemma 3 27B: 32 query heads on 16 KV heads of 128, windows of 1024 and full reach."""
    found = parsed(model="gemma-3-27b", n="8k", batch="2").configurations()
    assert [(each.name, each.phase, each.choices.decode) for each in found] == [
        ("gemma-3-27b/window 1024/flash", "prefill", False),
        ("gemma-3-27b/full/flash", "prefill", False),
        ("gemma-3-27b/window 1024/split-kv", "decode", True),
        ("gemma-3-27b/full/split-kv", "decode", True),
    ]
    for each in found:
        (lengths,) = each.problem.lengths
        assert (each.problem.q_heads, each.problem.kv.heads, each.problem.kv.head_dim) == (32, 16, 128)  # type: ignore[union-attr]
        assert (lengths.q_len, lengths.kv_len, lengths.count) == (8192 if each.phase == "prefill" else 1, 8192, 2)
        assert each.problem.mask.window == (1024 if "window" in each.name else None)


def test_options_of_a_model_reach_the_problems() -> None:
    (found,) = parsed(model="llama-3-8b", phase="decode", dtype="fp16", kv_dtype="fp8", page_size="64").configurations()
    assert (found.name, found.variant, found.phase) == ("llama-3-8b/full/split-kv", "split-kv", "decode")
    assert (found.problem.dtype.name, found.problem.kv_dtype.name, found.problem.page_size) == ("fp16", "fp8", 64)
    (latent,) = parsed(model="deepseek-v2", phase="prefill").configurations()
    assert (latent.variant, isinstance(latent.problem.kv, LatentKV)) == ("mla", True)
    assert [lengths.kv_len for lengths in latent.problem.lengths] == [2048]
    assert not parsed(n="4k").chosen


@pytest.mark.parametrize("name", shipped_models())
def test_what_is_measured_is_what_the_analysis_predicts(name: str) -> None:
    analysis = analyze_model(load_model(name), H200, 4096)
    found = model_configurations(load_model(name), 4096)
    assert [(each.problem, each.variant) for each in found] == [(each.problem, each.variant) for each in analysis.problems]
    made = [case for group in cases(found, H200) for case in group]
    times = {(case.configuration.phase, case.configuration.name.split("/")[-2]): case.result.prediction.time_s for case in made}
    for each in analysis.attention:
        assert times[each.phase, each.kind] * each.layers == pytest.approx(each.time_s)


def test_points_of_a_path_are_named_by_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps({"model_type": "mistral", "num_hidden_layers": 3}))
    monkeypatch.chdir(tmp_path / "mine")
    for given in ("../mine", "config.json", str(tmp_path / "mine"), str(tmp_path / "mine" / "config.json"), "."):
        (made,) = model_configurations(load_model(given), 512, phases=("decode",))
        assert made.name == "mine/window 4096/split-kv"


def test_hybrids_say_what_is_left_out() -> None:
    note = layers_note(load_model("qwen3-next-80b-a3b"))
    assert note == (
        "qwen3-next-80b-a3b: times are of one layer of each kind (12 × full); not measured: 36 × linear (gated-delta)"
    )


def test_a_run_holds_the_points_of_the_model(gpu: Gpu) -> None:
    chosen = tuple(model_configurations(load_model("llama-4-scout"), 10240))
    wanted = Options(chosen=chosen, counters="off", calibrate=False, output=Path("run.jsonl"), worker=FAKE_WORKER)
    result = measure(wanted)
    points = [(each.configuration, each.implementation, each.status) for each in read(result.path).records]
    assert points == [
        (f"llama-4-scout/{kind}/{variant}", f"roofline/{variant}", "ok")
        for variant in ("flash", "split-kv")
        for kind in ("chunk 8192", "full")
    ]
    assert measure(replace(wanted, output=None, resume=result.path)).records == ()


@pytest.fixture
def roofline(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.setattr(local, "_nvml", _no_nvml)
    monkeypatch.setenv("ROOFLINE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)

    return runner(monkeypatch, capsys)


def _no_nvml() -> object:
    raise ImportError("no driver here")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--heads 8", "--heads"), ("--d 64", "--d "), ("--window 512", "--window"), ("--causal", "--causal"),
        ("--variants flash", "--variants"), ("--kv-lens 4,5", "--kv-lens"), ("--q-len 4", "--q-len"),
        ("--suite quick", "--suite"),
        ("--decode --phase prefill", "--decode"), ("--phase train", "--phase"), ("--n 1k,2k", "--n"), ("--n 0", "--n"),
        ("--batch 99999999999", "--batch"), ("--page-size 0", "--page-size"), ("--dtype int4", "--dtype"),
        ("--kv-dtype q4", "--kv-dtype"), ("--weight-dtype fp8", "--weight-dtype"), ("--reserve 8GiB", "--reserve"),
    ],
)  # fmt: skip
def test_what_contradicts_a_model_is_one_line(
    roofline: Callable[..., tuple[int, str, str]], arguments: str, named: str
) -> None:
    code, out, err = roofline("measure", "--model", "llama-3-8b", *arguments.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert named in err


def test_a_model_without_attention_or_a_gpu_is_one_line(roofline: Callable[..., tuple[int, str, str]]) -> None:
    Path("config.json").write_text(json.dumps(MAMBA))
    code, out, err = roofline("measure", "--model", "config.json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "no layer has attention that a kernel here runs (its layers: state space (" in err
    with pytest.raises(InputError, match="no layer has attention"):
        model_configurations(load_model("config.json"), 2048)
    code, out, err = roofline("measure", "--model", "gpt2")
    assert (code, out) == (3, "")
    assert err.splitlines()[0] == "roofline: gpt2: times are of one layer of each kind (12 × full)"
