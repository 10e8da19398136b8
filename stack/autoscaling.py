"""What scales a role: by which signal, to which target, between which bounds, written down for the chosen scaler.

Targets follow from `stack.capacity` and from nowhere else. Every signal counts what *is*, summed over the role, and is
divided by the target for one Pod; a scaler that multiplies an average by all Pods, starting ones included, multiplies
again in each cycle while they start. A signal that is missing is never read as 0: a role whose metrics are lost keeps
its Pods.

Left alone: what makes metrics available (adapters, Prometheus), and whether devices exist for the ceiling, which is
for `stack.guards`.

Sources: Kubernetes API reference, HorizontalPodAutoscaler v2; KEDA v2.21.0 (`config/crd/bases`,
`pkg/scalers/prometheus_scaler.go`, `kubernetes_workload_scaler.go`, `pkg/fallback`); AIBrix
(`api/autoscaling/v1alpha1`, `pkg/controller/podautoscaler/hpa_resources.go`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stack import labels, names
from stack.config.autoscaling import BACKLOG_SECONDS, OCCUPANCY, QUEUE_SECONDS, BehaviorConfig
from stack.errors import Problem
from stack.planned import ObjectPlan, ScalerPlan
from stack.scalars import ROLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stack.capacity import RoleCapacity
    from stack.config.autoscaling import Provider, RoleScalingConfig, Signal
    from stack.config.root import StackConfig
    from stack.planned import Manifest
    from stack.scalars import Role

OCCUPANCY_METRIC: Final = "vllm_num_requests_running"
"""vLLM's own name has a colon, which the API of metrics does not take; the adapter renames it."""
TOLERANCE: Final = 0.1
"""Share of the target within which Kubernetes' scaler does nothing (its default, which KEDA and AIBrix leave as it
is): what is aimed at has to be exceeded by more."""
FAILURES_TO_FALL_BACK: Final = 3
POLLING_SECONDS: Final = 15
"""As often as Kubernetes' own scaler looks."""
AIBRIX_RATE: Final = "1.1"
"""A tenth more or less in a minute: one Pod at a time up to ten (AIBrix, `buildHPABehavior`, rounds to whole percent).
Its default doubles and halves."""
OTHER: Final[Mapping[str, Role]] = {"prefill": "decode", "decode": "prefill"}


@dataclass(frozen=True, kw_only=True)
class RoleSignal:
    """What a scaler looks at.

    Attributes:
        kind: as the configuration says it.
        target: for one Pod in the unit of the signal, as the scaler is told it; with queueTime for the role, in
            seconds.
        unit: in words.
        query: PromQL that gives one number for the role, and nothing where the metrics are missing.
        is_divided: whether the number is divided among the Pods. A time is not.
    """

    kind: Signal
    target: float
    unit: str
    query: str
    is_divided: bool = True


def signal_of(role: Role, scaling: RoleScalingConfig) -> Signal:
    """The signal in force. Prefill requests come and go too fast for their number to say anything."""
    return scaling.signal or ("inFlightTokens" if role == "prefill" else "occupancy")


def target_of(role: Role, scaling: RoleScalingConfig, slots: int) -> float | None:
    """Target for one Pod, with queueTime for the role; None where what it is made of is not given.

    Args:
        role: of the Pods.
        scaling: how they are scaled.
        slots: requests that one Pod runs at once.
    """
    match signal_of(role, scaling):
        case "occupancy":
            return (scaling.occupancy or OCCUPANCY) * slots
        case "inFlightTokens":
            speed = scaling.tokens_per_second
            return None if speed is None else speed * (scaling.backlog_seconds or BACKLOG_SECONDS)
        case "queueTime":
            return scaling.queue_seconds or QUEUE_SECONDS


def sent_target(scaling: RoleScalingConfig, target: float) -> float:
    """The target as the scaler is told it: AIBrix takes whole numbers only."""
    return float(aibrix_target(target)) if scaling.provider == "aibrix" else target


def plan_signal(config: StackConfig, role: Role, slots: int) -> RoleSignal:
    """What is looked at, for a configuration that every rule accepts."""
    scaling = config.autoscaling.of(role)
    target = target_of(role, scaling, slots)
    assert target is not None  # noqa: S101  # a rule asks for the speed
    target = sent_target(scaling, target)
    pods = f'namespace="{config.namespace}",pod=~"{pod_pattern(config, role)}"'
    match signal_of(role, scaling):
        case "occupancy":
            query = f"sum(vllm:num_requests_running{{{pods}}})"
            return RoleSignal(kind="occupancy", target=target, unit="running requests", query=query)
        case "inFlightTokens":
            return RoleSignal(
                kind="inFlightTokens", target=target, unit="prompt tokens in flight", query=_tokens(config, role, pods)
            )
        case "queueTime":
            total, count = (f"sum(rate(vllm:request_queue_time_seconds_{part}{{{pods}}}[2m]))" for part in _PARTS)
            # Without requests it is 0 and not unknown: the engine's counters are there, they only stand still.
            query = f"{total} / clamp_min({count}, 0.001)"
            return RoleSignal(kind="queueTime", target=target, unit="s in the queue", query=query, is_divided=False)


_PARTS = ("sum", "count")


def pod_pattern(config: StackConfig, role: Role) -> str:
    """Regular expression for the names of a role's Pods: no other release's, however it is called."""
    return f"{names.workload(config.release, role)}-[a-z0-9]+-[a-z0-9]+"


def _tokens(config: StackConfig, role: Role, pods: str) -> str:
    """Tokens in flight to Pods that are there.

    The endpoint picker goes on showing Pods that are gone (llm-d-router#2529, up to v0.10.0), so only those count that
    show metrics of their own. Over a minute, since the gauge jumps with every prompt.
    """
    pattern = f"{pod_pattern(config, role)}(-rank-[0-9]+)?"
    gauge = (
        f'llm_d_epp_inflight_tokens{{namespace="{config.namespace}",producer_name="inflight-load-producer",'
        f'endpoint_name=~"{pattern}"}}'
    )
    named = f'label_replace(avg_over_time({gauge}[1m]), "pod", "$1", "endpoint_name", "(.+?)(-rank-[0-9]+)?")'
    return f"sum({named} and on (pod) vllm:num_requests_running{{{pods}}})"


def metric_name(config: StackConfig, role: Role) -> str:
    """Name of the metric as the adapter serves it."""
    scaling = config.autoscaling.of(role)
    if scaling.metric_name is not None:
        return scaling.metric_name
    kind = signal_of(role, scaling)
    if kind == "occupancy":
        return OCCUPANCY_METRIC
    words = {"inFlightTokens": "inflight_tokens", "queueTime": "queue_seconds"}[kind]
    return f"{config.release}_{role}_{words}".replace("-", "_")


# --- scalers ----------------------------------------------------------------------------------------------------------


def plan_scalers(config: StackConfig, capacities: Mapping[Role, RoleCapacity]) -> tuple[ScalerPlan, ...]:
    """The scaler of each role that has Pods and is scaled."""
    return tuple(
        _plan_scaler(config, role, capacities[role]) for role in config.autoscaling.scaled if role in capacities
    )


def autoscaler_of(scaler: ScalerPlan) -> str:
    """Name of the HorizontalPodAutoscaler that does the work, whoever makes it.

    Sources: KEDA, *ScaledObject specification* (`horizontalPodAutoscalerConfig.name`); AIBrix,
    `pkg/controller/podautoscaler/hpa_resources.go`.
    """
    name = scaler.object.name
    return {"hpa": name, "keda": f"keda-hpa-{name}", "aibrix": f"{name}-hpa"}[scaler.provider]


def plan_scaler_seats(config: StackConfig) -> dict[str, str]:
    """For every role what scales it: when that changes, the scaler that was goes before anything else happens."""
    placed = bool(config.modelserver.node_placement)
    return {role: "none" if placed else config.autoscaling.of(role).provider for role in ROLES}


def _plan_scaler(config: StackConfig, role: Role, capacity: RoleCapacity) -> ScalerPlan:
    scaling = config.autoscaling.of(role)
    found = plan_signal(config, role, capacity.slots)
    return ScalerPlan(
        role=role,
        workload=names.workload(config.release, role),
        provider=scaling.provider,
        signal=found.kind,
        target=found.target,
        unit=found.unit,
        query=found.query,
        floor=capacity.least_pods,
        ceiling=capacity.most_pods,
        object=ObjectPlan(logical_name=f"{role}-{scaling.provider}", manifest=_manifest(config, role, capacity, found)),
    )


def _manifest(config: StackConfig, role: Role, capacity: RoleCapacity, found: RoleSignal) -> Manifest:
    scaling = config.autoscaling.of(role)
    api_version, kind, spec, annotations = {
        "hpa": _hpa,
        "keda": _keda,
        "aibrix": _aibrix,
    }[scaling.provider](config, role, capacity, found)
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": labels.object_meta(
            names.scaler(config.release, role),
            release=config.release,
            namespace=config.namespace,
            component=role,
            # Not skipAwait: its deletion is waited for, before the count is the configuration's again.
            annotations={**labels.WAIT_FOR_UID, **annotations},
        ),
        "spec": spec,
    }


Written = tuple[str, str, dict[str, Any], dict[str, str]]
"""API version, kind, spec and annotations."""


def _hpa(config: StackConfig, role: Role, capacity: RoleCapacity, found: RoleSignal) -> Written:
    target = _target(found)
    metric = {"name": metric_name(config, role)}
    source = (
        # By Pod, so that Kubernetes sets aside those that are not Ready or show nothing.
        {"type": "Pods", "pods": {"metric": metric, "target": target}}
        if found.kind == "occupancy"
        else {"type": "External", "external": {"metric": metric, "target": target}}
    )
    spec = {
        "scaleTargetRef": _workload(config, role),
        "minReplicas": capacity.least_pods,
        "maxReplicas": capacity.most_pods,
        "metrics": [source],
        "behavior": render_behavior(config.autoscaling.of(role).behavior or BehaviorConfig()),
    }
    return "autoscaling/v2", "HorizontalPodAutoscaler", spec, {}


def _keda(config: StackConfig, role: Role, capacity: RoleCapacity, found: RoleSignal) -> Written:
    prometheus = config.autoscaling.prometheus
    assert prometheus is not None  # noqa: S101  # a rule asks for it
    metadata = {
        "serverAddress": prometheus.server_address,
        "query": found.query,
        "threshold": _number(found.target),
        # An empty answer means that nobody knows, and not that nothing runs.
        "ignoreNullValues": "false",
    }
    trigger: dict[str, Any] = {
        "type": "prometheus",
        "name": found.kind.lower(),
        "metricType": "AverageValue" if found.is_divided else "Value",
        "metadata": metadata,
    }
    if prometheus.trigger_authentication is not None:
        trigger["authenticationRef"] = {"name": prometheus.trigger_authentication}
    if prometheus.auth_modes is not None:
        metadata["authModes"] = prometheus.auth_modes
    spec = {
        "scaleTargetRef": _workload(config, role),
        "pollingInterval": POLLING_SECONDS,
        "minReplicaCount": capacity.least_pods,
        "maxReplicaCount": capacity.most_pods,
        "fallback": {
            "failureThreshold": FAILURES_TO_FALL_BACK,
            "replicas": capacity.least_pods,
            "behavior": "currentReplicasIfHigher",
        },
        "advanced": {
            # What the count was before the scaler came is no better than what it is.
            "restoreToOriginalReplicaCount": False,
            "horizontalPodAutoscalerConfig": {
                "behavior": render_behavior(config.autoscaling.of(role).behavior or BehaviorConfig())
            },
        },
        "triggers": [trigger, *_ratio(config, role)],
    }
    return "keda.sh/v1alpha1", "ScaledObject", spec, {}


def _ratio(config: StackConfig, role: Role) -> list[dict[str, Any]]:
    """Holds the ratio from one side: never fewer Pods than those of the other role call for.

    Of several triggers the one that asks for most Pods counts. Prefill is kept at or above the lower bound, decode
    high enough for the upper one.
    """
    ratio = config.autoscaling.ratio
    if ratio is None or role not in OTHER:
        return []
    other = OTHER[role]
    value = 1 / ratio.min if role == "prefill" else ratio.max
    selector = f"{labels.INSTANCE}={config.release},{labels.COMPONENT}={other}"
    return [
        {
            "type": "kubernetes-workload",
            "name": "ratio",
            "metricType": "AverageValue",
            "metadata": {"podSelector": selector, "value": _number(value)},
        }
    ]


def _aibrix(config: StackConfig, role: Role, capacity: RoleCapacity, found: RoleSignal) -> Written:
    spec = {
        "scaleTargetRef": _workload(config, role),
        "minReplicas": capacity.least_pods,
        "maxReplicas": capacity.most_pods,
        # Its other strategies multiply by Pods that still start, and take a Pod without metrics for an idle one.
        "scalingStrategy": "HPA",
        "metricsSources": [
            {
                "metricSourceType": "custom",
                "targetMetric": metric_name(config, role),
                "targetValue": _number(found.target),
            }
        ],
    }
    place = "autoscaling.aibrix.ai"
    annotations = {
        f"{place}/max-scale-up-rate": AIBRIX_RATE,
        f"{place}/max-scale-down-rate": AIBRIX_RATE,
        f"{place}/scale-down-cooldown-window": "300s",
    }
    return f"{place}/v1alpha1", "PodAutoscaler", spec, annotations


def aibrix_target(target: float) -> int:
    """A whole number, since AIBrix hands on whole ones; rounded down, since a target above the slots is never met."""
    return max(1, int(target))


def render_behavior(behavior: BehaviorConfig) -> dict[str, Any]:
    """`spec.behavior` of a HorizontalPodAutoscaler."""
    return {
        direction: {
            "stabilizationWindowSeconds": rules.stabilization_window_seconds,
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": rules.pods, "periodSeconds": rules.period_seconds}],
        }
        for direction, rules in (("scaleUp", behavior.scale_up), ("scaleDown", behavior.scale_down))
    }


def _workload(config: StackConfig, role: Role) -> dict[str, str]:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": names.workload(config.release, role)}


def _target(found: RoleSignal) -> dict[str, str]:
    amount = quantity(found.target)
    return {"type": "AverageValue", "averageValue": amount} if found.is_divided else {"type": "Value", "value": amount}


def quantity(number: float) -> str:
    """A number as Kubernetes writes it back, to the thousandth: `19`, `2400m`."""
    thousandths = max(1, round(number * 1000))
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def _number(number: float) -> str:
    return f"{number:.6g}" if number < 1_000_000 else str(round(number))  # noqa: PLR2004  # no exponents


# --- counts -----------------------------------------------------------------------------------------------------------


def expected_pods(provider: Provider, bounds: tuple[int, int], *, live: int | None, configured: int) -> int:
    """Pods that a role has after the update: what the scaler left it, brought between its bounds; else the configured.

    Args:
        provider: what scales the role.
        bounds: floor and ceiling.
        live: Pods that its Deployment asks for now; None where there is none that stays, or that is not known.
        configured: `modelserver.replicas`.
    """
    if provider == "none":
        return configured
    floor, ceiling = bounds
    return floor if live is None else min(max(live, floor), ceiling)


def refuse_standstill(config: StackConfig, live: Mapping[str, int]) -> tuple[Problem, ...]:
    """Roles that somebody set to 0: there Kubernetes' scaler does nothing until somebody sets them to more again.

    Args:
        config: the configuration.
        live: Pods that each role Deployment which stays asks for now, by its name.
    """
    return tuple(
        Problem(
            key=f"autoscaling.{role}.provider",
            value=config.autoscaling.of(role).provider,
            why=f"Deployment {name} was set to 0 Pods, and there this scaler does nothing, so `pulumi up` would wait "
            "for its floor in vain",
            fix=f"Run `kubectl -n {config.namespace} scale deployment/{name} --replicas={config.bounds(role)[0]}`",
        )
        for role in config.autoscaling.scaled
        if config.autoscaling.of(role).provider in {"hpa", "aibrix"}
        and live.get(name := names.workload(config.release, role)) == 0
    )
