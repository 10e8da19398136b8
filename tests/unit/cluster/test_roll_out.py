"""How far a roll-out is, read from a Deployment and its Pods."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.wait import RollOut


def deployment(**status: Any) -> dict[str, Any]:
    """Generation 3, two Pods wanted; complete unless told otherwise."""
    complete = {"observedGeneration": 3, "updatedReplicas": 2, "availableReplicas": 2}
    return {"metadata": {"generation": 3}, "spec": {"replicas": 2}, "status": {**complete, **status}}


def pod(name: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": status}


TWO = [pod("a"), pod("b")]


@pytest.mark.parametrize(
    ("sentence", "live", "pods", "want_complete"),
    [
        ("all Pods new and available", deployment(), TWO, True),
        ("the controller has not looked yet", deployment(observedGeneration=2), TWO, False),
        ("one Pod is still the old one", deployment(updatedReplicas=1), TWO, False),
        ("one Pod is not available", deployment(availableReplicas=1), TWO, False),
        ("an old Pod has not left", deployment(), [*TWO, pod("old")], False),
        ("nothing has happened yet", {**deployment(), "status": {}}, [], False),
    ],
)
def test_a_roll_out_is_complete_when_every_pod_is_new_and_available_and_no_other_is_left(
    sentence: str, live: dict[str, Any], pods: list[dict[str, Any]], want_complete: bool
) -> None:
    assert RollOut.read(live, pods).is_complete is want_complete, sentence


def test_a_pod_that_finds_no_node_is_told_from_one_that_crashes() -> None:
    unschedulable = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    crashing = {"containerStatuses": [{"name": "modelserver", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}
    assert RollOut.read(deployment(), [pod("a"), pod("b", **unschedulable)]).is_unschedulable
    assert not RollOut.read(deployment(), [pod("a"), pod("b", **crashing)]).is_unschedulable


def test_kubernetes_giving_up_is_told_only_about_the_newest_generation() -> None:
    gave_up = [{"type": "Progressing", "status": "False", "message": "deadline exceeded"}]
    assert RollOut.read(deployment(conditions=gave_up), TWO).gave_up == "deadline exceeded"
    assert RollOut.read(deployment(conditions=gave_up, observedGeneration=2), TWO).gave_up is None


@pytest.mark.parametrize(
    ("sentence", "status", "want"),
    [
        (
            "no node fits",
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "cannot allocate all claims",
                    }
                ]
            },
            "unschedulable: cannot allocate all claims",
        ),
        (
            "the image can't be pulled",
            {
                "containerStatuses": [
                    {"name": "modelserver", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "denied"}}}
                ]
            },
            "modelserver ImagePullBackOff: denied",
        ),
        (
            "an init container crashes",
            {
                "initContainerStatuses": [
                    {"name": "rdma-discovery", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
                ]
            },
            "rdma-discovery CrashLoopBackOff: no message",
        ),
        (
            "the container is being made",
            {"containerStatuses": [{"name": "modelserver", "state": {"waiting": {"reason": "ContainerCreating"}}}]},
            None,
        ),
        ("it runs", {"containerStatuses": [{"name": "modelserver", "state": {"running": {"startedAt": "t"}}}]}, None),
        ("the kubelet said nothing yet", {"phase": "Pending"}, None),
    ],
)
def test_a_pod_that_cannot_start_is_named_with_its_reason(
    sentence: str, status: dict[str, Any], want: str | None
) -> None:
    stuck = RollOut.read(deployment(), [pod("a", **status), pod("b")]).stuck
    assert stuck == ({} if want is None else {"a": want}), sentence


def test_progress_says_what_is_missing_in_one_line() -> None:
    state = RollOut.read(deployment(updatedReplicas=1, availableReplicas=1), [*TWO, pod("old")])
    assert str(state) == "1 of 2 Pods updated, 1 available, 2 to leave"
