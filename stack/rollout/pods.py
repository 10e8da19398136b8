"""One live Pod, as far as a roll-out is concerned: whether it serves, leaves or is over, and why it can't start."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Object = dict[str, Any]
"""A live object as the API server shows it."""

TEMPLATE_HASH = "pod-template-hash"
"""Label by which the Deployment controller tells the Pods of one template from those of another."""
USUAL_WAITS = frozenset({"ContainerCreating", "PodInitializing"})
IMAGE_WAITS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
"""Why a container waits for its image (Kubernetes 1.36, pkg/kubelet/images/types.go; cri-api, pkg/errors)."""
CRASH_WAITS = frozenset({"CrashLoopBackOff", "RunContainerError", "PostStartHookError"})


class Kind(Enum):
    """What kind of trouble a Pod is in; the value is how it reads after *the Pod has been*."""

    UNSCHEDULABLE = "unschedulable"
    IMAGE = "without its image"
    CONFIGURATION = "waiting for a container that cannot be made"
    CRASHING = "crashing"
    ENDED = "ended by its node"
    TERMINATING = "overdue in leaving"
    """Told to go, and still there long after its grace period."""
    REFUSED = "refused"
    """Not a Pod at all yet: the API server takes none from the ReplicaSet (quota, admission)."""
    UNSCALED = "fewer than the floor of their scaler"
    """Nothing is wrong with any Pod: the scaler that is to bring more does nothing."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Why a Pod does not come up.

    Attributes:
        reason: in Kubernetes' word, such as `ImagePullBackOff`.
        message: Kubernetes' own, as it is.
        container: which one, None when it is about the whole Pod.
        node: which one, where it is about a node.
    """

    kind: Kind
    reason: str
    message: str
    container: str | None = None
    node: str | None = None

    def __str__(self) -> str:
        subject = self.reason if self.container is None else f"{self.container} {self.reason}"
        return f"{subject}: {self.message or 'no message'}"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A container that runs, and not for the first time.

    Attributes:
        number: tells this run from the others of the container.
        before: seconds for which the run before this one lasted.
    """

    number: str
    before: float


@dataclass(frozen=True, kw_only=True)
class PodState:
    """One Pod.

    Attributes:
        template: which Pod template it was made from, by the controller's hash; None without that label.
        is_leaving: told to go, and still there.
        is_over: will never run again, and holds nothing any more.
        begun: containers that run or ran, so that their image was there and they could be made.
        succeeded: init containers that have done their work.
        again: containers that run after they had ended, by name; without those of which it is not known how long they
            had run.
    """

    name: str
    template: str | None
    is_ready: bool
    is_leaving: bool
    is_over: bool
    trouble: Trouble | None
    begun: frozenset[str]
    succeeded: frozenset[str]
    again: Mapping[str, Run]

    @classmethod
    def read(cls, pod: Object) -> PodState:
        """From a live Pod."""
        status: Object = pod.get("status", {})
        meta: Object = pod["metadata"]
        conditions: list[Object] = status.get("conditions", [])
        return cls(
            name=meta["name"],
            template=meta.get("labels", {}).get(TEMPLATE_HASH),
            is_ready=any(c["type"] == "Ready" and c.get("status") == "True" for c in conditions),
            is_leaving=is_leaving(pod),
            is_over=is_over(pod),
            trouble=_trouble(status),
            begun=frozenset(c["name"] for c in _containers(status) if {"running", "terminated"} & c["state"].keys()),
            succeeded=_succeeded(pod),
            again={c["name"]: run for c in _containers(status) if (run := _run(c)) is not None},
        )


def is_leaving(pod: Object) -> bool:
    """Whether it was told to go and is still there, wherever; it may hold nothing: `devices.gives_back_devices`."""
    return "deletionTimestamp" in pod["metadata"]


def is_over(pod: Object) -> bool:
    """Whether it will never run again.

    An evicted Pod stays behind in phase Failed, with the labels of the others, until somebody deletes it; it holds no
    device (the cluster gives the claims of a Pod that is over back).
    """
    return pod.get("status", {}).get("phase") in {"Failed", "Succeeded"}


def _trouble(status: Object) -> Trouble | None:
    if status.get("phase") == "Failed":
        return Trouble(kind=Kind.ENDED, reason=status.get("reason", "Failed"), message=status.get("message", ""))
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            message = condition.get("message", "")
            return Trouble(kind=Kind.UNSCHEDULABLE, reason=Kind.UNSCHEDULABLE.value, message=message)
    return next(filter(None, map(_trouble_of_container, _containers(status))), None)


def _trouble_of_container(container: Object) -> Trouble | None:
    waiting: Object = container["state"].get("waiting", {})
    reason: str | None = waiting.get("reason")
    if reason is None or reason in USUAL_WAITS:
        return None
    kind = Kind.IMAGE if reason in IMAGE_WAITS else Kind.CRASHING if reason in CRASH_WAITS else Kind.CONFIGURATION
    said = [waiting.get("message", ""), _last_end(container) if kind is Kind.CRASHING else ""]
    return Trouble(kind=kind, reason=reason, message=", ".join(filter(None, said)), container=container["name"])


def _last_end(container: Object) -> str:
    """How the container ended last: code and reason, and not its last words, in which there may be anything."""
    ended: Object | None = container.get("lastState", {}).get("terminated")
    if ended is None:
        return ""
    return f"last exit code {ended.get('exitCode', '?')} ({ended.get('reason', 'no reason')})"


def _succeeded(pod: Object) -> frozenset[str]:
    """Without those that are to run beside the others, whose end is never a success."""
    beside = {c["name"] for c in pod.get("spec", {}).get("initContainers", ()) if c.get("restartPolicy") == "Always"}
    ended: dict[str, Object] = {
        status["name"]: status.get("state", {}).get("terminated", {})
        for status in pod.get("status", {}).get("initContainerStatuses", ())
    }
    return frozenset(name for name, end in ended.items() if end.get("exitCode") == 0 and name not in beside)


def _run(container: Object) -> Run | None:
    """By moments that one kubelet noted, so that only their difference counts."""
    running: Object | None = container["state"].get("running")
    ended: Object = container.get("lastState", {}).get("terminated", {})
    if running is None or not ended.get("startedAt") or not ended.get("finishedAt"):
        return None
    began, over = datetime.fromisoformat(ended["startedAt"]), datetime.fromisoformat(ended["finishedAt"])
    # What could not be started has no moment at which it began: containerd#9080 tells of 1970.
    before = (over - began).total_seconds() if began.timestamp() > 0 else 0.0
    return Run(number=f"{container.get('restartCount', 0)} {running.get('startedAt')}", before=max(before, 0.0))


def _containers(status: Object) -> Iterator[Object]:
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        yield {**container, "state": container.get("state", {})}
