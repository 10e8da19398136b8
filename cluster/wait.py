"""Waits around a roll-out: devices free before a workload is made, every Pod new and Ready after it.

The provider's own wait ended after 0.3 s in roll-outs that took 17 s and more, so this decides alone. It prints
progress when something changed, and names Pods that can't be scheduled or keep crashing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.connect import Cluster, ClusterError, Object
from stack import labels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stack.planned import StackPlan

POLL_SECONDS = 1.0


class WaitError(Exception):
    """What was waited for did not come; the message says what is missing and what to do."""


@dataclass(frozen=True, kw_only=True)
class Waits:
    """The waits of one run, bound to a context and a plan.

    Attributes:
        context: kubeconfig context.
        plan: names, counts and clocks come from here.
        report: is given each line of progress.
    """

    context: str
    plan: StackPlan
    report: Callable[[str], None]

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
            WaitError: that did not come about in time, or Kubernetes gave the roll-out up.
        """
        workload = next(w for w in self.plan.modelserver.workloads if w.object.name == name)
        path = f"/apis/apps/v1/namespaces/{self.plan.namespace}/deployments/{name}"
        with self._cluster() as cluster:
            selector = ",".join(
                f"{key}={value}" for key, value in workload.object.manifest["spec"]["selector"]["matchLabels"].items()
            )

            def look() -> RollOut:
                return RollOut.read(cluster.get(path), self._pods(cluster, selector))

            last = self._poll(
                look,
                is_done=lambda state: state.is_complete or state.gave_up is not None,
                describe=lambda state: f"{name}: {state}",
                seconds=workload.timeout_seconds,
            )
        if last.gave_up is not None or not last.is_complete:
            raise WaitError(
                f"{name} did not roll out: {last.gave_up or 'out of time'}; {last}. Mend what is named, or put the "
                f"previous configuration back, and run `pulumi up`; see "
                f"`kubectl -n {self.plan.namespace} get pods -l '{selector}'`."
            )

    def _cluster(self) -> Cluster:
        try:
            return Cluster(self.context)
        except ClusterError as error:
            raise WaitError(f"{str(error).rstrip('.')}. Mend the kubeconfig, and run `pulumi up` again.") from None

    def _pods(self, cluster: Cluster, selector: str) -> list[Object]:
        return cluster.list(f"/api/v1/namespaces/{self.plan.namespace}/pods", labelSelector=selector)

    def _poll(
        self, look: Callable[[], Any], *, is_done: Callable[[Any], bool], describe: Callable[[Any], str], seconds: int
    ) -> Any:
        """Look until done or out of time; the last state seen. Reports each new description once.

        An API server that does not answer for a while is waited for like everything else.

        Raises:
            WaitError: it refuses, or did not answer to the end.
        """
        until = time.monotonic() + seconds
        said = ""
        while True:
            try:
                state = look()
            except ClusterError as error:
                if error.status is not None or time.monotonic() > until:
                    raise WaitError(f"the cluster can't be asked: {error}. Run `pulumi up` again.") from None
                line = f"the cluster does not answer: {error}"
            else:
                if is_done(state) or time.monotonic() > until:
                    return state
                line = describe(state)
            if line != said:
                self.report(line)
                said = line
            time.sleep(POLL_SECONDS)


@dataclass(frozen=True, kw_only=True)
class RollOut:
    """How far one Deployment is.

    Attributes:
        wanted, updated, available: Pods.
        others: Pods that are not of the newest template, terminating ones included.
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
        """From a live Deployment and its Pods."""
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
            return f"unschedulable: {condition.get('message', '')}"
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("reason", "PodInitializing") not in {"ContainerCreating", "PodInitializing"}:
            return f"{container['name']} {waiting['reason']}: {waiting.get('message', 'no message')}"
    return None


def _join(pods: list[str]) -> str:
    shown = ", ".join(pods[:3])
    return f"{shown} and {len(pods) - 3} more" if len(pods) > 3 else shown  # noqa: PLR2004  # a line stays readable
