"""Problems with edges, shared by the tests of the prefill kernels: small for the interpreter, larger for a GPU."""

from roofline.dtypes import DTYPES
from roofline.masks import CAUSAL, FULL, Mask
from roofline.problem import GroupedKV, Lengths, Problem, ragged, uniform
from roofline.profiles.profile import Profile

PROFILE = Profile("test", "test", "nvidia", "hopper", "9.0", sm_count=132)
MASKS = {"full": FULL, "causal": CAUSAL, "window": Mask(True, 21)}
SMALL = {
    "one": uniform(1, 1, 1),
    "odd": uniform(2, 37, 37),
    "whole tiles": uniform(1, 64, 64),
    "longer keys": uniform(1, 19, 75),
    "fewer keys": uniform(1, 75, 19),
    "no keys": uniform(2, 5, 0),
    "ragged": ragged([(40, 40), (3, 70), (17, 0), (1, 1), (50, 20)]),
}
LARGE = {
    "odd": uniform(3, 1000, 1000),
    "whole tiles": uniform(2, 2048, 2048),
    "longer keys": uniform(1, 513, 3000),
    "fewer keys": uniform(1, 1500, 700),
    "ragged": ragged([(700, 700), (1, 1025), (130, 0), (1, 1), (900, 300)]),
}


def grouped(
    lengths: tuple[Lengths, ...],
    mask: str = "full",
    dtype: str = "fp16",
    heads: tuple[int, int] = (4, 2),
    d: int = 32,
    dv: int | None = None,
) -> Problem:
    """Grouped-query attention, ``heads`` (query, KV)."""
    return Problem(heads[0], GroupedKV(heads[1], d, dv or d), lengths, MASKS[mask], DTYPES[dtype], DTYPES[dtype])
