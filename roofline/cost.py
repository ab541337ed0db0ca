"""What a configuration costs, as plain values: launches, and for each its work by unit and its traffic by tensor.

All counts are exact integers that depend on the problem and the plan alone; the device enters later (``cache``, ``model``).
"""

from dataclasses import dataclass
from typing import Literal

Role = Literal["input", "output", "intermediate"]
SECTOR_BYTES = 32  # the unit in which SMs request memory


@dataclass(frozen=True, slots=True)
class Sharing:
    """How the CTAs of a launch share a tensor that they read: ``streams`` disjoint pieces, each read by a run of CTAs.

    ``ctas_per_stream`` consecutive CTAs of the grid read the same piece (for flash: the q tiles of one head read its K and V).
    """

    streams: int
    ctas_per_stream: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one launch moves for one tensor.

    ``*_min``: distinct bytes, each once, summed over the ``count`` launches; ``sm_*``: what SMs request, re-reads included, in
    32-byte sectors. ``tensor_bytes``: distinct bytes over all of them together, where that is less than the sum.
    """

    tensor: str
    role: Role
    read_bytes_min: int = 0
    write_bytes_min: int = 0
    sm_read_bytes: int = 0
    sm_write_bytes: int = 0
    sharing: Sharing | None = None
    tensor_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Launch:
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
    count: int = 1
    ctas_per_sm: int = 1


@dataclass(frozen=True, slots=True)
class Cost:
    """The launches of one configuration in order, and the scratch memory they need at once."""

    launches: tuple[Launch, ...]
    workspace_bytes: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        """One configuration after the other; scratch memory is reused, so the larger need counts."""
        return Cost(self.launches + other.launches, max(self.workspace_bytes, other.workspace_bytes))

    @property
    def flops(self) -> int:
        """Useful matmul FLOPs."""
        return sum(launch.flops for launch in self.launches)

    @property
    def flops_executed(self) -> int:
        """Matmul FLOPs of the whole tiles run."""
        return sum(launch.flops_executed for launch in self.launches)

    @property
    def exp_ops(self) -> int:
        """Exponentials."""
        return sum(launch.exp_ops for launch in self.launches)

    @property
    def vector_ops(self) -> int:
        """Softmax work besides exponentials."""
        return sum(launch.vector_ops for launch in self.launches)

    @property
    def hbm_bytes_min(self) -> int:
        """Each input and output tensor once: an infinite cache."""
        distinct: dict[tuple[str, Role], int] = {}
        for launch in self.launches:
            for traffic in launch.traffic:
                if traffic.role != "intermediate":
                    # A tensor that several launches read is counted once.
                    key, once = (traffic.tensor, traffic.role), traffic.tensor_bytes
                    size = traffic.read_bytes_min + traffic.write_bytes_min if once is None else once
                    distinct[key] = max(distinct.get(key, 0), size)
        return sum(distinct.values())

    @property
    def hbm_bytes_cold(self) -> int:
        """The distinct bytes of each launch, summed: every launch starts from a cold cache."""
        return sum(t.read_bytes_min + t.write_bytes_min for launch in self.launches for t in launch.traffic)

    @property
    def sm_bytes(self) -> int:
        """What the SMs request and write, re-reads included."""
        return sum(t.sm_read_bytes + t.sm_write_bytes for launch in self.launches for t in launch.traffic)


def sectors(num_bytes: int) -> int:
    """Round up to whole 32-byte sectors."""
    return -(-num_bytes // SECTOR_BYTES) * SECTOR_BYTES


def ceil_div(numerator: int, denominator: int) -> int:
    """Quotient rounded up."""
    return -(-numerator // denominator)
