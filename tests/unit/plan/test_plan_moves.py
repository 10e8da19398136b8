"""A live stack is not moved to another name, namespace or cluster, and its topology is not changed blindly."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from stack.facts import NOTHING_READ, STATE_UNKNOWN, AnchorFacts, FactsError, HeldTopology, StateFacts
from tests.builders import EMPTY_CLUSTER, plan

if TYPE_CHECKING:
    from stack.facts import ClusterFacts

AGGREGATED: dict[str, Any] = {"replicas": {"aggregated": 1}}
NOTHING_HELD = StateFacts(topologies=(), cluster_identifier="test")
"""After a destroy there may still be a provider of an update that failed early."""


def held(*, release: str = "rel", namespace: str = "ns", key: str = "k") -> HeldTopology:
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


@pytest.mark.parametrize(
    ("state", "facts", "modelserver"),
    [
        pytest.param(NOTHING_HELD, running(), {}, id="the configuration that runs, of which all is found again"),
        pytest.param(NOTHING_HELD, running(), {"replicas": {"decode": 1}}, id="a change within the topology"),
        pytest.param(NOTHING_HELD, EMPTY_CLUSTER, AGGREGATED, id="nothing runs"),
        pytest.param(NOTHING_HELD, NOTHING_READ, AGGREGATED, id="it is not known what runs"),
        pytest.param(LIVE, running(), AGGREGATED, id="the state knows what runs"),
        pytest.param(
            StateFacts(topologies=(held(key="long ago"),)), running(), AGGREGATED, id="the state knows it by an old key"
        ),
        pytest.param(STATE_UNKNOWN, running(), AGGREGATED, id="it is not known what the state knows"),
    ],
)
def test_a_topology_may_be_changed_when(state: StateFacts, facts: ClusterFacts, modelserver: dict[str, Any]) -> None:
    assert refused(state, facts, modelserver=modelserver) == {}


def test_an_emptied_anchor_is_told_as_empty() -> None:
    """Somebody took its key away; the Pods have one all the same."""
    facts = dataclasses.replace(EMPTY_CLUSTER, anchor=AnchorFacts(key="", generation=1, uid="u"))
    assert refused(NOTHING_HELD, facts)["rel-topology"].startswith("rel-topology is empty: ")


# --- with other reasons -----------------------------------------------------------------------------------------------


def test_what_else_stands_in_the_way_is_told_with_it() -> None:
    """What is unknown is said with a refusal, since a preview that stops shows no warnings."""
    going = dataclasses.replace(
        EMPTY_CLUSTER, anchor=AnchorFacts(key="k", generation=1, uid="u", is_terminating=True), workloads={}
    )
    assert set(refused(LIVE, going, release="other")) == {"release", "topology unknown"}
