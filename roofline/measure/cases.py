"""What a run measures: one case a configuration and implementation, those of one problem together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roofline import peers
from roofline.analysis import Conventions, Result, analyze
from roofline.configurations import Configuration
from roofline.fields import plan_fields, prediction_fields, problem_fields
from roofline.model import rates_of
from roofline.problem import Problem
from roofline.profiles.profile import Profile


@dataclass(frozen=True, slots=True)
class Case:
    """One point to measure: a configuration, and the name of the implementation that runs it."""

    configuration: Configuration
    implementation: str
    result: Result
    prediction: Mapping[str, Any]

    @property
    def is_ours(self) -> bool:
        """Whether a kernel of this project runs it, with the plan that was predicted."""
        return self.implementation.startswith("roofline/")

    def wire(self) -> dict[str, Any]:
        """What the worker needs of the case beside its problem."""
        return {
            "implementation": self.implementation,
            "variant": self.configuration.variant,
            "plan": plan_fields(self.result.plan),
            "touched_bytes": self.result.cost.hbm_bytes_min,
            "written_bytes": sum(t.write_bytes_min for launch in self.result.cost.launches for t in launch.traffic),
        }

    def fields(self) -> dict[str, Any]:
        """The fields that every record of the case has. The plan of a peer is not ours to tell."""
        return {
            "configuration": self.configuration.name,
            "variant": self.configuration.variant,
            "implementation": self.implementation,
            "problem": problem_fields(self.configuration.problem),
            "plan": plan_fields(self.result.plan) if self.is_ours else None,
            "prediction": self.prediction,
        }


def cases(
    configurations: Iterable[Configuration], profile: Profile, wanted_peers: Sequence[str] = (), extra: Sequence[str] = ()
) -> list[list[Case]]:
    """Return the cases of ``configurations`` in groups of one problem each, in order.

    ``wanted_peers`` are added where they run the variant; ``extra`` names implementations to add to every configuration.
    """
    groups: dict[Problem, list[Case]] = {}
    for configuration in configurations:
        variant = configuration.variant
        fitting = [name for name in peers.of_variant(variant, configuration.phase) if name in wanted_peers]
        names = [f"roofline/{variant}", *fitting, *extra]
        result = analyze(configuration, profile)
        group = groups.setdefault(configuration.problem, [])
        # One that would stand beside several variants of a problem is measured once.
        there = {case.implementation for case in group if not case.is_ours}
        ours, theirs = ({**prediction_fields(result), "time_measured_roof_s": s} for s in _measured_roof_s(result, profile))
        group += [
            Case(configuration, name, result, ours if name.startswith("roofline/") else theirs)
            for name in names
            if name not in there
        ]
    return list(groups.values())


def _measured_roof_s(result: Result, profile: Profile) -> tuple[float | None, float | None]:
    """Return the time at the measured ceilings of our plan, and of a peer, whose plan is not ours to tell.

    The second is what the problem alone demands: its useful FLOPs, and each input and output byte once.
    """
    if not profile.measured:
        return None, None
    configuration, cost = result.configuration, result.cost
    ours = analyze(configuration, profile, Conventions(roof="measured")).prediction.time_s
    rates = rates_of(profile, configuration.problem.dtype, "measured")
    compute_s = min(cost.flops, cost.flops_executed) / rates.matmul if rates.matmul else 0.0
    return ours, max(compute_s, cost.hbm_bytes_min / rates.hbm if rates.hbm else 0.0)
