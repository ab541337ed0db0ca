"""Renderers: each draws a document or a view, plain data as ``--json`` prints it. What a view holds is derived in ``view``."""
