"""FlashInfer's batch decode over a paged cache (arXiv:2501.01005), on the pages of our own kernel. It compiles at first use."""

from itertools import accumulate

import flashinfer
import torch

from roofline.cost import ceil_div
from roofline.kernels import paged
from roofline.kernels.inputs import TORCH_DTYPES
from roofline.kernels.protocol import Inputs
from roofline.peers.flashinfer_prefill import WORKSPACE_BYTES, backend
from roofline.peers.flashinfer_prefill import supports as supports_prefill
from roofline.peers.inputs import PeerInputs
from roofline.plan import Plan
from roofline.problem import GroupedKV, Problem

__all__ = ["backend", "dense", "launch", "make_inputs", "reference", "supports"]

reference, dense = paged.reference, paged.dense
TENSOR_CORE_GROUP = 4  # query heads a KV head from which its tensor-core kernel is the faster one


def supports(problem: Problem, device: torch.device, plan: Plan | None = None) -> str | None:
    """Return why FlashInfer cannot run ``problem``, or ``None``."""
    if any(lengths.q_len != 1 for lengths in problem.lengths):
        return "decodes one token a sequence"
    if any(lengths.kv_len == 0 for lengths in problem.lengths):
        return "no sequence without keys"
    return supports_prefill(problem, device)


def make_inputs(problem: Problem, seed: int, device: torch.device) -> Inputs:
    """Return the pages of our kernel, and a wrapper that has planned them."""
    kv, page, dtype = problem.kv, problem.page_size, TORCH_DTYPES[problem.dtype.name]
    assert isinstance(kv, GroupedKV)
    tensors = paged.make_inputs(problem, seed, device).tensors
    lengths = [run.kv_len for run in problem.lengths for _ in range(run.count)]
    counts = [ceil_div(length, page) for length in lengths]
    table = tensors["table"].cpu()
    indices = torch.cat([row[:count] for row, count in zip(table, counts, strict=True)]).to(device)
    # Partial results grow with the queries of a KV head: 258 MiB for 32.
    workspace = torch.zeros(WORKSPACE_BYTES * (1 + problem.group // 32), dtype=torch.uint8, device=device)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        workspace, "NHD", use_tensor_cores=problem.group >= TENSOR_CORE_GROUP
    )
    wrapper.plan(
        torch.tensor([0, *accumulate(counts)], dtype=torch.int32, device=device),
        indices,
        torch.tensor([(length - 1) % page + 1 for length in lengths], dtype=torch.int32, device=device),
        problem.q_heads,
        kv.heads,
        kv.head_dim,
        page,
        window_left=-1 if problem.mask.window is None else problem.mask.window - 1,
        q_data_type=dtype,
        kv_data_type=dtype,
    )
    return PeerInputs(problem, tensors, wrapper)


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return O [q_tokens, q_heads, width]."""
    assert isinstance(inputs, PeerInputs)
    tensors = inputs.tensors
    result: torch.Tensor = inputs.state.run(tensors["q"], (tensors["k_pages"], tensors["v_pages"]), out=out)
    return result
