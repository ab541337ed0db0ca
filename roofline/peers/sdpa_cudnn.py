"""torch SDPA, backend CUDNN_ATTENTION: cuDNN's fused attention."""

from torch.nn.attention import SDPBackend

from roofline.peers.inputs import dense_reference as reference
from roofline.peers.sdpa import Forced, make_inputs, token_major

__all__ = ["backend", "launch", "make_inputs", "reference", "supports", "token_major"]

_forced = Forced(SDPBackend.CUDNN_ATTENTION, lower_right=False)
supports, launch, backend = _forced.supports, _forced.launch, _forced.backend
