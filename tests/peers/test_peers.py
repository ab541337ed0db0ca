from importlib import import_module, util

import pytest

torch = pytest.importorskip("torch")
references = pytest.importorskip("roofline.kernels.reference")

from torch.nn.attention import SDPBackend  # noqa: E402

from roofline.configurations import Request, configurations  # noqa: E402
from roofline.peers import PEERS, sdpa  # noqa: E402
from roofline.peers.inputs import dense_reference  # noqa: E402
from roofline.plan import choose  # noqa: E402
from roofline.profiles.load import load  # noqa: E402

pytestmark = pytest.mark.kernels
CPU = torch.device("cpu")
PROFILE = load("h200-sxm-141gb")
SHORT_QUERIES = {"kv_len": 64, "q_len": 16, "causal": True}
PACKAGES = {"fa3/fwd": "fa3_fwd_interface", "flashmla/decode": "flash_mla", "fla/linear": "fla"}
PACKAGES |= {name: "flashinfer" for name in PEERS if name.startswith("flashinfer/")}


def configuration(**options):
    return configurations(Request(d=16, heads=4, kv_heads=2, dtype="fp32", variants=("flash",), **options))[0]


def there(name: str) -> bool:
    return name not in PACKAGES or util.find_spec(PACKAGES[name]) is not None


@pytest.mark.parametrize("name", [name for name in PEERS if there(name)])
def test_a_peer_has_the_protocol_and_needs_a_gpu(name: str) -> None:
    module = import_module(PEERS[name].module)
    for function in ("supports", "make_inputs", "launch", "reference"):
        assert callable(getattr(module, function))
    assert module.supports(configuration(n=64, phase="prefill").problem, CPU) is not None


@pytest.mark.parametrize("name", [name for name in PEERS if not there(name)])
def test_a_peer_that_is_not_installed_is_an_import_error(name: str) -> None:
    with pytest.raises(ImportError):
        import_module(PEERS[name].module)


@pytest.mark.parametrize(
    "options",
    [
        {"n": 40, "phase": "prefill"},
        {"n": 40, "phase": "prefill", "causal": True, "batch": 2},
        {"kv_len": 64, "q_len": 24, "causal": True},
        {"kv_len": 64, "q_len": 1, "causal": True, "batch": 3},
    ],
)
def test_sdpa_gives_the_reference_in_our_layout(options: dict) -> None:
    one = configuration(**options)
    forced = sdpa.Forced(SDPBackend.MATH, ("fp32",))
    inputs = sdpa.make_inputs(one.problem, 1, CPU)
    plan = choose("flash", "roofline/flash", one.problem, PROFILE, one.choices)
    out = sdpa.token_major(forced.launch(inputs, plan), inputs)
    assert references.relative_error(out, dense_reference(inputs)) < 1e-6
    assert forced.backend(inputs, plan) == "composed of matmul and softmax, no fused operator"


def test_another_backend_than_the_one_forced_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    one = configuration(n=32, phase="prefill")
    inputs, plan = sdpa.make_inputs(one.problem, 1, CPU), choose("flash", "roofline/flash", one.problem, PROFILE, one.choices)
    monkeypatch.setattr(sdpa, "sdpa_kernel", lambda which: torch.nn.attention.sdpa_kernel(SDPBackend.MATH))
    with pytest.raises(RuntimeError, match="asked SDPA for CUDNN_ATTENTION, it ran no fused operator"):
        sdpa.Forced(SDPBackend.CUDNN_ATTENTION).backend(inputs, plan)


@pytest.mark.parametrize(
    ("options", "forced", "reason"),
    [
        ({"n": 64, "phase": "prefill", "window": 8}, sdpa.Forced(SDPBackend.FLASH_ATTENTION), "no sliding window"),
        ({"n": 64, "phase": "prefill"}, sdpa.Forced(SDPBackend.EFFICIENT_ATTENTION, grouped=False), "no grouped query heads"),
        (SHORT_QUERIES, sdpa.Forced(SDPBackend.CUDNN_ATTENTION, lower_right=False), "bottom-right"),
        ({"kv_len": 16, "q_len": 64, "causal": True}, sdpa.Forced(SDPBackend.FLASH_ATTENTION), "bottom-right"),
        ({"n": 64, "phase": "prefill"}, sdpa.Forced(SDPBackend.MATH, widest=8), "no heads wider than 8"),
    ],
)
def test_refusals_name_the_reason(monkeypatch: pytest.MonkeyPatch, options: dict, forced: sdpa.Forced, reason: str) -> None:
    monkeypatch.setattr(sdpa, "dense_support", lambda problem, device, dtypes: None)
    assert reason in forced.supports(configuration(**options).problem, CPU)
