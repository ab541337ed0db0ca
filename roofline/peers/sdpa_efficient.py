"""torch SDPA, backend EFFICIENT_ATTENTION: the memory-efficient kernel of xFormers (CUTLASS)."""

from torch.nn.attention import SDPBackend

from roofline.peers.inputs import dense_reference as reference
from roofline.peers.sdpa import Forced, make_inputs, token_major

__all__ = ["backend", "launch", "make_inputs", "reference", "supports", "token_major"]

_forced = Forced(SDPBackend.EFFICIENT_ATTENTION, dtypes=("fp32", "bf16", "fp16"), grouped=False, widest=1024)
supports, launch, backend = _forced.supports, _forced.launch, _forced.backend
