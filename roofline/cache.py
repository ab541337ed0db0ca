"""The L2 model: from the traffic of each launch and the L2 of the device to HBM bytes per tensor, in steady state.

Inputs rotate from call to call, so they start cold; scratch memory is the same each call. Three effects, each with one
capacity as a share of the L2, read off an H200 (60 MiB) by passes over buffers of growing size:

- **Shared operands** (K and V that many CTAs read): each half of the L2 keeps its own copy, so they have about half of it.
  CTAs run in waves of ``SMs x CTAs per SM``; while K and V of the heads that a wave touches fit, they are read once. When
  they do not, every wave streams them again, in step.
- **Producer to consumer** (naive's S and P): an intermediate is read from the L2 if what was touched since it was written fits.
- **Dirty lines**: scratch memory that is written over again leaves the L2 once a call touches more than about half of it.

A miss share grows linearly between the two sizes of a ``Ramp``. This is a first model: its shares are from one device.
"""

from typing import NamedTuple

from roofline.cost import Cost, Launch, Traffic, ceil_div
from roofline.masks import floor_sum
from roofline.profiles.profile import Profile
from roofline.units import format_percent, format_si


class HbmBytes(NamedTuple):
    """HBM bytes of one traffic entry."""

    read_bytes: int
    write_bytes: int


class Ramp(NamedTuple):
    """Shares of the L2 between which misses grow from none to all."""

    start: float
    end: float

    def miss(self, footprint_bytes: float, l2_bytes: int) -> float:
        """Share of accesses that miss when ``footprint_bytes`` compete for the L2."""
        return min(max((footprint_bytes / l2_bytes - self.start) / (self.end - self.start), 0.0), 1.0)

    def mean_miss(self, least_bytes: float, most_bytes: float, l2_bytes: int) -> float:
        """Mean miss share over footprints spread evenly between the two sizes."""
        if most_bytes - least_bytes < 1:
            return self.miss(least_bytes, l2_bytes)
        area = self._area(most_bytes / l2_bytes) - self._area(least_bytes / l2_bytes)
        return min(max(area * l2_bytes / (most_bytes - least_bytes), 0.0), 1.0)

    def _area(self, share: float) -> float:
        if share <= self.start:
            return 0.0
        width = self.end - self.start
        inside = min(share, self.end) - self.start
        return inside * inside / (2 * width) + max(share - self.end, 0.0)


# Read off an H200: MB of DRAM traffic per pass over a buffer; 62.9 MB of L2.
SHARED_READ = Ramp(0.465, 0.593)  # a buffer that every SM reads: 0 % at 28 MB, 34 % at 32, 83 % at 36, all at 40
CLEAN_REREAD = Ramp(0.76, 0.91)  # each SM rereads its own slice: 6 % at 48 MB, 93 % at 56
DIRTY_READ = Ramp(0.63, 1.02)  # written, then read: 2 % at 40 MB, 46 % at 48, 90 % at 64
DIRTY_WRITE = Ramp(0.43, 0.66)  # written over and over: 6 % at 28 MB, 61 % at 36, all at 48


class Streamed(NamedTuple):
    """Tensors that exceed the usable L2, so that every wave of CTAs reads them again."""

    tensors: tuple[str, ...]
    in_flight_bytes: float
    usable_bytes: float
    waves: int
    times: float

    def __str__(self) -> str:
        """Return the cause in words."""
        in_flight, usable = format_si(self.in_flight_bytes, "B"), format_si(self.usable_bytes, "B")
        return (
            f"{'+'.join(self.tensors)} of the heads in flight, {in_flight}, exceed the usable L2 of {usable}: "
            f"{self.waves} waves read them {self.times:.2f} times"
        )


class Kept(NamedTuple):
    """An intermediate of which a share is read from the L2."""

    tensor: str
    share: float

    def __str__(self) -> str:
        """Return the cause in words."""
        kept = "stays in L2" if self.share == 1 else f"is read from L2 to {format_percent(self.share, 2)}"
        return f"{self.tensor} {kept} between its launches"


Cause = Streamed | Kept | str


class HbmTraffic(NamedTuple):
    """HBM bytes of every traffic entry, as ``cost.launches[i].traffic[j]`` orders them, and why they are not the minimum."""

    launches: tuple[tuple[HbmBytes, ...], ...]
    causes: tuple[Cause, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """The causes in words, put together only where somebody reads them."""
        return tuple(dict.fromkeys(str(cause) for cause in self.causes))

    @property
    def hbm_bytes(self) -> int:
        """Predicted HBM bytes of the configuration."""
        moved = 0
        for launch in self.launches:
            for read_bytes, write_bytes in launch:
                moved += read_bytes + write_bytes
        return moved


def hbm_traffic(cost: Cost, profile: Profile) -> HbmTraffic:
    """Predict the HBM bytes of ``cost`` on ``profile``; without a known L2 size every launch starts cold."""
    if profile.l2_bytes is None:
        cold = tuple(tuple(HbmBytes(t.read_bytes_min, t.write_bytes_min) for t in launch.traffic) for launch in cost.launches)
        return HbmTraffic(cold, ("the L2 size of this device is unknown: every launch is counted from a cold cache",))
    return _Steady(cost, profile.l2_bytes, profile.sm_count).predict()


class _Steady:
    """One prediction: what each launch touches, and from that the distance between two uses of a tensor."""

    def __init__(self, cost: Cost, l2_bytes: int, sm_count: int | None) -> None:
        self.launches = cost.launches
        self.l2_bytes = l2_bytes
        self.sm_count = sm_count
        # Bytes one of `count` launches touches, and the bytes of one round through all launches: by use, and each tensor once.
        self.touched: list[float] = []
        sizes: dict[str, float] = {}
        for launch in cost.launches:
            count, touched = launch.count or 1, 0
            for traffic in launch.traffic:
                read, write = traffic.read_bytes_min, traffic.write_bytes_min
                touched += read + write
                size = (read if read > write else write) / count
                if size > sizes.get(traffic.tensor, 0.0):
                    sizes[traffic.tensor] = size
            self.touched.append(touched / count)
        self.round = sum(self.touched)
        self.footprint = sum(sizes.values())
        self.causes: list[Cause] = []

    def predict(self) -> HbmTraffic:
        written: dict[str, int] = {}  # the launch that wrote a tensor last, and the one that read it last
        seen: dict[str, int] = {}
        entries = []
        for index, launch in enumerate(self.launches):
            moved = []
            for traffic in launch.traffic:
                read = self._read(index, traffic, written, seen) if traffic.read_bytes_min else 0
                moved.append(HbmBytes(read, self._write(traffic) if traffic.write_bytes_min else 0))
            entries.append(tuple(moved))
            for traffic in launch.traffic:
                if traffic.write_bytes_min:
                    written[traffic.tensor] = index
                if traffic.read_bytes_min:
                    seen[traffic.tensor] = index
        return HbmTraffic(tuple(entries), tuple(dict.fromkeys(self.causes)))

    def _read(self, index: int, traffic: Traffic, written: dict[str, int], seen: dict[str, int]) -> int:
        least = traffic.read_bytes_min
        if traffic.role == "intermediate":
            last_write = written.get(traffic.tensor)
            if last_write is None and traffic.write_bytes_min:
                last_write = index  # the launch before it in the round before: what chunked attention carries
            return least if last_write is None else self._reread(index, traffic, DIRTY_READ, last_write)
        last_read = seen.get(traffic.tensor)
        if last_read is not None:  # an earlier launch of this call has read it
            return self._reread(index, traffic, CLEAN_REREAD, last_read)
        if traffic.tensor_bytes is not None and traffic.tensor_bytes < least:
            # Launches of this entry read the tensor again and again; between two reads lies an equal part of the whole.
            repeats = least / max(traffic.tensor_bytes, 1)
            distance = sum(_distinct(launch) for launch in self.launches) / repeats
            again = CLEAN_REREAD.miss(distance, self.l2_bytes)
            return min(traffic.tensor_bytes + round(again * (least - traffic.tensor_bytes)), traffic.sm_read_bytes)
        return self._shared(self.launches[index], traffic)

    def _shared(self, launch: Launch, traffic: Traffic) -> int:
        """Reads of an operand that CTAs share: once while it fits, once per wave and head when it does not."""
        least, share = traffic.read_bytes_min, traffic.sharing
        if share is None or self.sm_count is None:
            return least
        resident = self.sm_count * launch.ctas_per_sm
        waves = ceil_div(launch.ctas, resident)
        if waves <= 1:
            return least
        # Streams touched by wave w: those of its first to its last CTA.
        touched = (
            floor_sum(waves - 1, share.ctas_per_stream, resident, resident - 1) + (launch.ctas - 1) // share.ctas_per_stream
        )
        touched += waves - floor_sum(waves, share.ctas_per_stream, resident, 0)
        together = [t for t in launch.traffic if t.sharing == share]
        in_flight = sum(t.read_bytes_min for t in together) / share.streams * min(touched / waves, share.streams)
        miss = SHARED_READ.miss(in_flight, self.l2_bytes)
        if miss == 0:
            return least
        # A masked wave streams only what its tiles see: on average this share of the stream.
        seen = min(traffic.sm_read_bytes / (launch.ctas * max(least / share.streams, 1)), 1.0)
        streamed = max(round(touched * least / share.streams * seen), least)
        reads = min(least + round(miss * (streamed - least)), traffic.sm_read_bytes)
        if reads > least:
            usable = SHARED_READ.start * self.l2_bytes
            self.causes.append(Streamed(tuple(t.tensor for t in together), in_flight, usable, waves, reads / least))
        return reads

    def _reread(self, index: int, traffic: Traffic, ramp: Ramp, last_use: int) -> int:
        """Reads of what an earlier launch has touched: from HBM where too much was touched in between."""
        between = sum(self.touched[last_use + 1 : index]) if last_use < index else self.round - self.touched[index]
        ends = (self.touched[last_use] + between, between + self.touched[index])
        miss = ramp.mean_miss(min(ends), max(ends), self.l2_bytes)
        if miss < 0.99 and traffic.role == "intermediate":
            self.causes.append(Kept(traffic.tensor, 1 - miss))
        return min(round(miss * traffic.read_bytes_min), traffic.sm_read_bytes)

    def _write(self, traffic: Traffic) -> int:
        least = traffic.write_bytes_min
        if traffic.role != "intermediate":
            return least
        return min(round(DIRTY_WRITE.miss(self.footprint, self.l2_bytes) * least), traffic.sm_write_bytes)


def _distinct(launch: Launch) -> int:
    moved = 0
    for traffic in launch.traffic:
        moved += traffic.read_bytes_min + traffic.write_bytes_min
    return moved
