"""roofline: FLOPs, memory traffic and rooflines of attention, predicted and measured."""

__version__ = "0.1.0"
