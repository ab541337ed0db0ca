"""Measuring on a GPU: ``session`` supervises a run, ``worker`` runs the points in a process of its own.

The supervising side (``session``, ``supervisor``, ``calibrate``, ``counters``, ``doctor``, ``environment``) never imports torch
and never creates a CUDA context; everything that does is imported by ``worker`` and ``replay`` alone.
"""
