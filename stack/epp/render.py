"""Arguments, environment, files and image of the EPP, from decisions that are already taken.

Decides nothing about the stack: it says what the chosen release can do and writes it down in that release's words.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stack.epp.config import (
    CONFIG_KEYS,
    DEFAULT_CONFIG,
    PAYLOAD_AGNOSTIC_CONFIG,
    config_refusals,
    render_default,
    render_payload_agnostic,
)
from stack.epp.drain import DRAIN_TIMEOUT_FLAG, EppDrain, plan_drain
from stack.epp.refusal import Refusal, UnsupportedError, split_flag, unknown_flags
from stack.epp.releases import EppDistribution, EppRelease, find_epp

CONFIG_FOLDER: Final = "/config"
DEFAULT_EXT_PROC_PORT: Final = 9002
DEFAULT_METRICS_PORT: Final = 9090
_DECIDED_BY: Final[Mapping[str, str]] = {
    "pool-name": "pool_name",
    "pool-namespace": "namespace",
    "endpoint-selector": "match_labels",
    "endpoint-target-ports": "target_ports",
    "config-file": "config_file",
    "ha-enable-leader-election": "replicas",
    "grpc-port": "ext_proc_port",
    "grpc-health-port": "grpc_health_port",
    "metrics-port": "metrics_port",
    "tracing": "tracing",
    DRAIN_TIMEOUT_FLAG: "drain_seconds",
}
"""Flags that no operator writes, whether or not they are passed, and the decision that each follows from."""


@dataclass(frozen=True, kw_only=True)
class EppTracing:
    """Where the EPP's traces go and how many of them."""

    endpoint: str
    sampler: str
    sampler_arg: str


@dataclass(frozen=True, kw_only=True)
class EppDecisions:
    """Everything about one EPP that is decided before it is rendered.

    `block_size` and `max_prefix_tokens` are in tokens. `has_pool` false serves Pods by `match_labels` and
    `target_ports` instead of an InferencePool. `drain_seconds` is the time that streams get to end when the EPP leaves.
    `custom_config` are files of the operator's own by name; one with the name of a built-in file takes its place.
    """

    pool_name: str
    namespace: str
    is_disaggregated: bool
    block_size: int
    max_prefix_tokens: int
    distribution: EppDistribution = "llm-d"
    version: str = "v0.10.0"
    replicas: int = 1
    pool_group: str = "inference.networking.k8s.io"
    has_pool: bool = True
    match_labels: Mapping[str, str] = field(default_factory=dict[str, str])
    target_ports: tuple[int, ...] = ()
    model_server_type: str = "vllm"
    ext_proc_port: int = DEFAULT_EXT_PROC_PORT
    grpc_health_port: int = 9003
    metrics_port: int = DEFAULT_METRICS_PORT
    config_file: str = DEFAULT_CONFIG
    custom_config: Mapping[str, str] = field(default_factory=dict[str, str])
    tracing: EppTracing | None = None
    drain_seconds: int = 60
    extra_args: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EppRendering:
    """What one EPP's objects are made of.

    `config` is the data of its ConfigMap, mounted at `CONFIG_FOLDER`. `env` are entries of a container's `env` in
    Kubernetes' words. The two health services are names to ask for at the gRPC health port.
    """

    args: tuple[str, ...]
    config: Mapping[str, str]
    env: tuple[Mapping[str, Any], ...]
    image_repository: str
    image_tag: str
    liveness_service: str
    readiness_service: str
    drain: EppDrain


def epp_refusals(decisions: EppDecisions) -> tuple[Refusal, ...]:
    """Everything in the decisions that the chosen release cannot do; nothing if it can be rendered."""
    release = find_epp(decisions.distribution, decisions.version)
    if isinstance(release, Refusal):
        return (release,)
    return tuple(_refusals(decisions, release))


def render_epp(decisions: EppDecisions) -> EppRendering:
    """Write the decisions down for the chosen release.

    Raises:
        UnsupportedError: with every refusal of `epp_refusals`, if there is one.
    """
    release = find_epp(decisions.distribution, decisions.version)
    if isinstance(release, Refusal):
        raise UnsupportedError([release])
    if refusals := tuple(_refusals(decisions, release)):
        raise UnsupportedError(refusals)
    elects = decisions.replicas > 1
    return EppRendering(
        args=(*_own_args(decisions, release), *decisions.extra_args),
        config=_config(decisions, release),
        env=tuple(_env(decisions, release)),
        image_repository=release.image_repository,
        image_tag=release.version,
        # With leader election a standby is alive but not ready, so the two are asked for apart.
        liveness_service="liveness" if elects else "inference-extension",
        readiness_service="readiness" if elects else "inference-extension",
        drain=plan_drain(decisions.drain_seconds, release),
    )


def _refusals(decisions: EppDecisions, release: EppRelease) -> Iterator[Refusal]:
    if decisions.is_disaggregated and not release.can_disaggregate:
        yield Refusal(
            field="is_disaggregated",
            value="true",
            why=f"{release.title} tells no prefill from decode Pods: it has no role filters, no filter by label at all "
            "and no handler that runs a second scheduling profile and names a prefill Pod in the request",
            fix="Use distribution llm-d, or serve aggregated",
        )
    if not decisions.has_pool and not (decisions.match_labels and decisions.target_ports):
        yield Refusal(
            field="has_pool",
            value="false",
            why="without an InferencePool the EPP finds Pods by labels and needs 1 to 8 target ports",
            fix="Give it match labels and target ports",
        )
    if decisions.config_file not in {*CONFIG_KEYS, *decisions.custom_config}:
        yield Refusal(
            field="config_file",
            value=decisions.config_file,
            why="is none of the EPP's files, so it would not start",
            fix=f"Name one of {', '.join(sorted({*CONFIG_KEYS, *decisions.custom_config}))}",
        )
    elif (text := decisions.custom_config.get(decisions.config_file)) is not None:
        allows = _is_on(decisions.extra_args, "allow-experimental-plugins")
        yield from config_refusals(release, decisions.config_file, text, allows_experimental=allows)
    decided = {split_flag(own) for own in _own_args(decisions, release)} | _DECIDED_BY.keys()
    yield from unknown_flags(decisions.extra_args, release.flags | decided, field="extra_args", release=release.title)
    for argument in decisions.extra_args:
        if (flag := split_flag(argument)) in decided:
            yield Refusal(
                field="extra_args",
                value=argument,
                why="is an argument that follows from the rest of the configuration",
                fix="Take it out and set what it follows from",
                follows_from=_DECIDED_BY.get(flag),
            )


def _is_on(arguments: tuple[str, ...], flag: str) -> bool:
    return any(argument in {f"--{flag}", f"--{flag}=true"} for argument in arguments)


def _own_args(decisions: EppDecisions, release: EppRelease) -> Iterator[str]:
    """One argument per flag, `--flag=value`: a boolean after a space would be read as something else."""
    if decisions.has_pool:
        yield f"--pool-name={decisions.pool_name}"
        yield f"--pool-namespace={decisions.namespace}"
        yield f"--pool-group={decisions.pool_group}"
    else:
        yield f"--pool-namespace={decisions.namespace}"
        yield "--endpoint-selector=" + ",".join(f"{k}={v}" for k, v in sorted(decisions.match_labels.items()))
        yield "--endpoint-target-ports=" + ",".join(map(str, decisions.target_ports))
    yield "--zap-encoder=json"
    yield f"--config-file={CONFIG_FOLDER}/{decisions.config_file}"
    if decisions.replicas > 1:
        yield "--ha-enable-leader-election=true"
    if decisions.ext_proc_port != DEFAULT_EXT_PROC_PORT:
        yield f"--grpc-port={decisions.ext_proc_port}"
    yield f"--grpc-health-port={decisions.grpc_health_port}"
    if decisions.metrics_port != DEFAULT_METRICS_PORT:
        yield f"--metrics-port={decisions.metrics_port}"
    yield f"--tracing={'true' if decisions.tracing else 'false'}"  # on by default in every release
    hand_over = plan_drain(decisions.drain_seconds, release).hand_over
    if hand_over is not None:
        yield f"--{DRAIN_TIMEOUT_FLAG}={hand_over}s"


def _config(decisions: EppDecisions, release: EppRelease) -> dict[str, str]:
    files = {
        DEFAULT_CONFIG: render_default(
            release,
            is_disaggregated=decisions.is_disaggregated,
            block_size=decisions.block_size,
            max_prefix_tokens=decisions.max_prefix_tokens,
            model_server_type=decisions.model_server_type,
        ),
        PAYLOAD_AGNOSTIC_CONFIG: render_payload_agnostic(release, is_disaggregated=decisions.is_disaggregated),
        **decisions.custom_config,
    }
    return dict(sorted(files.items()))


def _env(decisions: EppDecisions, release: EppRelease) -> Iterator[Mapping[str, Any]]:
    yield _from_field("NAMESPACE", "metadata.namespace")
    yield _from_field("POD_NAME", "metadata.name")
    if (tracing := decisions.tracing) is None:
        return
    yield {"name": "OTEL_SERVICE_NAME", "value": release.service_name}
    yield {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": tracing.endpoint}
    yield {"name": "OTEL_TRACES_EXPORTER", "value": "otlp"}
    yield _from_field("OTEL_RESOURCE_ATTRIBUTES_NODE_NAME", "spec.nodeName")
    yield _from_field("OTEL_RESOURCE_ATTRIBUTES_POD_NAME", "metadata.name")
    # Kubernetes expands $(NAME) only for variables that stand before it.
    yield {
        "name": "OTEL_RESOURCE_ATTRIBUTES",
        "value": "k8s.namespace.name=$(NAMESPACE),k8s.node.name=$(OTEL_RESOURCE_ATTRIBUTES_NODE_NAME),"
        "k8s.pod.name=$(OTEL_RESOURCE_ATTRIBUTES_POD_NAME)",
    }
    yield {"name": "OTEL_TRACES_SAMPLER", "value": tracing.sampler}
    yield {"name": "OTEL_TRACES_SAMPLER_ARG", "value": tracing.sampler_arg}


def _from_field(name: str, path: str) -> Mapping[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
