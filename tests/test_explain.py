"""Formulas multiply out to the figures of the cost, whatever the problem; and a few redone by hand."""

import csv
import io
import json
import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roofline.analysis import Conventions, analyze, to_dict
from roofline.configurations import FORMS, Configuration, Request
from roofline.dtypes import COMPUTE_DTYPES, DTYPES, KV_DTYPES
from roofline.errors import InputError, RooflineError
from roofline.explain import explain, explain_all, explanation_rows
from roofline.explain.counts import pairs, tiles
from roofline.explain.formula import Formula, arithmetic_runs, product
from roofline.masks import CAUSAL, FULL, Mask
from roofline.plan import Choices
from roofline.problem import GroupedKV, LatentKV, Problem, ragged, uniform
from roofline.profiles import resolve

PROFILE = resolve("h200-sxm-141gb")[0]
NAMES = [
    *((variant, None) for variant in ("naive", "chunked", "flash", "split-kv", "paged")),
    *((variant, form) for variant, forms in FORMS.items() for form in forms),
]
FIGURES = (
    "read_bytes_min",
    "write_bytes_min",
    "sm_read_bytes",
    "sm_write_bytes",
    "read_bytes",
    "write_bytes",
)
WORK = ("flops", "flops_executed", "exp_ops", "vector_ops")
TOTALS = (
    "flops",
    "flops_executed",
    "exp_ops",
    "vector_ops",
    "hbm_bytes_min",
    "hbm_bytes_cold",
    "hbm_bytes",
    "sm_bytes",
    "kv_cache_bytes",
    "kv_cache_bytes_allocated",
    "workspace_bytes",
)


def multiplied_out(entry: dict[str, Any]) -> int:
    """The factors of a line, multiplied and added as a reader would."""
    total = 0
    for term in entry["terms"]:
        product_of_term = math.prod(value for _, value in term["factors"])
        assert product_of_term % term["divided_by"] == 0
        assert all(name for name, _ in term["factors"])
        total += product_of_term // term["divided_by"] * (-1 if term["subtracted"] else 1)
    return total


@st.composite
def configurations(draw: st.DrawFn, variant: str, form: str | None) -> Configuration:
    size = st.one_of(st.integers(1, 20), st.integers(1, 3000))
    width = st.sampled_from([1, 8, 20, 64, 80, 128, 192, 257])
    kv_heads, group = draw(st.sampled_from([1, 2, 3, 8])), draw(st.sampled_from([1, 2, 5, 8]))
    if draw(st.booleans()):
        lengths = uniform(draw(st.integers(1, 4)), draw(size), draw(size))
    else:
        lengths = ragged(draw(st.lists(st.tuples(size, st.one_of(st.just(0), size)), min_size=1, max_size=4)))
    window = draw(st.one_of(st.none(), st.integers(1, 3200))) if variant != "linear" else None
    mask = Mask(causal=window is not None or draw(st.booleans()), window=window)
    dtype = DTYPES[draw(st.sampled_from(COMPUTE_DTYPES))]
    kv_dtype = DTYPES[draw(st.sampled_from([name for name in KV_DTYPES if DTYPES[name].bits <= dtype.bits]))]
    if variant == "mla":
        kv: GroupedKV | LatentKV = LatentKV(draw(width), draw(st.sampled_from([0, 20, 64])), draw(width), draw(width))
    else:
        kv = GroupedKV(kv_heads, draw(width), draw(width))
    longest, shortest = max(run.kv_len for run in lengths), min(run.kv_len for run in lengths)
    problem = Problem(
        q_heads=kv_heads * group,
        kv=kv,
        lengths=lengths,
        mask=mask,
        dtype=dtype,
        kv_dtype=kv_dtype,
        page_size=draw(st.sampled_from([1, 7, 16, 64])),
        max_len=draw(st.sampled_from([None, longest + 100])),
        shared_prefix=draw(st.integers(0, shortest)),
        mla_projections=draw(st.booleans()),
        layers=draw(st.sampled_from([1, 3])),
    )
    tile = draw(st.sampled_from([None, (128, 128), (64, 128), (16, 64), (48, 80)]))
    chunk = draw(st.sampled_from([None, (128, 256), (100, 300)]))
    choices = Choices(
        tile=tile,
        chunk=chunk,
        splits=draw(st.sampled_from([None, 1, 3, 16])),
        passes=draw(st.sampled_from([3, 6])),
        form=form,
        decode=draw(st.booleans()),
    )
    return Configuration(variant, variant, "prefill", problem, choices)


@pytest.mark.parametrize(("variant", "form"), NAMES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), convention=st.sampled_from(["exact", "full", "half"]))
def test_factors_multiply_out_to_the_cost(data: st.DataObject, variant: str, form: str | None, convention: Any) -> None:
    conventions = Conventions(convention)
    result = analyze(data.draw(configurations(variant, form)), PROFILE, conventions)
    counted, explained = to_dict(result), explain(result, PROFILE, conventions)

    for entry in (*explained["quantities"], *explained["totals"]):
        assert multiplied_out(entry) == entry["value"], entry
    totals = {entry["symbol"]: entry["value"] for entry in explained["totals"]}
    assert {key: totals[key] for key in TOTALS} == {key: counted[key] for key in TOTALS}

    quantities = {entry["symbol"]: entry["value"] for entry in explained["quantities"]}
    problem = result.configuration.problem
    for symbol, value in {"pairs": problem.pairs, "keys seen": problem.visible_keys, "queries": problem.q_tokens}.items():
        assert quantities.get(symbol, value) == value
    for launch, expected in zip(explained["launches"], counted["launches"], strict=True):
        assert launch["name"] == expected["name"]
        lines = {(line["tensor"], line["figure"]): line for line in launch["lines"]}
        assert len(lines) == len(launch["lines"])
        for line in launch["lines"]:
            assert multiplied_out(line) == line["value"], line
        wanted = {(None, figure): expected[figure] for figure in WORK}
        for traffic in expected["traffic"]:
            wanted |= {(traffic["tensor"], figure): traffic[figure] for figure in FIGURES}
        for key, value in wanted.items():
            assert (lines[key]["value"] if key in lines else 0) == value, key
        assert quantities.get("B a token", 0) * problem.layers == counted["kv_cache_bytes_per_token"]
        # A factor that a quantity defines has its value.
        for name, value in (factor for line in launch["lines"] for term in line["terms"] for factor in term["factors"]):
            if name in quantities and name not in ("queries", "keys"):
                assert value == quantities[name], name
        times: dict[str, float] = {}
        for time in launch["times"]:
            times[time["unit"]] = times.get(time["unit"], 0.0) + (time["time_s"] or 0.0)
        assert math.isclose(max(times.values()), launch["time_s"], rel_tol=1e-9)


@pytest.mark.parametrize(
    ("mask", "lengths", "text"),
    [
        (FULL, uniform(1, 2048, 2048), "2,048 queries × 2,048 keys"),
        (CAUSAL, uniform(1, 2048, 2048), "2,048 queries × 2,049 (1 + 2,048) keys / 2"),
        (CAUSAL, uniform(1, 1, 2048), "2,048 keys"),
        (CAUSAL, uniform(1, 4, 10), "4 queries × 17 (7 + 10) keys / 2"),
        (CAUSAL, uniform(1, 10, 4), "4 queries that see a key × 5 (1 + 4) keys / 2"),
        (Mask(True, 4), uniform(1, 10, 10), "4 queries × 5 (1 + 4) keys / 2 + 6 more queries × 4 keys"),
        (Mask(True, 4), uniform(2, 2, 10), "2 sequences × 2 queries × 4 keys"),
        (FULL, ragged([(2, 3), (5, 7), (5, 7)]), "2 queries × 3 keys + 2 sequences × 5 queries × 7 keys"),
    ],
)
def test_pairs_in_the_closed_form_that_applies(mask: Mask, lengths: Any, text: str) -> None:
    problem = Problem(q_heads=1, kv=GroupedKV(1, 8, 8), lengths=lengths, mask=mask)
    explained = pairs(problem).formula
    assert explained.text() == text
    assert explained.value == problem.pairs


@pytest.mark.parametrize(
    ("mask", "tile", "group", "text"),
    [
        (FULL, (128, 128), 1, "16 q tiles × 16 kv tiles"),
        (CAUSAL, (128, 128), 1, "16 q tiles × 17 (1 + 16) kv tiles / 2"),
        (CAUSAL, (64, 128), 1, "16 q tiles × 17 (1 + 16) kv tiles / 2 + 16 q tiles × 17 (1 + 16) kv tiles / 2"),
        (Mask(True, 1024), (128, 128), 1, "9 q tiles × 10 (1 + 9) kv tiles / 2 + 7 q tiles × 9 kv tiles"),
        (CAUSAL, (128, 128), 4, None),
    ],
)
def test_tiles_are_summed_over_q_tiles(mask: Mask, tile: tuple[int, int], group: int, text: str | None) -> None:
    problem = Problem(q_heads=group, kv=GroupedKV(1, 8, 8), lengths=uniform(1, 2048, 2048), mask=mask)
    formula = tiles(problem, *tile, group).formula
    assert text is None or formula.text() == text
    assert formula.value == mask.tile_count(2048, 2048, *tile, group).tiles


def test_a_long_sequence_is_not_walked() -> None:
    problem = Problem(q_heads=1, kv=GroupedKV(1, 8, 8), lengths=uniform(1, 2**40, 2**40), mask=CAUSAL)
    assert tiles(problem, 128, 128).formula.value == CAUSAL.tile_count(2**40, 2**40, 128, 128).tiles


def test_flash_redone_by_hand() -> None:
    document = explain_all(Request(n=2048, d=64, variants=("flash",), phase="prefill", causal=True), PROFILE, Conventions())
    explanation = document["explanations"][0]
    lines = {(line["tensor"], line["figure"]): line for line in explanation["launches"][0]["lines"]}
    assert lines[None, "flops"]["formula"] == "2 FLOPs × 2,098,176 pairs × 32 query heads × 128 (d + dv)"
    assert lines[None, "flops"]["value"] == 2 * 2_098_176 * 32 * 128
    assert lines["K", "read_bytes_min"]["formula"] == "2,048 keys seen × 32 KV heads × 128 B"
    assert lines["K", "sm_read_bytes"]["formula"] == "12,608 rows loaded × 32 query heads × 128 B"
    assert lines["K", "read_bytes"]["reason"] == "inputs start cold; the L2 serves the re-reads"


def test_page_table_of_the_last_split_redone_by_hand() -> None:
    # 10 tiles of 64 keys in 3 splits of 4, 4 and 2; a page a token: 256, 256 and 128 entries of 4 B.
    request = Request(n=640, variants=("paged",), phase="decode", page_size=1, tile=(16, 64), splits=3, kv_heads=8)
    explanation = explain_all(request, PROFILE, Conventions())["explanations"][0]
    quantities = {quantity["symbol"]: quantity for quantity in explanation["quantities"]}
    table = quantities["B of page table"]
    assert table["formula"] == "2 splits × 1,024 B in sectors + 512 B in sectors for the last split"
    workspace = next(entry for entry in explanation["totals"] if entry["symbol"] == "workspace_bytes")
    assert workspace["formula"] == "32 query heads × 3 splits × 128 d_v × 4 B + 32 query heads × 32 B a row of LSE in sectors"


def test_chunks_before_the_first_key_hold_no_state() -> None:
    # 200 queries over 40 keys, bottom-right: keys come with queries 160 - 199, in chunks 2 and 3 of 64.
    problem = Problem(1, GroupedKV(1, 8, 8), uniform(1, 200, 40), mask=CAUSAL)
    configuration = Configuration("linear", "linear", "prefill", problem, Choices(tile=(64, 64), form="chunked"))
    explained = explain(analyze(configuration, PROFILE), PROFILE, Conventions())
    chunks = next(quantity for quantity in explained["quantities"] if quantity["symbol"] == "kv chunks")
    assert (chunks["value"], chunks["meaning"]) == (2, "chunks of 64 queries with a key")


def test_a_formula_that_drifts_from_the_cost_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mask, "visible_keys", lambda self, q_len, kv_len: kv_len)
    request = Request(n=64, d=64, variants=("flash",), phase="prefill")
    explain_all(request, PROFILE, Conventions())
    monkeypatch.setattr("roofline.explain.flash.keys_seen", lambda problem: pairs(problem))
    with pytest.raises(RooflineError, match=r"K read_bytes_min.*is not what was counted"):
        explain_all(request, PROFILE, Conventions())


def test_formulas() -> None:
    formula = product(("a", 3), ("ones", 1), ("b", 4), divided_by=2) + product(("c", 0)) + product(("d", 5))
    assert formula.text() == "3 a × 4 b / 2 + 5 d"
    assert formula.value == 11
    assert Formula(()).text() == "0"
    assert Formula(()).value == 0
    assert arithmetic_runs([1, 2, 3, 3, 3]) == [(3, 1, 3), (2, 3, 3)]
    assert arithmetic_runs([7]) == [(1, 7, 7)]
    assert arithmetic_runs([]) == []


def test_rows_are_flat_and_alike() -> None:
    rows = list(explanation_rows(explain_all(Request(n=64, variants=("naive",)), PROFILE, Conventions())))
    assert {tuple(row) for row in rows} == {
        ("configuration", "phase", "kind", "launch", "tensor", "figure", "formula", "value", "meaning")
    }
    assert {row["kind"] for row in rows} == {"quantity", "launch", "total"}


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "roofline", "explain", *arguments, "--device", "h200-sxm-141gb"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_command_prints_json_and_csv() -> None:
    document = json.loads(run_cli("mla/absorbed", "--json").stdout)
    assert document["schema"] == "roofline.explanation/1"
    assert [each["configuration"] for each in document["explanations"]] == ["mla/absorbed", "mla/absorbed"]
    rows = list(csv.DictReader(io.StringIO(run_cli("flash", "--kv-lens", "100,200", "--kv-dtype", "int8", "--csv").stdout)))
    assert any(row["tensor"] == "K_scale" for row in rows)


@pytest.mark.parametrize("variant", ["flush", "mla/chunked"])
def test_unknown_variant_is_one_line_that_names_the_argument(variant: str) -> None:
    done = run_cli(variant)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("roofline: VARIANT: unknown ")


def test_window_of_linear_attention_is_refused() -> None:
    with pytest.raises(InputError, match="sliding window"):
        explain_all(Request(variants=("linear",), window=8), PROFILE, Conventions())
