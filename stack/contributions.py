"""Which config key put what into a role's Pod template, so that a restart can be told in the operator's words.

Every key stands here with its effective value: what the recipe says where the file says nothing, merged where several
places may say it. Such a value stands under the narrowest key at which the role could be told otherwise (an argument
under `modelserver.serveArgs.<role>`, wherever it was written), so that writing the same value in another place is no
change. Keys that reach only other roles, or no Pod at all (replicas, strategy, sizes of claims, gateway, monitoring),
are left out: the map changes exactly when the template does, as long as the recipes stay the same. Secrets appear by
the names of the objects that hold them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from stack import labels, names
from stack.epp import known_proxy_versions, render_proxy
from stack.modelserver import (
    container_security,
    decide_proxy,
    modelserver_resources,
    own_labels,
    pod_security,
)
from stack.resources import canonical_resources
from stack.scalars import canonical
from stack.serve import arg_value, default_env, merge_args, merge_env
from stack.startup import PROBES, probe_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stack.config.root import StackConfig
    from stack.devices import DevicesPlan
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
    found += _tracing(config)
    if config.image_pull_secrets:
        found.append(("imagePullSecrets", list(config.image_pull_secrets)))
    return {key: _json(value) for key, value in sorted(found)}


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


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


def _tracing(config: StackConfig) -> Iterator[Contribution]:
    tracing = config.tracing
    yield "tracing.enabled", tracing.enabled
    if tracing.enabled:
        yield "tracing.collector.endpoint", tracing.collector.endpoint
        yield "tracing.collector.protocol", tracing.collector.protocol
        yield "tracing.sampler", tracing.sampler
        yield "tracing.samplerArg", tracing.sampler_arg
