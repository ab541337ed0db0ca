"""What a configuration costs, as plain values: launches, and for each its work by unit and its traffic by tensor.

All counts are exact integers that depend on the problem and the plan alone; the device enters later (``cache``, ``model``).
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Role = Literal["input", "output", "intermediate"]
SECTOR_BYTES = 32  # the unit in which SMs request memory


Order = Literal["equal", "falling", "together", "light-last", "windowed"]


class Sharing(NamedTuple):
    """How the CTAs of a launch share a tensor that they read: ``streams`` disjoint pieces, each read by a run of CTAs.

    ``ctas_per_stream`` consecutive CTAs of the grid read the same piece (for flash: the q tiles of one head read its K and V),
    in ``passes`` one after another (the query heads of a group). ``order``: every CTA of a pass reads as much as the others;
    each reads less than the one before it (causal), one head after the other, or those that fit the L2 together, or so but for
    the CTAs that read at most ``light_share`` of the piece, which come at the very end; or each reads its window.
    """

    streams: int
    ctas_per_stream: int
    passes: int = 1
    order: Order = "equal"
    light_share: float = 0.0


class Traffic(NamedTuple):
    """Bytes that one launch moves for one tensor.

    ``*_min``: distinct bytes, each once, summed over the ``count`` launches; ``sm_*``: what SMs request, re-reads included, in
    32-byte sectors. ``tensor_bytes``: distinct bytes over all of them together, where that is less than the sum. ``buffer``:
    the scratch memory that the tensor lies in, where it takes that of another. ``at_end``: CTAs write it as they end.
    ``edge_bytes``: read beside the minimum, because tiles are read whole: keys before the first that a window shows.
    """

    tensor: str
    role: Role
    read_bytes_min: int = 0
    write_bytes_min: int = 0
    sm_read_bytes: int = 0
    sm_write_bytes: int = 0
    sharing: Sharing | None = None
    tensor_bytes: int | None = None
    buffer: str | None = None
    at_end: bool = False
    edge_bytes: int = 0

    @property
    def distinct_read_bytes(self) -> int:
        """Distinct bytes that the launches read, those that nobody needs included."""
        return self.read_bytes_min + self.edge_bytes


class Launch(NamedTuple):
    """One kernel, launched ``count`` times; work and traffic are the sums over all of them, ``ctas`` is the grid of one.

    ``ctas_per_sm`` of them run on an SM at once.
    ``flops``: useful matmul FLOPs; ``flops_executed``: those of the whole tiles run; ``exp_ops``: exponentials of unmasked
    pairs; ``vector_ops``: other softmax work, 4 per executed pair.
    """

    name: str
    ctas: int
    traffic: tuple[Traffic, ...]
    flops: int = 0
    flops_executed: int = 0
    exp_ops: int = 0
    vector_ops: int = 0
    count: int = 1  # type: ignore[assignment]  # shadows tuple.count
    ctas_per_sm: int = 1


@dataclass(frozen=True, slots=True)
class Cost:
    """The launches of one configuration in order, the scratch memory they need at once, and the sums over them.

    ``hbm_bytes_min``: each input and output tensor once, as with an infinite cache; ``hbm_bytes_cold``: the distinct bytes of
    each launch; ``sm_bytes``: what the SMs request and write, re-reads included.
    """

    launches: tuple[Launch, ...]
    workspace_bytes: int = 0
    flops: int = field(init=False)
    flops_executed: int = field(init=False)
    exp_ops: int = field(init=False)
    vector_ops: int = field(init=False)
    hbm_bytes_min: int = field(init=False)
    hbm_bytes_cold: int = field(init=False)
    sm_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        """Sum once: a sweep reads every sum of every cost."""
        flops = executed = exp_ops = vector_ops = cold = sm_bytes = 0
        distinct: dict[tuple[str, Role], int] = {}
        for launch in self.launches:
            flops += launch.flops
            executed += launch.flops_executed
            exp_ops += launch.exp_ops
            vector_ops += launch.vector_ops
            for traffic in launch.traffic:
                moved = traffic.read_bytes_min + traffic.write_bytes_min
                cold += moved
                sm_bytes += traffic.sm_read_bytes + traffic.sm_write_bytes
                if traffic.role != "intermediate":
                    # A tensor that several launches read is counted once.
                    key = (traffic.tensor, traffic.role)
                    once = moved if traffic.tensor_bytes is None else traffic.tensor_bytes
                    if once > distinct.get(key, -1):
                        distinct[key] = once
        sums = (flops, executed, exp_ops, vector_ops, sum(distinct.values()), cold, sm_bytes)
        for name, value in zip(_SUMS, sums, strict=True):
            object.__setattr__(self, name, value)

    def __add__(self, other: "Cost") -> "Cost":
        """One configuration after the other; scratch memory is reused, so the larger need counts."""
        return Cost(self.launches + other.launches, max(self.workspace_bytes, other.workspace_bytes))


_SUMS = ("flops", "flops_executed", "exp_ops", "vector_ops", "hbm_bytes_min", "hbm_bytes_cold", "sm_bytes")


def sectors(num_bytes: int) -> int:
    """Round up to whole 32-byte sectors."""
    return -(-num_bytes // SECTOR_BYTES) * SECTOR_BYTES


def ceil_div(numerator: int, denominator: int) -> int:
    """Quotient rounded up."""
    return -(-numerator // denominator)
