"""What one forward pass computes and moves, part by part and layer by layer, before a device is known."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from roofline.dtypes import DType
from roofline.models.attention import Phase, attention_problem, kv_row_bytes, useful_flops
from roofline.models.kvcache import state_bytes
from roofline.models.mixers import Attention, Recurrent
from roofline.models.spec import Layer, ModelSpec
from roofline.models.weights import Weight, part_dtype, stored_bytes


class Dtypes(NamedTuple):
    """``compute``: activations and matrix products; ``weights`` and ``kv``: storage."""

    compute: DType
    weights: DType
    kv: DType


class Work(NamedTuple):
    """One part of one layer, before a device is known. ``vector``: its FLOPs run on the vector units."""

    name: str
    flops: int
    weight_bytes: int
    kv_bytes: int
    activation_bytes: int
    vector: bool = False


def model_works(spec: ModelSpec, phase: Phase, n: int, batch: int, dtypes: Dtypes) -> Iterator[tuple[Work, int]]:
    """Every part of every kind of layer with its number of layers, then the parts outside the layers."""
    tokens, hidden = batch * (n if phase == "prefill" else 1), spec.hidden_size
    plain = part_dtype("embeddings", dtypes.weights, dtypes.compute)
    width = spec.embedding_size
    row, state = stored_bytes(width, plain), stored_bytes(width, dtypes.compute)
    yield Work("embeddings", 0, tokens * row, 0, tokens * state), 1  # a row of the table in, the hidden state out
    for run in spec.distinct_layers:
        for work in _layer(run.layer, hidden, phase, n, batch, tokens, dtypes):
            yield work, run.repeats
    yield from ((work, 1) for work in _matrices(spec.extra, tokens, dtypes))
    yield Work("norms", 0, stored_bytes(spec.vectors, plain), 0, 0), 1
    head = Weight("lm head", width, spec.vocab_size, width + spec.vocab_size)
    yield from ((work, 1) for work in _matrices((head,), batch, dtypes))


def _layer(layer: Layer, hidden: int, phase: Phase, n: int, batch: int, tokens: int, dtypes: Dtypes) -> Iterator[Work]:
    yield from _matrices(layer.weights(hidden), tokens, dtypes)
    for mixer in layer.mixers:
        if isinstance(mixer, Attention):
            yield _attention(mixer, phase, n, batch, dtypes)
        else:
            yield _recurrence(mixer, phase, batch, tokens, dtypes)
    yield Work("norms", 0, stored_bytes(layer.vector_values, part_dtype("norms", dtypes.weights, dtypes.compute)), 0, 0)


def _matrices(weights: Iterable[Weight], tokens: int, dtypes: Dtypes) -> Iterator[Work]:
    """Matrices by part: 2 FLOPs per token and value it multiplies; values read once, activations in the compute dtype."""
    by_part: dict[str, list[Weight]] = {}
    for weight in weights:
        by_part.setdefault(weight.part, []).append(weight)
    for name, group in by_part.items():
        stored = part_dtype(name, dtypes.weights, dtypes.compute)
        yield Work(
            name,
            2 * tokens * sum(weight.per_token for weight in group),
            sum(stored_bytes(weight.touched(tokens), stored) for weight in group),
            0,
            tokens * stored_bytes(sum(weight.activations for weight in group), dtypes.compute),
        )


def _attention(attention: Attention, phase: Phase, n: int, batch: int, dtypes: Dtypes) -> Work:
    """Scores and values over the cache: the rows that some query sees, once, and Q and O in the compute dtype."""
    problem = attention_problem(attention, phase, n, batch, dtypes.compute, dtypes.kv)
    kv = problem.kv
    q_width = kv.head_dim + getattr(kv, "rope_dim", 0)
    rows = problem.q_tokens * problem.q_heads
    activations = rows * (problem.row_bytes(q_width) + problem.row_bytes(kv.v_head_dim))
    cached = problem.visible_keys * kv_row_bytes(problem)
    return Work(f"attention ({attention.kind})", useful_flops(problem, phase), 0, cached, activations)


def _recurrence(mixer: Recurrent, phase: Phase, batch: int, tokens: int, dtypes: Dtypes) -> Work:
    """A linear or state-space layer: its state written once a prompt, read and written once a decoded token."""
    state = batch * state_bytes(mixer, dtypes.compute) * (1 if phase == "prefill" else 2)
    return Work(mixer.kind, tokens * mixer.flops_per_token, 0, state, 0, vector=not mixer.matmul)
