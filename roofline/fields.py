"""A problem, a plan and a prediction as JSON fields, the first two also back: the names are those of ``analyze --json``."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from roofline.analysis import Result, problem_dict, to_dict
from roofline.dtypes import compute_dtype, kv_dtype
from roofline.errors import InputError
from roofline.masks import Mask
from roofline.plan import Plan
from roofline.problem import GroupedKV, LatentKV, Lengths, Problem, uniform

_BESIDE_PREDICTION = ("configuration", "variant", "problem", "plan")  # what a record says of a point itself


def prediction_fields(result: Result) -> dict[str, Any]:
    """Return what is predicted of ``result``, as a record holds it."""
    return {key: value for key, value in to_dict(result).items() if key not in _BESIDE_PREDICTION}


def problem_fields(problem: Problem) -> dict[str, Any]:
    """Return ``problem`` as plain values, complete enough to be read back."""
    return {**problem_dict(problem), "mla_projections": problem.mla_projections}


def problem_from(fields: Mapping[str, Any]) -> Problem:
    """Return the problem that ``problem_fields`` wrote; raise ``InputError`` when a field is missing or does not fit."""
    try:
        kv: GroupedKV | LatentKV
        if fields["latent_dim"] is None:
            kv = GroupedKV(fields["kv_heads"], fields["head_dim"], fields["v_head_dim"])
        else:
            kv = LatentKV(fields["latent_dim"], fields["rope_dim"], fields["head_dim"], fields["v_head_dim"])
        runs = fields["lengths"]
        equal = runs is None
        lengths = uniform(fields["batch"], fields["q_len"], fields["kv_len"]) if equal else tuple(Lengths(*run) for run in runs)
        return Problem(
            fields["q_heads"],
            kv,
            lengths,
            Mask(fields["mask"] != "full", fields["window"]),
            compute_dtype(fields["dtype"]),
            kv_dtype(fields["kv_dtype"]),
            fields["page_size"],
            fields["max_len"],
            fields["shared_prefix"],
            fields["mla_projections"],
            fields["layers"],
        )
    except (KeyError, TypeError) as error:
        raise InputError(f"not a problem of this version: {error}") from None


def plan_fields(plan: Plan) -> dict[str, Any]:
    """Return ``plan`` as plain values."""
    return asdict(plan)


def plan_from(fields: Mapping[str, Any]) -> Plan:
    """Return the plan that ``plan_fields`` wrote; raise ``InputError`` for one of another version."""
    try:
        return Plan(**fields)
    except TypeError as error:
        raise InputError(f"not a plan of this version: {error}") from None
