"""A live stack is not moved to another name, namespace or cluster, and its topology is not changed blindly."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from stack.facts import (
    NOTHING_READ,
    STATE_UNKNOWN,
    AnchorFacts,
    FactsError,
    HeldTopology,
    StateFacts,
    WorkloadFacts,
)
from tests.builders import EMPTY_CLUSTER, plan

if TYPE_CHECKING:
    from stack.facts import ClusterFacts

AGGREGATED: dict[str, Any] = {"replicas": {"aggregated": 1}}
NOTHING_HELD = StateFacts(topologies=(), cluster_identifier="test")
"""After a destroy there may still be a provider of an update that failed early."""


KEY = plan().modelserver.topology.key
"""Neither release nor namespace is in it."""


def held(*, release: str = "rel", namespace: str = "ns", key: str = KEY) -> HeldTopology:
    return HeldTopology(release=release, namespace=namespace, key=key)


TO_MOVE = (
    "To move the stack, run `pulumi destroy` before the change (volumes stay where they are) and `pulumi up` after it. "
    "For a second stack beside this one, make one of its own: `pulumi stack init <name>`"
)
LIVE = StateFacts(topologies=(held(),), cluster_identifier="test")


def running(**modelserver: Any) -> ClusterFacts:
    """A cluster in which the anchor of this configuration is."""
    key = plan(modelserver=modelserver).modelserver.topology.key
    return dataclasses.replace(EMPTY_CLUSTER, anchor=AnchorFacts(key=key, generation=1, uid="u"))


def refused(state: StateFacts, facts: ClusterFacts = EMPTY_CLUSTER, **blocks: Any) -> dict[str, str]:
    """Key -> letter of everything that stands in the way."""
    try:
        plan(facts, state, **blocks)
    except FactsError as error:
        return {problem.key: str(problem) for problem in error.problems}
    return {}


@pytest.mark.parametrize(
    ("blocks", "want"),
    [
        pytest.param(
            {"release": "other"},
            {
                "release": "release = other: this stack is live with release rel. Another one would be a second stack "
                "that asks for its devices before the first has returned them, with volumes of its own. Set release "
                f"back to rel. {TO_MOVE}."
            },
            id="another release",
        ),
        pytest.param(
            {"namespace": "other"},
            {
                "namespace": "namespace = other: this stack is live with namespace ns. Another one would be a second "
                "stack that asks for its devices before the first has returned them, with volumes of its own. Set "
                f"namespace back to ns. {TO_MOVE}."
            },
            id="another namespace",
        ),
        pytest.param(
            {"cluster": {"identifier": "other"}},
            {
                "cluster.identifier": "cluster.identifier = other: this stack is live in cluster test, and another "
                "identifier means another cluster: every object, volumes included, would be replaced. Set it back to "
                f"test. {TO_MOVE}."
            },
            id="another cluster",
        ),
    ],
)
def test_a_live_stack_is_not_moved_to(blocks: dict[str, Any], want: dict[str, str]) -> None:
    assert refused(LIVE, **blocks) == want


def test_every_move_is_told_at_once() -> None:
    moved = refused(LIVE, release="other", namespace="elsewhere", cluster={"identifier": "far-away"})
    assert list(moved) == ["cluster.identifier", "namespace", "release"]


def test_a_move_is_refused_whatever_is_known_of_the_cluster() -> None:
    """What is live is in the state; the new place is empty, or cannot be read."""
    assert list(refused(LIVE, NOTHING_READ, release="other")) == ["release"]
    assert list(refused(LIVE, EMPTY_CLUSTER, release="other")) == ["release"]


@pytest.mark.parametrize(
    ("state", "blocks"),
    [
        pytest.param(LIVE, {}, id="the same again"),
        pytest.param(LIVE, {"modelserver": AGGREGATED}, id="a live stack, another topology"),
        pytest.param(LIVE, {"modelserver": {"model": "other/model"}}, id="a live stack, another model"),
        pytest.param(NOTHING_HELD, {"release": "other"}, id="another release after a destroy"),
        pytest.param(NOTHING_HELD, {"namespace": "other"}, id="another namespace after a destroy"),
        pytest.param(NOTHING_HELD, {"cluster": {"identifier": "other"}}, id="another cluster after a destroy"),
        pytest.param(StateFacts(topologies=()), {}, id="a first update"),
        pytest.param(STATE_UNKNOWN, {"release": "other", "namespace": "other"}, id="the state is not known"),
        pytest.param(
            StateFacts(cluster_identifier="test"),
            {"cluster": {"identifier": "other"}},
            id="nothing is known of the state but a provider",
        ),
        pytest.param(
            StateFacts(topologies=(held(),)), {"cluster": {"identifier": "mine"}}, id="the provider had no identifier"
        ),
    ],
)
def test_nothing_stands_in_the_way_of(state: StateFacts, blocks: dict[str, Any]) -> None:
    assert refused(state, **blocks) == {}


@pytest.mark.parametrize("release", ["rel", "other"])
def test_a_stack_that_was_half_moved_can_go_on_to_either_end(release: str) -> None:
    """Each would else be told to go back to the other one, and there would be no way out."""
    both = StateFacts(topologies=(held(), held(release="other")), cluster_identifier="test")
    assert refused(both, release=release) == {}
    assert list(refused(both, release="third")) == ["release"]


# --- a topology of which the state knows nothing ----------------------------------------------------------------------


def test_a_topology_that_the_state_does_not_know_is_not_changed() -> None:
    facts = running()
    assert facts.anchor is not None
    assert refused(NOTHING_HELD, facts, modelserver=AGGREGATED) == {
        "rel-topology": f"rel-topology = {facts.anchor.key}: this configuration needs another topology than the one "
        "that runs, and the engine's state knows nothing of what runs (it was emptied, or this is another stack). If "
        "it was emptied, put back the configuration that runs and run `pulumi up`, which finds everything again; then "
        "make this change. If another stack has this release here, choose another release."
    }


UNREADABLE = StateFacts(unknown="unknown function")


def test_a_topology_is_not_changed_when_the_state_could_not_be_read() -> None:
    """It may be an emptied one, for which the engine would take nothing down."""
    assert refused(UNREADABLE, running(), modelserver=AGGREGATED) == {
        "rel-topology": f"rel-topology = {KEY}: this configuration needs another topology than the one that runs, and "
        "the engine's state could not be read, so it is not known whether the engine would take down what runs. If it "
        "was emptied, put back the configuration that runs and run `pulumi up`, which finds everything again; then "
        "make this change. If another stack has this release here, choose another release."
    }


@pytest.mark.parametrize(
    ("state", "facts", "modelserver"),
    [
        pytest.param(NOTHING_HELD, running(), {}, id="the configuration that runs, of which all is found again"),
        pytest.param(NOTHING_HELD, running(), {"replicas": {"decode": 1}}, id="a change within the topology"),
        pytest.param(NOTHING_HELD, EMPTY_CLUSTER, AGGREGATED, id="nothing runs"),
        pytest.param(NOTHING_HELD, NOTHING_READ, AGGREGATED, id="it is not known what runs"),
        pytest.param(UNREADABLE, EMPTY_CLUSTER, AGGREGATED, id="the state could not be read, and nothing runs"),
        pytest.param(
            UNREADABLE, running(), {"replicas": {"decode": 1}}, id="the state could not be read, the key stays"
        ),
        pytest.param(LIVE, running(), AGGREGATED, id="the state knows what runs"),
        pytest.param(
            StateFacts(topologies=(held(key="long ago"),)), running(), AGGREGATED, id="the state knows it by an old key"
        ),
        pytest.param(STATE_UNKNOWN, running(), AGGREGATED, id="nobody asked the engine"),
    ],
)
def test_a_topology_may_be_changed_when(state: StateFacts, facts: ClusterFacts, modelserver: dict[str, Any]) -> None:
    assert refused(state, facts, modelserver=modelserver) == {}


def test_an_emptied_anchor_is_told_as_empty() -> None:
    """Somebody took its key away; the Pods have one all the same."""
    facts = dataclasses.replace(EMPTY_CLUSTER, anchor=AnchorFacts(key="", generation=1, uid="u"))
    assert refused(NOTHING_HELD, facts)["rel-topology"].startswith("rel-topology is empty: ")


# --- workloads of which the state knows nothing -----------------------------------------------------------------------

PLACED: dict[str, Any] = {"nodePlacement": [{"role": role, "node": "n1"} for role in ("prefill", "decode")]}


def live_workloads(*names: str, modelserver: dict[str, Any] | None = None, owner: str | None = "u") -> ClusterFacts:
    """A cluster in which the anchor of this configuration is, and these workloads under it."""
    return dataclasses.replace(
        running(**(modelserver or {})),
        workloads={name: WorkloadFacts(name=name, role=name.split("-")[1], owner_uid=owner) for name in names},
    )


def knowing(*workloads: str) -> StateFacts:
    return dataclasses.replace(LIVE, workloads=frozenset(workloads))


def test_a_workload_that_nobody_would_remove_is_told_with_the_command_that_does() -> None:
    facts = live_workloads("rel-prefill", "rel-decode")
    assert refused(NOTHING_HELD, facts, modelserver={"replicas": {"decode": 0}}) == {
        "Deployment rel-decode": "Deployment rel-decode = ns/rel-decode: it runs and holds devices, this configuration "
        "does not want it, and the engine's state does not know it, so no update would remove it. Delete it with "
        "`kubectl -n ns delete deployment rel-decode`; or, if the state was emptied, put back the configuration that "
        "runs and run `pulumi up`, then make this change."
    }


@pytest.mark.parametrize(
    ("state", "facts", "modelserver", "want"),
    [
        pytest.param(
            knowing("rel-prefill"),
            live_workloads("rel-prefill", "rel-decode"),
            {"replicas": {"prefill": 4, "decode": 0}},
            ["rel-decode"],
            id="an update was killed right after it had made it, and then the role goes to 0",
        ),
        pytest.param(
            NOTHING_HELD,
            live_workloads("rel-decode", "rel-prefill", "rel-stray"),
            {"replicas": {"prefill": 0, "decode": 4}},
            ["rel-prefill", "rel-stray"],
            id="two",
        ),
        pytest.param(
            dataclasses.replace(knowing("rel-prefill-0", "rel-decode-1"), topologies=(held(key="an old one"),)),
            live_workloads("rel-prefill-0", "rel-decode-1", "rel-decode-2", modelserver=PLACED),
            PLACED,
            ["rel-decode-2"],
            id="an entry that was appended by a killed update, and is not wanted any more",
        ),
        pytest.param(
            knowing(),
            live_workloads("rel-stray", owner=None),
            {},
            ["rel-stray"],
            id="one without owner, that somebody made by hand with our labels",
        ),
        pytest.param(
            NOTHING_HELD,
            dataclasses.replace(live_workloads("rel-decode", owner=None), anchor=None),
            {"replicas": {"prefill": 4, "decode": 0}},
            ["rel-decode"],
            id="one that lost its anchor and its owner",
        ),
    ],
)
def test_what_runs_and_would_never_be_removed_is_refused(
    state: StateFacts, facts: ClusterFacts, modelserver: dict[str, Any], want: list[str]
) -> None:
    assert list(refused(state, facts, modelserver=modelserver)) == [f"Deployment {name}" for name in want]


@pytest.mark.parametrize(
    ("state", "facts", "modelserver"),
    [
        pytest.param(
            knowing("rel-prefill", "rel-decode"),
            live_workloads("rel-prefill", "rel-decode"),
            {"replicas": {"prefill": 4, "decode": 0}},
            id="the state knows it, so that the engine drops it",
        ),
        pytest.param(
            knowing("rel-prefill-0", "rel-decode-1", "rel-decode-2"),
            live_workloads("rel-prefill-0", "rel-decode-1", "rel-decode-2", modelserver=PLACED),
            PLACED,
            id="the state knows an entry that is dropped",
        ),
        pytest.param(NOTHING_HELD, live_workloads("rel-prefill", "rel-decode"), {}, id="it is wanted, and found again"),
        pytest.param(
            knowing("rel-prefill"), live_workloads("rel-prefill", "rel-decode"), {}, id="a killed update again"
        ),
        pytest.param(
            knowing("rel-prefill"),
            live_workloads("rel-prefill", "rel-decode"),
            AGGREGATED,
            id="the topology changes, and what the anchor owns goes with it",
        ),
        pytest.param(
            STATE_UNKNOWN,
            live_workloads("rel-prefill", "rel-decode"),
            {"replicas": {"prefill": 4, "decode": 0}},
            id="nobody asked the engine",
        ),
        pytest.param(
            UNREADABLE,
            live_workloads("rel-prefill", "rel-decode"),
            {"replicas": {"prefill": 4, "decode": 0}},
            id="the state could not be read, which is no reason to stop what is none of its topology",
        ),
        pytest.param(
            knowing(),
            dataclasses.replace(running(), workloads=None),
            {"replicas": {"prefill": 4, "decode": 0}},
            id="it is not known what runs",
        ),
    ],
)
def test_nothing_is_left_over_when(state: StateFacts, facts: ClusterFacts, modelserver: dict[str, Any]) -> None:
    assert refused(state, facts, modelserver=modelserver) == {}


def test_a_workload_that_goes_already_is_awaited_and_not_refused() -> None:
    facts = live_workloads("rel-prefill", "rel-decode")
    assert facts.workloads is not None
    gone = {**facts.workloads, "rel-decode": dataclasses.replace(facts.workloads["rel-decode"], is_terminating=True)}
    going = dataclasses.replace(facts, workloads=gone)
    whole = plan(going, knowing("rel-prefill"), modelserver={"replicas": {"prefill": 4, "decode": 0}})
    assert whole.modelserver.topology.leaving == ("Deployment rel-decode",)
    assert "still under way" in str(whole.refusal)


# --- with other reasons -----------------------------------------------------------------------------------------------


def test_what_else_stands_in_the_way_is_told_with_it() -> None:
    """What is unknown is said with a refusal, since a preview that stops shows no warnings."""
    going = dataclasses.replace(
        EMPTY_CLUSTER, anchor=AnchorFacts(key="k", generation=1, uid="u", is_terminating=True), workloads={}
    )
    assert set(refused(LIVE, going, release="other")) == {"release", "topology unknown"}


def test_all_that_is_left_over_is_told_with_what_else_stands_in_the_way() -> None:
    facts = live_workloads("rel-stray")
    assert set(refused(LIVE, facts, cluster={"identifier": "far-away"})) == {
        "cluster.identifier",
        "Deployment rel-stray",
    }
