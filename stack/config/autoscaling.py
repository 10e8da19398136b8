"""Block `autoscaling`: who decides how many Pods a role has, between which bounds, and by which signal.

Only shapes are checked here; what bounds and targets mean for one another, and what a scaler can do, is the business of
`stack.rules.autoscaling`. A role without a scaler has the number of Pods that `modelserver.replicas` says.
"""

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, WithJsonSchema

from stack.errors import reject
from stack.scalars import ROLES, Count, DnsSubdomain, NonEmpty, Positive, Role, Strict

Provider = Literal["none", "hpa", "keda", "aibrix"]
Signal = Literal["occupancy", "inFlightTokens", "queueTime"]

OCCUPANCY = 0.6
BACKLOG_SECONDS = 1.5
QUEUE_SECONDS = 1.0
LONGEST_WINDOW = 3600
"""Longest stabilization window that Kubernetes accepts in seconds (API reference, HPAScalingRules)."""
LONGEST_PERIOD = 1800
"""Longest period of a scaling policy that Kubernetes accepts in seconds (API reference, HPAScalingPolicy)."""

Share = Annotated[float, Field(gt=0, le=100)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Ratio = Annotated[float, Field(gt=0, le=1000)]
Window = Annotated[int, Field(ge=0, le=LONGEST_WINDOW)]
Period = Annotated[int, Field(ge=1, le=LONGEST_PERIOD)]


class ScaleUpConfig(Strict):
    """How fast Pods are added."""

    stabilization_window_seconds: Window = Field(
        default=0, description="Seconds over which the lowest recommendation counts. 0: the newest one."
    )
    pods: Positive = Field(default=1, description="Most Pods added in a period.")
    period_seconds: Period = Field(
        default=180, description="Length of that period. What was added has to show in the signal before more is."
    )


class ScaleDownConfig(Strict):
    """How fast Pods are taken away."""

    stabilization_window_seconds: Window = Field(
        default=300, description="Seconds over which the highest recommendation counts, so that a dip takes no Pod."
    )
    pods: Positive = Field(default=1, description="Most Pods taken away in a period.")
    period_seconds: Period = Field(default=300, description="Length of that period.")


class BehaviorConfig(Strict):
    """How fast the number of Pods changes."""

    scale_up: ScaleUpConfig = Field(default_factory=ScaleUpConfig, description="How fast Pods are added.")
    scale_down: ScaleDownConfig = Field(default_factory=ScaleDownConfig, description="How fast Pods are taken away.")


class RoleScalingConfig(Strict):
    """How one role is scaled."""

    provider: Provider = Field(
        default="none",
        description="hpa (Kubernetes' own; needs a metrics adapter), keda (ScaledObject; asks Prometheus), aibrix "
        "(PodAutoscaler with strategy HPA; needs the same adapter), or none: `modelserver.replicas` says it.",
    )
    min_replicas: Count | None = Field(
        default=None,
        description="Floor, at least 1. Default: `modelserver.replicas` of the role. A role that is made anew returns "
        "with so many Pods.",
    )
    max_replicas: Positive | None = Field(
        default=None, description="Ceiling; required with a scaler. It is the brake: devices must exist for it."
    )
    signal: Signal | None = Field(
        default=None,
        description="occupancy (requests that run, against the slots of a Pod), inFlightTokens (prompt tokens that the "
        "endpoint picker has sent and that are not prefilled yet), or queueTime (mean time in the engine's queue). "
        "Default: inFlightTokens for prefill, else occupancy.",
    )
    occupancy: Share | None = Field(
        default=None,
        description="With occupancy: share of a Pod's slots that the scaler aims at. Default: 0.6. Below 0.9, since "
        "more than all slots never run, and a scaler tolerates a tenth more than its target.",
    )
    tokens_per_second: Positive | None = Field(
        default=None,
        description="With inFlightTokens, and required there: prompt tokens that one Pod prefills in a second at its "
        "best, measured on this model and hardware.",
    )
    backlog_seconds: Seconds | None = Field(
        default=None,
        description="With inFlightTokens: seconds of prefill that may be in flight for each Pod. Default: 1.5.",
    )
    queue_seconds: Seconds | None = Field(
        default=None, description="With queueTime: mean seconds in the queue that the scaler aims at. Default: 1."
    )
    metric_name: NonEmpty | None = Field(
        default=None,
        description="Name of the metric as the metrics adapter serves it (hpa, aibrix). Default: "
        "`vllm_num_requests_running` for occupancy, else `<release>_<role>_<signal>` in small letters.",
    )
    behavior: BehaviorConfig | None = Field(
        default=None, description="How fast the number of Pods changes. Default: one Pod at a time (hpa, keda)."
    )


class RatioConfig(Strict):
    """Prefill Pods for each decode Pod."""

    min: Ratio = Field(description="Fewest prefill Pods for each decode Pod.")
    max: Ratio = Field(description="Most prefill Pods for each decode Pod.")


def _server_address(text: str) -> str:
    if not re.fullmatch(r"https?://[!-~]+", text):
        raise reject(
            "is not the URL of a server",
            fix="Write scheme, host and port, such as http://prometheus.monitoring.svc:9090",
        )
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if "@" in parts.netloc:
        raise reject(
            "has credentials in it, and anyone who may read the ScaledObject would read them",
            fix="Leave them out, and name a TriggerAuthentication: triggerAuthentication, authModes",
            hide=True,
        )
    if not host or parts.query or parts.fragment:
        raise reject(
            "is not the URL of a server",
            fix="Write scheme, host and port, such as http://prometheus.monitoring.svc:9090",
        )
    return text


ServerAddress = Annotated[
    str, AfterValidator(_server_address), WithJsonSchema({"type": "string", "pattern": "^https?://"})
]


class PrometheusConfig(Strict):
    """Where KEDA asks."""

    server_address: ServerAddress = Field(
        description="URL of Prometheus or whatever speaks its query API, http or https, without credentials."
    )
    trigger_authentication: DnsSubdomain | None = Field(
        default=None, description="TriggerAuthentication of the namespace, where the server wants one. You make it."
    )
    auth_modes: NonEmpty | None = Field(
        default=None, description="How that one proves itself, as KEDA writes it: `bearer`, `basic`, `tls`."
    )


class AutoscalingConfig(Strict):
    """Who decides how many Pods each role has."""

    prefill: RoleScalingConfig = Field(default_factory=RoleScalingConfig, description="Prefill Pods.")
    decode: RoleScalingConfig = Field(default_factory=RoleScalingConfig, description="Decode Pods.")
    aggregated: RoleScalingConfig = Field(default_factory=RoleScalingConfig, description="Aggregated Pods.")
    ratio: RatioConfig | None = Field(
        default=None,
        description="Bounds of prefill to decode Pods. KEDA holds them by adding Pods to the role that is short; for "
        "the others floors and ceilings are held against them.",
    )
    prometheus: PrometheusConfig | None = Field(default=None, description="With keda, and required there.")

    def of(self, role: Role) -> RoleScalingConfig:
        """How one role is scaled."""
        return {"prefill": self.prefill, "decode": self.decode, "aggregated": self.aggregated}[role]

    @property
    def scaled(self) -> tuple[Role, ...]:
        """Roles that have a scaler, in the fixed order."""
        return tuple(role for role in ROLES if self.of(role).provider != "none")
