from __future__ import annotations

import dataclasses
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack import labels
from stack.facts import (
    NOTHING_READ,
    STATE_UNKNOWN,
    AnchorFacts,
    ClusterFacts,
    HeldTopology,
    StateFacts,
    WorkloadFacts,
)
from stack.modelserver import SLACK_SECONDS
from stack.topology import Placement, order_entries, place, plan_topology, topology_key
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
    key = placed_key(generation) if key is None else key
    anchor = AnchorFacts(key=key, generation=generation, uid="u")
    return dataclasses.replace(
        EMPTY_CLUSTER, anchor=anchor, workloads=workloads, live_topologies=frozenset({key} if pairs else ())
    )


def changed(facts: ClusterFacts, **workloads: dict[str, Any]) -> ClusterFacts:
    """The same with something else about workloads, by role and entry: `decode_1={"available": 0}`."""
    live = dict(facts.workloads or {})
    for suffix, fields in workloads.items():
        name = f"rel-{suffix.replace('_', '-')}"
        live[name] = dataclasses.replace(live[name], **fields)
    return dataclasses.replace(facts, workloads=live)


def topology(facts: ClusterFacts = NOTHING_READ, state: StateFacts = STATE_UNKNOWN, **modelserver: Any) -> TopologyPlan:
    found = accepted(modelserver=modelserver)
    model = found.config.modelserver.model or found.recipe.model
    return plan_topology(found.config, place(found.config), model=model, leave_seconds=1, facts=facts, state=state)


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


NO_NODE: dict[str, Any] = {"is_placed": False, "available": 0}
TYPO = ("decode", "nn2")


@pytest.mark.parametrize(
    ("applied", "without_a_node", "wanted", "want_generation"),
    [
        pytest.param((A, TYPO), {"decode_1": NO_NODE}, (A, B), 3, id="the node of the one that found none"),
        pytest.param((A, TYPO), {"decode_1": NO_NODE}, (A, ("prefill", "n2")), 3, id="its role and its node"),
        pytest.param((A, TYPO), {"decode_1": NO_NODE}, (A, B, C), 3, id="its node, and one is appended"),
        pytest.param((A, TYPO), {"decode_1": NO_NODE}, (C, B), 4, id="its node, and that of one that runs"),
        pytest.param((A, TYPO), {"decode_1": NO_NODE}, (B, A), 4, id="its place in the list with one that runs"),
        pytest.param(
            (A, B), {"decode_1": {"available": 0}}, (A, C), 4, id="the node of one that has one and does not serve"
        ),
        pytest.param(
            (A, TYPO, C), {"decode_1": NO_NODE, "decode_2": NO_NODE}, (B, A), 4, id="all, of which one has a node"
        ),
        pytest.param(
            (A, TYPO),
            {"prefill_0": NO_NODE, "decode_1": NO_NODE},
            (B, A),
            3,
            id="all, of which none has a node",
        ),
    ],
)
def test_what_never_had_a_node_gives_none_back_when_this_is_changed(
    applied: tuple[Entry, ...],
    without_a_node: dict[str, dict[str, Any]],
    wanted: tuple[Entry, ...],
    want_generation: int,
) -> None:
    """A typing error in a node's name is mended without taking down the entries that run."""
    found = topology(changed(live(*applied, generation=3), **without_a_node), **entries(*wanted))
    assert (found.generation, found.key, found.unknown) == (want_generation, placed_key(want_generation), None)
    assert found.changes is (want_generation == 4)


@pytest.mark.parametrize(
    ("applied", "wanted"),
    [
        pytest.param((A, TYPO, B), (A, B), id="dropped, which moves the one that runs there up"),
        pytest.param((A, TYPO, C, B), (A, B), id="given the node of one that is dropped as well"),
    ],
)
def test_what_never_had_a_node_does_not_take_one_from_an_entry_that_goes(
    applied: tuple[Entry, ...], wanted: tuple[Entry, ...]
) -> None:
    """An update drops last, and waits for the new Pod first, which waits for the devices of the old one."""
    found = topology(changed(live(*applied, generation=3), decode_1=NO_NODE), **entries(*wanted))
    assert (found.generation, found.changes) == (4, True)


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


@pytest.mark.parametrize(
    ("said", "made_from", "want"),
    [
        pytest.param(3, 3, 3, id="it is as it was left"),
        pytest.param(1, 3, 3, id="somebody took it away, which is read as 1"),
        pytest.param(7, 3, 3, id="somebody raised it"),
        pytest.param(2, 1000, 1000, id="somebody lowered it, after more reassignments than there will be"),
        pytest.param(20260801, 20260801, 20260801, id="it is far beyond, and the key says the same"),
    ],
)
@pytest.mark.parametrize("is_reassigned", [False, True], ids=["nothing is reassigned", "an entry is reassigned"])
def test_the_generation_is_the_one_that_the_live_key_was_made_from(
    said: int, made_from: int, want: int, is_reassigned: bool
) -> None:
    """The annotation may be lost or wrong; what the Pods run under is the key."""
    facts = live(A, B, generation=said, key=placed_key(made_from))
    found = topology(facts, **entries(A, C if is_reassigned else B))
    assert (found.generation, found.changes, found.unknown) == (want + is_reassigned, is_reassigned, None)
    assert found.anchor.manifest["metadata"]["annotations"][labels.GENERATION] == str(want + is_reassigned)


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("0123456789", id="a key of nobody's"),
        pytest.param("", id="somebody emptied the anchor"),
        pytest.param(
            topology_key(mode="nodePlacement", is_disaggregated=False, model=REFERENCE, generation=3),
            id="the key of an aggregated stack",
        ),
    ],
)
def test_where_no_generation_fits_the_key_everything_is_taken_down_and_counted_anew(key: str) -> None:
    found = topology(live(A, B, generation=3, key=key), **entries(A, B))
    assert (found.generation, found.key, found.changes, found.unknown) == (1, placed_key(1), True, None)


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
            dataclasses.replace(
                EMPTY_CLUSTER, workloads={"rel-prefill-0": WorkloadFacts(name="rel-prefill-0", role="prefill", entry=0)}
            ),
            "Deployment rel-prefill-0 are gone",
            id="a workload outlived the anchor, and lost its owner",
        ),
        pytest.param(
            dataclasses.replace(
                EMPTY_CLUSTER,
                workloads={"rel-prefill-0": WorkloadFacts(name="rel-prefill-0", role="prefill", entry=0)},
                live_topologies=frozenset({"abc"}),
            ),
            "Deployment rel-prefill-0 and the Pods of topology abc are gone",
            id="a workload and its Pods outlived the anchor, and will not go of themselves",
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
    ("facts", "modelserver", "want"),
    [
        pytest.param(going(WHOLE, anchor=True), {}, ["ConfigMap rel-topology"], id="the anchor goes"),
        pytest.param(going(WHOLE, workload="rel-decode"), {}, ["Deployment rel-decode"], id="a workload goes"),
        pytest.param(
            in_replicas(prefill=role("prefill", owner_uid="earlier"), decode=role("decode")),
            {},
            ["Deployment rel-prefill"],
            id="a workload is left from an earlier anchor",
        ),
        pytest.param(
            dataclasses.replace(WHOLE, anchor=None),
            {},
            ["Deployment rel-decode", "Deployment rel-prefill"],
            id="somebody deleted the anchor, and its workloads follow",
        ),
        pytest.param(
            going(WHOLE, anchor=True, workload="rel-decode"),
            {"replicas": {"aggregated": 1}},
            ["ConfigMap rel-topology", "Deployment rel-decode"],
            id="the previous topology goes, whatever is wanted now",
        ),
        pytest.param(
            going(PLACED, workload="rel-decode-1"), entries(A, B), ["Deployment rel-decode-1"], id="an entry goes"
        ),
        pytest.param(
            dataclasses.replace(going(WHOLE, workload="rel-decode"), anchor=None, anchor_is_known=False),
            {},
            ["Deployment rel-decode"],
            id="a workload goes, and the anchor is not known",
        ),
        pytest.param(dataclasses.replace(WHOLE, router_leaves=True), {}, ["Deployment rel-epp"], id="the EPP goes"),
        pytest.param(
            dataclasses.replace(EMPTY_CLUSTER, router_leaves=True),
            {},
            ["Deployment rel-epp"],
            id="the EPP goes as the last of a destroyed stack",
        ),
        pytest.param(
            dataclasses.replace(going(WHOLE, anchor=True, workload="rel-decode"), router_leaves=True),
            {},
            ["ConfigMap rel-topology", "Deployment rel-decode", "Deployment rel-epp"],
            id="all of them go",
        ),
        pytest.param(
            dataclasses.replace(EMPTY_CLUSTER, live_topologies=frozenset({"def", "abc"})),
            entries(A),
            ["the Pods of topology abc", "the Pods of topology def"],
            id="somebody deleted the anchor, and of its workloads only Pods are left",
        ),
    ],
)
def test_an_earlier_change_is_under_way_when(facts: ClusterFacts, modelserver: dict[str, Any], want: list[str]) -> None:
    found = topology(facts, **modelserver)
    assert list(found.leaving) == want
    assert found.unknown is not None


@pytest.mark.parametrize(
    ("facts", "want_goes"),
    [
        pytest.param(going(WHOLE, anchor=True), "ConfigMap rel-topology goes first", id="one"),
        pytest.param(
            going(WHOLE, anchor=True, workload="rel-decode"),
            "ConfigMap rel-topology and Deployment rel-decode go first",
            id="two",
        ),
        pytest.param(
            going(dataclasses.replace(WHOLE, anchor=AnchorFacts(key="k", generation=1, uid="new")), anchor=True),
            "ConfigMap rel-topology, Deployment rel-decode and Deployment rel-prefill go first",
            id="three",
        ),
    ],
)
def test_an_earlier_change_is_told_with_what_goes_and_what_to_do(facts: ClusterFacts, want_goes: str) -> None:
    assert str(topology(facts).unknown) == (
        f"topology unknown: an earlier change is still under way: {want_goes}, and an update waits for that, changes "
        "nothing and stops. Run `pulumi up` again after that. If a Pod stays because its node is gone, delete the "
        "Node, or the Pod with `kubectl -n ns delete pod <name> --force`."
    )


def test_pods_that_outlived_their_anchor_are_told_as_going() -> None:
    facts = dataclasses.replace(EMPTY_CLUSTER, live_topologies=frozenset({"abc"}))
    assert "still under way: the Pods of topology abc go first, and" in str(topology(facts, **entries(A)).unknown)


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
        pytest.param(live(A, key=topology().key), {}, id="Pods of the live topology, whose anchor is there"),
        pytest.param(
            dataclasses.replace(PLACED, live_topologies=frozenset({placed_key(1), "abc"})),
            entries(A, B),
            id="Pods of an earlier topology leave, while the anchor knows the generation; their devices are waited for",
        ),
    ],
)
def test_nothing_is_under_way_when(facts: ClusterFacts, modelserver: dict[str, Any]) -> None:
    found = topology(facts, **modelserver)
    assert (found.leaving, found.unknown) == ((), None)


# --- what becomes of what runs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "modelserver", "want"),
    [
        pytest.param(WHOLE, {}, False, id="nothing is changed"),
        pytest.param(WHOLE, {"replicas": {"prefill": 0, "decode": 8}}, False, id="a role goes to 0"),
        pytest.param(WHOLE, {"replicas": {"aggregated": 8}}, True, id="aggregated from now on"),
        pytest.param(WHOLE, {"model": "other/model"}, True, id="another model"),
        pytest.param(WHOLE, entries(A, B), True, id="placed from now on"),
        pytest.param(PLACED, {}, True, id="no more placed"),
        pytest.param(PLACED, entries(A, B, C), False, id="an entry appended"),
        pytest.param(PLACED, entries(A), False, id="an entry dropped from the end"),
        pytest.param(PLACED, entries(B, A), True, id="a mere reordering"),
        pytest.param(EMPTY_CLUSTER, {"replicas": {"aggregated": 8}}, False, id="nothing runs"),
        pytest.param(NOTHING_READ, {"replicas": {"aggregated": 8}}, False, id="it is not known whether anything runs"),
        pytest.param(live(key=""), {}, True, id="somebody emptied the anchor"),
    ],
)
def test_every_workload_is_taken_down_first_when(facts: ClusterFacts, modelserver: dict[str, Any], want: bool) -> None:
    found = topology(facts, **modelserver)
    assert found.changes is want
    assert facts.anchor is None or want is (facts.anchor.key != found.key)


@pytest.mark.parametrize(
    ("modelserver", "want"),
    [
        pytest.param({}, {"prefill": True, "decode": True, "aggregated": False}, id="nothing written"),
        pytest.param(
            {"replicas": {"prefill": 0, "decode": 4}},
            {"prefill": False, "decode": True, "aggregated": False},
            id="a role at 0",
        ),
        pytest.param(
            {"replicas": {"aggregated": 1}}, {"prefill": False, "decode": False, "aggregated": True}, id="aggregated"
        ),
        pytest.param(entries(A, B), {}, id="placed, where each entry is a role's and none goes to 0"),
    ],
)
def test_a_role_has_a_seat_that_says_whether_it_has_pods(modelserver: dict[str, Any], want: dict[str, bool]) -> None:
    assert topology(**modelserver).seats == want
    assert topology(WHOLE, **modelserver).seats == want, "whatever runs: it is the engine that compares"


# --- one entry after the other ----------------------------------------------------------------------------------------

P, Q = ("prefill", "n4"), ("prefill", "n5")


def order(facts: ClusterFacts, *pairs: Entry) -> dict[str, tuple[str, ...]]:
    config = accepted(modelserver=entries(*pairs)).config
    key = topology(facts, **entries(*pairs)).key
    return order_entries(config, place(config), key=key, facts=facts)


@pytest.mark.parametrize(
    ("facts", "wanted", "want"),
    [
        pytest.param(
            live(A, B, C), (A, B, C), {"rel-decode-2": ("rel-decode-1",)}, id="two of a role and one of the other"
        ),
        pytest.param(
            live(A, B, P, C, Q),
            (A, B, P, C, Q),
            {
                "rel-prefill-2": ("rel-prefill-0",),
                "rel-prefill-4": ("rel-prefill-2",),
                "rel-decode-3": ("rel-decode-1",),
            },
            id="each waits for the one before it of its own role",
        ),
        pytest.param(live(A, B), (A, B), {}, id="one of each, which have nothing to wait for"),
        pytest.param(
            live(A, P), (A, P, Q), {"rel-prefill-1": ("rel-prefill-0",)}, id="an entry appended starts at once"
        ),
        pytest.param(live(A, P, Q), (A, P), {"rel-prefill-1": ("rel-prefill-0",)}, id="an entry dropped from the end"),
        pytest.param(live(A, P, B), (P, A, B), {}, id="a reordering, under a new key, starts together"),
        pytest.param(EMPTY_CLUSTER, (A, P, B, C), {}, id="a first install starts together"),
        pytest.param(NOTHING_READ, (A, P, B, C), {}, id="nothing is known, and an update is refused"),
        pytest.param(
            dataclasses.replace(live(A, P), workloads=None), (A, P), {}, id="the workloads are not known, likewise"
        ),
        pytest.param(WHOLE, (A, P), {}, id="a switch from replicas starts together"),
        pytest.param(
            dataclasses.replace(
                live(A, P, Q),
                workloads={n: w for n, w in (live(A, P, Q).workloads or {}).items() if n != "rel-prefill-1"},
            ),
            (A, P, Q),
            {"rel-prefill-2": ("rel-prefill-0",)},
            id="one that somebody deleted is made at once, and nobody waits for it",
        ),
        pytest.param(
            changed(live(A, P, Q), prefill_1={"available": 0}),
            (A, P, Q),
            {"rel-prefill-2": ("rel-prefill-0",)},
            id="one in the middle that does not serve",
        ),
        pytest.param(
            changed(live(A, P, Q), prefill_0={"available": 0}),
            (A, P, Q),
            {"rel-prefill-2": ("rel-prefill-1",)},
            id="the first one does not serve",
        ),
        pytest.param(
            changed(live(A, P, Q), prefill_2={"available": 0}),
            (A, P, Q),
            {"rel-prefill-1": ("rel-prefill-0",)},
            id="the last one does not serve",
        ),
        pytest.param(
            changed(live(A, P, B, C), prefill_0={"available": 0}, prefill_1={"available": 0}),
            (A, P, B, C),
            {"rel-decode-3": ("rel-decode-2",)},
            id="none of a role serves, so that all of it may start at once, and the other role keeps its order",
        ),
        pytest.param(
            changed(live(A, P), prefill_1={"is_placed": False}),
            (A, P),
            {"rel-prefill-1": ("rel-prefill-0",)},
            id="one serves whose Pod could not be seen",
        ),
    ],
)
def test_entries_of_a_role_that_serve_are_changed_one_after_the_other(
    facts: ClusterFacts, wanted: tuple[Entry, ...], want: dict[str, tuple[str, ...]]
) -> None:
    assert order(facts, *wanted) == want


def test_in_replicas_mode_nobody_waits() -> None:
    config = accepted().config
    assert order_entries(config, place(config), key=topology().key, facts=WHOLE) == {}


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_what_serves_of_a_role_is_one_chain_in_the_order_of_the_list(data: st.DataObject) -> None:
    """And whatever is new or does not serve stands in none, and so does every entry under a new key."""
    wanted = data.draw(LISTS.filter(bool).map(lambda pairs: pairs * 2), label="wanted")
    names = [f"rel-{role}-{index}" for index, (role, _) in enumerate(wanted)]
    running = data.draw(st.sets(st.sampled_from(names)), label="running")
    serving = data.draw(st.sets(st.sampled_from(sorted(running))) if running else st.just(set[str]()), label="serving")
    has_key = data.draw(st.booleans(), label="has the key")
    facts = live(*wanted, key=None if has_key else "another")
    facts = dataclasses.replace(
        facts,
        workloads={
            name: dataclasses.replace(found, available=int(name in serving))
            for name, found in (facts.workloads or {}).items()
            if name in running
        },
    )
    config = accepted(modelserver=entries(*wanted)).config
    found = order_entries(config, place(config), key=placed_key(1), facts=facts)

    for role_of_it in ("prefill", "decode"):
        chain = [name for name in names if name in serving and name.startswith(f"rel-{role_of_it}-")]
        waits = {later: (earlier,) for earlier, later in pairwise(chain)} if has_key else {}
        assert {name: after for name, after in found.items() if name.startswith(f"rel-{role_of_it}-")} == waits
    assert found.keys() <= serving


def test_the_plan_tells_each_workload_whom_it_waits_for() -> None:
    def after(facts: ClusterFacts) -> dict[str, tuple[str, ...]]:
        whole = plan(facts, modelserver=entries(A, B, P, C))
        return {workload.object.name: workload.after for workload in whole.modelserver.workloads}

    assert after(live(A, B, P, C)) == {
        "rel-prefill-0": (),
        "rel-decode-1": (),
        "rel-prefill-2": ("rel-prefill-0",),
        "rel-decode-3": ("rel-decode-1",),
    }
    assert set(after(EMPTY_CLUSTER).values()) == {()}


# --- the whole plan ---------------------------------------------------------------------------------------------------


def test_an_unknown_topology_is_a_warning_to_a_preview_and_a_refusal_to_an_update() -> None:
    whole = plan(going(WHOLE, anchor=True))
    assert whole.refusal is not None
    assert whole.refusal.startswith("topology unknown: an earlier change is still under way")
    assert whole.refusal in map(str, whole.warnings)
    assert plan(WHOLE).refusal is None
    assert plan(WHOLE).warnings == ()


def test_so_is_a_change_of_which_it_is_not_known_what_it_takes_down() -> None:
    state = dataclasses.replace(holding(REFERENCE_KEY), workloads=frozenset({"rel-prefill", "rel-decode"}))
    whole = plan(ALL_BUT_THE_ANCHOR, state, modelserver=AGGREGATED)
    assert str(whole.refusal).startswith("topology unknown: this needs another topology than the last update made")
    assert str(whole.refusal) in map(str, whole.warnings)
    assert plan(ALL_BUT_THE_ANCHOR, state).refusal is None


def test_in_replicas_mode_nothing_has_to_be_read() -> None:
    assert topology(NOTHING_READ).unknown is None
    assert topology(NOTHING_READ, replicas={"aggregated": 1}).unknown is None


def holding(*keys: str, release: str = "rel") -> StateFacts:
    """A state with these topologies."""
    return StateFacts(topologies=tuple(HeldTopology(release=release, namespace="ns", key=key) for key in keys))


ALL_BUT_THE_ANCHOR = dataclasses.replace(WHOLE, anchor=None, anchor_is_known=False)
AGGREGATED: dict[str, Any] = {"replicas": {"aggregated": 1}}
REFERENCE_KEY = topology_key(mode="replicas", is_disaggregated=True, model=REFERENCE, generation=1)


@pytest.mark.parametrize(
    ("facts", "state", "modelserver"),
    [
        pytest.param(NOTHING_READ, holding(REFERENCE_KEY), AGGREGATED, id="nothing could be read"),
        pytest.param(ALL_BUT_THE_ANCHOR, holding(REFERENCE_KEY), AGGREGATED, id="the anchor alone could not be read"),
        pytest.param(NOTHING_READ, holding(REFERENCE_KEY), {"model": "other/model"}, id="another model"),
        pytest.param(NOTHING_READ, holding(placed_key(1)), {}, id="no more placed"),
        pytest.param(NOTHING_READ, holding(""), {}, id="the state knows an anchor without key"),
        pytest.param(NOTHING_READ, holding("abc", "def"), {}, id="the state knows two, and neither is this"),
    ],
)
def test_another_topology_than_that_of_the_state_is_unknown_when_the_anchor_cannot_be_read(
    facts: ClusterFacts, state: StateFacts, modelserver: dict[str, Any]
) -> None:
    """The engine would replace the anchor, and take everything down, without any of the looks before."""
    found = topology(facts, state, **modelserver)
    assert str(found.unknown) == (
        "topology unknown: this needs another topology than the last update made, and what runs in the cluster could "
        "not be read. Give access to the cluster and run `pulumi up` again."
    )
    assert found.leaving == (), "there is nothing to be waited for"


@pytest.mark.parametrize(
    ("facts", "state", "modelserver"),
    [
        pytest.param(NOTHING_READ, holding(REFERENCE_KEY), {}, id="the state has the same key"),
        pytest.param(
            NOTHING_READ, holding(REFERENCE_KEY), {"replicas": {"decode": 0}}, id="it has, and a role goes to 0"
        ),
        pytest.param(NOTHING_READ, holding(REFERENCE_KEY, "abc"), {}, id="the state has two, of which one is this"),
        pytest.param(NOTHING_READ, holding(), AGGREGATED, id="the state has none: a first install, or it was emptied"),
        pytest.param(NOTHING_READ, STATE_UNKNOWN, AGGREGATED, id="the state is not known either"),
        pytest.param(WHOLE, holding("abc"), {}, id="the anchor is known and has this key, and the state an old one"),
        pytest.param(WHOLE, holding(REFERENCE_KEY), AGGREGATED, id="the anchor is known and has another key"),
        pytest.param(EMPTY_CLUSTER, holding("abc"), {}, id="it is known that there is no anchor"),
    ],
)
def test_a_topology_is_known_when(facts: ClusterFacts, state: StateFacts, modelserver: dict[str, Any]) -> None:
    assert topology(facts, state, **modelserver).unknown is None


def test_what_is_under_way_is_told_before_what_could_not_be_read() -> None:
    unknown = topology(
        dataclasses.replace(ALL_BUT_THE_ANCHOR, router_leaves=True), holding(REFERENCE_KEY), **AGGREGATED
    ).unknown
    assert "Deployment rel-epp goes first" in str(unknown)


def test_a_generation_that_could_not_be_read_is_told_before_the_change_that_it_would_be() -> None:
    assert "generation" in str(topology(NOTHING_READ, holding(REFERENCE_KEY), **entries(A)).unknown)


def test_the_owner_of_every_workload_is_the_anchor_of_this_uid() -> None:
    """Blocked on, so that the anchor is gone only when the last Pod is: Kubernetes, *Garbage Collection*."""
    assert topology().owner_reference("u7") == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "rel-topology",
        "uid": "u7",
        "blockOwnerDeletion": True,
    }
    assert topology(**entries(A)).owner_reference("u7") == topology().owner_reference("u7")


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
    assert plan().modelserver.topology.leave_seconds == 140 + SLACK_SECONDS, "prefill Pods, which also wait for pulls"
