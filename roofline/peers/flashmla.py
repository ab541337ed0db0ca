"""FlashMLA's dense decode (DeepSeek) from the wheel sgl-flash-mla, whose Hopper kernels are called legacy. Pages of 64."""

import flash_mla
import torch

from roofline.kernels import mla
from roofline.kernels.protocol import Inputs
from roofline.kernels.support import HOPPER
from roofline.peers.inputs import PeerInputs, by_sequence
from roofline.plan import Plan
from roofline.problem import LatentKV, Problem

__all__ = ["dense", "launch", "make_inputs", "reference", "supports", "token_major"]

reference, dense = mla.reference, mla.dense
PAGE = 64
LATENT, ROPE = 512, 64


def supports(problem: Problem, device: torch.device, plan: Plan | None = None) -> str | None:
    """Return why FlashMLA cannot run ``problem``, or ``None``."""
    kv = problem.kv
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != HOPPER:
        return "its dense decode runs on compute capability 9.0 only"
    if not isinstance(kv, LatentKV) or (kv.latent_dim, kv.rope_dim) != (LATENT, ROPE):
        return f"expected a latent cache of {LATENT} + {ROPE}"
    if plan is not None and plan.form != "absorbed":
        return "runs the absorbed form only"
    if problem.dtype.name != "bf16" or problem.kv_dtype.name != "bf16":
        return "its dense decode is bf16 only"
    if len(problem.lengths) != 1 or problem.lengths[0].kv_len % PAGE:
        return f"expected equal sequences of whole pages of {PAGE} tokens"  # so that our cache is its cache, uncopied
    if problem.mask.window is not None:
        return "no sliding window"
    return None


def make_inputs(problem: Problem, seed: int, device: torch.device) -> Inputs:
    """Return the inputs of our kernel, with a page table over its cache; the scheduler plans at the first call."""
    tensors = dict(mla.make_inputs(problem, seed, device).tensors)
    batch, pages = problem.batch, problem.lengths[0].kv_len // PAGE
    tensors["table"] = torch.arange(batch * pages, dtype=torch.int32, device=device).view(batch, pages)
    tensors["kv_lengths"] = torch.full((batch,), pages * PAGE, dtype=torch.int32, device=device)
    schedule, _ = flash_mla.get_mla_metadata()
    return PeerInputs(problem, tensors, schedule)


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return O [batch, tokens, heads, latent]; the interface allocates it, ``out`` cannot be used."""
    assert isinstance(inputs, PeerInputs)
    problem, tensors, kv = inputs.problem, inputs.tensors, inputs.problem.kv
    assert isinstance(kv, LatentKV)
    result: torch.Tensor = flash_mla.flash_mla_with_kvcache(
        by_sequence(tensors["q"], problem),
        tensors["cache"].view(-1, PAGE, 1, LATENT + ROPE),
        tensors["table"],
        tensors["kv_lengths"],
        LATENT,
        inputs.state,
        softmax_scale=(kv.head_dim + kv.rope_dim) ** -0.5,
        causal=problem.mask.causal,
        use_legacy=True,
    )[0]
    return result


def token_major(out: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Return O [q_tokens, q_heads, latent]."""
    return out.flatten(0, 1)
