"""SM clock, power and throttle reasons around each batch of samples, and which samples they spoil.

Reasons are the bits of ``nvmlDeviceGetCurrentClocksEventReasons`` (NVML API reference, nvmlClocksEventReasons). A software
power cap is how these cards run dense matrix products: it is recorded. Heat and hardware slowdowns spoil a sample, which is
discarded.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

REASONS = {
    "gpu idle": 0x1,
    "application clocks": 0x2,
    "power cap": 0x4,
    "hardware slowdown": 0x8,
    "sync boost": 0x10,
    "thermal slowdown (software)": 0x20,
    "thermal slowdown (hardware)": 0x40,
    "power brake": 0x80,
    "display clocks": 0x100,
}
SPOILING = (
    REASONS["hardware slowdown"]
    | REASONS["thermal slowdown (software)"]
    | REASONS["thermal slowdown (hardware)"]
    | REASONS["power brake"]
)
_NOT_WORTH_NAMING = REASONS["gpu idle"]  # the state between two batches
_POWER_INSTANT = 186  # NVML_FI_DEV_POWER_INSTANT: milliwatts now, where nvmlDeviceGetPowerUsage is a mean over a second


@dataclass(frozen=True, slots=True)
class Reading:
    """The GPU at one moment; ``None`` where NVML does not say."""

    clock_hz: float | None = None
    power_w: float | None = None
    reasons: int = 0

    @property
    def spoils(self) -> bool:
        """Whether samples taken now do not show what the device can do."""
        return bool(self.reasons & SPOILING)


class ClockSource(Protocol):
    """Where readings come from; a fake one in tests."""

    def read(self) -> Reading:
        """Return the state now."""


class NvmlClocks:
    """Readings of one GPU from NVML, which needs no CUDA context."""

    def __init__(self, uuid: str) -> None:
        """Open NVML for the GPU ``uuid``."""
        import pynvml

        pynvml.nvmlInit()
        self._nvml: Any = pynvml
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def read(self) -> Reading:
        """Return clock, power and reasons; what this GPU or driver refuses is unknown."""
        nvml = self._nvml
        clock = self._ask(lambda: nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM))
        reasons = self._ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))
        return Reading(clock * 1e6 if clock else None, self._power(), reasons or 0)

    def _power(self) -> float | None:
        nvml = self._nvml
        instant = self._ask(lambda: nvml.nvmlDeviceGetFieldValues(self._handle, [_POWER_INSTANT])[0])
        if instant is not None and instant.nvmlReturn == 0 and instant.value.uiVal:
            return float(instant.value.uiVal) / 1e3
        mean = self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(self._handle))
        return mean / 1e3 if mean else None

    def _ask(self, question: Any) -> Any:
        try:
            return question()
        except self._nvml.NVMLError:
            return None


class NoClocks:
    """Readings where NVML is not available: everything unknown."""

    def read(self) -> Reading:
        """Return a reading that says nothing."""
        return Reading()


@dataclass(frozen=True, slots=True)
class ClockSummary:
    """The readings of one point: medians, and every reason seen."""

    clock_hz: float | None
    power_w: float | None
    reasons: int

    @property
    def throttle_reasons(self) -> tuple[str, ...]:
        """The reasons seen, in words."""
        return reason_names(self.reasons)


def summarise(readings: Sequence[Reading]) -> ClockSummary:
    """Return the medians of ``readings`` and the names of all their reasons."""
    bits = 0
    for reading in readings:
        bits |= reading.reasons
    return ClockSummary(
        _median(reading.clock_hz for reading in readings), _median(reading.power_w for reading in readings), bits
    )


def reason_names(bits: int) -> tuple[str, ...]:
    """Return the names of the reasons in ``bits``, idleness left out."""
    return tuple(name for name, bit in REASONS.items() if bits & bit & ~_NOT_WORTH_NAMING)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
