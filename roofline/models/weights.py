"""Weights by part: what is resident, what one token multiplies, what a batch of tokens reads."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from roofline.dtypes import DTYPES, DType
from roofline.errors import InputError

PartName = Literal[
    "embeddings",
    "qkv projection",
    "o projection",
    "mixer projection",
    "mlp",
    "router",
    "experts",
    "shared expert",
    "other projections",
    "lm head",
]

# What stays in the compute dtype when the weights are quantised, as published fp8 and int4 checkpoints do.
UNQUANTISED_PARTS = frozenset({"embeddings", "router", "norms", "lm head"})
WEIGHT_DTYPES = MappingProxyType({name: DTYPES[name] for name in ("fp32", "bf16", "fp16", "fp8", "int8", "int4")})
INT4_WEIGHT_GROUP = 128  # weights that share one fp16 scale (GPTQ, arXiv:2210.17323, and AWQ checkpoints)


@dataclass(frozen=True, slots=True)
class Weight:
    """One weight matrix (or ``experts`` equal ones, of which each token uses ``active``).

    ``activations``: values a token moves in and out of the part, with everything inside the part fused. ``tied``: the values
    belong to an earlier layer that shares them, so they are read again but resident once.
    """

    part: PartName
    d_in: int
    d_out: int
    activations: int
    experts: int = 1
    active: int = 1
    tied: bool = False

    @property
    def resident(self) -> int:
        """Values in memory."""
        return 0 if self.tied else self.d_in * self.d_out * self.experts

    @property
    def per_token(self) -> int:
        """Values that one token multiplies: 2 FLOPs each."""
        return self.d_in * self.d_out * self.active

    def touched(self, tokens: int) -> int:
        """Values that ``tokens`` tokens read, each once; of experts the expected number, rounded."""
        if self.experts == 1:
            return self.d_in * self.d_out
        return round(self.d_in * self.d_out * distinct_experts(self.experts, self.active, tokens))


def distinct_experts(experts: int, active: int, tokens: int) -> float:
    """Expected number of distinct experts that ``tokens`` tokens use: E (1 - (1 - k/E)^T).

    Each token takes k of E experts, all subsets equally likely and tokens independent. Trained routers are less even, so real
    batches touch fewer.
    """
    return experts * (1.0 - (1.0 - active / experts) ** tokens)


def weight_dtype(name: str) -> DType:
    """Return the dtype that weights are stored in; raise ``InputError`` for an unknown one."""
    if name not in WEIGHT_DTYPES:
        raise InputError(f"--weight-dtype: unknown dtype {name!r}; expected one of {', '.join(WEIGHT_DTYPES)}")
    return WEIGHT_DTYPES[name]


def stored_bytes(values: int, dtype: DType) -> int:
    """Bytes of ``values`` weights: int4 with one fp16 scale per 128, int8 and fp8 without their few scales."""
    scales = 2 * -(-values // INT4_WEIGHT_GROUP) if dtype.name == "int4" else 0
    return (values * dtype.bits + 7) // 8 + scales


def part_dtype(part: str, weights: DType, compute: DType) -> DType:
    """The dtype that a part's weights are stored in: quantisation leaves embeddings, router, norms and LM head alone.

    They keep the compute dtype, or bf16 where that has less than 16 bits.
    """
    plain = compute if compute.bits >= 16 else DTYPES["bf16"]
    return plain if part in UNQUANTISED_PARTS and weights.bits < plain.bits else weights
