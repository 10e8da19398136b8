from __future__ import annotations

import dataclasses
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack import labels
from stack.facts import NOTHING_READ, AnchorFacts, ClusterFacts, WorkloadFacts
from stack.modelserver import SLACK_SECONDS
from stack.topology import Placement, place, plan_topology, topology_key
from tests.builders import EMPTY_CLUSTER, accepted, plan, template

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
        f"rel-{role}-{index}": WorkloadFacts(
            name=f"rel-{role}-{index}", role=role, entry=index, node=node, owner_uid="u"
        )
        for index, (role, node) in enumerate(pairs)
    }
    key = key or placed_key(generation)
    anchor = AnchorFacts(key=key, generation=generation, uid="u")
    return dataclasses.replace(
        EMPTY_CLUSTER, anchor=anchor, workloads=workloads, live_topologies=frozenset({key} if pairs else ())
    )


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
        pytest.param(EMPTY_CLUSTER, 1, id="a fresh stack"),
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
    ("facts", "want_fix"),
    [
        pytest.param(NOTHING_READ, "Give access", id="nothing could be read"),
        pytest.param(
            dataclasses.replace(live(A), workloads=None), "Give access", id="the anchor is known, the workloads are not"
        ),
        pytest.param(
            dataclasses.replace(EMPTY_CLUSTER, workloads=None),
            "Give access",
            id="there is no anchor, and it is not known whether there are workloads",
        ),
        pytest.param(
            dataclasses.replace(EMPTY_CLUSTER, live_topologies=None),
            "Give access",
            id="there is no anchor, and it is not known whether there are Pods",
        ),
        pytest.param(
            dataclasses.replace(EMPTY_CLUSTER, live_topologies=frozenset({"abc"})),
            "the Pods of topology abc are gone",
            id="Pods outlived the anchor",
        ),
        pytest.param(
            dataclasses.replace(
                EMPTY_CLUSTER, workloads={"rel-prefill-0": WorkloadFacts(name="rel-prefill-0", role="prefill", entry=0)}
            ),
            "Deployment rel-prefill-0 are gone",
            id="a workload outlived the anchor, and lost its owner",
        ),
    ],
)
def test_with_placed_entries_the_topology_is_unknown_when(facts: ClusterFacts, want_fix: str) -> None:
    unknown = topology(facts, **entries(A)).unknown
    assert unknown is not None
    assert unknown.key == "topology unknown"
    assert want_fix in unknown.fix
    assert "run `pulumi up` again" in unknown.fix


def in_replicas(generation: int = 1, **workloads: WorkloadFacts) -> ClusterFacts:
    """A cluster with an anchor, and workloads `rel-<role>` under it."""
    anchor = AnchorFacts(key=topology().key, generation=generation, uid="u")
    return dataclasses.replace(EMPTY_CLUSTER, anchor=anchor, workloads={live.name: live for live in workloads.values()})


def role(name: str, replicas: int = 4, *, owner_uid: str | None = "u") -> WorkloadFacts:
    return WorkloadFacts(name=f"rel-{name}", role=name, replicas=replicas, owner_uid=owner_uid)


WHOLE = in_replicas(prefill=role("prefill"), decode=role("decode"))
PLACED = live(A, B)


def going(facts: ClusterFacts, *, anchor: bool = False, workload: str | None = None) -> ClusterFacts:
    """The same with something terminating."""
    assert facts.anchor is not None
    assert facts.workloads is not None
    changed = dict(facts.workloads)
    if workload is not None:
        changed[workload] = dataclasses.replace(changed[workload], is_terminating=True)
    return dataclasses.replace(
        facts, anchor=dataclasses.replace(facts.anchor, is_terminating=anchor), workloads=changed
    )


@pytest.mark.parametrize(
    ("facts", "modelserver", "want_gone"),
    [
        pytest.param(going(WHOLE, anchor=True), {}, "ConfigMap rel-topology is gone", id="the anchor goes"),
        pytest.param(going(WHOLE, workload="rel-decode"), {}, "Deployment rel-decode is gone", id="a workload goes"),
        pytest.param(
            in_replicas(prefill=role("prefill", owner_uid="earlier"), decode=role("decode")),
            {},
            "Deployment rel-prefill is gone",
            id="a workload is left from an earlier anchor",
        ),
        pytest.param(
            dataclasses.replace(WHOLE, anchor=None),
            {},
            "Deployment rel-decode and Deployment rel-prefill are gone",
            id="somebody deleted the anchor, and its workloads follow",
        ),
        pytest.param(
            going(WHOLE, anchor=True, workload="rel-decode"),
            {"replicas": {"aggregated": 1}},
            "ConfigMap rel-topology and Deployment rel-decode are gone",
            id="the previous topology goes, whatever is wanted now",
        ),
        pytest.param(
            going(PLACED, workload="rel-decode-1"), entries(A, B), "Deployment rel-decode-1 is gone", id="an entry goes"
        ),
        pytest.param(
            dataclasses.replace(going(WHOLE, workload="rel-decode"), anchor=None, anchor_is_known=False),
            {},
            "Deployment rel-decode is gone",
            id="a workload goes, and the anchor is not known",
        ),
    ],
)
def test_an_earlier_change_is_under_way_when(facts: ClusterFacts, modelserver: dict[str, Any], want_gone: str) -> None:
    unknown = topology(facts, **modelserver).unknown
    assert str(unknown) == (
        f"topology unknown: an earlier change is still under way. Wait until {want_gone}, then run `pulumi up` again."
    )


@pytest.mark.parametrize(
    ("facts", "modelserver"),
    [
        pytest.param(WHOLE, {}, id="everything is as it was left"),
        pytest.param(PLACED, entries(A, B), id="everything is as it was left, on nodes"),
        pytest.param(dataclasses.replace(WHOLE, workloads=None), {}, id="the workloads are not known"),
        pytest.param(dataclasses.replace(WHOLE, anchor=None, anchor_is_known=False), {}, id="the anchor is not known"),
        pytest.param(
            in_replicas(decode=role("decode", owner_uid=None)), {}, id="a workload without owner, which will not go"
        ),
        pytest.param(
            dataclasses.replace(EMPTY_CLUSTER, live_topologies=frozenset({"abc"})),
            {},
            id="Pods outlived the anchor, and in replicas mode no generation was lost",
        ),
    ],
)
def test_nothing_is_under_way_when(facts: ClusterFacts, modelserver: dict[str, Any]) -> None:
    assert topology(facts, **modelserver).unknown is None


@pytest.mark.parametrize(
    ("facts", "replicas", "want_dropped"),
    [
        pytest.param(WHOLE, {"prefill": 0, "decode": 8}, ("rel-prefill",), id="one goes to 0 and the other grows"),
        pytest.param(WHOLE, {"prefill": 0, "decode": 4}, (), id="one goes to 0 and the other stays"),
        pytest.param(WHOLE, {"prefill": 0, "decode": 1}, (), id="one goes to 0 and the other shrinks"),
        pytest.param(WHOLE, {"prefill": 1, "decode": 7}, (), id="one shrinks and the other grows"),
        pytest.param(
            in_replicas(prefill=role("prefill")),
            {"prefill": 0, "decode": 1},
            ("rel-prefill",),
            id="one goes to 0 and the other is new",
        ),
        pytest.param(WHOLE, {"aggregated": 8}, (), id="another topology, for which everything goes first"),
        pytest.param(
            in_replicas(prefill=role("prefill", 0), decode=role("decode")),
            {"prefill": 0, "decode": 8},
            (),
            id="somebody scaled it to 0 by hand, so it holds nothing",
        ),
        pytest.param(dataclasses.replace(WHOLE, workloads=None), {"prefill": 0, "decode": 8}, (), id="not known"),
        pytest.param(
            going(WHOLE, workload="rel-prefill"), {"prefill": 0, "decode": 8}, (), id="it goes already: under way"
        ),
    ],
)
def test_a_workload_keeps_its_devices_to_the_end_when(
    facts: ClusterFacts, replicas: dict[str, int], want_dropped: tuple[str, ...]
) -> None:
    found = topology(facts, replicas=replicas)
    assert found.dropped == want_dropped
    assert [warning.key for warning in found.warnings] == ["modelserver.replicas.prefill"] * len(want_dropped)


def test_a_role_that_goes_while_another_grows_is_warned_of_in_the_plan() -> None:
    assert (
        "modelserver.replicas.prefill = 0: rel-prefill is deleted only after rel-decode rolled out with more Pods, "
        "since an update deletes last what it drops; it keeps its devices until then. "
        "If no devices are spare, set prefill to 0 in an update of its own first."
    ) in plan(WHOLE, modelserver={"replicas": {"prefill": 0, "decode": 8}}).warnings


def test_an_unknown_topology_is_a_warning_to_a_preview_and_a_refusal_to_an_update() -> None:
    whole = plan(going(WHOLE, anchor=True))
    assert whole.refusal is not None
    assert whole.refusal.startswith("topology unknown: an earlier change is still under way")
    assert whole.refusal in whole.warnings
    assert plan(WHOLE).refusal is None
    assert plan(WHOLE).warnings == ()


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
