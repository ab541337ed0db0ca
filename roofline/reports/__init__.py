"""Renderers: each draws a document (plain data, as ``--json`` prints it) and computes nothing of its own."""
