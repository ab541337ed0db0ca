"""torch SDPA, backend MATH: plain matrix products and softmax."""

from torch.nn.attention import SDPBackend

from roofline.peers.inputs import dense_reference as reference
from roofline.peers.sdpa import Forced, make_inputs, token_major

__all__ = ["backend", "launch", "make_inputs", "reference", "supports", "token_major"]

_forced = Forced(SDPBackend.MATH, dtypes=("fp32", "bf16", "fp16"), widest=2**20)
supports, launch, backend = _forced.supports, _forced.launch, _forced.backend
