"""Traffic of a tensor of the KV cache, with the scales that belong to it when it is stored below the compute precision."""

from roofline.cost import Sharing, Traffic, sectors
from roofline.problem import Problem


def cached_tensor(
    problem: Problem,
    tensor: str,
    width: int,
    distinct_rows: int,
    rows_read: int,
    ctas: int,
    sharing: Sharing | None,
    edge_rows: int = 0,
) -> tuple[Traffic, ...]:
    """Return the reads of ``tensor``, whose rows are ``width`` elements wide, and of its scales where the KV dtype has any.

    ``distinct_rows``: rows that must be read at least once; ``edge_rows``: others that tiles read, as they are read whole;
    ``rows_read``: rows as the ``ctas`` CTAs request them. A scale of the whole tensor (fp8) is read once a CTA, the scales of a
    row (int8, int4) with the row.
    """
    row, scale, per_tensor = problem.kv_row_bytes(width), problem.scale_row_bytes(width), problem.scale_tensor_bytes
    rows = Traffic(tensor, "input", distinct_rows * row, 0, rows_read * sectors(row), 0, sharing, edge_bytes=edge_rows * row)
    if not scale and not per_tensor:
        return (rows,)
    distinct = distinct_rows * scale + per_tensor
    requested = rows_read * scale + ctas * sectors(per_tensor)
    edge_bytes = edge_rows * scale
    return rows, Traffic(f"{tensor}_scale", "input", distinct, 0, max(requested, distinct), 0, sharing, edge_bytes=edge_bytes)


def window_edge_rows(problem: Problem, kv_tile: int) -> int:
    """Return the keys of one head before the first that a window shows, which share its tile of ``kv_tile`` keys."""
    if problem.mask.window is None:
        return 0
    return sum(count * (problem.mask.first_key(q_len, kv_len) % kv_tile) for q_len, kv_len, count in problem.lengths)
