"""Broken configurations: one clear line and exit 2, or a right answer; never another exception, never a silent guess."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roofline.dtypes import DTYPES
from roofline.errors import InputError
from roofline.models import analyze_model, load_model
from roofline.models.analysis import PHASES
from roofline.models.families import ALIASES, FAMILIES
from roofline.models.load import read_config
from roofline.models.works import Dtypes, model_works
from roofline.profiles import load
from tests.models.test_model_families import CASES

BF16 = DTYPES["bf16"]
H100 = load("h100-sxm5-80gb")
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        [0, -1, 1, 2, 3, 7, 64, 2**20, 2**20 + 1, 2**31, 2**63, 10**400, 0.5, 4096.0, float("nan"), float("inf"), -0.0, "",
         "auto", "4096", "a\nb", [], [1], [[]], {}, {"a": 1}, "full_attention", ["full_attention"], ["sliding_attention"],
         [None], [True]]
    ),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.one_of(st.integers(-2, 9), st.booleans(), st.none(), st.text(max_size=2)), max_size=4),
)  # fmt: skip
QUICK = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def complaint(error: InputError) -> str:
    text = str(error)
    return text if text.isprintable() and 0 < len(text) < 1500 else ""


def answers_or_one_line(config: Any) -> None:
    said = None
    try:
        spec = read_config(config, "config.json", "fuzzed")
        dtypes = Dtypes(BF16, BF16, BF16)
        flops = [work.flops for phase in PHASES for work, _ in model_works(spec, phase, 100, 2, dtypes)]
    except InputError as error:
        said = complaint(error)
    if said is not None:
        assert "config.json" in said or said.startswith("--")
        return
    assert min(flops) >= 0
    assert spec.num_layers > 0
    assert spec.total_params > 0


def fields_of(config: dict[str, Any]) -> list[tuple[str, ...]]:
    nested = [(key, inner) for key, value in config.items() if isinstance(value, dict) for inner in value]
    return [(key,) for key in config] + nested


@QUICK
@given(st.data())
def test_one_field_broken(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(CASES))
    config = json.loads(json.dumps(case.config))
    path = data.draw(st.sampled_from(fields_of(config)))
    holder = config if len(path) == 1 else config[path[0]]
    if data.draw(st.booleans()):
        del holder[path[-1]]
    else:
        holder[path[-1]] = data.draw(ODD)
    answers_or_one_line(config)


@QUICK
@given(st.data())
def test_any_field_of_any_family(data: st.DataObject) -> None:
    model_type = data.draw(st.sampled_from(sorted({*FAMILIES, *ALIASES})))
    read: set[str] = set()

    class Spy(dict[str, Any]):
        def __contains__(self, key: object) -> bool:
            read.add(str(key))
            return super().__contains__(key)

        def get(self, key: Any, default: Any = None) -> Any:
            read.add(str(key))
            return super().get(key, default)

    with contextlib.suppress(InputError):
        read_config(Spy(model_type=model_type), "config.json", "spied")
    names = sorted(read - {"model_type", "text_config"})
    broken = data.draw(st.dictionaries(st.sampled_from(names), ODD, max_size=4)) if names else {}
    answers_or_one_line({"model_type": model_type, **broken})


@QUICK
@given(st.recursive(ODD, lambda inner: st.dictionaries(st.sampled_from(["model_type", "text_config", "a"]), inner, max_size=3)))
def test_anything_at_all(config: Any) -> None:
    answers_or_one_line(config)


@settings(QUICK, max_examples=150)
@given(content=st.one_of(st.binary(max_size=40), st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_any_bytes(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_model(path)
    assert str(caught.value).isprintable()


@settings(QUICK, max_examples=60)
@given(
    case=st.sampled_from(CASES),
    n=st.one_of(st.integers(1, 20), st.integers(1, 2**40), st.sampled_from([0, -1, 2**41])),
    batch=st.one_of(st.integers(1, 300), st.sampled_from([0, 2**31, 2**32])),
    kv=st.sampled_from(["bf16", "fp8", "int8", "int4", "fp4"]),
    weights=st.sampled_from(["bf16", "fp8", "int8", "int4", "fp32", "x"]),
)
def test_any_size(case: Any, n: int, batch: int, kv: str, weights: str) -> None:
    spec = read_config(case.config, "config.json", case.name)
    result = None
    try:
        result = analyze_model(spec, H100, n, batch, kv_dtype=kv, weight_dtype=weights)
    except InputError as error:
        said = complaint(error)
    if result is None:
        assert said.startswith("--")
        return
    for each in result.passes:
        assert each.time_s is not None
        assert each.floor_s is not None
        assert each.floor_s <= each.time_s * (1 + 1e-9)


@pytest.mark.parametrize(
    "content",
    ["[" * 100_000, '{"model_type": ' + "9" * 5000 + "}", "null", "[]", '"llama"', "{", "",
     '{"model_type": "llama", "model_type": "gpt2"}'],
    ids=["deep", "digits", "null", "list", "text", "torn", "empty", "twice"],
)  # fmt: skip
def test_broken_files(content: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        load_model(path)
    assert str(path) in str(caught.value)
