"""The L2 model: from the traffic of each launch and the L2 of the device to HBM bytes per tensor, in steady state.

Inputs rotate from call to call, so they start cold; scratch memory is the same each call. What is used again is read from HBM
again with a probability that depends on one figure, the reuse distance: distinct bytes that passed through the L2 since the
last use, as a share of its size. Three kinds of use, each with a curve of its own (``Reuse``):

- **Shared operands** (K and V that many CTAs read). CTAs run in waves of ``SMs x CTAs per SM``, in step: K and V that several
  waves touch are read again by each, unless they survived one wave. Each half of the L2 keeps its own copy, so they count
  twice; what the CTAs of the wave read and write for themselves counts once. CTAs that share an SM drift apart with the waves.
- **Producer to consumer** (naive's S and P): between the write and the read lies the rest of one launch and a part of the next.
- **Dirty lines**: scratch memory that is written again before it has left the L2 is written to HBM once less.

docs/traffic-model.md has the measurements behind each term and how far off it is where. Fitted on an H200 alone.
"""

from math import ceil
from typing import NamedTuple

from roofline.cost import Cost, Launch, Sharing, Traffic, ceil_div
from roofline.masks import floor_sum
from roofline.plan import HEADS_L2_PART
from roofline.profiles.profile import Profile
from roofline.units import format_percent, format_si


class HbmBytes(NamedTuple):
    """HBM bytes of one traffic entry."""

    read_bytes: int
    write_bytes: int


class Reuse(NamedTuple):
    """The share of uses that miss, by reuse distance in sizes of the L2.

    None up to ``start``, linear to ``miss_at_end`` at ``end``; beyond it hits fall off as (end / distance) ** ``exponent``: the
    replacement policy of the L2 is not LRU, so some lines stay for longer.
    """

    start: float
    end: float
    miss_at_end: float = 1.0
    exponent: float = 2.0

    def miss(self, distance: float) -> float:
        """Share of uses at ``distance`` that miss."""
        if distance <= self.start:
            return 0.0
        if distance < self.end:
            return self.miss_at_end * (distance - self.start) / (self.end - self.start)
        return 1.0 - (1.0 - self.miss_at_end) * float((self.end / distance) ** self.exponent)

    def mean_miss(self, least: float, most: float) -> float:
        """Mean miss share over distances spread evenly between the two."""
        if most <= self.start:
            return 0.0
        if most - least < 1e-6:
            return self.miss(least)
        return min(max((self._area(most) - self._area(least)) / (most - least), 0.0), 1.0)

    def _area(self, distance: float) -> float:
        if distance <= self.start:
            return 0.0
        inside = min(distance, self.end) - self.start
        area = self.miss_at_end * inside * inside / (2 * (self.end - self.start))
        if distance > self.end:
            power = self.exponent - 1.0
            hits = (1.0 - self.miss_at_end) * self.end * (1.0 - (self.end / distance) ** power) / power
            area += distance - self.end - hits
        return area


# Fitted to the points of tests/data/h200/traffic.jsonl that are not held back (docs/traffic-model.md).
SHARED = Reuse(0.62, 1.23, 0.96, 2.0)
PRODUCED = Reuse(0.66, 0.93, 0.79, 1.55)
REREAD = Reuse(0.50, 0.65)
REWRITTEN = Reuse(0.455, 0.575, 0.66, 8.0)
COPIES = 2  # of shared data: one in each half of the L2
CLEAN_WEIGHT = 0.78  # of a clean byte against a dirty one, where dirty lines compete: clean ones are given up first
DRIFT = 0.24  # after w waves, CTAs that share an SM are spread over DRIFT sqrt(w) of what they stream
WORTH_SAYING = 0.02  # of the bytes of cold launches: a smaller effect has no sentence


class Streamed(NamedTuple):
    """Tensors that did not survive in the L2 from one wave of CTAs to the next, so that they are read again."""

    tensors: tuple[str, ...]
    in_flight_bytes: float
    l2_bytes: int
    waves: int
    times: float

    def __str__(self) -> str:
        """Return the cause in words."""
        in_flight, size = format_si(self.in_flight_bytes, "B"), format_si(self.l2_bytes, "B")
        return (
            f"{'+'.join(self.tensors)} of the heads in flight, {in_flight} and a copy in each half of the {size} of L2, do not "
            f"survive a wave of CTAs: {self.waves} waves read them {self.times:.2f} times"
        )


class CameBack(NamedTuple):
    """Tensors of which the CTAs that run last, for all heads, read the first part again."""

    tensors: tuple[str, ...]
    share: float
    times: float

    def __str__(self) -> str:
        """Return the cause in words."""
        tensors, share = "+".join(self.tensors), format_percent(self.share, 2)
        return (
            f"the CTAs that see at most {share} of the keys run last, when {tensors} of most heads have left the L2: "
            f"read {self.times:.2f} times"
        )


class Kept(NamedTuple):
    """An intermediate of which a share is read from the L2."""

    tensor: str
    share: float

    def __str__(self) -> str:
        """Return the cause in words."""
        kept = "stays in L2" if self.share == 1 else f"is read from L2 to {format_percent(self.share, 2)}"
        return f"{self.tensor} {kept} between its launches"


WHOLE_TILES = "tiles are read whole, and the first one holds keys before the window"
Cause = Streamed | CameBack | Kept | str


class HbmTraffic(NamedTuple):
    """HBM bytes of every traffic entry, as ``cost.launches[i].traffic[j]`` orders them, and why they are not the minimum."""

    launches: tuple[tuple[HbmBytes, ...], ...]
    causes: tuple[Cause, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """The causes in words, put together only where somebody reads them."""
        return tuple(dict.fromkeys(str(cause) for cause in self.causes))

    @property
    def read_bytes(self) -> int:
        """Predicted HBM reads of the configuration."""
        return sum(entry.read_bytes for launch in self.launches for entry in launch)

    @property
    def write_bytes(self) -> int:
        """Predicted HBM writes of the configuration."""
        return sum(entry.write_bytes for launch in self.launches for entry in launch)

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


class _Times(NamedTuple):
    """How often a stream is read, the bytes of streams that a wave touches, and what of the first is of CTAs that come last."""

    times: float
    in_flight_bytes: float
    again: float = 0.0


class _Steady:
    """One prediction: what each launch touches, and from that the distance between two uses of a tensor."""

    def __init__(self, cost: Cost, l2_bytes: int, sm_count: int | None) -> None:
        self.launches = cost.launches
        self.l2_bytes = l2_bytes
        self.sm_count = sm_count
        self.causes: list[Cause] = []
        self.streamed: dict[int, tuple[Sharing, _Times]] = {}
        self.cold = cost.hbm_bytes_cold
        # Bytes that one of `count` launches touches; distinct bytes of one round through all launches, of inputs and of scratch
        # memory, and of the inputs as often as launches of an entry come back to them.
        self.touched: list[float] = []
        self.writers: dict[str, list[int]] = {}
        self.written_at_end: set[str] = set()
        inputs: dict[str, float] = {}
        written: dict[str, float] = {}
        whole: dict[str, float] = {}
        for index, launch in enumerate(cost.launches):
            count, touched = launch.count or 1, 0
            for traffic in launch.traffic:
                name, read, write = traffic.buffer or traffic.tensor, traffic.distinct_read_bytes, traffic.write_bytes_min
                touched += read + write
                sizes = inputs if traffic.role == "input" else written
                size = (read if read > write else write) / count
                if size > sizes.get(name, 0.0):
                    sizes[name] = size
                if traffic.tensor_bytes is not None:
                    whole[name] = traffic.tensor_bytes
                if write and traffic.role == "intermediate":
                    self.writers.setdefault(name, []).append(index)
                    if traffic.at_end:
                        self.written_at_end.add(name)
            self.touched.append(touched / count)
        self.round = sum(self.touched)
        self.clean = sum(inputs.values())
        self.dirty = sum(written.values())
        self.coming_back = self.dirty + self.clean
        for name, size in whole.items():
            self.coming_back += max(size - inputs.get(name, size), 0.0)

    def predict(self) -> HbmTraffic:
        seen: dict[str, int] = {}  # the launch that read a tensor last
        entries = []
        for index, launch in enumerate(self.launches):
            moved = []
            for traffic in launch.traffic:
                read = self._read(index, traffic, seen) if traffic.read_bytes_min else 0
                moved.append(HbmBytes(read, self._write(index, traffic) if traffic.write_bytes_min else 0))
            entries.append(tuple(moved))
            for traffic in launch.traffic:
                if traffic.read_bytes_min:
                    seen[traffic.tensor] = index
        return HbmTraffic(tuple(entries), tuple(dict.fromkeys(self.causes)))

    def _read(self, index: int, traffic: Traffic, seen: dict[str, int]) -> int:
        least = traffic.read_bytes_min
        if traffic.role == "intermediate":
            writers = self.writers.get(traffic.buffer or traffic.tensor)
            if not writers:
                return least
            # Else the launch before it in the round before wrote it: what chunked attention carries.
            last_write = next((writer for writer in reversed(writers) if writer < index), writers[-1])
            if last_write == index and self.launches[index].count == 1:
                # Its CTAs write and soon after read it, while little else is touched.
                return min(round(PRODUCED.miss(traffic.write_bytes_min / self.l2_bytes) * least), traffic.sm_read_bytes)
            return self._produced(index, traffic, last_write)
        last_read = seen.get(traffic.tensor)
        if last_read is not None:  # an earlier launch of this call has read it
            return self._again(index, traffic, last_read)
        if traffic.tensor_bytes is not None and traffic.tensor_bytes < least:
            # Launches of this entry come back to the tensor; what lies between is all of it, and the scratch memory.
            repeats = least / max(traffic.tensor_bytes, 1)
            distance = min(self.cold / repeats, self.coming_back)
            again = REREAD.miss(distance / self.l2_bytes)
            return min(traffic.tensor_bytes + round(again * (least - traffic.tensor_bytes)), traffic.sm_read_bytes)
        return self._shared(index, traffic)

    def _shared(self, index: int, traffic: Traffic) -> int:
        """Reads of an operand that CTAs share: once, and again by each wave in which it has not survived."""
        launch, least, share = self.launches[index], traffic.distinct_read_bytes, traffic.sharing
        if traffic.edge_bytes > WORTH_SAYING * self.cold:
            self.causes.append(WHOLE_TILES)
        if share is None or self.sm_count is None:
            return least
        resident = self.sm_count * launch.ctas_per_sm
        # One wave, or so little that all of it survives.
        if launch.ctas <= resident or COPIES * self.touched[index] <= SHARED.start * self.l2_bytes:
            return least
        known = self.streamed.get(index)
        if known is None or known[0] != share:  # K and V are streamed together
            seen = min(traffic.sm_read_bytes / (launch.ctas * max(least / share.streams, 1)), 1.0)
            known = self.streamed[index] = (share, self._times(launch, share, resident, seen))
        times, in_flight, again = known[1]
        reads = min(max(round(times * least), least), traffic.sm_read_bytes)
        if reads - least > WORTH_SAYING * self.cold:
            tensors, waves = tuple(t.tensor for t in launch.traffic if t.sharing == share), ceil_div(launch.ctas, resident)
            if again > (times - 1) / 2:
                self.causes.append(CameBack(tensors, share.light_share, reads / least))
            else:
                self.causes.append(Streamed(tensors, in_flight, self.l2_bytes, waves, reads / least))
        return reads

    def _times(self, launch: Launch, share: Sharing, resident: int, seen: float) -> "_Times":
        """How often the CTAs of a launch read what they share."""
        shared_bytes = private_bytes = 0
        for traffic in launch.traffic:
            if traffic.sharing == share:
                shared_bytes += traffic.distinct_read_bytes
            else:
                private_bytes += traffic.read_bytes_min + traffic.write_bytes_min
        order = self._falling if share.order in ("falling", "together", "light-last") else self._waves
        return order(launch, share, resident, shared_bytes / share.streams, private_bytes / launch.ctas, seen)

    def _waves(
        self, launch: Launch, share: Sharing, resident: int, stream_bytes: float, private_bytes: float, seen: float
    ) -> "_Times":
        """How often equal or windowed CTAs read their stream."""
        waves, touched = _touched_streams(launch, share, resident)
        per_head = share.ctas_per_stream / share.passes
        # What a wave sees of a stream: the windows of its rows overlap; tiles of S read a part each, one or several the same.
        readers = seen * min(resident, share.ctas_per_stream)
        part = min(seen + resident / per_head if share.order == "windowed" else readers, 1.0)
        copies = min(max(readers / part, 1.0), COPIES)
        in_flight = stream_bytes * min(touched / waves, share.streams) * part
        miss = SHARED.miss((copies * in_flight + private_bytes * resident) / self.l2_bytes)
        fetched = touched * part / share.streams  # by the waves, each once
        if launch.ctas_per_sm > 1:
            fetched *= 1 + _spread(DRIFT * copies * stream_bytes * part / self.l2_bytes, launch.ctas / resident)
        times = 1 + max(fetched - 1, 0) * miss
        if share.order == "windowed" and per_head > resident:
            # A query head is done before the next of its group begins: each comes back to K and V after a whole pass.
            one_pass = copies * stream_bytes + private_bytes * per_head
            times = max(times, 1 + (share.passes - 1) * SHARED.miss(one_pass / self.l2_bytes))
        return _Times(times, in_flight)

    def _falling(
        self, launch: Launch, share: Sharing, resident: int, stream_bytes: float, private_bytes: float, seen: float
    ) -> "_Times":
        """The same under a causal mask, one head after the other or those that fit the L2 together, heavy CTAs first.

        The later a wave, the fewer keys its first CTA sees. It starts as the lightest CTAs of the wave before end, so what
        passed through the L2 since they all read the first keys is less than a wave's.
        """
        per_head, lightest = share.ctas_per_stream / share.passes, max(2 * seen - 1, 0.0)
        all_heads, heads = share.streams * share.passes, 1.0
        if share.order != "falling":
            fitting = int(HEADS_L2_PART * self.l2_bytes / max(stream_bytes, 1)) * share.passes
            heads = min(max(fitting, 1), all_heads)
            if share.order == "light-last":  # which deals the heads out evenly over as many groups
                heads = all_heads / ceil(all_heads / heads)
        again = 0.0
        if lightest < share.light_share:  # the light CTAs of all heads come back to the first keys when all else is done
            whole = COPIES * stream_bytes * share.streams + private_bytes * launch.ctas
            again = share.light_share * SHARED.mean_miss(0.0, whole * (1 - heads / all_heads) / self.l2_bytes)
            per_head *= 1 - (share.light_share - lightest) / (1 - lightest)
            lightest = share.light_share
        waves = heads * per_head / resident
        if waves <= 1:
            # Several such groups of heads run at once; the CTAs that reach into the next wave are the lightest of their head.
            straddled = self._waves(launch, share, resident, stream_bytes, private_bytes, 1.0)
            return _Times(1 + (straddled.times - 1) * lightest + again, straddled.in_flight_bytes, again)
        count = ceil(waves)
        fetched = count - (1 - lightest) * count * (count - 1) / (2 * waves)
        in_flight = max(heads / share.passes, 1.0) * stream_bytes
        between = COPIES * in_flight * (1 - (1 - lightest) / (2 * waves)) + private_bytes * resident / 2
        one_pass = COPIES * in_flight + private_bytes * heads * per_head
        miss = SHARED.miss(between / self.l2_bytes)
        groups = max(share.passes / heads, 1.0)  # of heads that read a stream one after another
        back = SHARED.mean_miss(min(between, one_pass) / self.l2_bytes, one_pass / self.l2_bytes)
        return _Times(1 + groups * (fetched - 1) * miss + (groups - 1) * back + again, in_flight, again)

    def _produced(self, index: int, traffic: Traffic, last_write: int) -> int:
        """Reads of what an earlier launch has written: from HBM where too much was touched in between."""
        between = sum(self.touched[last_write + 1 : index]) if last_write < index else self.round - self.touched[index]
        ends = (self._after_writing(last_write, traffic) + between, between + self.touched[index])
        miss = PRODUCED.mean_miss(min(ends) / self.l2_bytes, max(ends) / self.l2_bytes)
        if (1 - miss) * traffic.read_bytes_min > WORTH_SAYING * self.cold:
            self.causes.append(Kept(traffic.tensor, 1 - miss))
        return min(round(miss * traffic.read_bytes_min), traffic.sm_read_bytes)

    def _after_writing(self, index: int, traffic: Traffic) -> float:
        """Bytes that a launch touches from the first write of a tensor to its end."""
        launch = self.launches[index]
        if self.sm_count is None or (traffic.buffer or traffic.tensor) not in self.written_at_end:
            return self.touched[index]
        waves = max(launch.ctas / (self.sm_count * launch.ctas_per_sm), 1.0)
        own = traffic.read_bytes_min / (launch.count or 1)
        return own + (self.touched[index] - own) * (1 - 1 / waves)

    def _again(self, index: int, traffic: Traffic, last_read: int) -> int:
        """Reads of an input that an earlier launch has read."""
        between = sum(self.touched[last_read + 1 : index])
        ends = (self.touched[last_read] + between, between + self.touched[index])
        miss = REREAD.mean_miss(min(ends) / self.l2_bytes, max(ends) / self.l2_bytes)
        return min(round(miss * traffic.read_bytes_min), traffic.sm_read_bytes)

    def _write(self, index: int, traffic: Traffic) -> int:
        """Writes of scratch memory reach HBM unless it is written again while it is still dirty in the L2."""
        least = traffic.write_bytes_min
        if traffic.role != "intermediate":
            return least
        distance = self.dirty + CLEAN_WEIGHT * self.clean  # a whole round
        writers = self.writers[traffic.buffer or traffic.tensor]
        if writers[-1] > index:
            following = next(writer for writer in writers if writer > index)
            passed = self.touched[index] / 2 + sum(self.touched[index + 1 : following]) + self.touched[following] / 2
            distance = min(distance, passed)
        return min(round(REWRITTEN.miss(distance / self.l2_bytes) * least), traffic.sm_write_bytes)


def _touched_streams(launch: Launch, share: Sharing, resident: int) -> tuple[int, int]:
    """Waves of a launch, and the streams that each touches, summed: those of its first to its last CTA."""
    waves = ceil_div(launch.ctas, resident)
    firsts = floor_sum(waves, share.ctas_per_stream, resident, 0)
    lasts = floor_sum(waves - 1, share.ctas_per_stream, resident, resident - 1) + (launch.ctas - 1) // share.ctas_per_stream
    return waves, lasts - firsts + waves


def _spread(step: float, waves: float) -> float:
    """Mean over ``waves`` of what CTAs fetch beyond once, if after w of them they are spread over ``step`` sqrt(w) of the L2.

    Followers closer than the L2 reaches hit; those farther behind fetch again: max(step sqrt(w) - 1, 0), integrated over w.
    """
    if step * step * waves <= 1:
        return 0.0
    return float(2 / 3 * step * waves**1.5 - waves + 1 / (3 * step * step)) / waves
