"""``import roofline`` in a notebook: the same numbers as the command line, as objects and DataFrames."""

import csv
import io
import json
import sys
from typing import Any

import pytest

import roofline
from roofline import cli
from roofline.errors import InputError
from roofline.models import load_model
from roofline.profiles import load


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(line: str) -> str:
        monkeypatch.setattr(sys, "argv", ["roofline", *line.split()])
        with pytest.raises(SystemExit):
            cli.main()
        return capsys.readouterr().out

    return run


def test_analyze_has_the_numbers_of_the_command_line(command: Any) -> None:
    line = "analyze --n 8k --d 64 --causal --batch 4 --kv-dtype fp8 --page-size 32 --device l4"
    result = roofline.analyze(n=8192, d=64, causal=True, batch=4, kv_dtype="fp8", page_size=32, device="l4")
    assert roofline.document(result) == json.loads(command(f"{line} --json"))
    rows = list(csv.DictReader(io.StringIO(command(f"{line} --csv"))))
    frame = roofline.to_frame(result)
    assert list(frame.columns) == list(rows[0])
    assert frame["hbm_bytes"].tolist() == [int(row["hbm_bytes"]) for row in rows]
    assert frame["time_s"].tolist() == [float(row["time_s"]) for row in rows]


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("--kv-lens 512,2k --variants paged", {"kv_lens": [512, 2048], "variants": ["paged"]}),
        ("--window 512 --dtype fp16 --heads 8", {"window": 512, "dtype": "fp16", "heads": 8}),
        ("--tile 64x32 --variants flash --phase prefill", {"tile": (64, 32), "variants": ["flash"], "phase": "prefill"}),
        ("--latent-dim 256 --rope-dim 32 --mla-projections", {"latent_dim": 256, "rope_dim": 32, "mla_projections": True}),
        ("--flop-convention half --causal --splits 4", {"flop_convention": "half", "causal": True, "splits": 4}),
        ("--naive-passes 6 --chunk 512x512 --layers 3", {"naive_passes": 6, "chunk": (512, 512), "layers": 3}),
        ("--max-len 4k --shared-prefix 64 --batch 2", {"max_len": 4096, "shared_prefix": 64, "batch": 2}),
        ("--q-len 4 --kv-len 4k --dv 64 --kv-heads 4", {"q_len": 4, "kv_len": 4096, "dv": 64, "kv_heads": 4}),
    ],
)
def test_every_option_is_an_argument(command: Any, line: str, arguments: dict[str, Any]) -> None:
    printed = json.loads(command(f"analyze --device l4 --json {line}"))
    assert roofline.document(roofline.analyze(device="l4", **arguments)) == printed


def test_a_device_without_bf16_uses_fp16_here_too(command: Any) -> None:
    document = roofline.document(roofline.analyze(device="t4"))
    assert document["results"] == json.loads(command("analyze --device t4 --json"))["results"]


def test_analyze_model_has_the_numbers_of_the_command_line(command: Any) -> None:
    line = "analyze --model mixtral-8x7b --n 4k --batch 8 --weight-dtype int4 --reserve 4GiB --device h100-sxm5-80gb"
    options: dict[str, Any] = {"n": 4096, "batch": 8, "weight_dtype": "int4", "reserve_bytes": 4 * 2**30}
    result = roofline.analyze_model("mixtral-8x7b", "h100-sxm5-80gb", **options)
    assert roofline.document(result) == json.loads(command(f"{line} --json"))
    rows = list(csv.DictReader(io.StringIO(command(f"{line} --csv"))))
    frame = roofline.to_frame(result)
    assert list(frame.columns) == list(rows[0])
    assert frame["flops"].tolist() == [int(row["flops"]) for row in rows]
    loaded = roofline.analyze_model(load_model("mixtral-8x7b"), load("h100-sxm5-80gb"), **options)
    assert roofline.document(loaded) == roofline.document(result)


def test_several_results_in_one_frame() -> None:
    frame = roofline.to_frame(roofline.analyze(n=n, variants=["flash"], device="l4") for n in (512, 1024))
    assert set(frame["problem_kv_len"]) == {512, 1024}
    swept = list(roofline.sweep_model("gpt2", "l4", [512, 1024], [1, 2], phase="decode"))
    assert [(each.cache.n, each.cache.batch) for each in swept] == [(512, 1), (512, 2), (1024, 1), (1024, 2)]
    assert set(roofline.to_frame(swept)["phase"]) == {"decode"}


def test_a_result_is_found_by_name() -> None:
    result = roofline.analyze(1024, device="l4")
    assert result["gqa/flash"].configuration.name == "gqa/flash"
    assert len(result) == len(list(result))
    with pytest.raises(KeyError, match="mha/naive"):
        result["gqa/flashy"]


def test_wrong_names_are_refused() -> None:
    for arguments in (
        {"phase": "training"},
        {"roof": "best"},
        {"flop_convention": "twice"},
        {"dtype": "fp4"},
        {"device": "h1"},
    ):
        with pytest.raises(InputError):
            roofline.analyze(**arguments)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="phase"):
        roofline.analyze_model("gpt2", "l4", phase="training")  # type: ignore[arg-type]


def test_the_names_are_found_and_others_are_not() -> None:
    assert set(roofline.__all__) <= set(dir(roofline))
    assert all(getattr(roofline, name) for name in roofline.__all__)
    with pytest.raises(AttributeError, match="analyse"):
        _ = roofline.analyse
