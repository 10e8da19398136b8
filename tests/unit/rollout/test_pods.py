"""What is read of one live Pod."""

from __future__ import annotations

from typing import Any

import pytest

from stack.rollout.pods import Kind, PodState
from tests import live

CRASHED: dict[str, Any] = {
    "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "token=abc"}}
}


def init(reason: str) -> dict[str, Any]:
    statuses = [{"name": "rdma-discovery", "state": {"waiting": {"reason": reason}}}]
    return live.pod("a", ready=False, status={"initContainerStatuses": statuses})


@pytest.mark.parametrize(
    ("sentence", "pod", "want_kind", "want_text"),
    [
        ("it finds no node", live.without_node("a"), Kind.UNSCHEDULABLE, "unschedulable: cannot allocate all claims"),
        (
            "its image can't be pulled",
            live.waiting("a", "ImagePullBackOff", "denied"),
            Kind.IMAGE,
            "modelserver ImagePullBackOff: denied",
        ),
        (
            "its image has no good name",
            live.waiting("a", "InvalidImageName"),
            Kind.IMAGE,
            "modelserver InvalidImageName: no message",
        ),
        (
            "a Secret is missing",
            live.waiting("a", "CreateContainerConfigError", 'secret "hf" not found'),
            Kind.CONFIGURATION,
            'modelserver CreateContainerConfigError: secret "hf" not found',
        ),
        (
            "the kubelet has a reason that nobody knows here",
            live.waiting("a", "SomethingNew"),
            Kind.CONFIGURATION,
            "modelserver SomethingNew: no message",
        ),
        (
            "it crashes again and again, and its last words may hold a secret",
            live.waiting("a", "CrashLoopBackOff", "back-off 10s", **CRASHED),
            Kind.CRASHING,
            "modelserver CrashLoopBackOff: back-off 10s, last exit code 137 (OOMKilled)",
        ),
        (
            "an init container crashes",
            init("CrashLoopBackOff"),
            Kind.CRASHING,
            "rdma-discovery CrashLoopBackOff: no message",
        ),
        ("its node threw it out", live.failed("a"), Kind.ENDED, "Evicted: out of memory"),
    ],
)
def test_a_pod_that_does_not_come_up_is_told_with_its_reason(
    sentence: str, pod: dict[str, Any], want_kind: Kind, want_text: str
) -> None:
    trouble = PodState.read(pod).trouble
    assert trouble is not None, sentence
    assert (trouble.kind, str(trouble)) == (want_kind, want_text), sentence


@pytest.mark.parametrize(
    ("sentence", "pod"),
    [
        ("its container is being made", live.waiting("a", "ContainerCreating")),
        ("its init containers are still at it", live.waiting("a", "PodInitializing")),
        ("it waits without a reason", live.pod("a", status={"containerStatuses": [{"name": "m", "state": {}}]})),
        ("it loads its model", live.running("a")),
        ("it serves", live.pod("a")),
        ("it has its node", live.pod("a", status={"conditions": [{"type": "PodScheduled", "status": "True"}]})),
        ("nobody looked at it yet", {"metadata": {"name": "a"}}),
        ("it did its work", live.pod("a", phase="Succeeded")),
    ],
)
def test_a_pod_is_in_no_trouble_when(sentence: str, pod: dict[str, Any]) -> None:
    assert PodState.read(pod).trouble is None, sentence


def test_a_pod_says_whether_it_serves_leaves_or_is_over() -> None:
    states = [
        PodState.read(pod)
        for pod in (
            live.pod("a"),
            live.running("b"),
            live.pod("c", **live.LEAVING),
            live.failed("d"),
            live.pod("e", phase="Succeeded", ready=False),
        )
    ]
    assert [state.is_ready for state in states] == [True, False, True, False, False]
    assert [state.is_leaving for state in states] == [False, False, True, False, False]
    assert [state.is_over for state in states] == [False, False, False, True, True]


def test_a_container_has_begun_when_it_runs_or_ran() -> None:
    statuses: list[dict[str, Any]] = [
        {"name": "runs", "state": {"running": {}}},
        {"name": "ran", "state": {"terminated": {"exitCode": 0}}},
        {"name": "waits", "state": {"waiting": {"reason": "ErrImagePull"}}},
    ]
    state = PodState.read(
        live.pod("a", status={"initContainerStatuses": statuses[1:2], "containerStatuses": statuses[::2]})
    )
    assert state.begun == {"runs", "ran"}


def init_statuses(*statuses: dict[str, Any], **over: Any) -> dict[str, Any]:
    return live.pod("a", ready=False, status={"initContainerStatuses": list(statuses)}, **over)


ENDED_WELL: dict[str, Any] = {"name": "first", "state": {"terminated": {"exitCode": 0}}}
ENDED_BADLY: dict[str, Any] = {"name": "first", "state": {"terminated": {"exitCode": 1}}}
NONE: set[str] = set()
BESIDE: dict[str, Any] = {"spec": {"initContainers": [{"name": "first", "restartPolicy": "Always"}]}}


@pytest.mark.parametrize(
    ("sentence", "pod", "want"),
    [
        ("an init container that ended well", init_statuses(ENDED_WELL), {"first"}),
        ("one that ended badly", init_statuses(ENDED_BADLY), NONE),
        ("one that runs", init_statuses({"name": "first", "state": {"running": {}}}), NONE),
        ("one that was to run beside the others, and ended", init_statuses(ENDED_WELL, **BESIDE), NONE),
        ("a container that was to stay, and ended", live.pod("a", status={"containerStatuses": [ENDED_WELL]}), NONE),
    ],
)
def test_only_the_end_of_an_init_container_may_be_a_success(sentence: str, pod: dict[str, Any], want: set[str]) -> None:
    assert PodState.read(pod).succeeded == want, sentence


NO_MOMENTS: dict[str, Any] = {"lastState": {"terminated": {"exitCode": 1, "startedAt": None, "finishedAt": None}}}


@pytest.mark.parametrize(
    ("sentence", "pod", "want"),
    [
        ("a minute and a bit", live.again("a", 65), 65),
        ("a sidecar's", live.again("a", 65, where="initContainerStatuses"), 65),
        ("it could not be started, which is noted as 1970", live.again("a", None), 0),
        ("it runs for the first time", live.running("a"), None),
        ("the moments are not noted", live.running("a", **NO_MOMENTS), None),
        ("it does not run", live.waiting("a", "CrashLoopBackOff", **CRASHED), None),
    ],
)
def test_how_long_a_container_ran_before_is_told_by_two_moments(
    sentence: str, pod: dict[str, Any], want: float | None
) -> None:
    run = PodState.read(pod).again.get("modelserver")
    assert (run and run.before) == want, sentence


def test_each_run_of_a_container_is_another() -> None:
    numbers = {PodState.read(live.again("a", number=number)).again["modelserver"].number for number in (1, 2, 3)}
    assert len(numbers) == 3
