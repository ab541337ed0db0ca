"""The quantities that the lines of an explanation are made of: pairs, keys seen, tiles, rows loaded, bytes of a row.

Each is a sum over the runs of equal sequences of a batch, in the closed form that applies.
"""

from collections.abc import Callable, Iterable

from roofline.cost import SECTOR_BYTES, ceil_div, sectors
from roofline.explain.formula import Factor, Formula, Quantity, arithmetic_runs, product, total
from roofline.masks import Mask
from roofline.problem import Lengths, Problem

MAX_LISTED_TILES = 4096  # row tiles that are walked to find how their kv tiles grow
MAX_RUNS = 6  # runs of row tiles that are written out
FLOPS = Factor("FLOPs", 2)  # one multiply-add


def per_run(problem: Problem, formula: Callable[[Lengths], Formula]) -> Formula:
    """Sum ``formula`` of one sequence over the batch."""
    return total(product(("sequences", lengths.count)).of(formula(lengths)) for lengths in problem.lengths)


def pairs(problem: Problem) -> Quantity:
    """The unmasked pairs of one query head."""
    meaning = f"unmasked (query, key) pairs of a query head: {_form(problem)}"
    return Quantity("pairs", meaning, per_run(problem, lambda run: _pairs(problem.mask, run.q_len, run.kv_len)))


def _form(problem: Problem) -> str:
    square = all(run.q_len == run.kv_len for run in problem.lengths)
    if problem.mask.window is not None:
        return "W (W + 1) / 2 + (n - W) W" if square else "queries that see fewer than W keys, and those that see W"
    if problem.mask.causal:
        return "n (n + 1) / 2" if square else "queries × (keys of the first + keys of the last) / 2"
    return "queries × keys"


def _pairs(mask: Mask, q_len: int, kv_len: int) -> Formula:
    if mask.is_full:
        return product(("queries", q_len), ("keys", kv_len))
    rows = min(q_len, kv_len)
    if rows == 0:
        return product(("queries that see a key", 0))
    name = "queries" if rows == q_len else "queries that see a key"
    fewest, most = kv_len - rows + 1, kv_len if mask.window is None else min(mask.window, kv_len)
    if fewest >= most:  # every query sees a whole window (or there is but one query)
        return product((name, rows), ("keys", most))
    growing = most - fewest + 1
    formula = product((name, growing), (f"({fewest:,} + {most:,}) keys", fewest + most), divided_by=2)
    if growing == rows:
        return formula
    return formula + product(("more queries", rows - growing), ("keys", most))


def keys_seen(problem: Problem) -> Quantity:
    """Keys that some query sees."""

    def seen(run: Lengths) -> Formula:
        keys = problem.mask.visible_keys(run.q_len, run.kv_len)
        if keys == run.kv_len:
            return product(("keys", keys))
        return product(("keys (window + queries - 1)", keys))

    return Quantity("keys seen", "keys that some query sees", per_run(problem, seen))


def query_tokens(problem: Problem) -> Quantity:
    """Query tokens of the batch."""
    return Quantity("queries", "query tokens of the batch", per_run(problem, lambda run: product(("queries", run.q_len))))


def key_tokens(problem: Problem) -> Quantity:
    """Key tokens of the batch."""
    return Quantity("keys", "key tokens of the batch", per_run(problem, lambda run: product(("keys", run.kv_len))))


def row_tiles(problem: Problem, q_tile: int) -> Quantity:
    """Row tiles of one head, the last of a sequence may be cut."""

    def tiles(run: Lengths) -> Formula:
        return product((f"q tiles of {q_tile}", ceil_div(run.q_len, q_tile)))

    return Quantity("q tiles", f"queries / {q_tile}, rounded up", per_run(problem, tiles))


def tiles(problem: Problem, q_tile: int, kv_tile: int, group: int = 1) -> Quantity:
    """Tiles run by one head, or by one KV head whose ``group`` query heads share row tiles."""
    rows = f"{q_tile} queries" if group == 1 else f"{q_tile} rows (query × head of the group)"
    meaning = f"tiles of {rows} × {kv_tile} keys with an unmasked pair, each run whole"
    return Quantity("tiles", meaning, per_run(problem, lambda run: tiles_of_run(problem.mask, run, q_tile, kv_tile, group)))


def tiles_of_run(mask: Mask, run: Lengths, q_tile: int, kv_tile: int, group: int = 1) -> Formula:
    """Tiles of one sequence, as the sum over its row tiles."""
    counted = mask.tile_count(run.q_len, run.kv_len, q_tile, kv_tile, group)
    name = "q tiles" if group == 1 else "row tiles"
    if mask.is_full or counted.tiles == 0 or counted.q_tiles == 1:
        return product((name, counted.q_tiles), ("kv tiles", counted.tiles // counted.q_tiles))
    if counted.q_tiles <= MAX_LISTED_TILES:
        rows = run.q_len * group
        spans = [
            mask.span(run.q_len, run.kv_len, kv_tile, t * q_tile // group, (min((t + 1) * q_tile, rows) - 1) // group)
            for t in range(counted.q_tiles)
        ]
        lengths = [span.last - span.first for span in spans]
        for every in (1, 2, 4):  # narrow row tiles come in twos or fours that run as many kv tiles
            runs = [run for first in range(every) for run in arithmetic_runs(lengths[first::every])]
            if len(runs) <= MAX_RUNS:
                return total(_progression(name, *run) for run in runs if run[1] or run[2])
    return product((f"kv tiles, summed over {counted.q_tiles:,} {name}", counted.tiles))


def _progression(name: str, count: int, first: int, last: int) -> Formula:
    """Kv tiles of ``count`` row tiles that run from ``first`` to ``last`` of them in equal steps."""
    if first == last:
        return product((name, count), ("kv tiles", first))
    return product((name, count), (f"({first:,} + {last:,}) kv tiles", first + last), divided_by=2)


def rows_loaded(problem: Problem, q_tile: int, kv_tile: int, group: int = 1) -> Quantity:
    """Rows of K that the tiles of one head load; what lies beyond the end of the tensor is not loaded."""
    name = "q tiles" if group == 1 else "row tiles"

    def loaded(run: Lengths) -> Formula:
        counted = problem.mask.tile_count(run.q_len, run.kv_len, q_tile, kv_tile, group)
        if counted.kv_rows == counted.q_tiles * run.kv_len:
            return product((name, counted.q_tiles), ("keys", run.kv_len))
        partial = run.kv_len % kv_tile
        beyond = counted.tiles * kv_tile - counted.kv_rows
        cut = beyond // (kv_tile - partial) if beyond else 0
        whole = product(("tiles", counted.tiles - cut), ("keys", kv_tile))
        return whole + product(("tiles cut by the end", cut), ("keys", partial)) if cut else whole

    shared = "query head" if group == 1 else "KV head"
    meaning = f"rows of K (and of V) that the tiles of a {shared} load: once per {name.removesuffix('s')} that sees them"
    return Quantity("rows loaded", meaning, per_run(problem, loaded))


def row(tensor: str, width: int, width_name: str, bits: int) -> Quantity:
    """Bytes of one row."""
    name = f"B a row of {tensor}"
    if bits % 8 == 0:
        formula = product((width_name, width), ("B", bits // 8))
    elif width * bits % 8 == 0:
        formula = product((width_name, width), ("bits", bits), divided_by=8)
    else:
        formula = product((f"B ({width_name} {width:,} × {bits} bits, rounded up)", (width * bits + 7) // 8))
    return Quantity(name, "in 32-byte sectors on the SM side" if _cut(formula.value) else "whole 32-byte sectors", formula)


def _cut(num_bytes: int) -> bool:
    return num_bytes % SECTOR_BYTES != 0


def row_bytes(num_bytes: int) -> Factor:
    """Bytes of a row as a factor."""
    return Factor("B", num_bytes)


def row_sectors(num_bytes: int) -> Factor:
    """Bytes of a row in whole sectors as a factor; its name says so where that is more."""
    return Factor("B in sectors" if _cut(num_bytes) else "B", sectors(num_bytes))


def distinct(quantities: Iterable[Quantity]) -> list[Quantity]:
    """Each quantity once, in order."""
    return list({quantity.symbol: quantity for quantity in quantities}.values())
