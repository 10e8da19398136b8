"""What tests start from: a config in a few words, its plan, and the example files."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cli.stackfile import read_stack_file
from stack.facts import NOTHING_READ, STATE_UNKNOWN, ClusterFacts, StateFacts
from stack.plan import plan_stack
from stack.rules import Accepted, accept

if TYPE_CHECKING:
    from stack.planned import StackPlan

ROOT = Path(__file__).resolve().parent.parent
STACK_FILES = sorted([*ROOT.glob("Pulumi.*.yaml"), *ROOT.glob("examples/*.yaml")])
SMALLEST: dict[str, Any] = {
    "release": "rel",
    "namespace": "ns",
    "cluster": {"identifier": "test"},
    "storage": {"model": {"kind": "existingClaim", "existingClaim": "model-store"}},
}
EMPTY_CLUSTER = ClusterFacts(claims={}, anchor_is_known=True, workloads={}, live_topologies=frozenset())
"""A cluster that could be asked, and holds nothing of the stack."""


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Maps are merged, everything else is replaced."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        is_map = isinstance(below, dict) and isinstance(value, dict)
        result[key] = merged(cast("dict[str, Any]", below), cast("dict[str, Any]", value)) if is_map else value
    return result


def accepted(**blocks: Any) -> Accepted:
    """The smallest config with blocks over it, as an operator writes them: `accepted(gateway={"port": 8080})`."""
    return accept(merged(SMALLEST, blocks), context="test")


def plan(facts: ClusterFacts = NOTHING_READ, state: StateFacts = STATE_UNKNOWN, **blocks: Any) -> StackPlan:
    """The plan of `accepted(**blocks)`; made once for the same blocks, so leave its manifests as they are."""
    if facts is NOTHING_READ and state is STATE_UNKNOWN:
        return _plan_once(json.dumps(blocks))
    return plan_stack(accepted(**blocks), facts, state)


@cache
def _plan_once(blocks: str) -> StackPlan:
    return plan_stack(accepted(**json.loads(blocks)), NOTHING_READ)


def planned(plan: StackPlan, kind: str, name: str | None = None) -> dict[str, Any]:
    """The manifest of the only object of a kind, or of the one of that name."""
    [manifest] = [o.manifest for o in plan.objects() if o.kind == kind and name in {None, o.name}]
    return manifest


def kinds(plan: StackPlan, kind: str) -> list[str]:
    """Names of all objects of a kind, in the order of declaration."""
    return [o.name for o in plan.objects() if o.kind == kind]


def pod(plan: StackPlan, role: str, entry: int | None = None) -> dict[str, Any]:
    """Spec of a role's Pods."""
    return template(plan, role, entry)["spec"]


def template(plan: StackPlan, role: str, entry: int | None = None) -> dict[str, Any]:
    """Pod template of a role's workload."""
    [found] = [w for w in plan.modelserver.workloads if (w.role, w.entry) == (role, entry)]
    return found.object.manifest["spec"]["template"]


def container(spec: dict[str, Any], name: str = "modelserver") -> dict[str, Any]:
    """A container or init container of a Pod spec."""
    [found] = [c for c in (*spec.get("initContainers", ()), *spec["containers"]) if c["name"] == name]
    return found


def environment(of: dict[str, Any]) -> dict[str, Any]:
    """A container's variables: text, or the reference as it stands."""
    return {entry["name"]: entry["value"] if "value" in entry else entry["valueFrom"] for entry in of["env"]}


def plan_file(path: Path, facts: ClusterFacts = NOTHING_READ) -> StackPlan:
    """The plan of a stack file."""
    blocks, context = read_stack_file(path.read_text(encoding="utf-8"))
    return plan_stack(accept(blocks, context=context), facts)
