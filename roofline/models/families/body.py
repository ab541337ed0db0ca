"""What a family's reader returns: the sizes and the layers, before the file's name and the inferred values join them."""

from dataclasses import dataclass
from typing import Literal

from roofline.models.spec import Layer
from roofline.models.weights import Weight

Norm = Literal["rms", "layer", "scale", "none"]


@dataclass(frozen=True, slots=True)
class Body:
    """The fields of ``ModelSpec`` that a family decides, with the layers one by one.

    ``embedding``: width of the embeddings and of the LM head where it is not the hidden size.
    """

    hidden: int
    vocab: int
    layers: list[Layer]
    tied: bool
    vectors: int
    extra: tuple[Weight, ...] = ()
    extra_embeddings: int = 0
    embedding: int | None = None


def norm_values(norm: Norm, width: int) -> int:
    """Values of one norm: a scale (RMS norm, LayerNorm without bias), a scale and a bias (LayerNorm), or none (OLMo)."""
    return {"rms": width, "scale": width, "layer": 2 * width, "none": 0}[norm]
