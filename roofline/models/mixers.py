"""What mixes tokens in a layer: attention, linear attention, a state-space model, or a short convolution.

Each says which matrices it multiplies, what it caches, and what it computes per token besides the matrices. States are fp32
(design.md, section 4), the rows that a causal convolution keeps are in the compute dtype.
"""

from dataclasses import dataclass
from typing import Literal

from roofline.models.weights import Weight
from roofline.problem import GroupedKV, LatentKV

STATE_BYTES = 4  # fp32


@dataclass(frozen=True, slots=True)
class Attention:
    """Softmax attention over keys, all of them, the last ``window``, or those of the query's own block of ``chunk`` tokens.

    ``q_rank``: rank of a low-rank query projection (MLA). ``shared_kv``: reads the cache of an earlier layer and stores none.
    ``output_gate``: the query projection also gives a gate per output value. ``tied``: weights of an earlier layer.
    ``vectors``: values of biases, q/k norms and sinks. ``input_width``: where it is not the model's hidden size.
    """

    q_heads: int
    kv: GroupedKV | LatentKV
    window: int | None = None
    chunk: int | None = None
    q_rank: int | None = None
    shared_kv: bool = False
    output_gate: bool = False
    tied: bool = False
    input_width: int | None = None
    vectors: int = 0

    @property
    def kind(self) -> str:
        """What the layer is called in tables: ``full``, ``window 4096``, ``chunk 8192``, with ``mla`` or ``shared kv``."""
        reach = "full"
        if self.window is not None:
            reach = f"window {self.window}"
        elif self.chunk is not None:
            reach = f"chunk {self.chunk}"
        latent = "mla " if isinstance(self.kv, LatentKV) else ""
        return f"{latent}{reach}{', shared kv' if self.shared_kv else ''}"

    def cached_tokens(self, tokens: int) -> int:
        """Tokens of a sequence of ``tokens`` that the cache of this layer has to hold."""
        if self.shared_kv:
            return 0
        limit = self.window if self.window is not None else self.chunk
        return tokens if limit is None else min(tokens, limit)

    @property
    def cached_values(self) -> int:
        """Values that one token of this layer needs in a cache, its own or an earlier layer's."""
        if isinstance(self.kv, LatentKV):
            return self.kv.cached_dim
        return self.kv.heads * (self.kv.head_dim + self.kv.v_head_dim)

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """The projections of a model ``hidden`` wide."""
        width = self.input_width or hidden
        heads, kv = self.q_heads, self.kv
        output = Weight("o projection", heads * kv.v_head_dim, hidden, heads * kv.v_head_dim + hidden, tied=self.tied)
        if isinstance(kv, LatentKV):
            return (*self._latent_weights(width, kv), output)
        q_width = heads * (kv.head_dim + (kv.v_head_dim if self.output_gate else 0))
        kv_width = 0 if self.shared_kv else kv.heads * (kv.head_dim + kv.v_head_dim)
        projected = q_width + kv_width
        return Weight("qkv projection", width, projected, width + projected, tied=self.tied), output

    def _latent_weights(self, width: int, kv: LatentKV) -> tuple[Weight, ...]:
        heads = self.q_heads
        q_width = heads * (kv.head_dim + kv.rope_dim)
        query = (
            (Weight("qkv projection", width, q_width, width + q_width),)
            if self.q_rank is None
            else (
                Weight("qkv projection", width, self.q_rank, width),
                Weight("qkv projection", self.q_rank, q_width, q_width),
            )
        )
        # W_UK and W_UV, once per token in both forms: expanded they make K and V, absorbed they carry q and o into the latent.
        up_width = heads * (kv.head_dim + kv.v_head_dim)
        return (
            *query,
            Weight("qkv projection", width, kv.cached_dim, kv.cached_dim),
            Weight("qkv projection", kv.latent_dim, up_width, up_width),
        )


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Linear attention with a state of ``k_head_dim`` x ``v_head_dim`` a value head, and an output gate as wide as V.

    ``gated-delta`` (Gated DeltaNet, arXiv:2412.06464) reads the state at k, corrects it, and reads it at q: three products, and
    projects two more scalars a value head. ``lightning`` (arXiv:2401.04658) adds k v and reads at q: two products.
    """

    rule: Literal["gated-delta", "lightning"]
    k_heads: int
    v_heads: int
    k_head_dim: int
    v_head_dim: int
    conv_kernel: int = 1
    vectors: int = 0

    @property
    def kind(self) -> str:
        """What the layer is called in tables."""
        return f"linear ({self.rule})"

    @property
    def state_values(self) -> int:
        """Values of the state of one sequence."""
        return self.v_heads * self.k_head_dim * self.v_head_dim

    @property
    def conv_values(self) -> int:
        """Values that the convolution over q, k and v keeps of the tokens before."""
        return (self.conv_kernel - 1) * self._qkv_width

    @property
    def flops_per_token(self) -> int:
        """FLOPs of the recurrence: 2 d dv per product and value head. Chunked forms execute more and need no fewer."""
        products = 3 if self.rule == "gated-delta" else 2
        return 2 * products * self.state_values

    @property
    def matmul(self) -> bool:
        """Whether a chunked form exists that runs on matrix units."""
        return True

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """The projections of a model ``hidden`` wide."""
        v_width = self.v_heads * self.v_head_dim
        scalars = 2 * self.v_heads if self.rule == "gated-delta" else 0
        projected = self._qkv_width + v_width + scalars
        return (
            Weight("mixer projection", hidden, projected, hidden + projected),
            Weight("mixer projection", v_width, hidden, v_width + hidden),
        )

    @property
    def _qkv_width(self) -> int:
        return 2 * self.k_heads * self.k_head_dim + self.v_heads * self.v_head_dim


@dataclass(frozen=True, slots=True)
class StateSpace:
    """A Mamba layer ``inner`` wide with ``state`` values a channel (Mamba-1 arXiv:2312.00752, Mamba-2 arXiv:2405.21060).

    Mamba-1 projects x once more, to ``dt_rank`` + 2 ``state``, and scans on the vector units; Mamba-2 has ``heads`` and
    ``groups`` of B and C, and a chunked form on matrix units.
    """

    rule: Literal["mamba1", "mamba2"]
    inner: int
    state: int
    conv_kernel: int
    heads: int = 0
    groups: int = 0
    dt_rank: int = 0
    vectors: int = 0

    @property
    def kind(self) -> str:
        """What the layer is called in tables."""
        return f"state space ({self.rule})"

    @property
    def state_values(self) -> int:
        """Values of the state of one sequence."""
        return self.inner * self.state

    @property
    def conv_values(self) -> int:
        """Values that the convolution keeps of the tokens before: over x, in Mamba-2 over x, B and C."""
        return (self.conv_kernel - 1) * (self.inner + 2 * self.groups * self.state)

    @property
    def flops_per_token(self) -> int:
        """FLOPs of the recurrence: state += x B and y = state C, 2 each per state value; the decay is not counted."""
        return 4 * self.state_values

    @property
    def matmul(self) -> bool:
        """Whether a chunked form exists that runs on matrix units."""
        return self.rule == "mamba2"

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """The projections of a model ``hidden`` wide."""
        output = Weight("mixer projection", self.inner, hidden, self.inner + hidden)
        if self.rule == "mamba2":
            projected = 2 * self.inner + 2 * self.groups * self.state + self.heads  # z, x, B, C, dt
            return Weight("mixer projection", hidden, projected, hidden + projected), output
        low = self.dt_rank + 2 * self.state
        return (
            Weight("mixer projection", hidden, 2 * self.inner, hidden + 2 * self.inner),  # x, z
            Weight("mixer projection", self.inner, low, self.inner + low),  # dt, B, C
            Weight("mixer projection", self.dt_rank, self.inner, self.dt_rank + self.inner),
            output,
        )


Recurrent = LinearAttention | StateSpace
Mixer = Attention | Recurrent
