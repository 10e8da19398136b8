"""Which workloads exist, and the topology key.

The key holds what cannot be changed while old Pods still hold devices: mode, disaggregated or aggregated, the model,
the kind of workload, and in nodePlacement mode how often entries were reassigned. Nothing else is in it: replica
counts, images, arguments and strategy change in place. *Scaling and Upgrades*, "Change rules": a mode switch and a node
reassignment, and a mere reordering of the list, must not be applied in place, since a new Pod could request a device
before the old Pod returns it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stack import labels, names
from stack.planned import ObjectPlan, TopologyPlan
from stack.scalars import ROLES, Role

if TYPE_CHECKING:
    from stack.config.root import StackConfig
    from stack.facts import ClusterFacts

WORKLOAD_KIND = "Deployment"
WARNING = (
    "Every model server of this release is owned by this object: deleting it takes them all down. It is replaced by "
    "`pulumi up` when devices must be free before new Pods ask for them."
)


@dataclass(frozen=True, kw_only=True)
class Placement:
    """One role workload to be: a role's Deployment, or one nodePlacement entry.

    Attributes:
        entry: index in nodePlacement, None in replicas mode.
        node: node the entry is pinned to, None in replicas mode.
    """

    role: Role
    replicas: int
    entry: int | None = None
    node: str | None = None

    @property
    def suffix(self) -> str:
        """What follows the release in the workload's name: `prefill`, or `prefill-0`."""
        return self.role if self.entry is None else f"{self.role}-{self.entry}"


def place(config: StackConfig) -> tuple[Placement, ...]:
    """The workloads in the order of declaration; a role at 0 has none."""
    entries = config.modelserver.node_placement
    if entries:
        return tuple(
            Placement(role=entry.role, replicas=1, entry=index, node=entry.node) for index, entry in enumerate(entries)
        )
    counts = config.modelserver.effective_replicas()
    return tuple(Placement(role=role, replicas=counts[role]) for role in ROLES if counts[role])


def topology_key(*, mode: str, is_disaggregated: bool, model: str, generation: int) -> str:
    """Ten hex digits; `generation` counts only in nodePlacement mode."""
    parts: dict[str, object] = {
        "mode": mode,
        "disaggregated": is_disaggregated,
        "model": model,
        "workload": WORKLOAD_KIND,
    }
    if mode == "nodePlacement":
        parts["generation"] = generation
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:10]


def plan_topology(
    config: StackConfig,
    placements: tuple[Placement, ...],
    *,
    model: str,
    leave_seconds: int,
    facts: ClusterFacts,
) -> TopologyPlan:
    """Settle the key; a reassignment of a running nodePlacement entry raises the generation."""
    mode = "nodePlacement" if config.modelserver.node_placement else "replicas"
    is_disaggregated = all(p.role != "aggregated" for p in placements)

    def key_of(generation: int) -> str:
        return topology_key(mode=mode, is_disaggregated=is_disaggregated, model=model, generation=generation)

    generation, unknown = 1, None
    if mode == "nodePlacement":
        if not facts.anchor_is_known or (facts.anchor is not None and facts.workloads is None):
            unknown = (
                "the generation of nodePlacement is kept in the cluster and could not be read, so it is not known "
                "whether this change reassigns nodes"
            )
        elif facts.anchor is not None and facts.anchor.key == key_of(facts.anchor.generation):
            generation = facts.anchor.generation + (1 if _reassigns(placements, facts) else 0)
    key = key_of(generation)
    anchor = ObjectPlan(
        logical_name="topology",
        manifest={
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": labels.object_meta(
                names.topology_anchor(config.release),
                release=config.release,
                namespace=config.namespace,
                component="topology",
                annotations={labels.GENERATION: str(generation), "serving-stack.dev/warning": WARNING},
            ),
            "data": {"key": key},
        },
    )
    return TopologyPlan(
        mode=mode,
        is_disaggregated=is_disaggregated,
        key=key,
        generation=generation,
        anchor=anchor,
        leave_seconds=leave_seconds,
        unknown=unknown,
    )


def _reassigns(placements: tuple[Placement, ...], facts: ClusterFacts) -> bool:
    """Whether an entry that runs would be another role or node at the same index."""
    wanted = {p.entry: (p.role, p.node) for p in placements}
    return any(
        live.entry in wanted and wanted[live.entry] != (live.role, live.node)
        for live in (facts.workloads or {}).values()
        if live.entry is not None
    )
