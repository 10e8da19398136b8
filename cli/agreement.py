"""Compares what the impact says happens to each Deployment with what the engine is going to do to it.

Both look at the same change from two sides: the impact at live Pods through a dry run of ours, the engine at its state
and the provider's dry run. Where they differ one of them is wrong, and neither may be believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stack.impact import Happening, Method
from stack.report import Difference

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stack.impact import Impact, WorkloadImpact
    from stack.report import EngineStep

TEMPLATE, REPLICAS = "spec.template", "spec.replicas"
REMADE = frozenset({Method.ALL_DOWN, Method.REPLACE})
UNTOUCHED = "leaves it as it is"
"""The engine has no step for it: it stays the same, or is not the engine's."""


def compare(impact: Impact, steps: Iterable[EngineStep]) -> tuple[Difference, ...]:
    """Where impact and engine differ, in the impact's order; what is not known agrees with everything."""
    of_engine = {step.name: step for step in steps if step.kind == "Deployment"}
    found: list[Difference] = []
    for part in impact.parts:
        # A part whose Deployments are not known has none in the impact.
        is_known = part.happens is not Happening.UNKNOWN
        for workload in part.workloads:
            step = of_engine.pop(workload.name, None)
            if is_known and workload.happens is not Happening.UNKNOWN:
                found += _differences(workload, step)
    if all(part.workloads for part in impact.parts):
        found += [
            Difference(workload=step.name, engine=_said(step), impact="does not speak of it")
            for step in of_engine.values()
        ]
    return tuple(found)


def _differences(workload: WorkloadImpact, step: EngineStep | None) -> Iterator[Difference]:
    """At most one: the first thing that does not fit says enough."""
    wants = _wanted(workload, step)
    if wants is not None:
        yield Difference(workload=workload.name, engine=_said(step), impact=f"{_happens(workload)}: {wants}")


def _wanted(workload: WorkloadImpact, step: EngineStep | None) -> str | None:  # noqa: PLR0911  # one return for each way to differ
    """What the engine would have to do; None if it does that."""
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
    scales = workload.before != workload.after
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


def _said(step: EngineStep | None) -> str:
    if step is None:
        return UNTOUCHED
    return f"{step.operation} ({', '.join(step.paths)})" if step.paths else step.operation
