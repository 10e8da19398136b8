"""Compares what the impact says happens to each Deployment with what the engine is going to do to it.

Both look at the same change from two sides: the impact at live Pods through a dry run of ours, the engine at its state
and the provider's dry run. Where they differ one of them is wrong, and neither may be believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stack.impact import Happening, Method
from stack.report import Difference

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stack.impact import Impact, WorkloadImpact
    from stack.report import EngineStep

TEMPLATE, REPLICAS = "spec.template", "spec.replicas"
REMADE = frozenset({Method.ALL_DOWN, Method.REPLACE})
SCALERS = frozenset({"HorizontalPodAutoscaler", "ScaledObject", "PodAutoscaler"})
UNTOUCHED = "leaves it as it is"
"""The engine has no step for it: it stays the same, or is not the engine's."""


def compare(impact: Impact, steps: Iterable[EngineStep], *, namespace: str | None = None) -> tuple[Difference, ...]:
    """Where impact and engine differ, in the impact's order; what is not known agrees with everything.

    Args:
        impact: what happens to the Pods.
        steps: what the engine is going to do.
        namespace: where the release is; None takes all steps for those of its namespace.
    """
    of_engine: dict[tuple[str | None, str], list[EngineStep]] = {}
    let_go: set[tuple[str | None, str]] = set()
    for step in steps:
        place = (namespace and step.namespace, step.name)
        if step.kind == "Deployment":
            of_engine.setdefault(place, []).append(step)
        elif step.kind in SCALERS and step.operation == "delete":
            let_go.add(place)  # a scaler is called as the Deployment that it scales
    found: list[Difference] = []
    for part in impact.parts:
        # A part whose Deployments are not known has none in the impact.
        is_known = part.happens is not Happening.UNKNOWN
        for workload in part.workloads:
            place = (namespace, workload.name)
            its = of_engine.pop(place, [])
            if is_known and workload.happens is not Happening.UNKNOWN:
                found += _differences(workload, its, is_let_go=place in let_go)
    if all(part.workloads for part in impact.parts):
        found += [
            Difference(workload=name, engine=_said(its), impact="does not speak of it")
            for (_, name), its in of_engine.items()
        ]
    return tuple(found)


def _differences(workload: WorkloadImpact, its: Sequence[EngineStep], *, is_let_go: bool) -> Iterator[Difference]:
    """At most one: the first thing that does not fit says enough."""
    wants = "one step is enough" if len(its) > 1 else _wanted(workload, its[0] if its else None, is_let_go=is_let_go)
    if wants is not None:
        yield Difference(workload=workload.name, engine=_said(its), impact=f"{_happens(workload)}: {wants}")


def _wanted(  # noqa: PLR0911  # one return for each way to differ
    workload: WorkloadImpact, step: EngineStep | None, *, is_let_go: bool
) -> str | None:
    """What the engine would have to do; None if it does that.

    Args:
        workload: what happens to it.
        step: what the engine is going to do with it.
        is_let_go: whether what scaled it goes.
    """
    operation = UNTOUCHED if step is None else step.operation
    if workload.happens is Happening.CREATED:
        return None if operation in {"create", "import"} else "it has to be created"
    if workload.happens is Happening.DELETED:
        return None if operation == "delete" else "it has to be deleted"
    if workload.method in REMADE:
        return None if operation == "replace" else "it has to be replaced"
    if step is not None and operation in {"create", "import"}:
        return None  # it lives, and the engine takes it over without knowing what is another in it
    if step is not None and operation != "update":
        return "it may only be updated"
    paths = () if step is None else step.paths
    changes = workload.is_template_changed
    if changes is None:  # told by the keys alone
        changes = True if workload.happens is Happening.RESTARTS else None
    if changes is not None and changes not in _touches(paths, TEMPLATE):
        return f"its {TEMPLATE} {'has to change' if changes else 'has to stay'}"
    # Where something else says how many Pods there are, no update does.
    scales = workload.before != workload.after and not workload.is_scaled
    if is_let_go and not workload.is_scaled and not scales:
        return None  # the number that it has is written again, and the engine's state may have been without one
    if workload.before is not None and scales not in _touches(paths, REPLICAS):
        return f"its {REPLICAS} {'has to change' if scales else 'has to stay'}"
    return None


def _touches(paths: Iterable[str], field: str) -> frozenset[bool]:
    """Whether a field is among what differs; both where the engine names no more than what it is part of."""
    given = tuple(paths)
    if any(path == field or path.startswith((f"{field}.", f"{field}[")) for path in given):
        return frozenset({True})
    if any(field.startswith(f"{path}.") for path in given):
        return frozenset({True, False})
    return frozenset({False})


def _happens(workload: WorkloadImpact) -> str:
    method = "" if workload.method is None else f" ({workload.method})"
    return f"{workload.happens}{method}"


def _said(its: Sequence[EngineStep]) -> str:
    said = [f"{step.operation} ({', '.join(step.paths)})" if step.paths else step.operation for step in its]
    return " and ".join(said) or UNTOUCHED
