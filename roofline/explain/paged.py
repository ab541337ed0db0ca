"""Paged decode: split-KV, and a page table and a length a sequence beside it."""

from roofline.cost import sectors
from roofline.explain.counts import keys_seen, per_run
from roofline.explain.flash import row_widths
from roofline.explain.formula import Factor, Formula, Quantity, larger, minus, product
from roofline.explain.launches import Figures, Formulas
from roofline.explain.split_kv import grouped_reads, loaded_rows, packed_attention
from roofline.plan import Plan
from roofline.problem import GroupedKV, Lengths, Problem
from roofline.variants.paged import INDEX_BYTES, shared_keys, table_reads, visible_pages
from roofline.variants.split_kv import count_packed


def formulas(problem: Problem, plan: Plan) -> Formulas:
    """Split-KV over pages; pages of a shared prefix are distinct once."""
    kv = problem.kv
    assert isinstance(kv, GroupedKV)
    packed, seen, loaded = count_packed(problem, plan), keys_seen(problem), loaded_rows(problem, plan)
    kv_heads, shared, page = Factor("KV heads", kv.heads), shared_keys(problem), problem.page_size
    stored = seen
    if shared:
        saved = minus(product(("keys in shared pages", shared)))
        stored = Quantity("keys stored", "keys seen, those in shared pages once", product(seen.factor) + saved)
    entries = Quantity(
        "page table entries",
        f"pages of {page} tokens with a key that some query sees",
        per_run(problem, lambda run: product(("pages", visible_pages(problem, run)))),
    )

    def table(run: Lengths) -> Formula:
        counted = problem.mask.tile_count(run.q_len, run.kv_len, plan.q_tile, plan.kv_tile, problem.group)
        of = table_reads(problem, plan, run, counted.tiles)
        rows = Factor("row tiles", of.row_tiles)
        whole = product(rows, ("splits", of.splits), ("B in sectors", of.split_bytes))
        return whole + product(rows, ("B in sectors for the last split", of.last_bytes)) if of.last_bytes else whole

    table_bytes = Quantity("B of page table", "table entries that the splits of a KV head read", per_run(problem, table))
    least = product(entries.factor, ("B", INDEX_BYTES))
    lengths_read: Figures = {
        "read_bytes_min": product(("sequences", problem.batch), ("B", INDEX_BYTES)),
        "sm_read_bytes": product(("CTAs of a KV head", packed.ctas), kv_heads, ("B in sectors", sectors(INDEX_BYTES))),
    }
    reads: dict[str, Figures] = {
        **grouped_reads(problem, kv, (stored.factor, kv_heads), (loaded.factor, kv_heads), packed),
        "page_table": {"read_bytes_min": least, "sm_read_bytes": larger(product(table_bytes.factor, kv_heads), least)},
        "kv_lengths": lengths_read,
    }
    explained = packed_attention("paged", problem, plan, packed, reads, kv.head_dim, kv.v_head_dim)
    widths = row_widths(problem, kv.head_dim, kv.v_head_dim)
    quantities = (*explained.quantities, seen, stored, loaded, entries, table_bytes, *widths)
    return Formulas(quantities, explained.launches, explained.workspace)
