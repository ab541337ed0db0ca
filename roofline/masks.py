"""Attention masks, and exact counts of what they leave: pairs, keys, tiles. Closed forms on integers, no loops over tokens.

A mask lets query i of a sequence see a contiguous run of keys (bottom-right alignment): with ``offset = kv_len - q_len``
query i sees keys up to ``offset + i``, the last ``window`` of them if there is a window. Rows before key 0 see nothing.
"""

from dataclasses import dataclass
from typing import NamedTuple


class TileCount(NamedTuple):
    """What a tiled launch runs over one sequence and one head (or one packed group of heads).

    ``q_tiles``: row tiles; ``tiles``: q x kv tiles with at least one unmasked pair, each run whole; ``kv_rows``: rows of K that
    those tiles load, the part of the last tile beyond the tensor left out.
    """

    q_tiles: int
    tiles: int
    kv_rows: int


class Span(NamedTuple):
    """The kv tiles ``first`` to ``last`` (exclusive) that one q tile runs."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Mask:
    """Full (the default), causal bottom-right, or a sliding window of ``window`` keys, the query's own included."""

    causal: bool = False
    window: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether every query sees every key."""
        return not self.causal and self.window is None

    def forgets(self, kv_len: int) -> bool:
        """Whether the window hides keys of ``kv_len``; one that is as long as they are is a causal mask."""
        return self.window is not None and self.window < kv_len

    def pairs(self, q_len: int, kv_len: int) -> int:
        """Number of unmasked (query, key) pairs of one head."""
        if self.is_full:
            return q_len * kv_len
        rows = min(q_len, kv_len)  # rows that see any key; they see kv_len - rows + 1 .. kv_len keys before the window cuts
        shortest = kv_len - rows + 1
        window = kv_len if self.window is None else min(self.window, kv_len)
        growing = max(window - shortest, 0)  # rows that see fewer keys than the window holds
        return growing * (shortest + window - 1) // 2 + (rows - growing) * window

    def visible_keys(self, q_len: int, kv_len: int) -> int:
        """Number of keys that some query sees: what a masked kernel has to read of K and V at least."""
        if q_len == 0 or kv_len == 0:
            return 0
        if self.window is None:
            return kv_len
        return min(kv_len, self.window + min(q_len, kv_len) - 1)

    def first_key(self, q_len: int, kv_len: int) -> int:
        """The first key that some query sees; ``kv_len`` if none sees any."""
        return kv_len - self.visible_keys(q_len, kv_len)

    def cached_keys(self, kv_len: int) -> int:
        """Number of keys a cache has to hold to decode the next token: a window's own, else all."""
        return kv_len if self.window is None else min(kv_len, self.window)

    def span(self, q_len: int, kv_len: int, kv_tile: int, first_query: int, last_query: int) -> Span:
        """The kv tiles that the queries ``first_query`` to ``last_query`` (inclusive) run; empty where they see nothing."""
        if self.is_full:
            return Span(0, -(-kv_len // kv_tile))
        offset = kv_len - q_len
        keys_end = offset + last_query + 1
        if keys_end <= 0:
            return Span(0, 0)
        keys_start = 0 if self.window is None else max(offset + first_query + 1 - self.window, 0)
        return Span(keys_start // kv_tile, -(-keys_end // kv_tile))

    def tile_count(self, q_len: int, kv_len: int, q_tile: int, kv_tile: int, group: int = 1) -> TileCount:
        """Count the tiles over ``q_len * group`` rows, row = query * group + head, in tiles of ``q_tile`` rows.

        ``group`` query heads that share K and V are packed into the rows of one tile; 1 where each head has its own tiles.
        """
        rows = q_len * group
        q_tiles = -(-rows // q_tile)
        if q_tiles == 0 or kv_len == 0:
            return TileCount(q_tiles, 0, 0)
        if self.is_full:
            kv_tiles = -(-kv_len // kv_tile)
            return TileCount(q_tiles, q_tiles * kv_tiles, q_tiles * kv_len)
        offset = kv_len - q_len
        # The last tile may hold fewer rows, so it is counted by itself; before it, tile t ends with row (t + 1) q_tile - 1.
        last = self.span(q_len, kv_len, kv_tile, (q_tiles - 1) * q_tile // group, q_len - 1)
        before = q_tiles - 1
        step = group * kv_tile
        # Tile t sees a key once offset + floor(((t + 1) q_tile - 1) / group) + 1 > 0.
        blank = min(max(-((offset * group - 1) // q_tile) - 1, 0), before)
        ends = floor_sum(before - blank, step, q_tile, group * (offset + kv_tile) + (blank + 1) * q_tile - 1)
        starts = 0
        if self.window is not None:
            shift = group * (offset + 1 - self.window)  # tile t starts at key floor(t q_tile / group) + offset + 1 - window
            first_cut = min(max(-(shift // q_tile), blank), before)
            starts = floor_sum(before - first_cut, step, q_tile, shift + first_cut * q_tile)
        tiles = ends - starts + last.last - last.first
        return TileCount(q_tiles, tiles, tiles * kv_tile - self._overhang(q_len, kv_len, q_tile, kv_tile, group, q_tiles))

    def _overhang(self, q_len: int, kv_len: int, q_tile: int, kv_tile: int, group: int, q_tiles: int) -> int:
        """Rows beyond the tensor in the last, partial kv tile, times the q tiles that run it."""
        partial = kv_len % kv_tile
        if partial == 0:
            return 0
        # Tile t runs the last kv tile if its last query sees a key of it: offset + query + 1 > kv_len - partial.
        first_query = q_len - partial
        first_tile = max(first_query, 0) * group // q_tile
        return (kv_tile - partial) * (q_tiles - first_tile)


FULL = Mask()
CAUSAL = Mask(causal=True)


def floor_sum(count: int, divisor: int, step: int, start: int) -> int:
    """Sum of ``floor((step * i + start) / divisor)`` over i in 0..count-1, for start >= 0, in O(log) steps (Euclid)."""
    total = 0
    while count > 0:
        total += count * (count - 1) // 2 * (step // divisor) + count * (start // divisor)
        step %= divisor
        start %= divisor
        top = step * count + start
        if top < divisor:
            break
        count, start = divmod(top, divisor)
        divisor, step = step, divisor
    return total
