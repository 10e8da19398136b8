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
from stack.errors import Problem
from stack.facts import STATE_UNKNOWN
from stack.planned import ObjectPlan, TopologyPlan
from stack.scalars import ROLES, Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from stack.config.root import StackConfig
    from stack.facts import AnchorFacts, ClusterFacts, StateFacts

WORKLOAD_KIND = "Deployment"
GENERATIONS_TRIED = 1000
THE_PODS = "the Pods of topology"
UNKNOWN_TOPOLOGY = "topology unknown"
"""Stands where a problem has its key: no single key is to blame."""
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
    state: StateFacts = STATE_UNKNOWN,
) -> TopologyPlan:
    """Settle the key; a reassignment of a running nodePlacement entry raises the generation.

    While an earlier change is under way nothing is settled: what goes takes its Pods along, whatever is changed in it
    meanwhile, and an update would end well with nothing running.
    """
    mode = "nodePlacement" if config.modelserver.node_placement else "replicas"
    is_disaggregated = all(p.role != "aggregated" for p in placements)

    def key_of(generation: int) -> str:
        return topology_key(mode=mode, is_disaggregated=is_disaggregated, model=model, generation=generation)

    leaving = _leaving(config, facts)
    generation, unknown = 1, _under_way(config, leaving)
    if mode == "nodePlacement":
        unknown = unknown or _generation_unknown(config, facts)
        if facts.anchor is not None and (live := _generation(facts.anchor, key_of)) is not None:
            generation = live + (1 if _reassigns(placements, facts) else 0)
    key = key_of(generation)
    unknown = unknown or _change_unknown(key, facts, state)
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
        seats={} if mode == "nodePlacement" else {role: any(p.role == role for p in placements) for role in ROLES},
        changes=facts.anchor is not None and facts.anchor.key != key,
        leaving=leaving,
        unknown=unknown,
    )


def order_entries(
    config: StackConfig, placements: tuple[Placement, ...], *, key: str, facts: ClusterFacts
) -> dict[str, tuple[str, ...]]:
    """Workload name -> workloads that must have rolled out first.

    Entries of a role that serve are changed one after the other, so that the others go on serving, while the chart
    restarts them all at once. Entries that are made, in a first install or under a new topology key, start together,
    and one that does not serve, on a node that is gone for instance, is waited for by nobody.
    """
    if facts.anchor is None or facts.anchor.key != key:
        return {}
    order: dict[str, tuple[str, ...]] = {}
    last: dict[Role, str] = {}
    for placement in placements:
        name = names.workload(config.release, placement.role, placement.entry)
        live = (facts.workloads or {}).get(name)
        if placement.entry is None or live is None or not live.available:
            continue
        if placement.role in last:
            order[name] = (last[placement.role],)
        last[placement.role] = name
    return order


def _generation(anchor: AnchorFacts, key_of: Callable[[int], str]) -> int | None:
    """The generation that the live key was made from, None when it is of another topology altogether.

    The annotation says it; where somebody took it away or changed it, the key itself still tells.
    """
    likely = (anchor.generation, *range(1, GENERATIONS_TRIED + 1))
    return next((generation for generation in likely if key_of(generation) == anchor.key), None)


def _change_unknown(key: str, facts: ClusterFacts, state: StateFacts) -> Problem | None:
    """Whether everything would be taken down unseen: the cluster can't be read, and the engine knows another key."""
    held = {topology.key for topology in state.topologies or ()}
    if facts.anchor_is_known or not held or key in held:
        return None
    return _unknown(
        "this needs another topology than the last update made, and what runs in the cluster could not be read",
        fix="Give access to the cluster and run `pulumi up` again",
    )


def _leaving(config: StackConfig, facts: ClusterFacts) -> tuple[str, ...]:
    """An anchor or workload that goes, or a workload made under another anchor than the live one, which goes next.

    A workload without any owner is none of these: garbage collection leaves it alone, and an update gives it its owner.
    """
    going: list[str] = []
    if facts.anchor is not None and facts.anchor.is_terminating:
        going.append(f"ConfigMap {names.topology_anchor(config.release)}")
    owner = facts.anchor.uid if facts.anchor is not None else None
    for name, live in sorted((facts.workloads or {}).items()):
        is_orphaned = facts.anchor_is_known and live.owner_uid not in {None, owner}
        if live.is_terminating or is_orphaned:
            going.append(f"{WORKLOAD_KIND} {name}")
    if facts.router_leaves:
        going.append(f"{WORKLOAD_KIND} {names.epp(config.release)}")
    is_placed = bool(config.modelserver.node_placement)
    if is_placed and not facts.workloads and facts.anchor_is_known and facts.anchor is None:
        # Somebody deleted the anchor; the generation it had is free again only when these have gone.
        going += [f"{THE_PODS} {key}" for key in sorted(facts.live_topologies or ())]
    return tuple(going)


def _under_way(config: StackConfig, leaving: tuple[str, ...]) -> Problem | None:
    """While an earlier change goes on, nothing is settled."""
    if not leaving:
        return None
    is_one = len(leaving) == 1 and not leaving[0].startswith(THE_PODS)
    goes = f"{_join(list(leaving))} {'goes' if is_one else 'go'}"
    return _unknown(
        f"an earlier change is still under way: {goes} first, and an update waits for that, changes nothing and stops",
        fix="Run `pulumi up` again after that. If a Pod stays because its node is gone, delete the Node, or the Pod "
        f"with `kubectl -n {config.namespace} delete pod <name> --force`",
    )


def _generation_unknown(config: StackConfig, facts: ClusterFacts) -> Problem | None:
    """Why the generation can't be told: something could not be read, or Pods outlived the anchor that had it."""
    is_read = facts.anchor_is_known and facts.workloads is not None
    if not is_read or (facts.anchor is None and facts.live_topologies is None):
        return _unknown(
            "the generation of nodePlacement is kept in the cluster and could not be read, so it is not known "
            "whether this change reassigns nodes",
            fix="Give access to the cluster and run `pulumi up` again",
        )
    if facts.anchor is not None:
        return None
    alive = [f"{WORKLOAD_KIND} {name}" for name in sorted(facts.workloads or ())]
    alive += [f"{THE_PODS} {key}" for key in sorted(facts.live_topologies or ())]
    if not alive:
        return None
    return _unknown(
        f"the generation of nodePlacement was kept in ConfigMap {names.topology_anchor(config.release)}, which is "
        "not there any more",
        fix=f"Wait until {_join(alive)} are gone (delete the Deployments if nothing else does: `kubectl -n "
        f"{config.namespace} get deployments,pods -l {labels.INSTANCE}={config.release},{labels.ROLE}`), then run "
        "`pulumi up` again",
    )


def _unknown(why: str, *, fix: str) -> Problem:
    return Problem(key=UNKNOWN_TOPOLOGY, value="", why=why, fix=fix)


def _join(what: list[str]) -> str:
    return what[0] if len(what) == 1 else f"{', '.join(what[:-1])} and {what[-1]}"


def _reassigns(placements: tuple[Placement, ...], facts: ClusterFacts) -> bool:
    """Whether an entry that has had a node would be another role or node at the same index.

    One whose Pod never found its node, for a typing error in the name, holds no device that anybody could wait for; but
    it must not get the node of an entry that is dropped, which goes last.
    """
    wanted = {p.entry: (p.role, p.node) for p in placements}
    live = [workload for workload in (facts.workloads or {}).values() if workload.entry is not None]
    dropped = {workload.node for workload in live if workload.entry not in wanted and workload.is_placed}
    return any(
        workload.is_placed or wanted[workload.entry][1] in dropped
        for workload in live
        if workload.entry in wanted and wanted[workload.entry] != (workload.role, workload.node)
    )
