"""Measuring on a GPU: ``session`` supervises a run, the package ``worker`` runs its points in a process of its own.

The supervising side never imports torch and never creates a CUDA context; only modules of ``worker`` do.
"""
