"""The waits of an update: devices free before a workload is made, every Pod new and Ready after it, nothing going.

What is waited for, and how it reads, is decided in `stack.rollout`; this asks the API server again and again, prints
progress when something changed, and ends when it has come about or can't any more.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from cluster.connect import Cluster, ClusterError, Object
from cluster.pods import REFUSALS, LeavingPods, list_pods
from stack import labels, names
from stack.rollout import words
from stack.rollout.departures import Departures
from stack.rollout.ending import Ending, selects
from stack.rollout.patience import Patience
from stack.rollout.pods import is_leaving
from stack.rollout.progress import RollOut, is_observed, newest_by_age, newest_by_count, newest_by_revision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from stack.planned import RollOutPlan, StackPlan
    from stack.rollout.departures import Overstay
    from stack.rollout.patience import Case

T = TypeVar("T")
POLL_SECONDS = 1.0
POLLS_TO_BELIEVE = 2
"""How often in a row Kubernetes has to be seen giving up: after going back, what it said of the roll-out before stands
until it has looked at the Pods again. Likewise for a paused Deployment, whose Pods may be counted a moment later."""


class WaitError(Exception):
    """What was waited for did not come; the message says what is missing and what to do."""


def until_change_has_ended(
    context: str,
    *,
    namespace: str,
    release: str,
    report: Callable[[str], None],
    seconds: float,
    poll_seconds: float = POLL_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when nothing of an earlier change goes any more, or when time is out, or nobody can be asked.

    What goes: the topology anchor if it is being deleted; the endpoint picker's Deployment if it is; role Deployments
    that are, or that were made under another anchor than the live one; their Pods, and Pods whose Deployment has gone
    before them. Pods that should have been gone are not waited for once nothing else is left: what to do about them is
    reported. Whether it has ended is for the facts to tell, which have to be read again afterwards in any case.
    """
    looks = _Looks(report=report, poll_seconds=poll_seconds, clock=clock, sleep=sleep)
    departures = Departures()

    def look() -> Ending:
        anchor = cluster.find(_path(namespace, "api/v1", "configmaps", names.topology_anchor(release)))
        deployments = _role_deployments(cluster, namespace, release)
        epp = cluster.find(_path(namespace, "apis/apps/v1", "deployments", names.epp(release)))
        listed = list_pods(cluster, namespace, f"{labels.INSTANCE}={release}")
        pods = [pod for pod in listed if _is_of_role(pod) or _is_of_epp(pod, names.epp(release))]
        departures.look(clock(), pods)
        return Ending.read(anchor, [*deployments, *([epp] if epp is not None else [])], pods, departures)

    try:
        with _connect(context) as cluster:
            last = looks.until(
                look,
                is_done=lambda ending: ending.is_over or ending.is_stuck,
                describe=words.ending,
                on_trouble=lambda: departures.blink(clock()),
                seconds=seconds,
            )
        if last.is_stuck:
            report(words.stuck(last))
    except WaitError as error:
        report(str(error))


@dataclass(frozen=True, kw_only=True)
class Waits:
    """The waits of one run, bound to a context and a plan.

    Attributes:
        context: kubeconfig context.
        plan: names, counts and clocks come from here.
        report: is given each line of progress.
        poll_seconds: pause between two looks.
        clock: seconds, never going back.
        sleep: passes so many seconds.
    """

    context: str
    plan: StackPlan
    report: Callable[[str], None]
    poll_seconds: float = POLL_SECONDS
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def until_may_be_made(self, owner_uid: str) -> None:
        """Return when no Pod of this release carries another topology key, and the anchor is there that is to own.

        Garbage collection deletes at once what names an owner that is gone, and the provider would wait to the end of
        its time for an object that it never gets to see.

        Args:
            owner_uid: uid of the topology anchor in the workload's owner reference.

        Raises:
            WaitError: such Pods stayed longer than the longest leave, or that anchor is not there any more.
        """
        topology = self.plan.modelserver.topology
        selector = f"{labels.INSTANCE}={self.plan.release},{labels.TOPOLOGY},{labels.TOPOLOGY}!={topology.key}"
        with _connect(self.context) as cluster:
            left = self._looks().until(
                lambda: list_pods(cluster, self.plan.namespace, selector),
                is_done=lambda pods: not pods,
                describe=lambda pods: (
                    f"waiting for devices: {words.join(_names(pods))} of the earlier topology still there"
                ),
                seconds=topology.leave_seconds,
            )
            if not left:
                anchor = self._ask(lambda: self._anchor(cluster))
                return refuse_orphan(self.plan.modelserver.topology.anchor.name, anchor, owner_uid)
            staying = self._that_stay(cluster, left)
        leaving = next((pod for pod in left if is_leaving(pod)), None)
        advice = (
            words.leave(self.plan.namespace, leaving["metadata"]["name"], leaving["spec"].get("nodeName"))
            if leaving is not None
            else f"Look at `kubectl -n {self.plan.namespace} describe pod {_names(left)[0]}`."
        )
        what_to_do = (
            f"Deployment {words.join(staying)} is not going to leave: what the engine keeps in its state does not say "
            "that it runs. Put the configuration that runs back and run `pulumi up`, so that the state knows it again; "
            "then change it."
            if staying
            else f"{advice} Then run `pulumi up` again."
        )
        raise WaitError(
            f"{words.join(_names(left))} of the earlier topology did not leave within {topology.leave_seconds} s. "
            f"{what_to_do}"
        )

    def until_rolled_out(self, name: str) -> None:
        """Return when a Deployment of the plan is rolled out: see `stack.rollout.progress`.

        Raises:
            WaitError: that did not come about in time, one Pod was stuck for longer than patience allows, Kubernetes
                gave the roll-out up, somebody paused it, or the Deployment goes away or is to: then its Pods may be as
                wanted and serve for another moment.
        """
        plan = self.plan.roll_outs[name]
        namespace = self.plan.namespace
        with _connect(self.context) as cluster:
            # Once: the anchor under which this update made or changed the workload.
            anchor = self._ask(lambda: self._anchor(cluster)) if plan.is_owned else None
            watch = _Watch(cluster, namespace, plan, anchor, self.clock)
            last = self._looks().until(
                watch.look,
                is_done=lambda seen: seen.is_done,
                describe=lambda seen: f"{name}: {words.progress(seen.state, seen.cases)}",
                compare=lambda seen: words.progress_to_compare(seen.state, seen.cases),
                on_trouble=watch.blink,
                seconds=plan.timeout_seconds,
            )
        if last.state.is_complete:
            return
        if last.is_halted:
            raise WaitError(words.halted(plan, last.state, namespace=namespace))
        if last.overdue is not None:
            others = [case for case in last.cases if case is not last.overdue]
            raise WaitError(words.out_of_patience(plan, last.state, last.overdue, namespace=namespace, others=others))
        raise WaitError(words.out_of_time(plan, last.state, last.cases, gave_up=last.gave_up, namespace=namespace))

    def _looks(self) -> _Looks:
        return _Looks(report=self.report, poll_seconds=self.poll_seconds, clock=self.clock, sleep=self.sleep)

    def _ask(self, question: Callable[[], T]) -> T:
        """One answer, for which a busy API server is waited for."""
        seconds = self.plan.modelserver.topology.leave_seconds
        return self._looks().until(question, is_done=lambda _: True, describe=str, seconds=seconds)

    def _anchor(self, cluster: Cluster) -> Object | None:
        return cluster.find(
            _path(self.plan.namespace, "api/v1", "configmaps", self.plan.modelserver.topology.anchor.name)
        )

    def _that_stay(self, cluster: Cluster, pods: Sequence[Object]) -> list[str]:
        """Names of the Deployments of an earlier topology that keep these Pods and are not being deleted.

        Only where it can be found out: there is something to say without it.
        """
        try:
            deployments = _role_deployments(cluster, self.plan.namespace, self.plan.release)
        except ClusterError:
            return []
        key = self.plan.modelserver.topology.key
        return _names(
            deployment
            for deployment in deployments
            if "deletionTimestamp" not in deployment["metadata"]
            and deployment["spec"]["template"]["metadata"]["labels"].get(labels.TOPOLOGY) != key
            and any(selects(deployment, pod) for pod in pods)
        )


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """One look at a roll-out.

    Attributes:
        overdue: the Pod that was stuck for too long, if one was.
        gave_up: why Kubernetes gave up, if that is to be believed.
        is_halted: whether the Deployment is paused too early, if that is to be believed.
    """

    state: RollOut
    cases: Sequence[Case]
    overdue: Case | None
    gave_up: str | None
    is_halted: bool

    @property
    def is_done(self) -> bool:
        """Whether there is no sense in looking again."""
        return self.state.is_complete or self.overdue is not None or self.gave_up is not None or self.is_halted


class _Watch:
    """One roll-out, looked at again and again: what is asked for, and what is remembered from look to look."""

    def __init__(
        self, cluster: Cluster, namespace: str, plan: RollOutPlan, anchor: Object | None, clock: Callable[[], float]
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._plan = plan
        self._anchor = anchor
        self._clock = clock
        self._selector = ",".join(f"{key}={value}" for key, value in plan.selector.items())
        self._patience = Patience(plan.patience_seconds)
        self._departures = Departures()
        self._leaving = LeavingPods(cluster, namespace, clock, self._departures)
        self._templates: dict[int, str] = {}
        self._given_up = 0
        self._halted = 0

    def look(self) -> _Seen:
        """Ask how things are: for Deployment and Pods, and for more only where these don't tell.

        Raises:
            ClusterError: no answer, or not a good one.
            WaitError: the Deployment goes away.
        """
        deployment = self._cluster.find(_path(self._namespace, "apis/apps/v1", "deployments", self._plan.name))
        deployment = refuse_leftover(self._plan.name, deployment, self._anchor)
        pods = self._cluster.list(f"/api/v1/namespaces/{self._namespace}/pods", labelSelector=self._selector)
        state = RollOut.read(self._plan, deployment, pods, newest=self._newest(deployment, pods))
        now = self._clock()
        self._departures.look(now, pods)
        waiting = [pod for pod in pods if pod["metadata"]["name"] in state.unschedulable]
        held = self._leaving.hold_for(waiting)
        overstays = {overstay.pod: overstay for overstay in self._overstays(state, pods)} | held.overstays
        troubles = {name: overstay.trouble for name, overstay in overstays.items()}
        cases = self._patience.look(now, state, held.excuses, troubles)
        is_given_up = state.gave_up is not None and not self._patience.has_excused
        self._given_up = self._given_up + 1 if is_given_up else 0
        self._halted = self._halted + 1 if state.is_halted else 0
        return _Seen(
            state=state,
            cases=cases,
            overdue=self._patience.overdue(cases),
            gave_up=state.gave_up if self._given_up >= POLLS_TO_BELIEVE else None,
            is_halted=self._halted >= POLLS_TO_BELIEVE,
        )

    def blink(self) -> None:
        """Nobody answered."""
        self._patience.blink(self._clock())
        self._departures.blink(self._clock())

    def _overstays(self, state: RollOut, pods: Sequence[Object]) -> Iterator[Overstay]:
        """Pods of this Deployment that hold it up and should have been gone."""
        awaited = {pod.name for pod in state.awaited}
        for pod in pods:
            if pod["metadata"]["name"] in awaited and (overstay := self._departures.overstay(pod)) is not None:
                yield overstay

    def _newest(self, deployment: Object, pods: Sequence[Object]) -> str | None:
        """Hash of the newest template. The ReplicaSets are asked for at most once for a version of the Deployment."""
        known = newest_by_count(deployment, pods)
        if known is not None or not is_observed(deployment) or not pods:
            return known
        generation: int = deployment["metadata"]["generation"]
        if generation not in self._templates:
            try:
                path = f"/apis/apps/v1/namespaces/{self._namespace}/replicasets"
                listed = self._cluster.list(path, labelSelector=self._selector)
            except ClusterError as error:
                if error.status not in REFUSALS:
                    raise
                return newest_by_age(deployment, pods)
            template = newest_by_revision(deployment, listed)
            if template is None:
                return None
            self._templates[generation] = template
        return self._templates[generation]


def refuse_leftover(name: str, deployment: Object | None, anchor: Object | None) -> Object:
    """Don't count what goes away as rolled out, however well its Pods are.

    Args:
        name: of the Deployment.
        deployment: as it is now, None when it is not there.
        anchor: the topology anchor at the start of the wait. None when there was none, or it owns nothing of this: then
            nothing can be compared.

    Returns:
        The Deployment, which is there.

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
        return deployment
    raise WaitError(f"{name} {why}, so what it has now does not last. Run `pulumi up` again.")


def refuse_orphan(name: str, anchor: Object | None, owner_uid: str) -> None:
    """Let nothing be made for a topology anchor that has gone, or goes, since the engine looked at it.

    Args:
        name: of the anchor.
        anchor: as it is now, None when it is not there.
        owner_uid: uid of the anchor that the engine knows.

    Raises:
        WaitError: that is another one, or none.
    """
    if anchor is None or "deletionTimestamp" in anchor["metadata"]:
        why = "was deleted"
    elif anchor["metadata"]["uid"] != owner_uid:
        why = "was made anew"
    else:
        return
    raise WaitError(f"the topology anchor {name} {why} while this update began. Run `pulumi up` again.")


@dataclass(frozen=True, kw_only=True)
class _Looks:
    """Looks again and again; what it is made of is described at `Waits`."""

    report: Callable[[str], None]
    poll_seconds: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]

    def until(
        self,
        look: Callable[[], T],
        *,
        is_done: Callable[[T], bool],
        describe: Callable[[T], str],
        seconds: float,
        compare: Callable[[T], str] | None = None,
        on_trouble: Callable[[], None] | None = None,
    ) -> T:
        """Look until done or out of time; the last state seen. Reports each new description once.

        An API server that does not answer for a while, or is too busy to, is waited for like everything else.

        Args:
            look: asks how things are.
            is_done: whether it is enough.
            describe: what to report of it.
            seconds: the time there is.
            compare: what has to differ for a state to be worth reporting; the description itself if not given.
            on_trouble: is told that nobody answered.

        Raises:
            WaitError: it refuses, or did not answer to the end; and what `look` raises.
        """
        until = self.clock() + seconds
        said = ""
        while True:
            try:
                state = look()
            except ClusterError as error:
                if error.status in REFUSALS or self.clock() >= until:
                    raise WaitError(f"the cluster can't be asked: {error}. Run `pulumi up` again.") from None
                if on_trouble is not None:
                    on_trouble()
                line = new = f"the cluster can't be asked just now: {error}"
            else:
                if is_done(state) or self.clock() >= until:
                    return state
                line = describe(state)
                new = compare(state) if compare is not None else line
            if new != said:
                self.report(line)
                said = new
            self.sleep(self.poll_seconds)


def _connect(context: str) -> Cluster:
    try:
        return Cluster(context)
    except ClusterError as error:
        raise WaitError(f"{str(error).rstrip('.')}. Mend the kubeconfig, and run `pulumi up` again.") from None


def _path(namespace: str, group: str, plural: str, name: str) -> str:
    return f"/{group}/namespaces/{namespace}/{plural}/{name}"


def _role_deployments(cluster: Cluster, namespace: str, release: str) -> list[Object]:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    return cluster.list(path, labelSelector=f"{labels.INSTANCE}={release},{labels.ROLE}")


def _is_of_role(pod: Object) -> bool:
    return labels.TOPOLOGY in pod["metadata"].get("labels", {})


def _is_of_epp(pod: Object, epp: str) -> bool:
    carried = pod["metadata"].get("labels", {})
    return epp in {carried.get(labels.EPP_WITH_POOL), carried.get(labels.EPP_WITHOUT_POOL)}


def _names(objects: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(item["metadata"]["name"] for item in objects)
