"""A model's analysis as plain data: the document of ``analyze --model --json``, its rows for CSV, and a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from roofline.models.analysis import ModelAnalysis
from roofline.models.forward import ForwardPass
from roofline.models.mixers import Attention, Mixer
from roofline.models.spec import ModelSpec
from roofline.problem import LatentKV

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
NOT_MODELLED = (
    "arithmetic of norms, biases, activation functions, convolutions and state decay; sampling",
    "launch overhead, communication between GPUs, work of the host",
)
# What a row of ``sweep --model`` shows, one row a length, batch and phase.
SWEEP_COLUMNS = (
    "model", "device", "phase", "n", "batch", "tokens", "flops", "attention_flops", "weight_bytes", "kv_bytes", "bytes",
    "bound", "time_s", "floor_s", "tokens_per_s_limit", "kv_cache_bytes", "kv_cache_bytes_allocated", "sequences",
    "sequences_allocated",
)  # fmt: skip


def document(analysis: ModelAnalysis, notes: Iterable[str] = ()) -> dict[str, Any]:
    """The whole result: SI base units, exact integers, ratios 0-1, ``null`` where the device's ceiling is not known.

    ``notes`` of the caller, on how the device was chosen, come before the analysis' own.
    """
    cache, room = analysis.cache, analysis.capacity
    return {
        "schema": SCHEMA,
        "model": model_dict(analysis.spec),
        "device": _device_dict(analysis),
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
        "notes": [*notes, *analysis.notes],
        "not_modelled": [*analysis.spec.notes, *NOT_MODELLED],
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
        "mixers": [_mixer_dict(mixer, layers) for mixer, layers in spec.mixers],
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


def sweep_rows(analysis: ModelAnalysis) -> Iterator[tuple[Any, ...]]:
    """One row a phase in the order of ``SWEEP_COLUMNS``."""
    cache, room = analysis.cache, analysis.capacity
    for each in analysis.passes:
        yield (
            analysis.spec.name,
            analysis.profile.id,
            each.phase,
            each.n,
            each.batch,
            each.tokens,
            each.flops,
            each.attention_flops,
            each.weight_bytes,
            each.kv_bytes,
            each.bytes,
            each.bound,
            each.time_s,
            each.floor_s,
            each.tokens_per_s,
            cache.batch_bytes,
            cache.allocated_bytes,
            None if room is None else room.sequences,
            None if room is None else room.sequences_allocated,
        )


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
        "bytes": each.bytes,
        "bound": each.bound,
        "time_s": each.time_s,
        "floor_s": each.floor_s,
        "tokens_per_s_limit": each.tokens_per_s,
        "unknown": list(each.unknown),
        "parts": [{**asdict(part), "bytes": part.bytes} for part in each.parts],
    }


def _device_dict(analysis: ModelAnalysis) -> dict[str, Any]:
    """The device and the ceilings that the times come from."""
    profile = analysis.profile
    keys = {"flop_per_s": f"{analysis.dtypes.compute.name}_flop_per_s", "hbm_bytes_per_s": "hbm_bytes_per_s"}
    found = {name: profile.ceiling(key, analysis.roof) for name, key in keys.items()}
    ceilings = {name: None if ceiling is None else ceiling.value for name, ceiling in found.items()}
    known = {"id": profile.id, "name": profile.name, "roof": analysis.roof, "memory_bytes": profile.memory_bytes}
    return {**known, **ceilings}


def _mixer_dict(mixer: Mixer, layers: int) -> dict[str, Any]:
    """What mixes tokens in ``layers`` layers: heads and reach of attention, the values of a state."""
    if not isinstance(mixer, Attention):
        return {"kind": mixer.kind, "layers": layers, "state_values": mixer.state_values, "conv_values": mixer.conv_values}
    kv = mixer.kv
    return {
        "kind": mixer.kind,
        "layers": layers,
        "q_heads": mixer.q_heads,
        "kv_heads": None if isinstance(kv, LatentKV) else kv.heads,
        "head_dim": kv.head_dim,
        "v_head_dim": kv.v_head_dim,
        "latent_dim": kv.latent_dim if isinstance(kv, LatentKV) else None,
        "rope_dim": kv.rope_dim if isinstance(kv, LatentKV) else None,
        "window": mixer.window,
        "chunk": mixer.chunk,
        "shared_kv": mixer.shared_kv,
        "cached_values": mixer.cached_values,
    }


def _plain(value: object) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else value
