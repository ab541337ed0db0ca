"""Every figure of a configuration as a formula with the numbers put in: what ``roofline explain`` shows."""

from roofline.explain.document import SCHEMA, explain, explain_all, explanation_rows

__all__ = ["SCHEMA", "explain", "explain_all", "explanation_rows"]
