"""What can be measured, by name: ``roofline/<variant>``, the peers, and faults injected on purpose."""

from importlib import import_module
from typing import cast

from roofline import kernels, peers
from roofline.errors import InputError
from roofline.kernels.protocol import Kernel

OURS = "roofline/"
FAULTS = {
    "fault/illegal-address": "roofline.measure.worker.faults.illegal_address",
    "fault/endless": "roofline.measure.worker.faults.endless",
    "fault/wrong": "roofline.measure.worker.faults.wrong",
    "fault/out-of-memory": "roofline.measure.worker.faults.out_of_memory",
}


def load(name: str) -> Kernel:
    """Import and return the module that ``name`` stands for; raise ``InputError`` for an unknown name."""
    if name.startswith(OURS):
        return kernels.load(name.removeprefix(OURS))
    if name in FAULTS:
        return cast(Kernel, import_module(FAULTS[name]))
    if name in peers.PEERS:
        return cast(Kernel, import_module(peers.PEERS[name].module))
    raise InputError(f"unknown implementation {name!r}; expected {OURS}<variant> or one of {', '.join(peers.PEERS)}")
