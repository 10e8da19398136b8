"""Refuses to move a live stack to another name, namespace or cluster, or to change its topology blindly.

Such a change does not change the stack, it makes a second one beside it: the engine makes what is new first, so both
would ask for the same devices, and drops what is old last, its volumes included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stack import names
from stack.errors import Problem, show

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from stack.config.root import StackConfig
    from stack.facts import ClusterFacts, StateFacts
    from stack.planned import TopologyPlan

TO_MOVE = (
    "To move the stack, run `pulumi destroy` before the change (volumes stay where they are) and `pulumi up` after it. "
    "For a second stack beside this one, make one of its own: `pulumi stack init <name>`"
)


def refuse_moves(
    config: StackConfig, topology: TopologyPlan, planned: Collection[str], *, facts: ClusterFacts, state: StateFacts
) -> tuple[Problem, ...]:
    """Every way in which this configuration is not a change of the stack that the state holds.

    Args:
        config: the configuration.
        topology: its topology.
        planned: names of its workloads.
        facts: what runs.
        state: what the engine knows of it.
    """
    return (
        *_moved(config, state),
        *_blind(config, topology, facts, state),
        *_left_over(config, planned, topology, facts, state),
    )


def _moved(config: StackConfig, state: StateFacts) -> Iterator[Problem]:
    for key, now, held in (
        ("release", config.release, {topology.release for topology in state.topologies or ()}),
        ("namespace", config.namespace, {topology.namespace for topology in state.topologies or ()}),
    ):
        if held and now not in held:  # one that was moved by half must have a way out
            before = min(held)
            yield Problem(
                key=key,
                value=show(now),
                why=f"this stack is live with {key} {before}. Another one would be a second stack that asks for its "
                "devices before the first has returned them, with volumes of its own",
                fix=f"Set {key} back to {before}. {TO_MOVE}",
            )
    before = state.cluster_identifier
    if state.topologies and before is not None and before != config.cluster.identifier:
        yield Problem(
            key="cluster.identifier",
            value=show(config.cluster.identifier),
            why=f"this stack is live in cluster {before}, and another identifier means another cluster: every object, "
            "volumes included, would be replaced",
            fix=f"Set it back to {before}. {TO_MOVE}",
        )


def _blind(config: StackConfig, topology: TopologyPlan, facts: ClusterFacts, state: StateFacts) -> Iterator[Problem]:
    """The live anchor has another key, but the state knows no anchor, so the engine would not take the Pods down."""
    if not topology.changes or state.topologies or (state.topologies is None and state.unknown is None):
        return
    why = (
        "could not be read, so it is not known whether the engine would take down what runs"
        if state.topologies is None
        else "knows nothing of what runs (it was emptied, or this is another stack)"
    )
    yield Problem(
        key=names.topology_anchor(config.release),
        value=show(facts.anchor.key if facts.anchor is not None else None),
        why=f"this configuration needs another topology than the one that runs, and the engine's state {why}",
        fix="If it was emptied, put back the configuration that runs and run `pulumi up`, which finds everything "
        "again; then make this change. If another stack has this release here, choose another release",
    )


def _left_over(
    config: StackConfig, planned: Collection[str], topology: TopologyPlan, facts: ClusterFacts, state: StateFacts
) -> Iterator[Problem]:
    """Workloads that run and are not wanted, but that the engine does not know, so that it would leave them running.

    An update that was killed right after it had made one leaves such a one, and so does an emptied state together with
    a role that is set to 0. When the topology changes, all that the anchor owns goes anyway.
    """
    if state.topologies is None or topology.changes or topology.leaving:
        return
    for name in sorted((facts.workloads or {}).keys() - set(planned) - state.workloads):
        yield Problem(
            key=f"Deployment {name}",
            value=show(f"{config.namespace}/{name}"),
            why="it runs and holds devices, this configuration does not want it, and the engine's state does not know "
            "it, so no update would remove it",
            fix=f"Delete it with `kubectl -n {config.namespace} delete deployment {name}`; or, if the state was "
            "emptied, put back the configuration that runs and run `pulumi up`, then make this change",
        )
