"""The configuration in force: what was written, completed by recipe, releases and defaults.

It is the counterpart of `helm get values --all`, and may be written into a stack file again: it is accepted and gives
the same plan. So what would change its meaning when written is left as it was: the ServiceAccount that the stack makes
(a named one is the operator's), and keys without effect, about which warnings speak. Secrets appear by name only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stack import names
from stack.epp import Refusal, find_epp, find_proxy
from stack.gateway import gateway_name
from stack.limits import request_timeout
from stack.modelserver import decide_proxy
from stack.router import epp_drain_seconds, needed_seconds, target_ports
from stack.rules.storage import FIELDS_OF_KIND
from stack.scalars import ROLES
from stack.serve import given_args, merge_env
from stack.startup import PROBES, probe_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from stack.config.devices import NpuConfig, RdmaConfig
    from stack.config.image import ImageConfig
    from stack.config.root import StackConfig
    from stack.config.storage import CompileCacheConfig, ModelVolumeConfig
    from stack.recipes.model import Recipe
    from stack.scalars import Role
    from stack.serve import RoleServe

Block = dict[str, Any]


def apply_defaults(config: StackConfig, recipe: Recipe, serves: Mapping[Role, RoleServe]) -> dict[str, Any]:
    """Every block of the stack file with its effective values; the context, which is no block, is left out.

    Args:
        config: a configuration that every rule accepts.
        recipe: the recipe it names.
        serves: how each role with Pods serves.
    """
    blocks = _written(config)
    del blocks["context"]
    return blocks | {
        "modelserver": _modelserver(config, recipe, serves),
        "devices": _devices(config, recipe),
        "storage": _storage(config, recipe),
        "routing": _routing(config, serves),
        "gateway": _gateway(config, serves),
        "drain": _drain(config, serves),
        "router": _router(config, serves),
        "monitoring": _monitoring(config),
        "eppServiceName": names.epp_service(config.release, config.epp_service_name),
    }


def _written(model: BaseModel, *, but: set[str] | None = None) -> Block:
    """A block with the model's defaults, without what has none; `but` names fields that count only when written."""
    silent = (but or set()) - model.model_fields_set
    return model.model_dump(by_alias=True, mode="json", exclude_none=True, exclude=silent)


def _only_written(model: BaseModel) -> Block:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True, exclude_unset=True)


def _image(image: ImageConfig, repository: str, tag: str) -> Block:
    pinned = {"digest": image.digest} if image.digest else {"tag": image.tag or tag}
    return {"repository": image.repository or repository, **pinned}


def _modelserver(config: StackConfig, recipe: Recipe, serves: Mapping[Role, RoleServe]) -> Block:
    modelserver = config.modelserver
    block = _written(modelserver, but={"strategy"} if modelserver.node_placement else None)
    arguments, environment = block["serveArgs"], block["extraServeEnv"]
    for role in serves:
        # With `false`, which leaves a flag of the recipe out.
        arguments[role] = dict(sorted(given_args(config, recipe, role).items()))
        environment[role] = dict(sorted(merge_env(config, recipe, role).items()))
    overrides = {role: _only_written(modelserver.pod_overrides.of(role)) for role in ROLES}
    return block | {
        "model": modelserver.model or recipe.model,
        "image": _image(modelserver.image, recipe.image.repository, recipe.image.tag),
        "replicas": dict(modelserver.effective_replicas()),
        "probes": {probe: probe_numbers(config, recipe, probe) for probe in PROBES},
        "resources": _written(modelserver.resources or recipe.resources),
        "podOverrides": {role: override for role, override in overrides.items() if override},
        # Null means none; left out it would mean the default.
        "hfTokenSecret": None if modelserver.hf_token_secret is None else _written(modelserver.hf_token_secret),
    }


def _devices(config: StackConfig, recipe: Recipe) -> Block:
    devices = config.devices
    block = _written(devices) | {"npu": _by_mode(devices.npu), "rdma": _by_mode(devices.rdma)}
    if devices.npu.mode == "devicePlugin":
        block["npu"]["resourceName"] = devices.npu.resource_name or recipe.accelerator.resource_name
    if not devices.rdma.enabled:
        block["rdma"] = _only_written(devices.rdma) | {"enabled": False}
    if (template := devices.referenced_template()) is not None:
        block["claimTemplateName"] = template
    return block


def _by_mode(kind: NpuConfig | RdmaConfig) -> Block:
    return _written(kind, but={"count", "resource_name"} if kind.mode == "dra" else None)


def _storage(config: StackConfig, recipe: Recipe) -> Block:
    storage = config.storage
    return _written(storage) | {
        "compileCache": _by_kind(storage.compile_cache),
        "model": _by_kind(storage.model),
        "shm": {"sizeLimit": storage.shm.size_limit or recipe.shm_size},
    }


def _by_kind(volume: CompileCacheConfig | ModelVolumeConfig) -> Block:
    of_others = {name for kind, fields in FIELDS_OF_KIND.items() if kind != volume.kind for name in fields}
    return _written(volume, but=of_others)


def _routing(config: StackConfig, serves: Mapping[Role, RoleServe]) -> Block:
    block = _written(config.routing)
    if "decode" in serves:
        release = find_proxy(decide_proxy(config, serves["decode"]).version)
        if not isinstance(release, Refusal):
            block["proxy"]["image"] = _image(config.routing.proxy.image, release.image_repository, release.version)
    return block


def _gateway(config: StackConfig, serves: Mapping[Role, RoleServe]) -> Block:
    if not config.gateway.enabled:
        return _only_written(config.gateway) | {"enabled": False}
    limit = request_timeout(config)
    is_short = limit is not None and limit.seconds is not None and limit.seconds < needed_seconds(config, serves)
    # Too short by default is warned of, and refused when written.
    return _written(config.gateway, but={"request_timeout"} if is_short else None) | {"name": gateway_name(config)}


def _drain(config: StackConfig, serves: Mapping[Role, RoleServe]) -> Block:
    block = _written(config.drain)
    for role, serve in serves.items():
        if serve.drain.mode != "off":
            block["shutdownTimeoutSeconds"][role] = serve.drain.timeout
        if serve.drain.is_pulled_from:
            block["kvPullSeconds"] = serve.drain.pull
    return block


def _router(config: StackConfig, serves: Mapping[Role, RoleServe]) -> Block:
    block, epp = _written(config.router), config.router.epp
    release = find_epp(epp.distribution, epp.version)
    if not isinstance(release, Refusal):
        block["epp"]["image"] = _image(epp.image, release.image_repository, release.version)
    block["epp"]["hfTokenSecret"] = None if epp.hf_token_secret is None else _written(epp.hf_token_secret)
    block["epp"]["drainSeconds"] = epp_drain_seconds(config, serves)
    block["modelServers"]["targetPorts"] = list(target_ports(config, serves))
    return block


def _monitoring(config: StackConfig) -> Block:
    block = _written(config.monitoring)
    if config.monitoring.provider == "prometheus-operator":
        block["tokenSecret"] = config.monitoring.token_secret or names.epp_metrics_token(config.release)
    return block
