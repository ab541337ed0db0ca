"""Whole models on the command line: what an engineer asks before renting a GPU, and what a mistyped line answers.

``ROOFLINE_UPDATE_GOLDEN=1 pytest tests/test_cli_models.py -k golden`` rewrites the golden file; read the difference.
"""

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roofline.models import SWEEP_COLUMNS, shipped_models
from roofline.profiles import local
from tests.command_line import runner

GOLDEN = Path(__file__).parent / "golden" / "analyze-model-llama-3-8b.txt"
H100 = ("--device", "h100-sxm5-80gb")
LLAMA = ("analyze", "--model", "llama-3-8b", *H100)

Run = Callable[..., tuple[int, str, str]]


def _no_nvml() -> Any:
    raise ImportError("no driver here")


@pytest.fixture
def roofline(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command line in this process, on a machine without a GPU; returns exit code, stdout and stderr."""
    monkeypatch.setattr(local, "_nvml", _no_nvml)
    monkeypatch.setenv("ROOFLINE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    return runner(monkeypatch, capsys)


def analyzed(roofline: Run, *arguments: str) -> Any:
    code, out, err = roofline(*LLAMA, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def pass_of(document: Any, phase: str) -> Any:
    (found,) = [each for each in document["passes"] if each["phase"] == phase]
    return found


def test_llama_3_8b_on_an_h100(roofline: Run) -> None:
    """The figures of a hand count: 2 x 6.979e9 x n + 2 x n^2 x 4096 x 32 (causal pairs), 989.4 TFLOP/s, 3.35 TB/s."""
    document = analyzed(roofline, "--n", "2048")
    assert document["schema"] == "roofline.model/1"
    assert document["model"]["body_params"] == pytest.approx(6.979e9, rel=5e-4)
    prefill, decode = pass_of(document, "prefill"), pass_of(document, "decode")
    assert prefill["flops"] == pytest.approx(2.97e13, rel=2e-3)
    assert prefill["floor_s"] == pytest.approx(0.0300, abs=5e-5)
    assert prefill["time_s"] >= prefill["floor_s"]
    assert decode["floor_s"] >= 4.5e-3
    assert decode["tokens_per_s_limit"] <= 1 / 4.5e-3
    prefill = pass_of(analyzed(roofline, "--n", "32k", "--phase", "prefill"), "prefill")
    assert prefill["flops"] == pytest.approx(7.39e14, rel=2e-3)
    assert prefill["floor_s"] == pytest.approx(0.747, abs=5e-4)


def test_the_document_says_which_layers_hold_which_attention(roofline: Run) -> None:
    document = json.loads(roofline("analyze", "--model", "gemma-3-27b", "--json", *H100)[1])
    windowed, full = document["model"]["mixers"]
    assert (windowed["layers"], windowed["window"], full["layers"], full["window"]) == (52, 1024, 10, None)
    assert {(mixer["q_heads"], mixer["kv_heads"], mixer["head_dim"]) for mixer in (windowed, full)} == {(32, 16, 128)}
    assert sum(run["count"] for run in document["model"]["layers"]) == 62
    latent, = json.loads(roofline("analyze", "--model", "deepseek-v2", "--json", *H100)[1])["model"]["mixers"]  # fmt: skip
    assert (latent["latent_dim"] + latent["rope_dim"], latent["cached_values"]) == (576, 576)


def test_options_reach_the_analysis(roofline: Run) -> None:
    given = "--batch 8 --decode --weight-dtype int4 --kv-dtype fp8 --page-size 64 --reserve 8GiB"
    document = analyzed(roofline, *given.split())
    assert [each["phase"] for each in document["passes"]] == ["decode"]
    assert document["dtypes"] == {"compute": "bf16", "weights": "int4", "kv": "fp8"}
    assert (document["kv_cache"]["batch"], document["kv_cache"]["page_size"]) == (8, 64)
    assert document["kv_cache"]["bytes_per_token"] == 65536
    assert document["capacity"]["reserve_bytes"] == 8 * 2**30
    assert analyzed(roofline, "--reserve", "8000")["capacity"]["reserve_bytes"] == 8000


def test_how_the_device_was_chosen_is_said(roofline: Run) -> None:
    notes = json.loads(roofline("analyze", "--model", "gpt2", "--json")[1])["notes"]
    assert "no GPU here" in notes[0]
    document = json.loads(roofline("analyze", "--model", "gpt2", "--json", "--device", "t4")[1])
    assert document["dtypes"]["compute"] == "fp16"
    assert "has no bf16" in document["notes"][0]
    assert "no GPU here" in " ".join(roofline("analyze", "--model", "gpt2")[1].split())


def test_golden_output_at_80_columns(roofline: Run) -> None:
    code, out, err = roofline(*LLAMA, "--n", "2048")
    assert (code, err) == (0, "")
    if os.environ.get("ROOFLINE_UPDATE_GOLDEN"):
        GOLDEN.write_text(out, encoding="utf-8")
    assert out == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", shipped_models())
def test_every_shipped_model_fits_80_columns(roofline: Run, name: str) -> None:
    code, out, _ = roofline("analyze", "--model", name, "--n", "128k", "--batch", "64", "--device", "l4")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "speed-of-light limits" in out


def test_csv_has_one_row_a_phase_and_part(roofline: Run) -> None:
    document = analyzed(roofline)
    rows = list(csv.DictReader(io.StringIO(roofline(*LLAMA, "--csv")[1])))
    parts = [(each["phase"], part) for each in document["passes"] for part in each["parts"]]
    assert [(row["phase"], row["name"], int(row["flops"]), int(row["bytes"])) for row in rows] == [
        (phase, part["name"], part["flops"], part["bytes"]) for phase, part in parts
    ]


def test_a_file_is_written_and_not_overwritten(roofline: Run) -> None:
    assert roofline(*LLAMA, "-o", "a.json")[:2] == (0, "")
    assert json.loads(Path("a.json").read_text())["schema"] == "roofline.model/1"
    code, out, err = roofline(*LLAMA, "-o", "a.json")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_the_page_of_a_model(roofline: Run) -> None:
    code, out, err = roofline(*LLAMA, "--html", "m.html")
    assert (code, err) == (0, "roofline: wrote m.html\n")
    assert out == roofline(*LLAMA)[1]
    assert "<h1>llama-3-8b on H100 SXM5 80GB</h1>" in Path("m.html").read_text(encoding="utf-8")
    assert roofline(*LLAMA, "--html", "m.html")[2] == "roofline: --html m.html: exists already; --force overwrites it\n"
    code, out, err = roofline(*LLAMA, "--html", "m.txt")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_a_file_a_folder_and_a_name_are_read(roofline: Run) -> None:
    config = {"model_type": "mistral", "num_hidden_layers": 3, "sliding_window": 512}
    Path("mine").mkdir()
    Path("mine/config.json").write_text(json.dumps(config))
    for wanted in ("mine", "mine/config.json"):
        code, out, _ = roofline("analyze", "--model", wanted, *H100)
        assert code == 0
        assert "3 × window 512 attention: 32 query heads, 8 KV heads, head size 128" in out
        assert "vocab_size = 32000" in " ".join(out.split())  # what the file does not say is listed


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--heads 8", "--heads"), ("--kv-heads 8", "--kv-heads"), ("--d 64", "--d "), ("--dv 64", "--dv"),
        ("--window 512", "--window"), ("--causal", "--causal"), ("--variants flash", "--variants"), ("--layers 2", "--layers"),
        ("--q-len 4", "--q-len"), ("--kv-len 4", "--kv-len"), ("--kv-lens 4,5", "--kv-lens"), ("--max-len 4096", "--max-len"),
        ("--shared-prefix 16", "--shared-prefix"), ("--latent-dim 64", "--latent-dim"), ("--rope-dim 64", "--rope-dim"),
        ("--mla-projections", "--mla-projections"), ("--splits 2", "--splits"), ("--tile 64x64", "--tile"),
        ("--chunk 1kx1k", "--chunk"), ("--naive-passes 6", "--naive-passes"), ("--plot", "--plot"),
        ("--flop-convention full", "--flop-convention"), ("--decode --phase prefill", "--decode"), ("--phase train", "--phase"),
        ("--n 1k:4k:x2", "--n"), ("--n 0", "--n"), ("--batch 0", "--batch"), ("--batch 1,2", "--batch"),
        ("--batch 99999999999", "--batch"), ("--page-size 0", "--page-size"), ("--weight-dtype nf4", "--weight-dtype"),
        ("--dtype int4", "--dtype"), ("--kv-dtype q4", "--kv-dtype"), ("--reserve much", "--reserve"),
        ("--reserve 8s", "--reserve"), ("--reserve -1", "--reserve"), ("--model", "--model"), ("--json --csv", "--json"),
    ],
)  # fmt: skip
def test_what_contradicts_a_model_is_one_line(roofline: Run, arguments: str, named: str) -> None:
    code, out, err = roofline(*LLAMA, *arguments.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert named in err


@pytest.mark.parametrize("command", ["analyze", "sweep"])
@pytest.mark.parametrize(("option", "value"), [("--weight-dtype", "fp8"), ("--reserve", "8GiB")])
def test_options_of_a_model_need_one(roofline: Run, command: str, option: str, value: str) -> None:
    code, out, err = roofline(command, option, value)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert option in err
    assert "--model" in err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "not JSON"), ("{", "not JSON"), ("[]", "expected a JSON object"), ("\x89PNG", "not JSON"),
        ('{"hidden_size": 8}', "no model_type"), ('{"model_type": "bert"}', "encoder"),
        ('{"model_type": "t5"}', "encoder-decoder"), ('{"model_type": "martian"}', "unknown model_type 'martian'"),
        ('{"model_type": "llama", "num_attention_heads": 7}', "7 attention heads"),
        ('{"model_type": "llama", "hidden_size": "big"}', "hidden_size"),
    ],
)  # fmt: skip
def test_a_broken_file_is_one_line_with_its_name(roofline: Run, content: str, said: str) -> None:
    Path("config.json").write_text(content)
    for command in ("analyze", "sweep"):
        code, out, err = roofline(command, "--model", "config.json", *H100)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "config.json" in err
        assert said in err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "--model"),
        ("llama-3-9b", "llama-3-8b"),
        ("no/such/file.json", "no such file"),
        (".", "no config.json"),
        ("\n", "--model"),
    ],
)
def test_a_name_that_leads_nowhere(roofline: Run, name: str, said: str) -> None:
    code, out, err = roofline("analyze", "--model", name)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_an_unknown_name_lists_near_ones(roofline: Run) -> None:
    err = roofline("analyze", "--model", "llama3-8b")[2]
    assert "llama-3-8b" in err
    assert "llama-3-70b" in err
    assert all(name in roofline("analyze", "--model", "zzz")[2] for name in shipped_models())


def test_a_sweep_streams_a_row_a_length_batch_and_phase(roofline: Run) -> None:
    arguments = ("sweep", "--model", "llama-3-8b", "--n", "1k:4k:x2", "--batch", "1,8", *H100)
    code, out, err = roofline(*arguments, "--csv")
    assert (code, err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert tuple(rows[0]) == SWEEP_COLUMNS
    assert [(row["n"], row["batch"], row["phase"]) for row in rows] == [
        (n, batch, phase) for n in ("1024", "2048", "4096") for batch in ("1", "8") for phase in ("prefill", "decode")
    ]
    lines = [json.loads(line) for line in roofline(*arguments, "--json")[1].splitlines()]
    assert [line["flops"] for line in lines] == [int(row["flops"]) for row in rows]
    prefill = pass_of(analyzed(roofline, "--n", "4k", "--batch", "8"), "prefill")
    assert (lines[-2]["flops"], lines[-2]["time_s"]) == (prefill["flops"], prefill["time_s"])
    table = roofline(*arguments, "--phase", "decode")[1].splitlines()
    assert len(table) == 1 + 6
    assert max(map(len, table)) <= 80


def test_bad_axes_of_a_model_are_one_line(roofline: Run) -> None:
    for arguments, named in (("--n 4k:1k:x2", "--n"), ("--heads 1,2", "--heads"), ("--page-size 16,32", "--page-size")):
        code, out, err = roofline("sweep", "--model", "gpt2", *arguments.split(), *H100)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert named in err


def test_models_lists_the_shipped_ones(roofline: Run) -> None:
    code, out, err = roofline("models")
    assert (code, err) == (0, "")
    assert all(f"\n{name} " in f"\n{out}" for name in shipped_models())
    assert max(map(len, out.splitlines())) <= 80
    document = json.loads(roofline("models", "--json")[1])
    assert document["schema"] == "roofline.models/1"
    facts = {model["name"]: model for model in document["models"]}
    assert facts["llama-3-8b"]["kv_bytes_per_token_bf16"] == 131072
    assert all(model["source"] for model in document["models"])
    rows = list(csv.DictReader(io.StringIO(roofline("models", "--csv")[1])))
    assert [row["name"] for row in rows] == list(shipped_models())
