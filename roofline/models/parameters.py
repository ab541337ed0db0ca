"""The weights of a model by part: values in memory, values one token uses, and bytes by the precision they are stored in."""

from dataclasses import dataclass

from roofline.dtypes import DType
from roofline.models.spec import ModelSpec
from roofline.models.weights import part_dtype, stored_bytes


@dataclass(frozen=True, slots=True)
class PartWeights:
    """The weights of one part over all layers; ``active_values`` leaves out the experts that a token does not use."""

    part: str
    values: int
    active_values: int
    bytes: int
    dtype: str


def weights_by_part(spec: ModelSpec, weights: DType, compute: DType) -> tuple[PartWeights, ...]:
    """Every part that the model has. Tied tables and shared layers count once, under the part that owns them."""
    values: dict[str, int] = {}
    active: dict[str, int] = {}
    sizes: dict[str, int] = {}

    def add(part: str, resident: int, used: int, repeats: int = 1) -> None:
        stored = stored_bytes(resident, part_dtype(part, weights, compute))
        for table, amount in ((values, resident), (active, used), (sizes, stored)):
            table[part] = table.get(part, 0) + repeats * amount

    add("embeddings", spec.embedding_params, spec.embedding_params)
    for run in spec.distinct_layers:
        for weight in run.layer.weights(spec.hidden_size):
            add(weight.part, weight.resident, 0 if weight.tied else weight.per_token, run.repeats)
    for weight in spec.extra:
        add(weight.part, weight.resident, weight.per_token)
    add("norms", spec.vector_params, spec.vector_params)
    head = 0 if spec.tied_embeddings else spec.vocab_size * spec.embedding_size
    add("lm head", head, head)
    return tuple(
        PartWeights(part, values[part], active[part], sizes[part], part_dtype(part, weights, compute).name) for part in values
    )


def weight_bytes(spec: ModelSpec, weights: DType, compute: DType) -> int:
    """Bytes of all weights in memory."""
    return sum(part.bytes for part in weights_by_part(spec, weights, compute))
