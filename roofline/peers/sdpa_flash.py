"""torch SDPA, backend FLASH_ATTENTION: FlashAttention-2 as built into torch."""

from torch.nn.attention import SDPBackend

from roofline.peers.inputs import dense_reference as reference
from roofline.peers.sdpa import Forced, make_inputs, token_major

__all__ = ["backend", "launch", "make_inputs", "reference", "supports", "token_major"]

_forced = Forced(SDPBackend.FLASH_ATTENTION)
supports, launch, backend = _forced.supports, _forced.launch, _forced.backend
