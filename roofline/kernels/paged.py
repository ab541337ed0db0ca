"""Split-KV decode over a cache in pages (vLLM, arXiv:2309.06180); the kernel is that of split-KV, with rows found by a table.

Inputs: ``q`` [q_tokens, q_heads, d]; ``k_pages`` [pages, page_size, kv_heads, d], ``v_pages`` [pages, page_size, kv_heads, dv]
in no order; ``table`` int32 [batch, most pages of a sequence rounded up to 8], 0 beyond them; ``kv_lengths`` int32 [batch], for
the mask, while the problem's lengths say what is read.
Pages that lie wholly in the shared prefix are the same for all sequences. int8 has ``k_scale`` and ``v_scale`` [pages,
kv_heads, page_size], fp8 [1]. ``counters``: zeros (see ``decode``).
"""

import torch

from roofline.cost import ceil_div
from roofline.kernels import decode, quantised, split_kv
from roofline.kernels import reference as references
from roofline.kernels.inputs import TORCH_DTYPES, normal
from roofline.kernels.protocol import Inputs
from roofline.plan import Plan
from roofline.problem import GroupedKV, Problem

supports = split_kv.supports
ENTRIES_A_SECTOR = 8


def make_inputs(problem: Problem, seed: int, device: torch.device) -> Inputs:
    """Return random inputs of ``problem`` in randomly placed pages; a cache in fewer bits is rounded from them."""
    assert isinstance(problem.kv, GroupedKV)
    generator = torch.Generator(device).manual_seed(seed)
    dtype, heads, page = TORCH_DTYPES[problem.dtype.name], problem.kv.heads, problem.page_size
    kv_lengths = [lengths.kv_len for lengths in problem.lengths for _ in range(lengths.count)]
    table, pages = page_table(kv_lengths, page, problem.shared_prefix // page, seed)
    tensors = {
        "q": normal((problem.q_tokens, problem.q_heads, problem.kv.head_dim), dtype, generator),
        "table": table.to(device),
        "kv_lengths": torch.tensor(kv_lengths, dtype=torch.int32, device=device),
    }
    for name, width in (("k", problem.kv.head_dim), ("v", problem.kv.v_head_dim)):
        values = normal((pages * page, heads, width), dtype, generator)
        if problem.kv_dtype.name in quantised.STORED:
            values, scale = quantised.quantise(values, problem.kv_dtype)
            paged_scale = scale.view(heads, pages, page).transpose(0, 1).contiguous() if scale.dim() == 2 else scale
            tensors[f"{name}_scale"] = paged_scale
        tensors[f"{name}_pages"] = values.view(pages, page, heads, width)
    return decode.with_counters(Inputs(problem, tensors))


def page_table(kv_lengths: list[int], page_size: int, shared_pages: int, seed: int) -> tuple[torch.Tensor, int]:
    """Return a table int32 [batch, most pages] of randomly placed pages, and their number; ``shared_pages`` are common."""
    counts = torch.tensor([ceil_div(length, page_size) for length in kv_lengths])
    own = (counts - shared_pages).clamp(min=0)
    pages = max(shared_pages + int(own.sum()), 1)
    place = torch.randperm(pages, generator=torch.Generator().manual_seed(seed)).to(torch.int32)
    # Rows start on a sector, so that a CTA's entries are whole sectors as often as they can be.
    columns = torch.arange(ceil_div(max(int(counts.max()), 1), ENTRIES_A_SECTOR) * ENTRIES_A_SECTOR)
    logical = torch.where(columns < shared_pages, columns, columns + (own.cumsum(0) - own)[:, None])
    return torch.where(columns < counts[:, None], place[logical.clamp(max=pages - 1)], 0).to(torch.int32), pages


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return O [q_tokens, q_heads, dv]: one launch, and a combine if the keys are split."""
    return decode.launch(inputs, plan, out)


def reference(inputs: Inputs) -> torch.Tensor:
    """Return O in float64 from the values that the pages stand for."""
    return references.attention(*dense(inputs), inputs.problem)


def dense(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return q and the packed k and v [kv_tokens, kv_heads, width] that the table points to, times their scales if any."""
    tensors, page = inputs.tensors, inputs.problem.page_size
    table, lengths = tensors["table"].long(), tensors["kv_lengths"].tolist()
    slots = torch.cat(
        [
            row.repeat_interleave(page)[:length] * page + torch.arange(length, device=table.device) % page
            for row, length in zip(table, lengths, strict=True)
        ]
    )
    gathered = []
    for name in "kv":
        values, scale = tensors[f"{name}_pages"].flatten(0, 1), tensors.get(f"{name}_scale")
        if scale is not None and scale.dim() == 3:
            scale = scale.transpose(0, 1).flatten(1)[:, slots]
        gathered.append(quantised.widen(values[slots], scale))
    return tensors["q"], gathered[0], gathered[1]
