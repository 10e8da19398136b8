"""Block `router`: endpoint picker (EPP) and InferencePool. The chart has them under `llm-d-router-gateway.router`.

Whether the EPP of the chosen version knows a plugin is the business of the renderer for that version.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from stack.config.env import Environment, SecretName
from stack.config.image import ImageConfig
from stack.config.resources import ResourcesConfig
from stack.config.scheduling import FreeMap, NodeSelector, Toleration
from stack.errors import reject
from stack.scalars import ExtraFlag, FileName, ImageTag, LabelKey, LabelValue, Port, Positive, Strict

MAX_TARGET_PORTS = 8
MAX_DRAIN_SECONDS = 86_400
"""A day. Kubernetes counts the grace period and a Deployment's deadline, which has to hold it, in 32 bits."""


def _default_resources() -> ResourcesConfig:
    return ResourcesConfig(requests={"cpu": "4", "memory": "8Gi"}, limits={"memory": "16Gi"})


class EppConfig(Strict):
    """The endpoint picker."""

    distribution: Literal["llm-d", "gaie"] = Field(
        default="llm-d", description="llm-d's router, or the Gateway API Inference Extension's own EPP."
    )
    version: ImageTag = Field(default="v0.10.0", description="Version that flags and configuration are rendered for.")
    image: ImageConfig = Field(
        default_factory=ImageConfig, description="Image. Default: the distribution's at `version`."
    )
    replicas: Positive = Field(default=1, description="EPP Pods.")
    resources: ResourcesConfig = Field(
        default_factory=_default_resources,
        description="Requests and limits, as a whole. Requests count in the node budget. Default: the chart's.",
    )
    plugins_config_file: FileName = Field(
        default="default-plugins.yaml",
        description="Configuration file in force: a built-in one, or a key of `pluginsCustomConfig`.",
    )
    plugins_custom_config: Mapping[FileName, str] = Field(
        default_factory=dict[str, str],
        description="More configuration files: name to YAML text. A change rolls the EPP.",
    )
    ext_proc_port: Port = Field(default=9002, description="Port the gateway asks at.")
    grpc_health_port: Port = Field(default=9003, description="Port of the health service.")
    metrics_port: Port = Field(default=9090, description="Port of the metrics.")
    drain_seconds: Annotated[Positive, Field(le=MAX_DRAIN_SECONDS)] | None = Field(
        default=None,
        description="Seconds that running requests get to end when an EPP leaves, since every one of them passes "
        "through it. 1 to 86400. Default: what the model servers that answer clients get (`drain`), at least 60.",
    )
    env: Environment = Field(default_factory=dict, description="More environment. Secrets by reference only.")
    extra_args: tuple[ExtraFlag, ...] = Field(default=(), description="More arguments, each `--flag=value`.")
    hf_token_secret: SecretName | None = Field(
        default_factory=SecretName, description="Secret with the token for tokenizers; null when none is needed."
    )
    affinity: FreeMap = Field(default_factory=dict[str, JsonValue], description="Kubernetes affinity, passed on as is.")
    node_selector: NodeSelector = Field(default_factory=dict[str, str], description="Labels a node must have.")
    tolerations: tuple[Toleration, ...] = Field(default=(), description="Taints that are tolerated.")


class InferencePoolConfig(Strict):
    """The InferencePool, named as the release."""

    create: bool = Field(
        default=True, description="Whether the pool is made. A toggle replaces the EPP, with a gap in routing."
    )
    failure_mode: Literal["FailOpen", "FailClose"] = Field(
        default="FailOpen", description="Without EPP: send anywhere (FailOpen), or refuse requests (FailClose)."
    )


def _target_ports(ports: tuple[int, ...]) -> tuple[int, ...]:
    """InferencePool v1 takes 1 to 8 target ports, each once (Gateway API Inference Extension, InferencePool)."""
    if not 1 <= len(ports) <= MAX_TARGET_PORTS:
        raise reject(
            f"names {len(ports)} ports, an InferencePool has 1 to {MAX_TARGET_PORTS}",
            fix="Remove the key to have the ports computed, or write as many as there are data-parallel ranks",
        )
    if len(set(ports)) < len(ports):
        raise reject("names a port twice", fix="Write each port once")
    return ports


class ModelServersConfig(Strict):
    """What the pool selects."""

    type: Literal["vllm"] = Field(default="vllm", description="Engine whose metrics the EPP reads.")
    protocol: Literal["http"] = Field(default="http", description="Protocol of the model servers.")
    target_ports: Annotated[tuple[Port, ...], AfterValidator(_target_ports)] | None = Field(
        default=None, description="Ports of the pool, 1 to 8. Default: one for each data-parallel rank that has an API."
    )
    match_labels: Mapping[LabelKey, LabelValue] = Field(
        default_factory=lambda: {"llm-d.ai/inference-serving": "true"},
        description="Labels of the pool's Pods; the release is always added, so that foreign Pods do not join.",
    )


class RouterConfig(Strict):
    """Endpoint picker and pool."""

    epp: EppConfig = Field(default_factory=EppConfig, description="The endpoint picker.")
    inference_pool: InferencePoolConfig = Field(default_factory=InferencePoolConfig, description="The pool.")
    model_servers: ModelServersConfig = Field(default_factory=ModelServersConfig, description="What the pool selects.")
