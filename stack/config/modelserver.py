"""Block `modelserver`: the model, its image, how many Pods of which role, and what their engines are told.

Only shapes and relations inside one map are checked here; relations between keys are the business of `stack.rules`.

Decisions where the chart's documents are silent:

* `replicas` has no fixed default in the file: nothing given means the chart's 4 and 4; `nodePlacement` or `aggregated`
  turn the roles that are not given to 0, so that an operator need not write zeros to switch modes.
* Per-role maps also know `aggregated`; they are ignored for roles without Pods.
* `serveArgs` are maps from flag (without dashes) to value: `true` is a bare flag, `false` leaves a flag of the recipe
  out, a map is passed as JSON. `serveArgs.common` overrides the recipe for all roles, `serveArgs.<role>` that.
* `extraServeArgs` are single arguments `--flag=value`, so that duplicates can be told.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, JsonValue, model_validator

from stack.config.env import Environment, SecretName
from stack.config.image import ImageConfig
from stack.config.resources import ResourcesConfig
from stack.config.scheduling import FreeMap, NodeSelector, Toleration
from stack.errors import reject
from stack.scalars import (
    ROLES,
    Count,
    DnsSubdomain,
    ExtraFlag,
    FlagName,
    HttpPath,
    IntOrPercent,
    LabelKey,
    LabelValue,
    NonEmpty,
    Positive,
    Role,
    Strict,
)

CHART_REPLICAS = 4


class ReplicasConfig(Strict):
    """Pods of each role in `replicas` mode; what is not given depends on the rest, see `effective_replicas`."""

    prefill: Count | None = Field(
        default=None, description="Prefill Pods. Default: 4, or 0 with `nodePlacement` or `aggregated`."
    )
    decode: Count | None = Field(
        default=None, description="Decode Pods. Default: 4, or 0 with `nodePlacement` or `aggregated`."
    )
    aggregated: Count | None = Field(
        default=None, description="Pods that do prefill and decode themselves. Excludes the other two. Default: 0."
    )


class PlacementConfig(Strict):
    """One Pod of one role on one node, with a Deployment of its own."""

    role: Role = Field(description="Role of the Pod.")
    node: DnsSubdomain = Field(description="Name of the node, as `kubectl get nodes` shows it.")


class RollingUpdateConfig(Strict):
    """How far a rolling update may go above and below the wanted number of Pods."""

    max_surge: IntOrPercent = Field(
        default=1, description="Pods above the wanted number, as number or percentage (rounded up). Each needs devices."
    )
    max_unavailable: IntOrPercent = Field(
        default=0, description="Pods below the wanted number, as number or percentage (rounded down)."
    )


def _default_rolling_update(data: dict[str, Any]) -> RollingUpdateConfig | None:
    return RollingUpdateConfig() if data.get("type", "RollingUpdate") == "RollingUpdate" else None


class StrategyConfig(Strict):
    """Deployment strategy of every role in `replicas` mode; `nodePlacement` always uses Recreate."""

    type: Literal["RollingUpdate", "Recreate", "auto"] = Field(
        default="RollingUpdate",
        description="RollingUpdate, Recreate (all Pods of a role stop first), or auto: at each change that restarts a "
        "role, by the number of its replicas and the spare devices then.",
    )
    rolling_update: RollingUpdateConfig | None = Field(
        default_factory=_default_rolling_update,
        description="Only with RollingUpdate. Default: maxSurge 1, maxUnavailable 0. Without spare devices: 0 and 1.",
    )
    allow_outage: tuple[Role, ...] = Field(
        default=(),
        description="Only with auto: roles with a single replica that may stop before their new Pod starts, where no "
        "device is spare or the volume is for one Pod. Others are refused then.",
    )

    @model_validator(mode="after")
    def _numbers_fit_the_type(self) -> Self:
        if self.type != "RollingUpdate" and self.rolling_update is not None:
            why = "Kubernetes refuses it with Recreate" if self.type == "Recreate" else "auto chooses the numbers"
            raise reject(
                f"has a meaning for type RollingUpdate only, and {why}",
                fix="Remove `rollingUpdate`, or set type: RollingUpdate",
                field="rollingUpdate",
            )
        if self.type == "RollingUpdate" and self.rolling_update is None:
            raise reject("is empty", fix="Remove the key or fill it", field="rollingUpdate")
        return self

    @model_validator(mode="after")
    def _outages_fit_the_type(self) -> Self:
        if self.allow_outage and self.type != "auto":
            raise reject(
                "has a meaning for type auto only; with another type the strategy itself says what may stop",
                fix="Remove `allowOutage`, or set type: auto",
                field="allowOutage",
            )
        if len(set(self.allow_outage)) < len(self.allow_outage):
            raise reject("names a role twice", fix="Write each role once", field="allowOutage")
        return self


def _serve_arg(value: JsonValue) -> JsonValue:
    match value:
        case None:
            raise reject("is empty", fix="Write true for a flag without value, false to leave the recipe's flag out")
        case list():
            raise reject("is a list, and one flag takes one value here", fix="Join the values as the flag's help shows")
        case _:
            return value


ServeArg = Annotated[JsonValue, AfterValidator(_serve_arg)]
ServeArgs = Mapping[FlagName, ServeArg]


class ServeArgsConfig(Strict):
    """Engine flags over the recipe's: first `common`, then the role's. The place for parallelism."""

    common: ServeArgs = Field(default_factory=dict[str, JsonValue], description="Flags of every role.")
    prefill: ServeArgs = Field(default_factory=dict[str, JsonValue], description="Flags of prefill Pods.")
    decode: ServeArgs = Field(default_factory=dict[str, JsonValue], description="Flags of decode Pods.")
    aggregated: ServeArgs = Field(default_factory=dict[str, JsonValue], description="Flags of aggregated Pods.")

    def of(self, role: Role) -> ServeArgs:
        """The flags written for one role, without the common ones."""
        return {"prefill": self.prefill, "decode": self.decode, "aggregated": self.aggregated}[role]


class ExtraServeArgsConfig(Strict):
    """Arguments appended after the flags above; of duplicates the last wins."""

    prefill: tuple[ExtraFlag, ...] = Field(default=(), description="Arguments of prefill Pods, each `--flag=value`.")
    decode: tuple[ExtraFlag, ...] = Field(default=(), description="Arguments of decode Pods, each `--flag=value`.")
    aggregated: tuple[ExtraFlag, ...] = Field(default=(), description="Arguments of aggregated Pods.")

    def of(self, role: Role) -> tuple[str, ...]:
        """The arguments of one role."""
        return {"prefill": self.prefill, "decode": self.decode, "aggregated": self.aggregated}[role]


class ExtraServeEnvConfig(Strict):
    """Environment of single roles, over `serveEnv`."""

    prefill: Environment = Field(default_factory=dict, description="Environment of prefill Pods.")
    decode: Environment = Field(default_factory=dict, description="Environment of decode Pods.")
    aggregated: Environment = Field(default_factory=dict, description="Environment of aggregated Pods.")

    def of(self, role: Role) -> Environment:
        """The environment of one role."""
        return {"prefill": self.prefill, "decode": self.decode, "aggregated": self.aggregated}[role]


class ProbeConfig(Strict):
    """One probe of the engine; what is left out comes from the recipe."""

    path: HttpPath | None = Field(default=None, description="HTTP path asked.")
    period_seconds: Positive | None = Field(default=None, description="Seconds from one try to the next.")
    failure_threshold: Positive | None = Field(default=None, description="Failed tries in a row until it counts.")
    timeout_seconds: Positive | None = Field(default=None, description="Seconds until a try counts as failed.")
    initial_delay_seconds: Count | None = Field(default=None, description="Seconds before the first try.")


class ProbesConfig(Strict):
    """Startup, readiness and liveness probe. Startup period x threshold is the budget for loading and compiling."""

    startup: ProbeConfig = Field(
        default_factory=ProbeConfig,
        description="Until it succeeds the others wait. Also gives progressDeadlineSeconds.",
    )
    readiness: ProbeConfig = Field(default_factory=ProbeConfig, description="Whether the Pod gets requests.")
    liveness: ProbeConfig = Field(default_factory=ProbeConfig, description="Whether the container is restarted.")


class PodOverrideConfig(Strict):
    """Additions to the Pods of one role."""

    labels: Mapping[LabelKey, LabelValue] = Field(
        default_factory=dict[str, str], description="More Pod labels; those that selectors use cannot be changed."
    )
    annotations: Mapping[LabelKey, str] = Field(default_factory=dict[str, str], description="More Pod annotations.")
    node_selector: NodeSelector = Field(default_factory=dict[str, str], description="Labels a node must have.")
    tolerations: tuple[Toleration, ...] = Field(default=(), description="Taints that are tolerated.")
    affinity: FreeMap = Field(default_factory=dict[str, JsonValue], description="Kubernetes affinity, passed on as is.")
    priority_class_name: DnsSubdomain | None = Field(default=None, description="PriorityClass of the Pods.")
    runtime_class_name: DnsSubdomain | None = Field(default=None, description="RuntimeClass of the Pods.")
    scheduler_name: DnsSubdomain | None = Field(default=None, description="Scheduler that places the Pods.")
    resources: ResourcesConfig | None = Field(
        default=None, description="Requests and limits of this role instead of `modelserver.resources`."
    )
    pod_security_context: FreeMap = Field(
        default_factory=dict[str, JsonValue], description="Merged over the Pod's securityContext, passed on as is."
    )
    security_context: FreeMap = Field(
        default_factory=dict[str, JsonValue],
        description="Merged over the securityContext of engine and RDMA check; privileged ones raise memlock first.",
    )


class PodOverridesConfig(Strict):
    """Additions to the Pods, role by role."""

    prefill: PodOverrideConfig = Field(default_factory=PodOverrideConfig, description="Additions to prefill Pods.")
    decode: PodOverrideConfig = Field(default_factory=PodOverrideConfig, description="Additions to decode Pods.")
    aggregated: PodOverrideConfig = Field(
        default_factory=PodOverrideConfig, description="Additions to aggregated Pods."
    )

    def of(self, role: Role) -> PodOverrideConfig:
        """The additions of one role."""
        return {"prefill": self.prefill, "decode": self.decode, "aggregated": self.aggregated}[role]


class ModelServerConfig(Strict):
    """The model servers."""

    model: NonEmpty | None = Field(
        default=None,
        description="Model to serve. Default: the recipe's; change it only together with the rest of a recipe.",
    )
    image: ImageConfig = Field(
        default_factory=ImageConfig,
        description="Engine image. Default: the recipe's, part by part; a digest drops its tag.",
    )
    replicas: ReplicasConfig = Field(default_factory=ReplicasConfig, description="Pods of each role, placed anywhere.")
    node_placement: tuple[PlacementConfig, ...] = Field(
        default=(),
        description="Exact placement, one Pod an entry. Excludes replicas above 0. A reorder is a reassignment.",
    )
    strategy: StrategyConfig = Field(
        default_factory=StrategyConfig, description="How Pods are exchanged in `replicas` mode."
    )
    serve_args: ServeArgsConfig = Field(
        default_factory=ServeArgsConfig, description="Engine flags over the recipe's, with parallelism."
    )
    serve_env: Environment = Field(
        default_factory=dict, description="Environment of every role over the recipe's. Secrets by reference only."
    )
    extra_serve_args: ExtraServeArgsConfig = Field(
        default_factory=ExtraServeArgsConfig,
        description="Arguments appended after `serveArgs`; parallelism is refused.",
    )
    extra_serve_env: ExtraServeEnvConfig = Field(
        default_factory=ExtraServeEnvConfig, description="Environment of single roles over `serveEnv`."
    )
    remove_serve_args: tuple[FlagName, ...] = Field(
        default=(), description="Flags of the recipe to leave out in every role, without dashes."
    )
    probes: ProbesConfig = Field(default_factory=ProbesConfig, description="Probes of the engine.")
    resources: ResourcesConfig | None = Field(
        default=None, description="Requests and limits of the engine container, as a whole. Default: the recipe's."
    )
    pod_overrides: PodOverridesConfig = Field(
        default_factory=PodOverridesConfig, description="Labels, placement and security of single roles."
    )
    hf_token_secret: SecretName | None = Field(
        default_factory=SecretName, description="Secret with the Hugging Face token; null when the model needs none."
    )
    service_account_name: DnsSubdomain | None = Field(
        default=None, description="Existing ServiceAccount of the Pods. Default: the stack makes one."
    )

    def effective_replicas(self) -> dict[Role, int]:
        """Pods of each role in `replicas` mode.

        Nothing given: the chart's 4 prefill and 4 decode. `nodePlacement` or `aggregated` above 0 turn what is not
        given to 0. Of prefill and decode, one that is given alone leaves the other at the chart's 4.
        """
        given = self.replicas
        rest = 0 if self.node_placement or given.aggregated else CHART_REPLICAS
        counts: dict[Role, int] = {
            "prefill": rest if given.prefill is None else given.prefill,
            "decode": rest if given.decode is None else given.decode,
            "aggregated": given.aggregated or 0,
        }
        return counts

    def pods(self) -> dict[Role, int]:
        """Pods of each role in either mode."""
        if not self.node_placement:
            return self.effective_replicas()
        return {role: sum(entry.role == role for entry in self.node_placement) for role in ROLES}

    def roles(self) -> tuple[Role, ...]:
        """Roles that have Pods, in the fixed order."""
        counts = self.pods()
        return tuple(role for role in ROLES if counts[role])

    def is_disaggregated(self) -> bool:
        """Whether prefill and decode are apart."""
        return "aggregated" not in self.roles()
