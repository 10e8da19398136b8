"""The endpoint picker (EPP) and the InferencePool it picks from.

The EPP's ConfigMap is named by its content, so that a changed plugin configuration rolls the EPP by itself (with the
chart it has to be restarted by hand). Its selector depends on `router.inferencePool.create`, as the chart's does; a
toggle replaces the Deployment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stack import labels, names
from stack.contributions import trace_endpoint_picker
from stack.epp import EppDecisions, EppTracing, render_epp
from stack.epp.render import CONFIG_FOLDER
from stack.gateway import POOL_GROUP
from stack.planned import ObjectPlan
from stack.record import write_record
from stack.resources import canonical_resources
from stack.serve import env_entry, env_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stack.config.root import StackConfig
    from stack.epp import EppRendering
    from stack.recipes.model import Recipe
    from stack.scalars import Role
    from stack.serve import RoleServe

LEAST_DRAIN_SECONDS = 60
"""What an EPP gives its streams, however short the model servers' drain is: the same streams, and no device waits."""
START_SECONDS = 600
"""Longest time from the Pod to a Ready EPP: image pull, start, first view of the model servers."""


def target_ports(config: StackConfig, serves: Mapping[Role, RoleServe]) -> tuple[int, ...]:
    """Ports of the pool: the operator's, else every port any role serves on, in order."""
    given = config.router.model_servers.target_ports
    return given or tuple(sorted({port for serve in serves.values() for port in serve.active_ports}))


def plan_router(
    config: StackConfig, recipe: Recipe, serves: Mapping[Role, RoleServe], *, is_disaggregated: bool
) -> tuple[ObjectPlan, ...]:
    """EPP and pool, in the order of declaration."""
    decisions = decide_epp(config, recipe, serves, is_disaggregated=is_disaggregated)
    rendered = render_epp(decisions)
    record = write_record(trace_endpoint_picker(config, decisions, rendered))
    planned = [
        _config_map(config, rendered),
        *_access(config),
        _service(config),
        _deployment(config, rendered, record),
    ]
    if config.router.inference_pool.create:
        planned.append(_pool(config, serves))
    return tuple(planned)


def decide_epp(
    config: StackConfig, recipe: Recipe, serves: Mapping[Role, RoleServe], *, is_disaggregated: bool
) -> EppDecisions:
    """What the EPP is rendered from."""
    epp, tracing = config.router.epp, config.tracing
    return EppDecisions(
        distribution=epp.distribution,
        version=epp.version,
        pool_name=names.inference_pool(config.release),
        pool_group=POOL_GROUP,
        namespace=config.namespace,
        replicas=epp.replicas,
        has_pool=config.router.inference_pool.create,
        match_labels=pool_selector(config),
        target_ports=target_ports(config, serves),
        model_server_type=config.router.model_servers.type,
        is_disaggregated=is_disaggregated,
        ext_proc_port=epp.ext_proc_port,
        grpc_health_port=epp.grpc_health_port,
        metrics_port=epp.metrics_port,
        drain_seconds=epp_drain_seconds(config, serves),
        config_file=epp.plugins_config_file,
        custom_config=epp.plugins_custom_config,
        tracing=EppTracing(
            endpoint=tracing.collector.endpoint, sampler=tracing.sampler, sampler_arg=tracing.sampler_arg
        )
        if tracing.enabled
        else None,
        block_size=recipe.block_size,
        max_prefix_tokens=recipe.max_model_len,
        extra_args=epp.extra_args,
    )


def epp_drain_seconds(config: StackConfig, serves: Mapping[Role, RoleServe]) -> int:
    """How long streams get to end when the EPP leaves, in seconds.

    What the engines that clients stream from give them, or what the longest one takes where that is known, since no
    device waits for an EPP.
    """
    given = config.router.epp.drain_seconds
    return given if given is not None else max(LEAST_DRAIN_SECONDS, needed_seconds(config, serves))


def needed_seconds(config: StackConfig, serves: Mapping[Role, RoleServe]) -> int:
    """What no limit on the way of a stream should be below: N, or the longest request seen, of roles that answer."""
    needed = [0]
    for role, serve in serves.items():
        if role != "prefill":
            needed += [serve.drain.timeout, config.drain.longest_request_seconds.of(role) or 0]
    return max(needed)


def pool_selector(config: StackConfig) -> dict[str, str]:
    """Labels of the pool's Pods; always with the release, so that a foreign Pod does not join."""
    return {**config.router.model_servers.match_labels, labels.INSTANCE: config.release}


def _config_map(config: StackConfig, rendered: EppRendering) -> ObjectPlan:
    name = names.epp_config_map(config.release, rendered.config)
    return ObjectPlan(
        logical_name=name.removeprefix(f"{config.release}-"),
        is_named_by_content=True,
        manifest={
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _meta(config, name),
            "data": dict(rendered.config),
        },
    )


def _meta(config: StackConfig, name: str, *, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    return labels.object_meta(
        name, release=config.release, namespace=config.namespace, component="epp", annotations=annotations
    )


def _access(config: StackConfig) -> list[ObjectPlan]:
    """ServiceAccount and what it may see: Pods, pools, objectives and rewrites; leases with more than one replica."""
    read = ["get", "watch", "list"]
    account = names.epp_service_account(config.release)
    pods_rules: list[dict[str, Any]] = [{"apiGroups": [""], "resources": ["pods"], "verbs": read}]
    if config.router.epp.replicas > 1:
        pods_rules.append(
            {
                "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"],
                "verbs": ["create", "get", "list", "watch", "update", "patch", "delete"],
            }
        )
        pods_rules.append({"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]})
    objects_rules = [
        {
            "apiGroups": ["inference.networking.x-k8s.io", "llm-d.ai"],
            "resources": ["inferenceobjectives", "inferencemodelrewrites"],
            "verbs": read,
        },
        {"apiGroups": [POOL_GROUP], "resources": ["inferencepools"], "verbs": read},
    ]
    planned = [
        ObjectPlan(
            logical_name="epp-service-account",
            manifest={"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta(config, account)},
        )
    ]
    for logical, name, rules in (
        ("epp-pods", names.epp_pods_role(config.release), pods_rules),
        ("epp-objects", names.epp_objects_role(config.release), objects_rules),
    ):
        planned += _grant(logical, "Role", _meta(config, name), rules, config)
    if config.monitoring.enabled:
        # The EPP always asks for a bearer token, so that monitoring changes nothing in its Pod; it may check one, and
        # somebody is given the right to read, only here.
        planned += _grant(
            "epp-token-review",
            "ClusterRole",
            labels.object_meta(
                names.epp_cluster_role(config.release, config.namespace),
                release=config.release,
                namespace=None,
                component="epp",
            ),
            [
                {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
                {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
            ],
            config,
        )
    return planned


def _grant(
    logical: str, kind: str, meta: dict[str, Any], rules: list[dict[str, Any]], config: StackConfig
) -> list[ObjectPlan]:
    """A Role or ClusterRole and its binding to the EPP's ServiceAccount."""
    api_version = "rbac.authorization.k8s.io/v1"
    return [
        ObjectPlan(
            logical_name=f"{logical}-role",
            manifest={"apiVersion": api_version, "kind": kind, "metadata": meta, "rules": rules},
        ),
        ObjectPlan(
            logical_name=f"{logical}-binding",
            manifest={
                "apiVersion": api_version,
                "kind": f"{kind}Binding",
                "metadata": meta,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": meta["name"]},
                "subjects": [
                    {
                        "kind": "ServiceAccount",
                        "name": names.epp_service_account(config.release),
                        "namespace": config.namespace,
                    }
                ],
            },
        ),
    ]


def epp_selector(config: StackConfig) -> dict[str, str]:
    """Selector of the EPP's Pods, as the chart has it: another one with and without a pool."""
    mode = labels.EPP_WITH_POOL if config.router.inference_pool.create else labels.EPP_WITHOUT_POOL
    return {mode: names.epp(config.release), labels.INSTANCE: config.release}


def _service(config: StackConfig) -> ObjectPlan:
    epp = config.router.epp
    return ObjectPlan(
        logical_name="epp-service",
        manifest={
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _meta(
                config,
                names.epp_service(config.release, config.epp_service_name),
                # The provider would wait for every address to be Ready, and 10 s more after each change.
                annotations=labels.SKIP_AWAIT,
            ),
            "spec": {
                "type": "ClusterIP",
                "selector": epp_selector(config),
                "ports": [
                    {
                        "name": "grpc-ext-proc",
                        "port": epp.ext_proc_port,
                        "targetPort": epp.ext_proc_port,
                        "protocol": "TCP",
                        "appProtocol": "kubernetes.io/h2c",
                    },
                    {
                        "name": "http-metrics",
                        "port": epp.metrics_port,
                        "targetPort": epp.metrics_port,
                        "protocol": "TCP",
                    },
                ],
            },
        },
    )


def _deployment(config: StackConfig, rendered: EppRendering, record: str) -> ObjectPlan:
    epp, drain = config.router.epp, rendered.drain
    values: dict[str, Any] = {}
    if epp.hf_token_secret is not None:
        values["HF_TOKEN"] = {"secretKeyRef": {"name": epp.hf_token_secret.name, "key": epp.hf_token_secret.key}}
    values |= {name: env_value(value) for name, value in epp.env.items()}
    pod: dict[str, Any] = {
        "serviceAccountName": names.epp_service_account(config.release),
        "terminationGracePeriodSeconds": drain.grace,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "epp",
                "image": _image(config, rendered),
                "args": list(rendered.args),
                "env": [
                    # In the rendered order: Kubernetes expands a variable only in those after it.
                    *(dict(entry) for entry in rendered.env),
                    *(env_entry(name, value) for name, value in sorted(values.items())),
                ],
                "ports": [
                    {"name": "grpc", "containerPort": epp.ext_proc_port, "protocol": "TCP"},
                    {"name": "grpc-health", "containerPort": epp.grpc_health_port, "protocol": "TCP"},
                    {"name": "metrics", "containerPort": epp.metrics_port, "protocol": "TCP"},
                ],
                "livenessProbe": {
                    "grpc": {"port": epp.grpc_health_port, "service": rendered.liveness_service},
                    "initialDelaySeconds": 5,
                    "periodSeconds": 10,
                    # It ends the preStop too: an EPP that hangs must not hang on for the whole drain.
                    "terminationGracePeriodSeconds": drain.restart,
                },
                "readinessProbe": {
                    "grpc": {"port": epp.grpc_health_port, "service": rendered.readiness_service},
                    "periodSeconds": 2,
                },
                # Kubernetes' own sleep: the image has no shell.
                "lifecycle": {"preStop": {"sleep": {"seconds": drain.pre_stop}}},
                "resources": canonical_resources(epp.resources),
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": "plugins-config", "mountPath": CONFIG_FOLDER, "readOnly": True}],
            }
        ],
        "volumes": [
            {"name": "plugins-config", "configMap": {"name": names.epp_config_map(config.release, rendered.config)}}
        ],
    }
    if config.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in config.image_pull_secrets]
    pod |= {
        key: value
        for key, value in {
            "affinity": dict(epp.affinity),
            "nodeSelector": dict(epp.node_selector),
            "tolerations": [t.model_dump(by_alias=True, exclude_none=True) for t in epp.tolerations],
        }.items()
        if value
    }
    selector = epp_selector(config)
    # One EPP: the new one is Ready before the old one leaves. Several elect a leader, and a new one would stand by, not
    # Ready, for as long as an old one leads; so all old ones leave first (ADR 0014).
    is_alone = epp.replicas == 1
    return ObjectPlan(
        logical_name="epp",
        manifest={
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": _meta(
                config,
                names.epp(config.release),
                # The program awaits it. The provider would wait for all of several, of which the leader alone is ever
                # Ready (GAIE v1.5.0, cmd/epp/runner/health.go; llm-d likewise), until it gives up.
                annotations={**labels.WAIT_FOR_UID, labels.APPLIED: record},
            ),
            "spec": {
                "replicas": epp.replicas,
                "selector": {"matchLabels": selector},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
                if is_alone
                else {"type": "Recreate"},
                "progressDeadlineSeconds": START_SECONDS if is_alone else START_SECONDS + drain.grace,
                "template": {
                    "metadata": {"labels": {**labels.common_labels(config.release, "epp"), **selector}},
                    "spec": pod,
                },
            },
        },
    )


def _image(config: StackConfig, rendered: EppRendering) -> str:
    image = config.router.epp.image
    repository = image.repository or rendered.image_repository
    return f"{repository}@{image.digest}" if image.digest else f"{repository}:{image.tag or rendered.image_tag}"


def _pool(config: StackConfig, serves: Mapping[Role, RoleServe]) -> ObjectPlan:
    return ObjectPlan(
        logical_name="pool",
        manifest={
            "apiVersion": f"{POOL_GROUP}/v1",
            "kind": "InferencePool",
            "metadata": _meta(config, names.inference_pool(config.release)),
            "spec": {
                "selector": {"matchLabels": pool_selector(config)},
                "appProtocol": config.router.model_servers.protocol,
                "targetPorts": [{"number": port} for port in target_ports(config, serves)],
                "endpointPickerRef": {
                    "name": names.epp_service(config.release, config.epp_service_name),
                    "port": {"number": config.router.epp.ext_proc_port},
                    "failureMode": config.router.inference_pool.failure_mode,
                },
            },
        },
    )
