"""Which config key put what into a Pod template, so that a restart can be told in the operator's words.

For the model servers of each role, and for the endpoint picker. Every key stands here with its effective value: what
the recipe says where the file says nothing, merged where several places may say it. Such a value stands under the
narrowest key at which the role could be told otherwise (an argument under `modelserver.serveArgs.<role>`, wherever it
was written), so that writing the same value in another place is no change. Keys that reach only other roles, or no Pod
at all (replicas, strategy, sizes of claims, gateway, monitoring), are left out: the map changes exactly when the
template does, as long as the recipes stay the same. Secrets appear by the names of the objects that hold them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stack import labels, names
from stack.epp import DEFAULT_CONFIG, known_proxy_versions, render_proxy
from stack.modelserver import (
    container_security,
    decide_proxy,
    modelserver_resources,
    own_labels,
    pod_security,
)
from stack.names import content_hash
from stack.record import canonical_json
from stack.resources import canonical_resources
from stack.scalars import canonical
from stack.serve import arg_value, default_env, env_value, merge_args, merge_env
from stack.startup import PROBES, probe_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stack.config.root import StackConfig
    from stack.devices import DevicesPlan
    from stack.epp import EppDecisions, EppRendering
    from stack.planned import TopologyPlan
    from stack.recipes.model import Recipe
    from stack.serve import RoleServe
    from stack.topology import Placement

Contribution = tuple[str, Any]


def trace_contributions(
    config: StackConfig,
    recipe: Recipe,
    placement: Placement,
    serve: RoleServe,
    *,
    topology: TopologyPlan,
    devices: DevicesPlan,
) -> dict[str, str]:
    """Config key -> effective value as canonical JSON, sorted by key, for one role workload."""
    found: list[Contribution] = [("release", config.release), ("recipe", config.recipe)]
    found += _placement(placement, topology)
    found += _modelserver(config, recipe, placement, serve)
    found += _labels(config, recipe, placement)
    found += _overrides(config, recipe, placement)
    found += _devices(config, placement, topology, devices)
    found += _storage(config, recipe, placement)
    if placement.role == "decode" and topology.is_disaggregated:
        found += _proxy(config, serve)
    found += _drain(serve)
    found += _tracing(config)
    if config.image_pull_secrets:
        found.append(("imagePullSecrets", list(config.image_pull_secrets)))
    return {key: canonical_json(value) for key, value in sorted(found)}


def _placement(placement: Placement, topology: TopologyPlan) -> Iterator[Contribution]:
    if placement.entry is not None:
        yield f"modelserver.nodePlacement[{placement.entry}].node", placement.node
        # A reassignment of any entry restarts all of them.
        yield "modelserver.nodePlacement", {"generation": topology.generation}


def _modelserver(config: StackConfig, recipe: Recipe, placement: Placement, serve: RoleServe) -> Iterator[Contribution]:
    modelserver, role = config.modelserver, placement.role
    yield "modelserver.model", modelserver.model or recipe.model
    image = modelserver.image
    yield "modelserver.image.repository", image.repository or recipe.image.repository
    if image.digest is not None:
        yield "modelserver.image.digest", image.digest
    else:
        yield "modelserver.image.tag", image.tag or recipe.image.tag
    for flag, value in merge_args(config, recipe, role).items():
        yield f"modelserver.serveArgs.{role}.{flag}", arg_value(value)
    if serve.extra_args:
        yield f"modelserver.extraServeArgs.{role}", list(serve.extra_args)
    implied = default_env(config)
    for name, value in merge_env(config, recipe, role).items():
        if implied.get(name) != value:
            yield f"modelserver.extraServeEnv.{role}.{name}", value
    for probe in PROBES:
        for key, value in probe_numbers(config, recipe, probe).items():
            yield f"modelserver.probes.{probe}.{key}", value
    if (token := modelserver.hf_token_secret) is not None:
        yield "modelserver.hfTokenSecret.name", token.name
        yield "modelserver.hfTokenSecret.key", token.key
    account = modelserver.service_account_name or names.modelserver_service_account(config.release)
    yield "modelserver.serviceAccountName", account


def _labels(config: StackConfig, recipe: Recipe, placement: Placement) -> Iterator[Contribution]:
    overrides = config.modelserver.pod_overrides.of(placement.role)
    place = f"modelserver.podOverrides.{placement.role}"
    for key, value in overrides.labels.items():
        yield f"{place}.labels.{key}", value
    ours = own_labels(config, placement)
    for key, value in config.router.model_servers.match_labels.items():
        if key not in {*ours, labels.TOPOLOGY} and recipe.labels.get(key) != value:
            yield f"router.modelServers.matchLabels.{key}", value
    for key, value in overrides.annotations.items():
        yield f"{place}.annotations.{key}", value


def _overrides(config: StackConfig, recipe: Recipe, placement: Placement) -> Iterator[Contribution]:
    overrides = config.modelserver.pod_overrides.of(placement.role)
    place = f"modelserver.podOverrides.{placement.role}"
    for key, value in overrides.node_selector.items():
        yield f"{place}.nodeSelector.{key}", value
    for amounts, values in modelserver_resources(config, recipe, placement.role).items():
        for name, value in values.items():
            yield f"{place}.resources.{amounts}.{name}", value
    for key, value in pod_security(overrides).items():
        yield f"{place}.podSecurityContext.{key}", value
    for key, value in container_security(overrides).items():
        yield f"{place}.securityContext.{key}", value
    for key, value in (
        ("affinity", dict(overrides.affinity)),
        ("tolerations", [t.model_dump(by_alias=True, exclude_none=True) for t in overrides.tolerations]),
        ("priorityClassName", overrides.priority_class_name),
        ("runtimeClassName", overrides.runtime_class_name),
        ("schedulerName", overrides.scheduler_name),
    ):
        if value:
            yield f"{place}.{key}", value


def _devices(
    config: StackConfig, placement: Placement, topology: TopologyPlan, devices: DevicesPlan
) -> Iterator[Contribution]:
    npu, rdma = config.devices.npu, config.devices.rdma
    if devices.template is not None and config.devices.claim_template is not None:
        yield "devices.claimTemplate", config.devices.claim_template.model_dump(by_alias=True, mode="json")
    elif devices.template_name is not None:
        yield "devices.claimTemplateName", devices.template_name
    yield "devices.npu.mode", npu.mode
    for name, count in devices.extended.items():
        kind = "rdma" if name == devices.nic_resource else "npu"
        yield f"devices.{kind}.resourceName", name
        yield f"devices.{kind}.count", count
    yield "devices.rdma.enabled", rdma.enabled
    if rdma.enabled:
        yield "devices.rdma.mode", rdma.mode
        yield "devices.rdma.discoveryTimeoutSeconds", rdma.discovery_timeout_seconds
    if topology.is_disaggregated:
        side = rdma.side_channel
        yield "devices.rdma.sideChannel.host", side.host or {"fieldRef": {"fieldPath": "status.podIP"}}
        yield f"devices.rdma.sideChannel.basePort.{placement.role}", side.base_port.of(placement.role)


def _storage(config: StackConfig, recipe: Recipe, placement: Placement) -> Iterator[Contribution]:
    cache, model, offload = config.storage.compile_cache, config.storage.model, config.storage.model_offload
    # What a kind means for the Pod: a claim of some name, or none. `pvc` and `existingClaim` are the same to it.
    yield from _volume(
        "storage.compileCache",
        f".{placement.role}",
        kind=cache.kind,
        made=names.compile_cache(config.release, placement.role),
        given=cache.existing_claim.of(placement.role),
        size_limit=cache.size_limit,
    )
    yield "storage.compileCache.mountPath", cache.mount_path
    yield from _volume(
        "storage.model",
        "",
        kind=model.kind,
        made=names.model_cache(config.release),
        given=model.existing_claim,
        size_limit=model.size_limit,
    )
    yield "storage.model.mountPath", model.mount_path
    yield "storage.model.readOnly", model.read_only
    if model.path is not None:
        yield "storage.model.path", model.path
    yield "storage.modelOffload.enabled", offload.enabled
    if offload.enabled:
        yield "storage.modelOffload.size", canonical(offload.size)
        yield "storage.modelOffload.mountPath", offload.mount_path
        if offload.storage_class is not None:
            yield "storage.modelOffload.storageClass", offload.storage_class
    yield "storage.shm.sizeLimit", canonical(config.storage.shm.size_limit or recipe.shm_size)
    yield "storage.tmp.sizeLimit", canonical(config.storage.tmp.size_limit)


def _volume(
    place: str, suffix: str, *, kind: str, made: str, given: str | None, size_limit: str | None
) -> Iterator[Contribution]:
    if kind == "emptyDir":
        yield f"{place}.kind", kind
        if size_limit is not None:
            yield f"{place}.sizeLimit", canonical(size_limit)
    else:
        yield f"{place}.existingClaim{suffix}", given if kind == "existingClaim" else made


def _proxy(config: StackConfig, serve: RoleServe) -> Iterator[Contribution]:
    proxy, place = config.routing.proxy, "routing.proxy"
    decisions = decide_proxy(config, serve)
    rendered = render_proxy(decisions)
    yield f"{place}.image.repository", proxy.image.repository or rendered.image_repository
    if proxy.image.digest is not None:
        yield f"{place}.image.digest", proxy.image.digest
    else:
        yield f"{place}.image.tag", proxy.image.tag or rendered.image_tag
    if proxy.image.digest is not None or (proxy.image.tag or rendered.image_tag) not in known_proxy_versions():
        yield "router.epp.version", decisions.version  # flags are written for this version, whatever the image
    yield f"{place}.port", proxy.port
    yield f"{place}.modelServerPort", proxy.model_server_port
    yield f"{place}.kvConnector", proxy.kv_connector
    yield f"{place}.secure", proxy.secure
    for amounts, values in canonical_resources(proxy.resources).items():
        for name, value in values.items():
            yield f"{place}.resources.{amounts}.{name}", value
    if proxy.extra_args:
        yield f"{place}.extraArgs", list(proxy.extra_args)


def _drain(serve: RoleServe) -> Iterator[Contribution]:
    """The way out as it came to be; a mode that `auto` chose stands here as if it had been written."""
    drain, place = serve.drain, "drain"
    yield f"{place}.mode", drain.mode
    if drain.mode == "off":
        return
    yield f"{place}.shutdownTimeoutSeconds.{serve.role}", drain.timeout
    yield f"{place}.routerDelaySeconds", drain.delay
    yield f"{place}.marginSeconds", drain.margin
    if drain.is_pulled_from:
        yield f"{place}.kvPullSeconds", drain.pull


def _tracing(config: StackConfig) -> Iterator[Contribution]:
    tracing = config.tracing
    yield "tracing.enabled", tracing.enabled
    if tracing.enabled:
        yield "tracing.collector.endpoint", tracing.collector.endpoint
        yield "tracing.collector.protocol", tracing.collector.protocol
        yield "tracing.sampler", tracing.sampler
        yield "tracing.samplerArg", tracing.sampler_arg


# --- endpoint picker --------------------------------------------------------------------------------------------------

ROLES_KEY = "modelserver (roles)"
"""Stands for the keys that together say which roles there are: `modelserver.replicas` and `modelserver.nodePlacement`.
The endpoint picker's plugins follow from it."""


def trace_endpoint_picker(config: StackConfig, decisions: EppDecisions, rendered: EppRendering) -> dict[str, str]:
    """Config key -> effective value as canonical JSON, sorted by key, for the endpoint picker's Pod template.

    Files of the operator's own stand here by a hash of their content: they may be long.

    Args:
        config: the configuration.
        decisions: what the endpoint picker is rendered from.
        rendered: what came of them.
    """
    found: list[Contribution] = [("release", config.release), ("namespace", config.namespace)]
    found += _picker(config, decisions, rendered)
    found += _picker_view(config, decisions)
    found.append(("tracing.enabled", decisions.tracing is not None))
    if decisions.tracing is not None:
        found.append(("tracing.collector.endpoint", decisions.tracing.endpoint))
        found.append(("tracing.sampler", decisions.tracing.sampler))
        found.append(("tracing.samplerArg", decisions.tracing.sampler_arg))
    if config.image_pull_secrets:
        found.append(("imagePullSecrets", list(config.image_pull_secrets)))
    return {key: canonical_json(value) for key, value in sorted(found)}


def _picker(config: StackConfig, decisions: EppDecisions, rendered: EppRendering) -> Iterator[Contribution]:
    epp, place = config.router.epp, "router.epp"
    yield f"{place}.distribution", epp.distribution
    yield f"{place}.version", epp.version
    yield f"{place}.image.repository", epp.image.repository or rendered.image_repository
    if epp.image.digest is not None:
        yield f"{place}.image.digest", epp.image.digest
    else:
        yield f"{place}.image.tag", epp.image.tag or rendered.image_tag
    # With several one leads, and each has to know of it; how many they are is nothing to them.
    yield f"{place}.replicas", 1 if epp.replicas == 1 else "several"
    yield f"{place}.pluginsConfigFile", epp.plugins_config_file
    for name, text in epp.plugins_custom_config.items():
        yield f"{place}.pluginsCustomConfig.{name}", f"content {content_hash(text)}"
    yield f"{place}.extProcPort", epp.ext_proc_port
    yield f"{place}.grpcHealthPort", epp.grpc_health_port
    yield f"{place}.metricsPort", epp.metrics_port
    yield f"{place}.drainSeconds", decisions.drain_seconds
    for amounts, values in canonical_resources(epp.resources).items():
        for name, value in values.items():
            yield f"{place}.resources.{amounts}.{name}", value
    for name, value in epp.env.items():
        yield f"{place}.env.{name}", env_value(value)
    if (token := epp.hf_token_secret) is not None:
        yield f"{place}.hfTokenSecret.name", token.name
        yield f"{place}.hfTokenSecret.key", token.key
    for key, value in (
        ("extraArgs", list(decisions.extra_args)),
        ("affinity", dict(epp.affinity)),
        ("nodeSelector", dict(epp.node_selector)),
        ("tolerations", [t.model_dump(by_alias=True, exclude_none=True) for t in epp.tolerations]),
    ):
        if value:
            yield f"{place}.{key}", value


def _picker_view(config: StackConfig, decisions: EppDecisions) -> Iterator[Contribution]:
    """Which Pods it looks at, and what it takes them for."""
    yield ROLES_KEY, "prefill and decode" if decisions.is_disaggregated else "aggregated"
    if DEFAULT_CONFIG not in decisions.custom_config:
        yield "recipe", {"blockSize": decisions.block_size, "maxModelLen": decisions.max_prefix_tokens}
    yield "router.inferencePool.create", decisions.has_pool
    if not decisions.has_pool:
        for key, value in config.router.model_servers.match_labels.items():
            yield f"router.modelServers.matchLabels.{key}", value
        yield "router.modelServers.targetPorts", list(decisions.target_ports)
