from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack import labels
from stack.facts import NOTHING_READ, AnchorFacts, ClusterFacts, WorkloadFacts
from stack.modelserver import SLACK_SECONDS
from stack.topology import Placement, place, plan_topology, topology_key
from tests.builders import accepted, plan, template

if TYPE_CHECKING:
    from stack.planned import TopologyPlan

REFERENCE = "MiniMaxAI/MiniMax-M2.7"
Entry = tuple[str, str]


def entries(*pairs: Entry) -> dict[str, Any]:
    return {"nodePlacement": [{"role": role, "node": node} for role, node in pairs]}


def placed_key(generation: int) -> str:
    return topology_key(mode="nodePlacement", is_disaggregated=True, model=REFERENCE, generation=generation)


def live(*pairs: Entry, generation: int = 1, key: str | None = None) -> ClusterFacts:
    """A cluster in which this list runs."""
    workloads = {
        f"rel-{role}-{index}": WorkloadFacts(name=f"rel-{role}-{index}", role=role, entry=index, node=node)
        for index, (role, node) in enumerate(pairs)
    }
    anchor = AnchorFacts(key=key or placed_key(generation), generation=generation, uid="u")
    return ClusterFacts(claims=frozenset(), anchor_is_known=True, anchor=anchor, workloads=workloads)


def topology(facts: ClusterFacts = NOTHING_READ, **modelserver: Any) -> TopologyPlan:
    found = accepted(modelserver=modelserver)
    model = found.config.modelserver.model or found.recipe.model
    return plan_topology(found.config, place(found.config), model=model, leave_seconds=1, facts=facts)


@pytest.mark.parametrize(
    ("modelserver", "want_placements"),
    [
        pytest.param(
            {},
            [Placement(role="prefill", replicas=4), Placement(role="decode", replicas=4)],
            id="nothing written: the chart's 4 prefill and 4 decode",
        ),
        pytest.param(
            {"replicas": {"prefill": 0, "decode": 3}},
            [Placement(role="decode", replicas=3)],
            id="a role at 0 has no workload",
        ),
        pytest.param(
            {"replicas": {"aggregated": 2}},
            [Placement(role="aggregated", replicas=2)],
            id="aggregated: one role, and neither half",
        ),
        pytest.param(
            entries(("decode", "n2"), ("prefill", "n1"), ("decode", "n1")),
            [
                Placement(role="decode", replicas=1, entry=0, node="n2"),
                Placement(role="prefill", replicas=1, entry=1, node="n1"),
                Placement(role="decode", replicas=1, entry=2, node="n1"),
            ],
            id="nodePlacement: one workload of one Pod for each entry, in the list's order",
        ),
    ],
)
def test_workloads_of(modelserver: dict[str, Any], want_placements: list[Placement]) -> None:
    assert list(place(accepted(modelserver=modelserver).config)) == want_placements


def test_workloads_are_named_by_role_and_by_entry() -> None:
    assert [w.object.name for w in plan().modelserver.workloads] == ["rel-prefill", "rel-decode"]
    placed = plan(modelserver=entries(("prefill", "n1"), ("decode", "n1")))
    assert [w.object.name for w in placed.modelserver.workloads] == ["rel-prefill-0", "rel-decode-1"]


def test_mode_model_aggregation_and_generation_each_change_the_key() -> None:
    keys = {
        "reference": topology().key,
        "another model": topology(model="other/model").key,
        "aggregated": topology(replicas={"aggregated": 1}).key,
        "placed": topology(live(("prefill", "n1")), **entries(("prefill", "n1"))).key,
        "placed again": topology(live(("prefill", "n1")), **entries(("prefill", "n2"))).key,
    }
    same = [pair for pair in combinations(keys, 2) if keys[pair[0]] == keys[pair[1]]]
    assert same == []


def test_in_replicas_mode_a_generation_means_nothing() -> None:
    keys = {
        topology_key(mode="replicas", is_disaggregated=True, model=REFERENCE, generation=generation)
        for generation in (1, 7)
    }
    assert len(keys) == 1


@settings(deadline=None, max_examples=25)
@given(
    st.fixed_dictionaries(
        {
            "replicas": st.fixed_dictionaries({"prefill": st.integers(0, 9), "decode": st.integers(1, 9)}),
            "image": st.fixed_dictionaries({"tag": st.sampled_from(["1.0.0", "2.0.0"])}),
            "strategy": st.integers(1, 3).map(lambda n: {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": n}}),
            "extraServeArgs": st.integers(1, 512).map(lambda n: {"decode": [f"--seed={n}"]}),
            "serveEnv": st.dictionaries(st.sampled_from(["ONE", "TWO"]), st.text("ab", min_size=1)),
        }
    )
)
def test_replicas_images_arguments_environment_and_strategy_leave_the_key_alone(
    changed: dict[str, Any],
) -> None:
    assert topology(**changed).key == topology().key


A, B, C = ("prefill", "n1"), ("decode", "n2"), ("decode", "n3")


@pytest.mark.parametrize(
    ("applied", "wanted", "want_generation"),
    [
        pytest.param((A, B), (A, B), 3, id="nothing changed"),
        pytest.param((A, B), (A, B, C), 3, id="an entry appended"),
        pytest.param((A, B, C), (A, B), 3, id="an entry dropped from the end"),
        pytest.param((A, B, C), (A,), 3, id="two entries dropped from the end"),
        pytest.param((A, B), (B, A), 4, id="a mere reordering"),
        pytest.param((A, B), (A, C), 4, id="an entry on another node"),
        pytest.param((A, B), (A, ("prefill", "n2")), 4, id="an entry of another role on its node"),
        pytest.param((A, B, C), (A, C), 4, id="an entry dropped from the middle, which moves the next one up"),
        pytest.param((A, B), (C, A, B), 4, id="an entry put in front"),
        pytest.param((), (A, B), 3, id="a reassignment that was interrupted before the first new Pod"),
    ],
)
def test_the_generation_after(applied: tuple[Entry, ...], wanted: tuple[Entry, ...], want_generation: int) -> None:
    found = topology(live(*applied, generation=3), **entries(*wanted))
    assert (found.generation, found.key, found.unknown) == (want_generation, placed_key(want_generation), None)


LISTS = st.lists(st.tuples(st.sampled_from(["prefill", "decode"]), st.sampled_from(["n1", "n2", "n3"])), max_size=4)


@settings(deadline=None, max_examples=25)
@given(applied=LISTS, wanted=LISTS.filter(bool))
def test_the_generation_rises_exactly_when_an_index_that_runs_gets_another_role_or_node(
    applied: list[Entry], wanted: list[Entry]
) -> None:
    is_reassigned = any(before != after for before, after in zip(applied, wanted, strict=False))
    assert topology(live(*applied), **entries(*wanted)).generation == 1 + is_reassigned


@pytest.mark.parametrize(
    ("facts", "want_generation"),
    [
        pytest.param(ClusterFacts(anchor_is_known=True), 1, id="a fresh stack"),
        pytest.param(
            ClusterFacts(anchor_is_known=True, workloads=None), 1, id="a fresh stack whose workloads cannot be listed"
        ),
        pytest.param(
            live(
                A,
                generation=5,
                key=topology_key(mode="replicas", is_disaggregated=True, model=REFERENCE, generation=5),
            ),
            1,
            id="a switch from replicas mode",
        ),
        pytest.param(
            live(
                A,
                generation=5,
                key=topology_key(mode="nodePlacement", is_disaggregated=True, model="other/model", generation=5),
            ),
            1,
            id="another model before",
        ),
    ],
)
def test_the_generation_starts_at_1_after(facts: ClusterFacts, want_generation: int) -> None:
    found = topology(facts, **entries(B, A))
    assert (found.generation, found.unknown) == (want_generation, None)


def test_a_switch_to_replicas_leaves_generation_1_on_the_anchor() -> None:
    found = topology(live(A, B, generation=5))
    assert found.generation == 1
    assert found.anchor.manifest["metadata"]["annotations"][labels.GENERATION] == "1"


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(NOTHING_READ, id="nothing could be read"),
        pytest.param(
            ClusterFacts(anchor_is_known=True, anchor=AnchorFacts(key=placed_key(2), generation=2, uid="u")),
            id="the anchor is known and the workloads are not",
        ),
    ],
)
def test_with_placed_entries_the_topology_is_unknown_when(facts: ClusterFacts) -> None:
    assert topology(facts, **entries(A)).unknown is not None


def test_in_replicas_mode_nothing_has_to_be_read() -> None:
    assert topology(NOTHING_READ).unknown is None
    assert topology(NOTHING_READ, replicas={"aggregated": 1}).unknown is None


def test_the_anchor_holds_the_key_and_nothing_else() -> None:
    found = topology()
    assert found.anchor.name == "rel-topology"
    assert found.anchor.manifest["data"] == {"key": found.key}
    assert "takes them all down" in str(found.anchor.manifest["metadata"]["annotations"])


def test_every_role_pod_carries_the_key() -> None:
    for modelserver in ({}, {"replicas": {"aggregated": 1}}, entries(A, B)):
        whole = plan(modelserver=modelserver)
        for workload in whole.modelserver.workloads:
            carried = template(whole, workload.role, workload.entry)["metadata"]["labels"][labels.TOPOLOGY]
            assert carried == whole.modelserver.topology.key


def test_the_anchor_is_waited_for_as_long_as_the_slowest_pod_may_take_to_leave() -> None:
    assert plan().modelserver.topology.leave_seconds == 90 + SLACK_SECONDS  # the recipe's grace period is 90 s
