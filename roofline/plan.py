"""Launch choices that decide traffic. Cost functions and kernels take the same ``Plan``, so they cannot drift apart.

``choose`` looks a tile up in a small table per architecture and sets the rest by rules: the numbers in the tables are the
result of tuning on that architecture, the ``default`` rows serve every other device.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from roofline.cost import ceil_div
from roofline.errors import InputError
from roofline.problem import GroupedKV, LatentKV, Problem
from roofline.profiles.profile import Profile

MMA_ROWS = 16  # rows of the smallest tensor-core tile (mma.sync m16n8k16); decode pads its few rows up to it
WIDEST_TILE = 4096
MIN_HEAD_DIM_TILE = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """How a variant is launched.

    ``kernel``: ``hopper`` where flash attention or absorbed MLA runs the kernel of that architecture, else ``None``.
    ``head_dim_tile`` and ``v_head_dim_tile``: head sizes as padded in registers (recurrent linear attention: the columns of a
    state that one CTA has); ``q_tile`` rows by ``kv_tile`` keys: one step of the inner loop; ``splits``: parts of the keys that
    run as CTAs of their own; ``packed``: the query heads of a KV head share a tile; ``fused``: the last CTA of a row tile
    combines its splits, in the same launch; ``q_chunk``, ``kv_chunk``: blocks of chunked attention; ``passes``: over S and P in
    naive attention.
    """

    implementation: str
    q_tile: int
    kv_tile: int
    head_dim_tile: int
    v_head_dim_tile: int
    form: str | None = None
    splits: int = 1
    packed: bool = False
    fused: bool = False
    q_chunk: int | None = None
    kv_chunk: int | None = None
    passes: int | None = None
    warps: int = 4
    stages: int = 2
    ctas_per_sm: int = 1
    kernel: str | None = None

    def tile_rows(self, rows: int) -> int:
        """Rows of one tile as launched for ``rows`` packed rows of one sequence and KV head (or of one head).

        Prefill runs whole tiles of ``q_tile``. Packed decode runs the smallest power of two that holds the rows, at least the
        MMA minimum and at most ``q_tile``.
        """
        return min(self.q_tile, next_power_of_two(max(rows, MMA_ROWS))) if self.packed else self.q_tile

    @property
    def group_rows(self) -> int:
        """Rows of a q tile that run the same kv tiles: those of a warp group of the Hopper kernel, else all."""
        return min(self.q_tile, HOPPER_GROUP_ROWS) if self.kernel == "hopper" else self.q_tile


class Tile(NamedTuple):
    """One row of a tile table."""

    q_tile: int
    kv_tile: int
    warps: int
    stages: int
    ctas_per_sm: int


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user fixes of a plan: ``tile`` and ``chunk`` are (query, key) sizes.

    ``decode``: whether the plan is that of a decode step; ``None``: by the number of queries. ``portable``: no kernel that only
    one architecture runs.
    """

    tile: tuple[int, int] | None = None
    chunk: tuple[int, int] | None = None
    splits: int | None = None
    passes: int = 3
    form: str | None = None
    decode: bool | None = None
    portable: bool = False

    def is_decode(self, problem: Problem) -> bool:
        """Whether ``problem`` is planned as a decode step."""
        return problem.is_decode if self.decode is None else self.decode

    def __post_init__(self) -> None:
        """Check the sizes that only a plan knows."""
        for option, sizes in (("--tile", self.tile), ("--chunk", self.chunk)):
            most = WIDEST_TILE if option == "--tile" else 2**30
            if sizes is not None and not all(0 < size <= most for size in sizes):
                raise InputError(f"{option} {sizes[0]}x{sizes[1]}: expected sizes from 1 to {most}")
        if self.splits is not None and not 0 < self.splits <= 2**16:
            raise InputError(f"--splits {self.splits}: expected a whole number from 1 to {2**16}")
        if self.passes not in (3, 6):
            raise InputError(f"--naive-passes {self.passes}: expected 3 or 6")


# Rows of the tables below, by compute capability: what fits the registers and the shared memory of a block (163, 99, 227 KiB).
ARCHITECTURES = {
    "8.0": "ampere", "8.6": "small", "8.9": "small", "12.0": "small", "9.0": "hopper", "10.0": "blackwell", "10.3": "blackwell",
}  # fmt: skip
# Tiles by the widest padded head size they serve, narrow first.
PREFILL_TILES: dict[str, dict[int, Tile]] = {
    "default": {
        64: Tile(128, 128, 4, 2, 1),
        128: Tile(128, 128, 8, 2, 1),
        256: Tile(128, 64, 8, 2, 1),
        2**30: Tile(64, 32, 8, 1, 1),
    },
    "ampere": {
        64: Tile(128, 64, 8, 3, 1),
        128: Tile(64, 64, 8, 2, 1),
        256: Tile(64, 64, 8, 2, 1),
        2**30: Tile(64, 32, 8, 1, 1),
    },
    "small": {
        64: Tile(128, 64, 8, 3, 1),
        128: Tile(64, 64, 8, 2, 1),
        256: Tile(64, 32, 8, 2, 1),
        2**30: Tile(64, 32, 8, 1, 1),
    },
    "hopper": {
        64: Tile(128, 64, 4, 3, 2),
        128: Tile(128, 64, 8, 2, 2),
        256: Tile(128, 64, 8, 2, 1),
        2**30: Tile(64, 32, 8, 1, 1),
    },
    "blackwell": {
        64: Tile(128, 128, 8, 2, 1),
        128: Tile(128, 64, 8, 2, 1),
        256: Tile(128, 32, 8, 2, 1),
        2**30: Tile(64, 32, 8, 1, 1),
    },
}
# Flash attention over 16-bit elements, where equal sequences leave registers for more than the table above: "whole" without a
# mask and without a cut kv tile, "uniform" else.
FLASH_TILES: dict[str, dict[str, dict[int, Tile]]] = {
    "whole": {"hopper": {64: Tile(64, 128, 4, 2, 3), 128: Tile(128, 64, 4, 2, 2)}},
    "uniform": {"ampere": {128: Tile(128, 32, 8, 2, 1)}, "hopper": {64: Tile(64, 64, 4, 3, 3)}},
}
# The Hopper kernel of flash attention, by head size: each warp group has 64 query rows, four more warps load.
HOPPER_GROUP_ROWS = 64
HOPPER_LIGHT_PART = 4  # q tiles with at most this part of the most kv tiles come last, to even out what the CTAs have
HOPPER_TILES = {64: Tile(192, 64, 16, 4, 1), 128: Tile(128, 128, 12, 2, 1), 256: Tile(128, 64, 12, 2, 1)}
HEADS_L2_PART = 0.4  # of the L2, which K and V of the heads that causal prefill orders together may take: shared data has half
# Elements of four bytes fill shared memory sooner.
TF32_PREFILL_TILES: dict[str, dict[int, Tile]] = {
    "default": {
        64: Tile(64, 64, 8, 2, 1),
        128: Tile(64, 64, 8, 2, 1),
        256: Tile(32, 32, 8, 1, 1),
        2**30: Tile(32, 32, 8, 1, 1),
    },
    "small": {
        64: Tile(64, 64, 8, 2, 1),
        128: Tile(64, 32, 8, 2, 1),
        256: Tile(32, 32, 8, 1, 1),
        2**30: Tile(32, 32, 8, 1, 1),
    },
    "hopper": {
        64: Tile(128, 64, 8, 2, 1),
        128: Tile(128, 64, 8, 2, 1),
        256: Tile(64, 16, 8, 2, 1),
        2**30: Tile(32, 32, 8, 1, 1),
    },
    "blackwell": {
        64: Tile(64, 64, 8, 2, 1),
        128: Tile(64, 64, 8, 2, 1),
        256: Tile(64, 16, 8, 2, 1),
        2**30: Tile(32, 32, 8, 1, 1),
    },
}
# On the vector units whole operands of a tile lie in registers.
FP32_PREFILL_TILES: dict[str, dict[int, Tile]] = {
    "default": {
        64: Tile(32, 32, 8, 1, 1),
        128: Tile(32, 16, 8, 1, 1),
        256: Tile(16, 16, 8, 1, 1),
        2**30: Tile(16, 16, 8, 1, 1),
    },
}
DECODE_TILES: dict[str, dict[int, Tile]] = {
    "default": {
        128: Tile(64, 64, 4, 3, 1),
        2**30: Tile(64, 64, 8, 2, 1),
    },
    "small": {
        128: Tile(64, 64, 4, 3, 1),
        2**30: Tile(64, 32, 4, 2, 1),
    },
    "hopper": {
        128: Tile(64, 64, 4, 3, 2),
        2**30: Tile(64, 64, 8, 2, 2),
    },
}
# On the vector units whole operands of a tile lie in registers.
FP32_DECODE_TILES: dict[str, dict[int, Tile]] = {
    "default": {2**30: Tile(64, 32, 8, 2, 2)},
}
# Where the KV heads of a batch alone nearly fill the SMs, one CTA on each: "whole" needs no splits and so no combine, "split"
# has the bytes in flight for a few long runs of keys. Up to 32 rows, of which keys are the rows of the products, take "split"
# for both.
LONE_DECODE_TILES: dict[str, dict[str, Tile]] = {
    "hopper": {"whole": Tile(64, 64, 4, 4, 1), "split": Tile(64, 128, 4, 3, 1)},
}
FUSING = ("hopper",)  # where the combine fits the registers of the attention before it
LONE_ROWS = 32  # at most; more need the registers of more warps
FEW_TILES = 4  # kv tiles a CTA, below which one CTA on an SM is as fast as several
LONE_SHARE = 0.9  # of the SMs, at least
LONE_RUN, LONE_SWAPPED_RUN = 8192, 3072  # keys of a split, at least: of up to 16 rows and of more
# Caches of 8-bit elements: half the bytes a key, so twice the keys for as many bytes in flight. They are widened in registers,
# which suffice for the fewest rows.
QUANTISED_DECODE_TILES: dict[str, dict[int, Tile]] = {
    "default": DECODE_TILES["default"],
    "small": DECODE_TILES["small"],
    "hopper": {
        128: Tile(64, 128, 4, 3, 2),
        2**30: Tile(64, 64, 8, 2, 2),
    },
}
# A latent cache is wide for every problem; its tiles go by the packed rows of the shortest query. An accumulator of 64 rows by
# 512 values needs the registers of eight warps, which fewer rows by 32 keys do not keep busy.
LATENT_TILES: dict[str, dict[int, Tile]] = {
    "default": {
        32: Tile(32, 32, 4, 3, 1),
        2**30: Tile(32, 64, 8, 2, 1),  # 64 rows spill without wgmma
    },
    "small": {
        32: Tile(32, 32, 4, 2, 1),
        2**30: Tile(32, 32, 4, 2, 1),
    },
    "hopper": {
        32: Tile(32, 32, 4, 3, 2),
        2**30: Tile(64, 32, 8, 4, 1),
    },
}
# The Hopper kernels of a latent cache, by packed rows: `kernels.mla_hopper_few` and `mla_hopper`. Two groups of four warps
# multiply, a warp of a third loads.
HOPPER_LATENT_TILES = {32: Tile(32, 64, 12, 2, 1), 2**30: Tile(64, 64, 12, 2, 1)}
HOPPER_LATENT_WIDTHS = (512, 64)
# CTAs of one length, more than fit at once: as many waves of them as leave little to the last, each run of keys still long.
EVEN_WAVES, EVEN_RUN = 7, 2048
SPLIT_TILES = 3  # kv tiles that take as long as a split's start and end: Q, the first tiles, a partial O
# The same for few rows, which HBM limits, in the time of a kv tile with all SMs at work: a wave's start, what a split adds to
# the combine. A wave that leaves SMs idle takes 0.6 of that at least.
FEW_START_TILES, FEW_SPLIT_TILES = 2.5, 1 / 12
LEAST_WAVE, MOST_FEW_WAVES = 0.6, 4
STATE_COLUMNS, STATE_WARPS, STATE_CTAS = 32, 4, 8  # of a CTA of recurrent linear attention: 16 KB of a state of 128 rows
LINEAR_TILES: dict[str, dict[int, Tile]] = {  # a chunk is kv_tile queries of one head; a CTA holds a state in registers
    "default": {
        64: Tile(64, 64, 4, 2, 1),
        2**30: Tile(64, 64, 8, 2, 1),
    },
}
DEFAULT_CHUNK = (1024, 4096)  # Rabe and Staats, arXiv:2112.05682, section 3


def choose(variant: str, implementation: str, problem: Problem, profile: Profile, choices: Choices = Choices()) -> Plan:
    """Return the plan of ``variant`` as ``implementation`` launches it for ``problem`` on ``profile``.

    Raises ``InputError`` for a variant or form that does not exist.
    """
    if variant not in _RULES:
        raise InputError(f"--variants: unknown variant {variant!r}; expected one of {', '.join(_RULES)}")
    return _RULES[variant](implementation, problem, profile, choices)


@cache
def padded_width(width: int) -> int:
    """Head size as it is padded in registers: the next power of two, at least 16."""
    return next_power_of_two(max(width, MIN_HEAD_DIM_TILE))


def next_power_of_two(value: int) -> int:
    """Smallest power of two that is not below ``value``."""
    return 1 << (value - 1).bit_length()


def _naive(implementation: str, problem: Problem, profile: Profile, choices: Choices) -> Plan:
    tile, widths = _tile(_prefill_tiles(problem), problem, profile, choices), _widths(problem)
    q_tile = tile.q_tile if choices.tile or not choices.is_decode(problem) else MMA_ROWS
    return Plan(implementation, q_tile, tile.kv_tile, *widths, passes=choices.passes, warps=tile.warps, stages=tile.stages)


def _chunked(implementation: str, problem: Problem, profile: Profile, choices: Choices) -> Plan:
    q_chunk, kv_chunk = choices.chunk or DEFAULT_CHUNK
    tile, widths = _tile(_prefill_tiles(problem), problem, profile, choices), _widths(problem)
    q_tile = tile.q_tile if choices.tile or not choices.is_decode(problem) else MMA_ROWS
    return Plan(
        implementation, q_tile, tile.kv_tile, *widths, q_chunk=q_chunk, kv_chunk=kv_chunk, warps=tile.warps, stages=tile.stages
    )


def _flash(implementation: str, problem: Problem, profile: Profile, choices: Choices) -> Plan:
    plan = _flash_like(implementation, problem, profile, choices, _widths(problem), None)
    if choices.tile or choices.is_decode(problem):
        return plan
    if _wants_hopper_kernel(profile, choices) and is_hopper_problem(problem):
        return replace(plan, kernel="hopper", **HOPPER_TILES[problem.kv.head_dim]._asdict())
    own = _flash_tile(problem, profile)
    return plan if own is None else replace(plan, **own._asdict())


def _wants_hopper_kernel(profile: Profile, choices: Choices) -> bool:
    return ARCHITECTURES.get(profile.compute_capability) == "hopper" and choices.tile is None and not choices.portable


def is_hopper_problem(problem: Problem) -> bool:
    """Whether the Hopper kernel of flash attention covers ``problem``: equal 16-bit sequences whose every query sees a key."""
    kv = problem.kv
    if len(problem.lengths) != 1 or problem.dtype.bits != 16 or problem.kv_dtype != problem.dtype:
        return False
    if not isinstance(kv, GroupedKV) or kv.head_dim != kv.v_head_dim or kv.head_dim not in HOPPER_TILES:
        return False
    q_len, kv_len, _ = problem.lengths[0]
    return q_len > 0 and kv_len > 0 and (problem.mask.is_full or q_len <= kv_len)


def _flash_tile(problem: Problem, profile: Profile) -> Tile | None:
    """The tile of equal sequences where it differs from that of all others."""
    if len(problem.lengths) > 1 or problem.dtype.bits != 16:
        return None
    architecture = ARCHITECTURES.get(profile.compute_capability, "default")
    width = next(most for most in PREFILL_TILES["default"] if max(_widths(problem)) <= most)
    whole = FLASH_TILES["whole"].get(architecture, {}).get(width)
    if whole is not None and problem.mask.is_full and problem.lengths[0].kv_len % whole.kv_tile == 0:
        return whole
    return FLASH_TILES["uniform"].get(architecture, {}).get(width)


def _flash_like(
    implementation: str, problem: Problem, profile: Profile, choices: Choices, widths: tuple[int, int], form: str | None
) -> Plan:
    tile = _tile(_prefill_tiles(problem), problem, profile, choices, max(widths))
    # A window's two edges, and the addresses of unequal sequences, take the registers of a second CTA.
    is_plain = problem.mask.window is None and len(problem.lengths) == 1
    q_tile = tile.q_tile if choices.tile or not choices.is_decode(problem) else MMA_ROWS
    return Plan(
        implementation,
        q_tile,
        tile.kv_tile,
        *widths,
        form=form,
        warps=tile.warps,
        stages=tile.stages,
        ctas_per_sm=tile.ctas_per_sm if is_plain else 1,
    )


def _split_kv(implementation: str, problem: Problem, profile: Profile, choices: Choices) -> Plan:
    return _decode(implementation, problem, profile, choices, None if choices.tile else _lone_tile(problem, profile))


def _paged(implementation: str, problem: Problem, profile: Profile, choices: Choices) -> Plan:
    return _decode(implementation, problem, profile, choices, None)


def _lone_tile(problem: Problem, profile: Profile) -> Tile | None:
    """The tile of equal sequences whose KV heads nearly fill the SMs with one CTA each, if there is one."""
    tiles = LONE_DECODE_TILES.get(ARCHITECTURES.get(profile.compute_capability, "default"))
    sixteen_bits = problem.dtype.bits == problem.kv_dtype.bits == 16
    if tiles is None or profile.sm_count is None or not sixteen_bits or len(problem.lengths) > 1 or max(_widths(problem)) > 128:
        return None
    q_len, kv_len, count = problem.lengths[0]
    heads = count * problem.kv_heads
    splits = profile.sm_count // heads if heads else 0
    rows = q_len * problem.group
    if rows > LONE_ROWS or heads * splits < LONE_SHARE * profile.sm_count:
        return None
    if splits == 1:
        return tiles["whole"] if rows <= MMA_ROWS else tiles["split"]
    run = LONE_RUN if rows <= MMA_ROWS else LONE_SWAPPED_RUN
    return tiles["split"] if problem.mask.visible_keys(q_len, kv_len) >= splits * run else None


def _decode(implementation: str, problem: Problem, profile: Profile, choices: Choices, lone: Tile | None) -> Plan:
    rows = max(lengths.q_len for lengths in problem.lengths) * problem.group
    tables = QUANTISED_DECODE_TILES if problem.kv_dtype.bits == 8 and rows <= MMA_ROWS else DECODE_TILES
    if problem.dtype.matmul_unit == "vector":
        tables = FP32_DECODE_TILES
    # The tables are for 16-bit products: wider ones need the registers and shared memory of a wider head.
    width = max(_widths(problem)) * max(problem.dtype.bits, 16) // 16
    tile = lone or _tile(tables, problem, profile, choices, width)
    if profile.sm_count and _packed_tiles(problem, tile).total < FEW_TILES * profile.sm_count * tile.ctas_per_sm:
        tile = tile._replace(ctas_per_sm=1)  # a second CTA on an SM would only add to what is combined
    plan = _packed(implementation, problem, profile, choices, tile, _widths(problem), None)
    # Runs of unequal lengths end at different times, so that the last of a row tile combines while others still read.
    fits = ARCHITECTURES.get(profile.compute_capability) in FUSING and rows <= MMA_ROWS
    return replace(plan, fused=fits and plan.splits > 1 and len(problem.lengths) > 1)


def _packed(
    implementation: str,
    problem: Problem,
    profile: Profile,
    choices: Choices,
    tile: Tile,
    widths: tuple[int, int],
    form: str | None,
) -> Plan:
    return Plan(
        implementation,
        tile.q_tile,
        tile.kv_tile,
        *widths,
        form=form,
        splits=choices.splits or _splits(problem, profile, tile),
        packed=True,
        warps=tile.warps,
        stages=tile.stages,
        ctas_per_sm=tile.ctas_per_sm,
    )


def _splits(problem: Problem, profile: Profile, tile: Tile) -> int:
    """Splits that fill the SMs once: the longest sequence gets the share of the CTA slots that its tiles are of all tiles.

    Where the row tiles of equal sequences fill them a few times, and partials are small, splits make so many waves of them that
    the last weighs little. No split is left without a tile. Without a known SM count nothing is split.
    """
    if profile.sm_count is None:
        return 1
    longest, total = _packed_tiles(problem, tile)
    if total == 0:
        return 1
    slots = profile.sm_count * tile.ctas_per_sm
    splits = max(slots * longest // total, 1)
    if slots * longest < total and _has_small_partials(problem):
        splits = max(min(ceil_div(EVEN_WAVES * slots * longest, total), longest * tile.kv_tile // EVEN_RUN), 1)
    return filled_splits(longest, splits)


def _has_small_partials(problem: Problem) -> bool:
    """Whether what a split leaves is little beside a long run of keys: few rows, and those not as wide as latents."""
    lengths = problem.lengths[0]
    return len(problem.lengths) == 1 and isinstance(problem.kv, GroupedKV) and lengths.q_len * problem.group <= LONE_ROWS


class PackedTiles(NamedTuple):
    """The kv tiles of a packed launch: those of the longest sequence's row tile, and those of all sequences and KV heads."""

    longest: int
    total: int


def _packed_tiles(problem: Problem, tile: Tile) -> PackedTiles:
    longest, total = 0, 0
    for q_len, kv_len, count in problem.lengths:
        tiles = problem.mask.tile_count(q_len, kv_len, tile.q_tile, tile.kv_tile, problem.group)
        longest = max(longest, -(-tiles.tiles // max(tiles.q_tiles, 1)))
        total += count * problem.kv_heads * tiles.tiles
    return PackedTiles(longest, total)


def _mla(implementation: str, problem: Problem, profile: Profile, choices: Choices) -> Plan:
    kv = problem.kv
    if not isinstance(kv, LatentKV):
        raise InputError("mla needs a latent KV cache: --latent-dim and --rope-dim")
    form = choices.form or ("absorbed" if choices.is_decode(problem) else "expanded")
    rope = padded_width(kv.rope_dim) if kv.rope_dim else 0
    if form == "expanded":
        widths = (padded_width(kv.head_dim) + rope, padded_width(kv.v_head_dim))
        return _flash_like(implementation, problem, profile, choices, widths, form)
    if form == "absorbed":
        latent = padded_width(kv.latent_dim)
        rows = min(lengths.q_len for lengths in problem.lengths) * problem.q_heads
        tile = _tile(LATENT_TILES, problem, profile, choices, rows)
        is_hopper = _wants_hopper_kernel(profile, choices) and is_hopper_latent(problem)
        if is_hopper:
            tile = hopper_latent_tile(problem)
            few = tile.q_tile == min(HOPPER_LATENT_TILES)
            splits = choices.splits or (_shared_waves if few else _whole_waves)(problem, profile, tile)
            choices = replace(choices, splits=splits)
        plan = _packed(implementation, problem, profile, choices, tile, (latent + rope, latent), form)
        return replace(plan, kernel="hopper" if is_hopper else None)
    raise InputError(f"mla: unknown form {form!r}; expected expanded or absorbed")


def is_hopper_latent(problem: Problem) -> bool:
    """Whether the Hopper kernels of absorbed MLA cover ``problem``: equal sequences with keys, 16-bit latents, no window."""
    kv, lengths = problem.kv, problem.lengths[0]
    return (
        isinstance(kv, LatentKV)
        and (kv.latent_dim, kv.rope_dim) == HOPPER_LATENT_WIDTHS
        and problem.dtype.bits == 16
        and problem.kv_dtype == problem.dtype
        and problem.mask.window is None
        and len(problem.lengths) == 1
        and lengths.q_len * lengths.kv_len > 0
    )


def hopper_latent_tile(problem: Problem) -> Tile:
    """The tile of the Hopper kernels of absorbed MLA."""
    rows = problem.lengths[0].q_len * problem.q_heads
    return HOPPER_LATENT_TILES[min(HOPPER_LATENT_TILES) if rows <= min(HOPPER_LATENT_TILES) else max(HOPPER_LATENT_TILES)]


def _whole_waves(problem: Problem, profile: Profile, tile: Tile) -> int:
    """Splits of equal sequences, one CTA on an SM, that are done soonest: waves of CTAs times the kv tiles of each."""
    if profile.sm_count is None:
        return 1
    q_len, kv_len, batch = problem.lengths[0]
    row_tiles = batch * problem.kv_heads * ceil_div(q_len * problem.group, tile.q_tile)
    kv_tiles = ceil_div(kv_len, tile.kv_tile)

    def time(splits: int) -> tuple[float, int]:
        return ceil_div(row_tiles * splits, profile.sm_count or 1) * (ceil_div(kv_tiles, splits) + SPLIT_TILES), splits

    return _soonest(kv_tiles, ceil_div(2 * profile.sm_count, row_tiles), time)


def _shared_waves(problem: Problem, profile: Profile, tile: Tile) -> int:
    """As ``_whole_waves`` where HBM is the limit: a wave that leaves SMs idle is faster, up to twice as fast."""
    if profile.sm_count is None:
        return 1
    kv_tiles, row_tiles, sms = ceil_div(problem.lengths[0].kv_len, tile.kv_tile), problem.batch, profile.sm_count

    def time(splits: int) -> tuple[float, int]:
        waves, rest = divmod(row_tiles * splits, sms)
        shares = waves + (max(rest / sms, LEAST_WAVE) if rest else 0.0)
        return shares * ceil_div(kv_tiles, splits) + FEW_START_TILES * (waves + (rest > 0)) + FEW_SPLIT_TILES * splits, splits

    return _soonest(kv_tiles, ceil_div(MOST_FEW_WAVES * sms, row_tiles), time)


def _soonest(kv_tiles: int, most: int, time: Callable[[int], tuple[float, int]]) -> int:
    """Of up to ``most`` splits, none of them without a tile, those for which ``time`` is least."""
    return min({filled_splits(kv_tiles, splits) for splits in range(1, min(most, kv_tiles) + 1)}, key=time)


def filled_splits(kv_tiles: int, splits: int) -> int:
    """Splits that get a tile when ``kv_tiles`` (one at least) are dealt out evenly over ``splits``."""
    return ceil_div(kv_tiles, ceil_div(kv_tiles, splits))


def _linear(implementation: str, problem: Problem, profile: Profile, choices: Choices) -> Plan:
    form = choices.form or ("recurrent" if choices.is_decode(problem) else "chunked")
    if form == "parallel":
        return _flash_like(implementation, problem, profile, choices, _widths(problem), form)
    if form not in ("chunked", "recurrent"):
        raise InputError(f"linear: unknown form {form!r}; expected parallel, chunked or recurrent")
    tile = _tile(LINEAR_TILES, problem, profile, choices)
    widths = _widths(problem)
    if form == "recurrent":
        widths = (widths[0], min(widths[1], STATE_COLUMNS))
        tile = tile._replace(warps=STATE_WARPS, ctas_per_sm=STATE_CTAS)
    return Plan(
        implementation,
        tile.q_tile,
        tile.kv_tile,
        *widths,
        form=form,
        packed=True,
        warps=tile.warps,
        stages=tile.stages,
        ctas_per_sm=tile.ctas_per_sm,
    )


def _prefill_tiles(problem: Problem) -> dict[str, dict[int, Tile]]:
    if problem.dtype.matmul_unit == "vector":
        return FP32_PREFILL_TILES
    return TF32_PREFILL_TILES if problem.dtype.name == "tf32" else PREFILL_TILES


def _tile(
    tables: dict[str, dict[int, Tile]], problem: Problem, profile: Profile, choices: Choices, width: int | None = None
) -> Tile:
    table = tables.get(ARCHITECTURES.get(profile.compute_capability, "default"), tables["default"])
    width = max(_widths(problem)) if width is None else width
    tile = next((tile for most, tile in table.items() if width <= most), table[max(table)])
    return tile if choices.tile is None else tile._replace(q_tile=choices.tile[0], kv_tile=choices.tile[1])


def _widths(problem: Problem) -> tuple[int, int]:
    if not isinstance(problem.kv, GroupedKV):
        raise InputError("a latent KV cache (--latent-dim) runs as mla only")
    return padded_width(problem.kv.head_dim), padded_width(problem.kv.v_head_dim)


_RULES: dict[str, Callable[[str, Problem, Profile, Choices], Plan]] = {
    "naive": _naive,
    "chunked": _chunked,
    "flash": _flash,
    "split-kv": _split_kv,
    "paged": _paged,
    "mla": _mla,
    "linear": _linear,
}
