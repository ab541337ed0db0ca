"""A model's analysis as plain data: the document of ``analyze --model --json``, its rows for CSV, and a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from roofline.models.analysis import ModelAnalysis
from roofline.models.forward import ForwardPass
from roofline.models.spec import ModelSpec

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "roofline.model/1"
CONVENTIONS = (
    "times are limits: each part at least its useful FLOPs over the peak or its bytes over the HBM bandwidth, parts in turn",
    "attention: the same layers as roofline analyze predicts them, with the tiles, launches and L2 of a variant",
    "floor_s is the whole pass as one kernel, activations not counted",
    "prefill computes the logits of each prompt's last token only",
    "experts read: E (1 - (1 - k/E)^T) of E for T tokens that take k each, all choices equally likely",
    "fp8, int8 and int4 weights: the matrices of the layers; embeddings, router, LM head and norms stay in the compute dtype",
    "norms, biases, activation functions, convolutions and the decay of states: their weights count, their arithmetic does not",
)


def document(analysis: ModelAnalysis) -> dict[str, Any]:
    """The whole result: SI base units, exact integers, ratios 0-1, ``null`` where the device's ceiling is not known."""
    cache, room = analysis.cache, analysis.capacity
    return {
        "schema": SCHEMA,
        "model": model_dict(analysis.spec),
        "device": {"id": analysis.profile.id, "name": analysis.profile.name, "roof": analysis.roof},
        "dtypes": {name: dtype.name for name, dtype in analysis.dtypes._asdict().items()},
        "weights": {"bytes": analysis.weight_bytes, "parts": [asdict(part) for part in analysis.weights]},
        "kv_cache": {
            "n": cache.n,
            "batch": cache.batch,
            "page_size": cache.page_size,
            "bytes_per_token": cache.bytes_per_token,
            "sequence_bytes": cache.sequence_bytes,
            "state_bytes": cache.state_bytes,
            "batch_bytes": cache.batch_bytes,
            "allocated_sequence_bytes": cache.allocated_sequence_bytes,
            "allocated_bytes": cache.allocated_bytes,
            "kinds": [kind._asdict() for kind in cache.kinds],
        },
        "capacity": None if room is None else {**asdict(room), "free_bytes": room.free_bytes},
        "crossover_n": dict(analysis.crossover_n),
        "passes": [_pass_dict(each) for each in analysis.passes],
        "attention": [asdict(each) for each in analysis.attention],
        "notes": list(analysis.notes),
        "conventions": list(CONVENTIONS),
    }


def model_dict(spec: ModelSpec) -> dict[str, Any]:
    """The model alone: its sizes, its layers in runs, what was inferred and what is not modelled."""
    return {
        "name": spec.name,
        "model_type": spec.model_type,
        "source": spec.source,
        "hidden_size": spec.hidden_size,
        "vocab_size": spec.vocab_size,
        "num_layers": spec.num_layers,
        "tied_embeddings": spec.tied_embeddings,
        "context_tokens": spec.context_tokens,
        "body_params": spec.body_params,
        "active_body_params": spec.active_body_params,
        "total_params": spec.total_params,
        "active_params": spec.active_params,
        "attention_kinds": spec.attention_kinds,
        "layers": [
            {"kind": run.layer.kind, "mlp": run.layer.mlp.kind if run.layer.mlp else None, "count": run.repeats}
            for run in spec.runs
        ],
        "inferred": [{"field": entry.field, "value": _plain(entry.value), "reason": entry.reason} for entry in spec.inferred],
        "notes": list(spec.notes),
    }


def rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a phase and part of a document, for CSV."""
    shared = {"model": document["model"]["name"], "device": document["device"]["id"]}
    return [
        {**shared, "phase": each["phase"], "n": each["n"], "batch": each["batch"], **part}
        for each in document["passes"]
        for part in each["parts"]
    ]


def to_frame(analyses: ModelAnalysis | Iterable[ModelAnalysis]) -> pd.DataFrame:
    """One row a model, phase and part, for notebooks; ``analyses`` is one result or several."""
    import pandas as pd

    each = (analyses,) if isinstance(analyses, ModelAnalysis) else analyses
    return pd.DataFrame([row for analysis in each for row in rows(document(analysis))])


def _pass_dict(each: ForwardPass) -> dict[str, Any]:
    return {
        "phase": each.phase,
        "n": each.n,
        "batch": each.batch,
        "tokens": each.tokens,
        "flops": each.flops,
        "attention_flops": each.attention_flops,
        "weight_bytes": each.weight_bytes,
        "kv_bytes": each.kv_bytes,
        "time_s": each.time_s,
        "floor_s": each.floor_s,
        "tokens_per_s_limit": each.tokens_per_s,
        "unknown": list(each.unknown),
        "parts": [{**asdict(part), "bytes": part.bytes} for part in each.parts],
    }


def _plain(value: object) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else value
