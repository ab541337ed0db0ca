"""A model as its configuration file gives it: runs of equal layers, each with what mixes tokens and what does not."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from roofline.models.mixers import Mixer
from roofline.models.weights import Weight


class Inferred(NamedTuple):
    """A value that the file does not give: the field, the value taken, and from what."""

    field: str
    value: object
    reason: str


@dataclass(frozen=True, slots=True)
class DenseMLP:
    """Two matrices, or three where it is ``gated`` (up and gate, down), ``width`` values wide."""

    width: int
    gated: bool = True
    tied: bool = False

    @property
    def kind(self) -> str:
        """What it is called in tables."""
        return f"mlp {self.width}"

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """The projections of a model ``hidden`` wide."""
        up = self.width * (2 if self.gated else 1)
        return (
            Weight("mlp", hidden, up, hidden, tied=self.tied),
            Weight("mlp", self.width, hidden, hidden, tied=self.tied),
        )


@dataclass(frozen=True, slots=True)
class MoE:
    """``experts`` MLPs of ``width``, ``active`` a token, beside shared ones of ``shared_width`` in all that every token uses.

    ``latent_width``: the experts work on a projection of the hidden state this wide (Nemotron 3), down before and up after.
    """

    experts: int
    active: int
    width: int
    gated: bool = True
    shared_width: int = 0
    latent_width: int | None = None

    @property
    def kind(self) -> str:
        """What it is called in tables."""
        shared = f" + shared {self.shared_width}" if self.shared_width else ""
        return f"moe {self.active} of {self.experts} x {self.width}{shared}"

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """The router, the experts and the shared experts of a model ``hidden`` wide."""
        factor = 2 if self.gated else 1
        inner = self.latent_width or hidden
        shared = (
            (
                Weight("shared expert", hidden, factor * self.shared_width, hidden),
                Weight("shared expert", self.shared_width, hidden, hidden),
            )
            if self.shared_width
            else ()
        )
        latent = (
            (
                Weight("other projections", hidden, inner, hidden + inner),
                Weight("other projections", inner, hidden, hidden + inner),
            )
            if self.latent_width
            else ()
        )
        return (
            Weight("router", hidden, self.experts, hidden + self.experts),
            *latent,
            Weight("experts", inner, factor * self.width, inner, self.experts, self.active),
            Weight("experts", self.width, inner, inner, self.experts, self.active),
            *shared,
        )


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: its mixers (two where attention and a state-space model run side by side), its MLP, what else it has.

    ``vectors``: values of norms and of the biases that do not belong to a mixer. ``extra``: further matrices.
    """

    mixers: tuple[Mixer, ...]
    mlp: DenseMLP | MoE | None
    vectors: int = 0
    extra: tuple[Weight, ...] = ()

    @property
    def kind(self) -> str:
        """What the layer is called in tables: ``window 4096 | mlp 14336``."""
        return " + ".join(mixer.kind for mixer in self.mixers) or "no mixer"

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """Every matrix of the layer."""
        mlp = self.mlp.weights(hidden) if self.mlp is not None else ()
        return (*(weight for mixer in self.mixers for weight in mixer.weights(hidden)), *mlp, *self.extra)

    @property
    def vector_values(self) -> int:
        """Values of the layer outside its matrices."""
        return self.vectors + sum(mixer.vectors for mixer in self.mixers)


class Run(NamedTuple):
    """``repeats`` equal layers that follow one another."""

    layer: Layer
    repeats: int


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder-only language model.

    ``name``: the shipped name or the path it was read from; ``embedding_size``: width of embeddings and LM head; ``runs``: its
    layers, equal neighbours joined; ``vectors``: values of the final norm, of position embeddings and of biases outside the
    layers; ``extra`` and ``extra_embeddings``: matrices and table values outside the layers; ``inferred``: every value the
    file does not give; ``notes``: what is not modelled; ``context_tokens``: the longest sequence, as far as the file says.
    """

    name: str
    model_type: str
    hidden_size: int
    vocab_size: int
    embedding_size: int
    runs: tuple[Run, ...]
    tied_embeddings: bool
    vectors: int = 0
    extra: tuple[Weight, ...] = ()
    extra_embeddings: int = 0
    inferred: tuple[Inferred, ...] = ()
    notes: tuple[str, ...] = ()
    source: str | None = None
    context_tokens: int | None = None

    @property
    def num_layers(self) -> int:
        """Layers in all."""
        return sum(run.repeats for run in self.runs)

    @property
    def layers(self) -> Iterator[Layer]:
        """Every layer in order."""
        return (run.layer for run in self.runs for _ in range(run.repeats))

    @property
    def distinct_layers(self) -> tuple[Run, ...]:
        """Layers that are equal counted together, in order of their first appearance."""
        counts: Counter[Layer] = Counter()
        for layer, count in self.runs:
            counts[layer] += count
        return tuple(Run(layer, count) for layer, count in counts.items())

    @property
    def mixers(self) -> tuple[tuple[Mixer, int], ...]:
        """Every kind of mixer with the number of layers that have it, in order of first appearance."""
        counts: Counter[Mixer] = Counter()
        for layer, count in self.runs:
            for mixer in layer.mixers:
                counts[mixer] += count
        return tuple(counts.items())

    @property
    def attention_kinds(self) -> dict[str, int]:
        """Layers by what mixes their tokens: ``{"window 1024": 52, "full": 10}``."""
        counts: Counter[str] = Counter()
        for layer, count in self.runs:
            counts[layer.kind] += count
        return dict(counts)

    @property
    def body_params(self) -> int:
        """Values of the matrices inside the layers, as resident: no embeddings, LM head, norms or biases."""
        return sum(count * weight.resident for layer, count in self.runs for weight in layer.weights(self.hidden_size))

    @property
    def active_body_params(self) -> int:
        """Values of the matrices inside the layers that one token multiplies."""
        return sum(count * weight.per_token for layer, count in self.runs for weight in layer.weights(self.hidden_size))

    @property
    def embedding_params(self) -> int:
        """Values of the embedding tables; the LM head is another as large unless it is tied."""
        return self.vocab_size * self.embedding_size + self.extra_embeddings

    @property
    def vector_params(self) -> int:
        """Values of norms, biases, convolutions and other vectors."""
        return self.vectors + sum(count * layer.vector_values for layer, count in self.runs)

    @property
    def total_params(self) -> int:
        """All values, tied tables once."""
        head = 0 if self.tied_embeddings else self.vocab_size * self.embedding_size
        extra = sum(weight.resident for weight in self.extra)
        return self.body_params + extra + self.embedding_params + head + self.vector_params

    @property
    def active_params(self) -> int:
        """Values that one token reads: as ``total_params``, with the active experts only."""
        return self.total_params - self.body_params + self.active_body_params


def compress(layers: Iterable[Layer]) -> tuple[Run, ...]:
    """Join equal neighbours."""
    return tuple(Run(layer, sum(1 for _ in group)) for layer, group in groupby(layers))
