"""Alerts: what an operator must hear of, with the numbers that the plan knows as thresholds.

Slots, ceilings, drains, grace periods and deadlines come from the plan, so an alert changes with what it is about. What
is left as a number here, nothing in the plan says: how full is full, and for how long something may last.

Series come from the engines and the gateway (scraped by `stack.monitoring`), from kube-state-metrics (`kube_*`) and
from the kubelets (`kubelet_volume_stats_*`). A series that is missing makes no alert: whether everything is scraped is
for the alerts that come with the scraper. `docs/alerts.md` says what to do about each.

Sources: vLLM `vllm/v1/metrics/loggers.py`; kube-state-metrics, *Pod Metrics*, *Deployment Metrics*; Istio, *Istio
Standard Metrics*; Envoy, *Cluster manager statistics* and *Access logging* (response flags).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from stack import names
from stack.autoscaling import autoscaler_of
from stack.config.autoscaling import QUEUE_SECONDS, BehaviorConfig
from stack.drain import ABORT_GRACE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stack.capacity import RoleCapacity
    from stack.config.autoscaling import ScaleDownConfig, ScaleUpConfig
    from stack.config.root import StackConfig
    from stack.drain import RoleDrain
    from stack.planned import ScalerPlan, WorkloadPlan
    from stack.scalars import Role

RUNBOOK: Final = "docs/alerts.md"
FULL: Final = 0.9
"""Share of the slots in use that counts as full: requests come and go between two scrapes, so all are never seen."""
QUEUE_QUANTILE: Final = 0.95
SHORT: Final = "10m"
"""How long a load may be too high before anybody is told."""
WINDOW: Final = "5m"
FULL_CYCLES: Final = 3
"""Times that a scaler could go from floor to ceiling and back in the time in which its changes are counted."""
LEAST_WINDOW_SECONDS: Final = 3600
LEAST_INACTIVE_SECONDS: Final = 600
LOOK_BACK: Final = "10m"
"""How far back an alert about a Pod that is gone looks, so that it stays long enough to be seen."""
AIBRIX_UP_SECONDS: Final = 60
RESETS: Final[Mapping[str, str]] = {
    # UC: the connection ended, UR: the stream was reset, UPE: the response broke off in the middle. With 200, since
    # what failed before it began has a status of its own, and can be repeated.
    "istio": 'istio_requests_total{{job="{job}",reporter="source",response_code="200",'
    'response_flags=~"(.*,)?(UC|UR|UPE)(,.*)?"}}'
}
OTHER_RESETS: Final = 'envoy_cluster_upstream_rq_rx_reset{{job="{job}"}}'


@dataclass(frozen=True, kw_only=True)
class RoleWatch:
    """What there is to say about a role, for alerts and the dashboard.

    Attributes:
        capacity: slots and bounds.
        drain: its way out.
        workloads: its Deployments; several with nodePlacement.
        scaler: what scales it; None where the configuration says how many Pods there are.
        queue_seconds: longest time in the queue that nobody needs to hear of.
        interval_seconds: time from one scrape to the next, in whole seconds, at least 1.
        behavior: how fast a scaler changes the number.
    """

    role: Role
    namespace: str
    capacity: RoleCapacity
    drain: RoleDrain
    workloads: tuple[WorkloadPlan, ...]
    scaler: ScalerPlan | None
    queue_seconds: float
    interval_seconds: int
    behavior: BehaviorConfig

    @property
    def pods(self) -> str:
        """Label matchers for the role's Pods: no other release's, however it is called."""
        return f'namespace="{self.namespace}",pod=~"{self.pod_pattern}"'

    @property
    def pod_pattern(self) -> str:
        """Regular expression for names of the role's Pods."""
        return f"{self._either}-[a-z0-9]+-[a-z0-9]+"

    @property
    def deployments(self) -> str:
        """Label matchers for the role's Deployments."""
        return f'namespace="{self.namespace}",deployment=~"{self._either}"'

    @property
    def _either(self) -> str:
        found = [workload.object.name for workload in self.workloads]
        return found[0] if len(found) == 1 else f"({'|'.join(found)})"

    @property
    def ready(self) -> str:
        """PromQL: Ready Pods of the role."""
        return f"sum(max by (deployment) (kube_deployment_status_replicas_available{{{self.deployments}}}))"

    @property
    def wanted(self) -> str:
        """PromQL: Pods that the role is to have."""
        return f"sum(max by (deployment) (kube_deployment_spec_replicas{{{self.deployments}}}))"

    @property
    def slots(self) -> str:
        """PromQL: requests that the role runs at once now."""
        return f"{self.capacity.slots} * {self.ready}"

    @property
    def running(self) -> str:
        """PromQL: requests that run."""
        return f"sum(vllm:num_requests_running{{{self.pods}}})"

    @property
    def waiting(self) -> str:
        """PromQL: requests in the engines' queues."""
        return f"sum(vllm:num_requests_waiting{{{self.pods}}})"

    def quantile(self, share: float, histogram: str) -> str:
        """PromQL: quantile of a histogram of the role's engines."""
        return f"histogram_quantile({share:g}, sum by (le) (rate({histogram}_bucket{{{self.pods}}}[{WINDOW}])))"

    @property
    def outstayed(self) -> int:
        """Seconds beyond its grace period after which a Pod counts as stuck."""
        return max(self.drain.margin, ABORT_GRACE_SECONDS)

    @property
    def claims(self) -> tuple[str, ...]:
        """Names of claims that the role's Pods write to."""
        volumes = [
            volume["persistentVolumeClaim"]
            for workload in self.workloads
            for volume in workload.object.manifest["spec"]["template"]["spec"]["volumes"]
            if "persistentVolumeClaim" in volume
        ]
        return tuple(sorted({claim["claimName"] for claim in volumes if not claim.get("readOnly", False)}))


def watch_roles(
    config: StackConfig,
    capacities: Mapping[Role, RoleCapacity],
    drains: Mapping[Role, RoleDrain],
    workloads: Sequence[WorkloadPlan],
    scalers: Sequence[ScalerPlan],
) -> tuple[RoleWatch, ...]:
    """What alerts and dashboard are made of, role by role."""
    by_role = {scaler.role: scaler for scaler in scalers}
    return tuple(
        RoleWatch(
            role=role,
            namespace=config.namespace,
            capacity=capacity,
            drain=drains[role],
            workloads=tuple(workload for workload in workloads if workload.role == role),
            scaler=by_role.get(role),
            queue_seconds=config.monitoring.rules.queue_seconds
            or config.autoscaling.of(role).queue_seconds
            or QUEUE_SECONDS,
            interval_seconds=_seconds(config.monitoring.interval),
            behavior=config.autoscaling.of(role).behavior or BehaviorConfig(),
        )
        for role, capacity in capacities.items()
    )


def _seconds(interval: str) -> int:
    """A scrape interval in whole seconds, rounded up."""
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
    parts: list[tuple[str, str]] = re.findall(r"(\d+)(ms|[smhdwy])", interval)
    return max(1, ceil(sum(int(number) * units[unit] for number, unit in parts)))


def plan_alerts(config: StackConfig, roles: Sequence[RoleWatch]) -> list[dict[str, Any]]:
    """Rule groups, as PrometheusRule and VMRule both take them."""
    groups = [
        {
            "name": f"{config.release}-{watch.role}",
            "rules": [_whole(config, rule, watch.role) for rule in _of_role(watch)],
        }
        for watch in roles
    ]
    stack = [*_streams(config, roles), *_volumes(config, roles)]
    if stack:
        groups.append({"name": config.release, "rules": [_whole(config, rule, None) for rule in stack]})
    return groups


@dataclass(frozen=True, kw_only=True)
class _Alert:
    name: str
    expr: str
    lasting: str
    severity: str
    summary: str
    text: str


def _whole(config: StackConfig, rule: _Alert, role: Role | None) -> dict[str, Any]:
    anchor = rule.name.lower()
    base = config.monitoring.rules.runbook_url
    return {
        "alert": f"ServingStack{rule.name}",
        "expr": rule.expr,
        "for": rule.lasting,
        "labels": {
            "severity": rule.severity,
            "namespace": config.namespace,
            "release": config.release,
            **({"role": role} if role is not None else {}),
        },
        "annotations": {
            "summary": rule.summary,
            "description": rule.text,
            **({"runbook_url": f"{base}#{anchor}"} if base is not None else {"runbook": f"{RUNBOOK}#{anchor}"}),
        },
    }


def _of_role(watch: RoleWatch) -> Iterator[_Alert]:
    yield _queue(watch)
    yield _ceiling(watch)
    yield from _roll_outs(watch)
    if watch.scaler is not None:
        yield _inactive(watch, watch.scaler)
    if watch.scaler is not None and watch.capacity.most_pods > watch.capacity.least_pods:
        yield _flapping(watch, watch.scaler)
    if watch.drain.mode != "off":
        yield _drain_ran_out(watch)
    yield _outstayed(watch)


def _queue(watch: RoleWatch) -> _Alert:
    """The histogram speaks of those who got out of the queue; where nobody does, it says nothing, so that is asked."""
    leaving = f"sum(rate(vllm:request_queue_time_seconds_count{{{watch.pods}}}[{WINDOW}]))"
    quantile = watch.quantile(QUEUE_QUANTILE, "vllm:request_queue_time_seconds")
    return _Alert(
        name="QueueTime",
        expr=f"{quantile} > {watch.queue_seconds:g} or ({watch.waiting} > 0 and {leaving} == 0)",
        lasting=SHORT,
        severity="warning",
        summary=f"{watch.role} requests wait in the queue",
        text=f"Of {watch.role} requests, {1 - QUEUE_QUANTILE:.0%} wait longer than {watch.queue_seconds:g} s before "
        "they run, or wait while none gets to run.",
    )


def _ceiling(watch: RoleWatch) -> _Alert:
    scaler = watch.scaler
    most = watch.capacity.most_pods
    if scaler is None:
        return _Alert(
            name="AtCeiling",
            expr=f"{watch.running} > {FULL:g} * {watch.slots}",
            lasting=SHORT,
            severity="warning",
            summary=f"{watch.role} is full",
            text=f"More than {FULL:.0%} of the slots run requests ({watch.capacity.slots} for each Ready Pod), and the "
            f"number of Pods is fixed at {most}.",
        )
    bound = scaler.target if scaler.signal == "queueTime" else scaler.target * most
    return _Alert(
        name="AtCeiling",
        expr=f"{watch.wanted} >= {most} and on () (({scaler.query}) > {bound:g})",
        lasting=SHORT,
        severity="warning",
        summary=f"{watch.role} is at its ceiling",
        text=f"The scaler keeps the role at its ceiling of {most} Pods and would add more: {scaler.unit}, above "
        f"{bound:g}. How much is queued beyond that it cannot see.",
    )


def _roll_outs(watch: RoleWatch) -> Iterator[_Alert]:
    deadline = max(each.object.manifest["spec"]["progressDeadlineSeconds"] for each in watch.workloads)
    longest = max(each.timeout_seconds for each in watch.workloads)
    updated, wanted = (
        f"max by (deployment) (kube_deployment_{what}{{{watch.deployments}}})"
        for what in ("status_replicas_updated", "spec_replicas")
    )
    yield _Alert(
        name="RollOutStuck",
        expr="max by (deployment) (kube_deployment_status_condition"
        f'{{{watch.deployments},condition="Progressing",status="false"}}) == 1',
        lasting="1m",
        severity="critical",
        summary=f"a roll-out of {watch.role} is stuck",
        text=f"{{{{ $labels.deployment }}}} has made no progress for {deadline} s, which is its start-up budget and a "
        "drain. Old and new Pods hold their devices until somebody decides.",
    )
    yield _Alert(
        name="RollOutSlow",
        expr=f"{updated} < {wanted}",
        lasting=f"{longest}s",
        severity="critical",
        summary=f"a roll-out of {watch.role} does not end",
        text=f"{{{{ $labels.deployment }}}} still has Pods of an older template after {longest} s, in which all of "
        "them could have been exchanged one after another.",
    )


def _step(pace: ScaleUpConfig | ScaleDownConfig) -> float:
    """Seconds for one Pod there and back: a recommendation has to stand for the window, and one period has so many."""
    return max(pace.period_seconds / pace.pods, pace.stabilization_window_seconds)


def _flapping(watch: RoleWatch, scaler: ScalerPlan) -> _Alert:
    """Down more often than from ceiling to floor, and up again as often, in a window that is a few whole ways long."""
    span = watch.capacity.most_pods - watch.capacity.least_pods
    up, down = watch.behavior.scale_up, watch.behavior.scale_down
    # aibrix has a pace of its own, see `stack.autoscaling`; its window is the default one.
    up_seconds = AIBRIX_UP_SECONDS if scaler.provider == "aibrix" else _step(up)
    step = up_seconds + _step(down)
    window = f"{max(LEAST_WINDOW_SECONDS, round(FULL_CYCLES * span * step))}s"
    series = f"kube_deployment_spec_replicas{{{watch.deployments}}}[{window}]"
    downs = f"max by (deployment) (resets({series}))"
    ups = f"max by (deployment) (changes({series}) - resets({series}))"
    return _Alert(
        name="ReplicasFlap",
        expr=f"{downs} > {span} and {ups} > {span}",
        lasting="0s",
        severity="warning",
        summary=f"the scaler of {watch.role} goes up and down",
        text=f"In {window} the number of Pods fell and rose more than {span} times each, which is the whole way "
        f"between floor ({watch.capacity.least_pods}) and ceiling ({watch.capacity.most_pods}). Every new Pod loads "
        "for minutes before it serves.",
    )


def _inactive(watch: RoleWatch, scaler: ScalerPlan) -> _Alert:
    """Lasting for a start, since before the first Pod shows metrics there is nothing to scale by."""
    name = autoscaler_of(scaler)
    lasting = max(LEAST_INACTIVE_SECONDS, *(each.ready_seconds for each in watch.workloads))
    return _Alert(
        name="ScalerInactive",
        expr="max(kube_horizontalpodautoscaler_status_condition"
        f'{{namespace="{watch.namespace}",horizontalpodautoscaler="{name}",condition="ScalingActive",status="false"}}) '
        "== 1",
        lasting=f"{lasting}s",
        severity="warning",
        summary=f"the scaler of {watch.role} does nothing",
        text=f"HorizontalPodAutoscaler {name} ({scaler.provider}) has had no metric to go by for {lasting} s, or its "
        f"target is at 0 Pods. The number of {watch.role} Pods stays as it is, whatever the load.",
    )


def _drain_ran_out(watch: RoleWatch) -> _Alert:
    """The last time that requests were seen to run is no earlier than the end of N, give or take a scrape.

    Looked at afterwards, since the engine ends as soon as it has cut them, and a rule that is evaluated twice a minute
    would not meet it.
    """
    drain = watch.drain
    seen = f"(sum by (pod) (vllm:num_requests_running{{{watch.pods}}}) > bool 0) * time()"
    end = f"max by (pod) (last_over_time(kube_pod_deletion_timestamp{{{watch.pods}}}[{LOOK_BACK}]))"
    after = drain.margin + drain.pull + watch.interval_seconds
    return _Alert(
        name="DrainRanOut",
        expr=f"max_over_time(({seen})[{LOOK_BACK}:{watch.interval_seconds}s]) >= on (pod) ({end} - {after})",
        lasting="0s",
        severity="warning",
        summary=f"a {watch.role} Pod left with requests that did not end in time",
        text=f"{{{{ $labels.pod }}}} still ran requests {drain.delay + drain.timeout} s after its deletion "
        f"({drain.delay} s for the router, N = {drain.timeout} s), when they are cut.",
    )


def _outstayed(watch: RoleWatch) -> _Alert:
    return _Alert(
        name="ClaimsHeld",
        expr=f"time() - max by (pod) (kube_pod_deletion_timestamp{{{watch.pods}}}) > {watch.outstayed}",
        lasting="1m",
        severity="critical",
        summary=f"a {watch.role} Pod does not go and keeps its devices",
        text=f"{{{{ $labels.pod }}}} is {{{{ $value | humanizeDuration }}}} over its grace period "
        f"({watch.drain.grace} s). Its device claims stay reserved until it is gone, so its successor may find none.",
    )


def resets_of(config: StackConfig) -> str | None:
    """Selector of the gateway's counter of responses that broke off; None without a Gateway of the stack's."""
    if not config.gateway.enabled:
        return None
    job = f"{config.namespace}/{names.scrape(config.release, 'gateway')}"
    return RESETS.get(config.gateway.class_name, OTHER_RESETS).format(job=job)


def _streams(config: StackConfig, roles: Sequence[RoleWatch]) -> Iterator[_Alert]:
    """A counter that appears with its first reset has no increase, so one that was not there before counts as well."""
    counter = resets_of(config)
    if counter is None:
        return
    pattern = "|".join(watch.pod_pattern for watch in roles)
    leaving = f'kube_pod_deletion_timestamp{{namespace="{config.namespace}",pod=~"{pattern}"}}'
    yield _Alert(
        name="StreamsCut",
        expr=f"(sum(increase({counter}[{WINDOW}])) > 0 or sum({counter} unless {counter} offset {WINDOW}) > 0) "
        f"and on () (count(last_over_time({leaving}[{WINDOW}])) > 0)",
        lasting="0s",
        severity="warning",
        summary="streams broke off while a model server left",
        text="The gateway counted {{ $value | humanize }} responses that broke off after they had begun, while a Pod "
        "of the stack was leaving. Their clients saw a failure that no proxy could repeat.",
    )


def _volumes(config: StackConfig, roles: Sequence[RoleWatch]) -> Iterator[_Alert]:
    claims = sorted({claim for watch in roles for claim in watch.claims})
    if not claims:
        return
    percent = config.monitoring.rules.volume_free_percent
    available, capacity = (
        f'kubelet_volume_stats_{what}_bytes{{namespace="{config.namespace}",persistentvolumeclaim=~"{"|".join(claims)}"}}'
        for what in ("available", "capacity")
    )
    yield _Alert(
        name="VolumeNearlyFull",
        expr=f"min by (persistentvolumeclaim) ({available} / {capacity}) < {percent / 100:g}",
        lasting="15m",
        severity="warning",
        summary="a volume of the model servers is nearly full",
        text="{{ $labels.persistentvolumeclaim }} has {{ $value | humanizePercentage }} left. Model servers that "
        "cannot write to it compile anew at each start, or do not start.",
    )
