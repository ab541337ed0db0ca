"""Other people's attention, one module a peer, with the functions of ``roofline.kernels.protocol.Kernel``.

Each runs in its native layout and through its own public interface. Beside the protocol a module may have ``token_major(out,
inputs)``, which reads its output as [q_tokens, q_heads, d_v], and ``backend(inputs, plan)``, which says how it was confirmed
what really ran. Importing a module loads torch and the peer; this package imports neither.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roofline.errors import InputError


@dataclass(frozen=True, slots=True)
class Peer:
    """A module, and the variants of ours that it stands beside in each phase: those that move bytes as it does."""

    module: str
    prefill: tuple[str, ...] = ()
    decode: tuple[str, ...] = ()


# Keys are what a record calls the implementation: <peer>/<backend>. A new peer is one file and one line.
PEERS: Mapping[str, Peer] = {
    "torch/flash": Peer("roofline.peers.sdpa_flash", ("flash",), ("split-kv",)),
    "torch/cudnn": Peer("roofline.peers.sdpa_cudnn", ("flash",), ("split-kv",)),
    "torch/efficient": Peer("roofline.peers.sdpa_efficient", ("flash",), ("split-kv",)),
    "torch/math": Peer("roofline.peers.sdpa_math", ("naive",), ("naive",)),
    "torch/flex": Peer("roofline.peers.flex", ("flash",), ("split-kv",)),
    "fa3/fwd": Peer("roofline.peers.fa3", ("flash",), ("split-kv",)),
    "flashinfer/prefill": Peer("roofline.peers.flashinfer_prefill", ("flash",)),
    "flashinfer/paged": Peer("roofline.peers.flashinfer_paged", (), ("paged",)),
    "flashmla/decode": Peer("roofline.peers.flashmla", (), ("mla",)),
    "fla/linear": Peer("roofline.peers.fla", ("linear",), ("linear",)),
}


def named(names: Sequence[str]) -> tuple[str, ...]:
    """Return the peers that ``names`` mean: ``torch/cudnn``, or ``torch`` for all its backends.

    Raises ``InputError`` for a name that is none of them.
    """
    for name in names:
        if not any(name in (known, known.partition("/")[0]) for known in PEERS):
            raise InputError(f"--peers: unknown peer {name!r}; expected some of {', '.join(PEERS)}")
    return tuple(known for known in PEERS if known in names or known.partition("/")[0] in names)


def of_variant(variant: str, phase: str) -> tuple[str, ...]:
    """Return the peers that stand beside ``variant`` in ``phase``."""
    return tuple(name for name, peer in PEERS.items() if variant in (peer.decode if phase == "decode" else peer.prefill))
