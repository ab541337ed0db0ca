"""FlashInfer's batch prefill over ragged tensors (arXiv:2501.01005). It compiles at first use."""

from itertools import accumulate

import flashinfer
import torch

from roofline.kernels.inputs import TORCH_DTYPES
from roofline.kernels.protocol import Inputs
from roofline.peers.inputs import PeerInputs, make_dense
from roofline.peers.inputs import dense_reference as reference
from roofline.plan import Plan
from roofline.problem import GroupedKV, Problem

__all__ = ["backend", "launch", "make_inputs", "reference", "supports"]

HEAD_DIMS = (64, 128, 256)
WORKSPACE_BYTES = 256 * 2**20


def supports(problem: Problem, device: torch.device, plan: Plan | None = None) -> str | None:
    """Return why FlashInfer cannot run ``problem``, or ``None``."""
    kv = problem.kv
    if device.type != "cuda":
        return "needs an NVIDIA GPU"
    if not isinstance(kv, GroupedKV):
        return "no latent KV cache in this interface"
    if problem.dtype.name not in ("bf16", "fp16") or problem.kv_dtype.name != problem.dtype.name:
        return f"no {problem.dtype.name} with K and V in {problem.kv_dtype.name}"
    if kv.head_dim != kv.v_head_dim or kv.head_dim not in HEAD_DIMS:
        return f"expected equal head sizes among {', '.join(map(str, HEAD_DIMS))}"
    return None


def make_inputs(problem: Problem, seed: int, device: torch.device) -> Inputs:
    """Return dense inputs, and a wrapper that has planned ``problem``."""
    dtype, kv, mask = TORCH_DTYPES[problem.dtype.name], problem.kv, problem.mask
    assert isinstance(kv, GroupedKV)
    runs = [lengths for lengths in problem.lengths for _ in range(lengths.count)]
    starts = [
        torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
        for lengths in ([run.q_len for run in runs], [run.kv_len for run in runs])
    ]
    workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD")
    wrapper.plan(
        *starts,
        problem.q_heads,
        kv.heads,
        kv.head_dim,
        causal=not mask.is_full,
        window_left=-1 if mask.window is None else mask.window - 1,
        q_data_type=dtype,
        kv_data_type=dtype,
    )
    return PeerInputs(problem, make_dense(problem, seed, device).tensors, wrapper)


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return O [q_tokens, q_heads, width]."""
    assert isinstance(inputs, PeerInputs)
    result: torch.Tensor = inputs.state.run(*(inputs.tensors[name] for name in "qkv"), out=out)
    return result


def backend(inputs: Inputs, plan: Plan) -> str:
    """Return the backend that the wrapper chose for itself."""
    assert isinstance(inputs, PeerInputs)
    return f"wrapper backend {getattr(inputs.state, '_backend', 'unknown')}"
