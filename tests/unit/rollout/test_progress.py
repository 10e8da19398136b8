"""How far a roll-out is, read from a Deployment, its ReplicaSets and its Pods."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.rollout.progress import RollOut, newest_by_age, newest_by_count, newest_by_revision
from tests import live
from tests.live import deployment, pod, replica_set

if TYPE_CHECKING:
    from stack.planned import RollOutPlan

ROLE = live.roll_out()
EPP = live.roll_out_of_epp()
ELECTING_EPP = dataclasses.replace(EPP, pods=3)
TWO = [pod("a"), pod("b")]
OLD = pod("old", "old")
OLD_LEAVES = pod("old", "old", **live.LEAVING)


def read(plan: RollOutPlan, of: dict[str, Any], pods: list[dict[str, Any]], *, newest: str | None = "new") -> RollOut:
    return RollOut.read(plan, of, pods, newest=newest)


# --- scaled by something else -----------------------------------------------------------------------------------------

SCALED = dataclasses.replace(ROLE, floor=2)


@pytest.mark.parametrize(
    ("sentence", "of", "pods", "want_complete"),
    [
        ("the floor is there", deployment(), TWO, True),
        ("its scaler has not brought it to its floor", deployment(replicas=1), TWO[:1], False),
        ("there are more than the floor", deployment(replicas=3), [*TWO, pod("c")], True),
        ("its scaler takes a new Pod away meanwhile", deployment(), [*TWO, pod("c", **live.LEAVING)], True),
        ("an old Pod has not left", deployment(), [*TWO, OLD_LEAVES], False),
    ],
)
def test_a_scaled_role_is_complete_from_its_floor_on_and_waits_for_no_pod_that_its_scaler_takes(
    sentence: str, of: dict[str, Any], pods: list[dict[str, Any]], want_complete: bool
) -> None:
    assert read(SCALED, of, pods).is_complete is want_complete, sentence


# --- complete ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "of", "pods", "want_complete"),
    [
        ("all Pods are new and available", deployment(), TWO, True),
        ("the controller has not looked yet", deployment(generation=3, status={"observedGeneration": 2}), TWO, False),
        ("nothing has happened yet", deployment(status={"observedGeneration": 0}), [], False),
        ("one Pod was not updated", deployment(status={"updatedReplicas": 1}), [TWO[0], OLD], False),
        ("the counts run after the Pods", deployment(status={"updatedReplicas": 1}), TWO, False),
        ("the Pods run after the counts", deployment(), TWO[:1], False),
        ("one Pod is not available", deployment(status={"availableReplicas": 1}), TWO, False),
        ("one is not Ready, and an old one was counted", deployment(), [TWO[0], live.running("b")], False),
        ("an old Pod was not told to go", deployment(), [*TWO, OLD], False),
        ("an old Pod has not left", deployment(), [*TWO, OLD_LEAVES], False),
        ("a new Pod leaves", deployment(), [*TWO, pod("c", **live.LEAVING)], False),
        ("a Pod of nobody's carries the labels", deployment(), [*TWO, {"metadata": {"name": "debug"}}], False),
        ("an evicted Pod was left behind", deployment(), [*TWO, live.failed("evicted")], True),
        ("an autoscaler asks for more", deployment(replicas=3), [*TWO, pod("c")], True),
        ("an autoscaler asks for more, and they come", deployment(replicas=3), TWO, False),
        ("an autoscaler asks for fewer", deployment(replicas=1), TWO[:1], True),
        ("none is asked for, and none there", deployment(replicas=0), [], True),
        ("none is asked for, and one leaves", deployment(replicas=0), [OLD_LEAVES], False),
        ("none is asked for, and one stays", deployment(replicas=0), [OLD], False),
    ],
)
def test_a_role_is_complete_when_every_pod_is_new_and_available_and_no_other_is_left(
    sentence: str, of: dict[str, Any], pods: list[dict[str, Any]], want_complete: bool
) -> None:
    assert read(ROLE, of, pods).is_complete is want_complete, sentence


ONE: dict[str, Any] = deployment("rel-epp", replicas=1)
THREE: dict[str, Any] = deployment("rel-epp", replicas=3, status={"availableReplicas": 1})


@pytest.mark.parametrize(
    ("sentence", "plan", "of", "pods", "want_complete"),
    [
        ("the new one is Ready", EPP, ONE, TWO[:1], True),
        ("the new one is Ready, and the old one drains", EPP, ONE, [TWO[0], OLD_LEAVES], True),
        ("the new one is Ready, and the old one was not told yet", EPP, ONE, [TWO[0], OLD], False),
        ("only the old one is Ready", EPP, ONE, [live.running("a"), OLD_LEAVES], False),
        ("one of three leads", ELECTING_EPP, THREE, [TWO[0], live.running("b"), live.running("c")], True),
        ("none leads", ELECTING_EPP, THREE, [live.running("a"), live.running("b"), live.running("c")], False),
        (
            "the leader is from before the change",
            ELECTING_EPP,
            THREE,
            [live.running("a"), live.running("b"), live.running("c"), OLD],
            False,
        ),
        ("one of three is not there yet", ELECTING_EPP, THREE, [TWO[0], live.running("b")], False),
    ],
)
def test_an_epp_is_complete_when_all_are_new_and_one_of_them_leads(
    sentence: str, plan: RollOutPlan, of: dict[str, Any], pods: list[dict[str, Any]], want_complete: bool
) -> None:
    assert read(plan, of, pods).is_complete is want_complete, sentence


@st.composite
def pods_in_any_state(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Mostly new, Ready and staying ones, so that roll-outs are complete often enough."""
    templates = st.sampled_from(["new", "new", "new", "old"])
    rarely = st.sampled_from([False, False, False, True])
    return [
        pod(
            f"p{index}",
            draw(templates),
            ready=not draw(rarely),
            phase="Failed" if draw(rarely) else "Running",
            **(live.LEAVING if draw(rarely) else {}),
        )
        for index in range(draw(st.integers(0, 4)))
    ]


@given(pods_in_any_state(), st.sampled_from([ROLE, EPP, ELECTING_EPP]))
def test_when_the_counts_are_all_that_one_could_wish_the_pods_themselves_decide(
    pods: list[dict[str, Any]], plan: RollOutPlan
) -> None:
    alive = [pod for pod in pods if pod["status"]["phase"] == "Running"]
    leaving = [pod for pod in alive if "deletionTimestamp" in pod["metadata"]]
    new = [pod for pod in alive if pod not in leaving and pod["metadata"]["labels"]["pod-template-hash"] == "new"]
    old = [pod for pod in alive if pod not in leaving and pod not in new]
    ready = [pod for pod in new if pod["status"]["conditions"][0]["status"] == "True"]
    state = read(plan, deployment(replicas=len(new), status={"availableReplicas": 9}), pods)
    if plan is ROLE:
        assert state.is_complete is (len(ready) == len(new) == len(alive)), "what leaves holds devices"
    else:
        needed = len(new) if plan is EPP else min(1, len(new))
        assert state.is_complete is (not old and len(ready) >= needed)


def test_kubernetes_giving_up_is_told_only_about_the_newest_version() -> None:
    conditions = [{"type": "Progressing", "status": "False", "message": "deadline exceeded"}]
    given_up = deployment(generation=3, status={"conditions": conditions})
    assert read(ROLE, given_up, TWO).gave_up == "deadline exceeded"
    before = deployment(generation=3, status={"conditions": conditions, "observedGeneration": 2})
    assert read(ROLE, before, TWO).gave_up is None


def test_pods_that_cannot_be_made_at_all_are_trouble_of_the_deployment() -> None:
    conditions = [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]
    refused = read(ROLE, deployment(status={"conditions": conditions}), []).refused
    assert str(refused) == "no Pod can be made: exceeded quota"
    over = [{"type": "ReplicaFailure", "status": "False", "message": "exceeded quota"}]
    assert read(ROLE, deployment(status={"conditions": over}), []).refused is None


# --- new --------------------------------------------------------------------------------------------------------------


def test_until_kubernetes_has_looked_nothing_is_known_to_be_new() -> None:
    state = read(ROLE, deployment(generation=2, status={"observedGeneration": 1}), [live.without_node("a")])
    assert (state.new, [pod.name for pod in state.old], state.unschedulable) == ((), ["a"], frozenset())
    assert state.newest is None


@pytest.mark.parametrize(
    ("sentence", "of", "pods", "want"),
    [
        ("all that stay are of one template, and updated", deployment(), [*TWO, OLD_LEAVES], "new"),
        ("none of them is", deployment(status={"updatedReplicas": 0}), [OLD, pod("old-2", "old")], None),
        ("two templates", deployment(status={"updatedReplicas": 2}), [TWO[0], OLD], None),
        ("the counts run after the Pods", deployment(status={"updatedReplicas": 1}), TWO, None),
        ("no Pod", deployment(), [], None),
        ("no label", deployment(replicas=1), [{"metadata": {"name": "a"}}], None),
        ("not looked at yet", deployment(generation=2, status={"observedGeneration": 1}), TWO, None),
        ("one is over", deployment(replicas=1), [TWO[0], live.failed("x", template="old")], "new"),
    ],
)
def test_the_counts_tell_which_template_is_the_newest(
    sentence: str, of: dict[str, Any], pods: list[dict[str, Any]], want: str | None
) -> None:
    assert newest_by_count(of, pods) == want, sentence


@pytest.mark.parametrize(
    ("sentence", "sets", "want"),
    [
        ("the last one made", [replica_set("one", 1), replica_set("two", 2)], "two"),
        ("gone back to the first", [replica_set("one", 11), replica_set("two", 2), replica_set("three", 9)], "one"),
        ("a namesake's", [replica_set("one", 1), replica_set("theirs", 7, owner="uid-before")], "one"),
        ("without a revision yet", [{"metadata": {"labels": {"pod-template-hash": "x"}}}], None),
        ("none", [], None),
    ],
)
def test_the_replica_set_of_the_highest_revision_is_of_the_newest_template(
    sentence: str, sets: list[dict[str, Any]], want: str | None
) -> None:
    assert newest_by_revision(deployment(), sets) == want, sentence
    unobserved = deployment(generation=2, status={"observedGeneration": 1})
    assert newest_by_revision(unobserved, sets) is None


def test_where_replica_sets_may_not_be_listed_the_youngest_pod_is_new() -> None:
    young = pod("young", "b", metadata={"creationTimestamp": "2026-01-02T00:00:00Z"})
    gone = pod("gone", "c", metadata={"creationTimestamp": "2026-01-03T00:00:00Z", **live.LEAVING["metadata"]})
    assert newest_by_age(deployment(), [pod("x", "a"), young, pod("y", "a"), gone]) == "b"
    assert newest_by_age(deployment(status={"updatedReplicas": 0}), [young]) is None, "it is from before the change"
    assert newest_by_age(deployment(), []) is None


# --- paused -----------------------------------------------------------------------------------------------------------

PAUSED: dict[str, Any] = {"paused": True}
STRAY: dict[str, Any] = {"metadata": {"name": "debug"}}


@pytest.mark.parametrize(
    ("sentence", "of", "pods", "newest", "want"),
    [
        ("it is not paused", deployment(status={"updatedReplicas": 1}), [TWO[0], OLD], "new", False),
        ("no Pod is new", deployment(spec=PAUSED, status={"updatedReplicas": 0}), TWO, "new", True),
        ("nothing is known to be new", deployment(spec=PAUSED, status={"updatedReplicas": 0}), TWO, None, True),
        ("one Pod is new", deployment(spec=PAUSED, status={"updatedReplicas": 1}), [TWO[0], OLD], "new", True),
        ("one too many is there", deployment(spec=PAUSED), [*TWO, OLD], "new", True),
        ("all are new", deployment(spec=PAUSED), TWO, "new", False),
        ("all are new, and one starts", deployment(spec=PAUSED), [TWO[0], live.running("b")], "new", False),
        (
            "all are new, and more come",
            deployment(spec=PAUSED, replicas=3, status={"updatedReplicas": 2}),
            TWO,
            "new",
            False,
        ),
        ("the first comes", deployment(spec=PAUSED, status={"updatedReplicas": 0}), [], "new", False),
        ("all are to go", deployment(spec=PAUSED, replicas=0), [OLD], "new", False),
        ("a Pod of nobody's carries the labels", deployment(spec=PAUSED), [*TWO, STRAY], "new", False),
        (
            "Kubernetes has not looked yet",
            deployment(spec=PAUSED, generation=2, status={"observedGeneration": 1}),
            TWO,
            None,
            False,
        ),
    ],
)
def test_a_paused_deployment_goes_nowhere_while_a_pod_is_old(
    sentence: str, of: dict[str, Any], pods: list[dict[str, Any]], newest: str | None, want: bool
) -> None:
    assert read(ROLE, of, pods, newest=newest).is_halted is want, sentence


def test_what_is_merely_paused_is_complete() -> None:
    assert read(ROLE, deployment(spec=PAUSED), TWO).is_complete


# --- awaited ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "plan", "pods", "want"),
    [
        ("a role's holds devices", ROLE, [*TWO, OLD_LEAVES], ["old"]),
        ("an endpoint picker's holds nothing", EPP, [TWO[0], OLD_LEAVES], []),
        ("but where pickers are recreated, no new one is made before it is gone", ELECTING_EPP, [OLD_LEAVES], ["old"]),
    ],
)
def test_a_leaving_pod_holds_up_the_rest_when(
    sentence: str, plan: RollOutPlan, pods: list[dict[str, Any]], want: list[str]
) -> None:
    assert [pod.name for pod in read(plan, deployment(), pods).awaited] == want, sentence
