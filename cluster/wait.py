"""Waits around a roll-out: devices free before a workload is made, every Pod new and Ready after it.

The provider's own wait ended after 0.3 s in roll-outs that took 17 s and more, so this decides alone. It prints
progress when something changed, and names Pods that can't be scheduled or keep crashing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.connect import Cluster, ClusterError, Object
from cluster.pods import list_pods
from stack import labels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stack.planned import StackPlan

POLL_SECONDS = 1.0
UNSCHEDULABLE = "unschedulable"
FINAL = frozenset({400, 401, 403, 404, 410})
"""HTTP statuses that asking again does not change. Others (429, 5xx) are an API server's passing troubles."""
POLLS_TO_BELIEVE = 2
"""How often in a row Kubernetes has to be seen giving up: after going back, what it said of the roll-out before stands
until it has looked at the Pods again."""


class WaitError(Exception):
    """What was waited for did not come; the message says what is missing and what to do."""


@dataclass(frozen=True, kw_only=True)
class Waits:
    """The waits of one run, bound to a context and a plan.

    Attributes:
        context: kubeconfig context.
        plan: names, counts and clocks come from here.
        report: is given each line of progress.
        poll_seconds: pause between two looks.
    """

    context: str
    plan: StackPlan
    report: Callable[[str], None]
    poll_seconds: float = POLL_SECONDS

    def until_devices_are_free(self) -> None:
        """Return when no Pod of this release carries another topology key.

        Raises:
            WaitError: such Pods stayed longer than the longest leave.
        """
        topology = self.plan.modelserver.topology
        selector = f"{labels.INSTANCE}={self.plan.release},{labels.TOPOLOGY},{labels.TOPOLOGY}!={topology.key}"
        with self._cluster() as cluster:

            def left() -> list[str]:
                return sorted(pod["metadata"]["name"] for pod in self._pods(cluster, selector))

            waited = self._poll(
                left,
                is_done=lambda pods: not pods,
                describe=lambda pods: f"waiting for devices: {_join(pods)} of the earlier topology still there",
                seconds=topology.leave_seconds,
            )
        if waited:
            raise WaitError(
                f"{_join(waited)} of the earlier topology did not leave within {topology.leave_seconds} s. "
                f"Look at `kubectl -n {self.plan.namespace} describe pod {waited[0]}`, then run `pulumi up` again."
            )

    def until_rolled_out(self, name: str) -> None:
        """Return when every Pod of the Deployment is of its newest template and available, and no other is left.

        Raises:
            WaitError: that did not come about in time, Kubernetes gave the roll-out up, or the Deployment goes away
                or is to: then its Pods may be as wanted and serve for another moment.
        """
        workload = next(w for w in self.plan.modelserver.workloads if w.object.name == name)
        path = self._path("apis/apps/v1", "deployments", name)
        with self._cluster() as cluster:
            selector = ",".join(
                f"{key}={value}" for key, value in workload.object.manifest["spec"]["selector"]["matchLabels"].items()
            )

            # Once: the anchor under which this update made or changed the workload.
            anchor = self._poll(
                lambda: cluster.find(self._path("api/v1", "configmaps", self.plan.modelserver.topology.anchor.name)),
                is_done=lambda _: True,
                describe=str,
                seconds=workload.timeout_seconds,
            )
            given_up = 0

            def look() -> RollOut:
                nonlocal given_up
                deployment = cluster.find(path)
                refuse_leftover(name, deployment, anchor)
                state = RollOut.read(deployment or {}, self._pods(cluster, selector))
                given_up = given_up + 1 if state.gave_up is not None else 0
                return state

            last = self._poll(
                look,
                is_done=lambda state: state.is_complete or given_up >= POLLS_TO_BELIEVE,
                describe=lambda state: f"{name}: {state}{self._blocked_by(state)}",
                seconds=workload.timeout_seconds,
            )
        if not last.is_complete:
            raise WaitError(
                f"{name} did not roll out: {last.gave_up or 'out of time'}; {last}{self._blocked_by(last)}. Mend what "
                f"is named, or put the previous configuration back, and run `pulumi up`; see "
                f"`kubectl -n {self.plan.namespace} get pods -l '{selector}'`."
            )

    def _blocked_by(self, state: RollOut) -> str:
        """What this update drops holds its devices until the program has ended, so a wait for them would not end."""
        dropped = self.plan.modelserver.topology.dropped
        if not dropped or not state.is_unschedulable:
            return ""
        return (
            f"; {_join(list(dropped))} {'goes' if len(dropped) == 1 else 'go'} only at the very end and may hold the "
            "devices till then: if none are spare, put the previous configuration back, and set that role to 0 in a "
            "`pulumi up` of its own first"
        )

    def _path(self, group: str, plural: str, name: str) -> str:
        return f"/{group}/namespaces/{self.plan.namespace}/{plural}/{name}"

    def _cluster(self) -> Cluster:
        try:
            return Cluster(self.context)
        except ClusterError as error:
            raise WaitError(f"{str(error).rstrip('.')}. Mend the kubeconfig, and run `pulumi up` again.") from None

    def _pods(self, cluster: Cluster, selector: str) -> list[Object]:
        return list_pods(cluster, self.plan.namespace, selector)

    def _poll(
        self, look: Callable[[], Any], *, is_done: Callable[[Any], bool], describe: Callable[[Any], str], seconds: int
    ) -> Any:
        """Look until done or out of time; the last state seen. Reports each new description once.

        An API server that does not answer for a while, or is too busy to, is waited for like everything else.

        Raises:
            WaitError: it refuses, or did not answer to the end; and what `look` raises.
        """
        until = time.monotonic() + seconds
        said = ""
        while True:
            try:
                state = look()
            except ClusterError as error:
                if error.status in FINAL or time.monotonic() > until:
                    raise WaitError(f"the cluster can't be asked: {error}. Run `pulumi up` again.") from None
                line = f"the cluster can't be asked just now: {error}"
            else:
                if is_done(state) or time.monotonic() > until:
                    return state
                line = describe(state)
            if line != said:
                self.report(line)
                said = line
            time.sleep(self.poll_seconds)


def refuse_leftover(name: str, deployment: Object | None, anchor: Object | None) -> None:
    """Don't count what goes away as rolled out, however well its Pods are.

    Args:
        name: of the Deployment.
        deployment: as it is now, None when it is not there.
        anchor: the topology anchor at the start of the wait. None when there was none: then nothing can be compared.

    Raises:
        WaitError: the Deployment is not there, is being deleted, or has another owner than the anchor.
    """
    if deployment is None:
        raise WaitError(f"{name} is not there any more: somebody deleted it. Run `pulumi up` again.")
    meta = deployment["metadata"]
    owners = {owner["uid"] for owner in meta.get("ownerReferences", ())}
    if "deletionTimestamp" in meta:
        why = "is being deleted"
    elif anchor is not None and "deletionTimestamp" in anchor["metadata"]:
        why = "is being deleted, as its topology anchor is"
    elif anchor is not None and anchor["metadata"]["uid"] not in owners:
        why = "belongs to an earlier topology"
    else:
        return
    raise WaitError(f"{name} {why}, so what it has now does not last. Run `pulumi up` again.")


@dataclass(frozen=True, kw_only=True)
class RollOut:
    """How far one Deployment is.

    Attributes:
        wanted, updated, available: Pods.
        others: Pods that are not of the newest template, terminating ones included, those that are over not.
        stuck: Pod name -> why it can't start.
        gave_up: why Kubernetes gave up, None while it still tries.
    """

    wanted: int
    updated: int
    available: int
    others: int
    is_observed: bool
    stuck: Mapping[str, str]
    gave_up: str | None

    @classmethod
    def read(cls, deployment: Object, pods: list[Object]) -> RollOut:
        """From a live Deployment and its Pods that are not over."""
        status: Object = deployment.get("status", {})
        updated = status.get("updatedReplicas", 0)
        conditions: dict[str, Object] = {condition["type"]: condition for condition in status.get("conditions", ())}
        progressing = conditions.get("Progressing", {})
        is_observed = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
        return cls(
            wanted=deployment["spec"]["replicas"],
            updated=updated,
            available=status.get("availableReplicas", 0),
            others=max(0, len(pods) - updated),
            is_observed=is_observed,
            stuck={pod["metadata"]["name"]: why for pod in pods if (why := _why_stuck(pod)) is not None},
            gave_up=progressing.get("message") if is_observed and progressing.get("status") == "False" else None,
        )

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to wait for."""
        return self.is_observed and self.updated == self.available == self.wanted and not self.others

    @property
    def is_unschedulable(self) -> bool:
        """Whether a Pod finds no node, for want of devices or anything else."""
        return any(why.startswith(UNSCHEDULABLE) for why in self.stuck.values())

    def __str__(self) -> str:
        text = f"{self.updated} of {self.wanted} Pods updated, {self.available} available"
        if self.others:
            text += f", {self.others} to leave"
        for pod, why in sorted(self.stuck.items()):
            text += f"; {pod}: {why}"
        return text


def _why_stuck(pod: Object) -> str | None:
    status: Object = pod.get("status", {})
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return f"{UNSCHEDULABLE}: {condition.get('message', '')}"
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("reason", "PodInitializing") not in {"ContainerCreating", "PodInitializing"}:
            return f"{container['name']} {waiting['reason']}: {waiting.get('message', 'no message')}"
    return None


def _join(pods: list[str]) -> str:
    shown = ", ".join(pods[:3])
    return f"{shown} and {len(pods) - 3} more" if len(pods) > 3 else shown  # noqa: PLR2004  # a line stays readable
