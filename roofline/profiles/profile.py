"""A device: what its data sheet promises, and apart from that what was measured on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

CeilingKind = Literal["datasheet", "derived", "measured"]
Roof = Literal["datasheet", "measured"]

MATRIX_DTYPES = ("tf32", "bf16", "fp16", "fp8", "int8", "fp4")
MATRIX_RATES = tuple(f"{dtype}_{'op' if dtype == 'int8' else 'flop'}_per_s" for dtype in MATRIX_DTYPES)

# Every ceiling a profile may hold, with its unit. FLOP rates are dense and accumulate in fp32.
CEILING_UNITS: Mapping[str, str] = MappingProxyType(
    {
        "hbm_bytes_per_s": "B/s",
        "l2_bytes_per_s": "B/s",
        "shared_memory_bytes_per_s": "B/s",
        "cta_read_bytes_per_s": "B/s",  # what one CTA alone can read from HBM
        "bf16_flop_per_s": "FLOP/s",
        "fp16_flop_per_s": "FLOP/s",
        "tf32_flop_per_s": "FLOP/s",
        "fp32_flop_per_s": "FLOP/s",  # vector units, one multiply-add is 2
        "fp8_flop_per_s": "FLOP/s",
        "int8_op_per_s": "OP/s",
        "fp4_flop_per_s": "FLOP/s",
        "exp_per_s": "exp/s",
        "vector_op_per_s": "op/s",  # instructions per lane: half of fp32_flop_per_s
        "launch_s": "s",  # what one more launch of a graph adds
    }
)


class Ceiling(NamedTuple):
    """A rate the device cannot exceed: value in the SI base unit of its key, its kind, and where it is from."""

    value: float
    kind: CeilingKind
    source: str


@dataclass(frozen=True, slots=True)
class Profile:
    """A device. An unknown field is ``None`` and an unknown ceiling is absent, never zero.

    ``datasheet`` and ``measured`` map the keys of ``CEILING_UNITS`` to ceilings; a value never moves from one to the other.
    """

    id: str
    name: str
    vendor: str
    architecture: str
    compute_capability: str
    driver_names: tuple[str, ...] = ()
    sm_count: int | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    shared_memory_per_sm_bytes: int | None = None
    shared_memory_per_block_bytes: int | None = None
    boost_clock_hz: float | None = None
    tensor_clock_hz: float | None = None
    tensor_ops_per_clk_per_sm: Mapping[str, int] = field(default_factory=dict)
    datasheet: Mapping[str, Ceiling] = field(default_factory=dict)
    measured: Mapping[str, Ceiling] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)  # field name -> where its value is from; ceilings carry their own

    def __hash__(self) -> int:
        """Hash of the id: the mappings have none."""
        return hash(self.id)

    def ceiling(self, key: str, roof: Roof = "datasheet") -> Ceiling | None:
        """Return the ceiling ``key`` of ``roof``; the measured roof falls back to the data sheet where nothing was measured."""
        if roof == "measured" and key in self.measured:
            return self.measured[key]
        return self.datasheet.get(key)

    def not_measured(self) -> tuple[str, ...]:
        """Ceilings of the data sheet that nothing was measured for, where the measured roof falls back to it."""
        return tuple(key for key in self.datasheet if key not in self.measured and key != "shared_memory_bytes_per_s")

    def supports_dtype(self, dtype: str) -> bool:
        """Whether the device has a known matrix rate for ``dtype`` (V100 and T4 have none for bf16)."""
        return f"{dtype}_flop_per_s" in self.datasheet or f"{dtype}_flop_per_s" in self.measured

    @property
    def default_dtype(self) -> str:
        """bf16, or fp16 where the device is known not to have bf16; a device without any known rate keeps bf16."""
        return "fp16" if not self.supports_dtype("bf16") and self.supports_dtype("fp16") else "bf16"
