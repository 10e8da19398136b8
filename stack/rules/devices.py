"""Rules about devices: what the engines use against what a Pod gets, and how a managed claim fits together.

A claim template of the operator's own is only known by name here; it is compared with the cluster later. Until then a
changed parallelism is compared with what the recipe's Pods take.

Decisions: devices that stay idle are refused like devices that are missing, since the reference claims all it has.
`resourceName` of the accelerators defaults to the recipe's; that of the NICs has no default, since it depends on the
RDMA device plugin. Side-channel settings keep their meaning without RDMA: the engines then meet over plain TCP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stack.config.devices import MAX_DEVICES, MAX_REQUESTS
from stack.errors import MISSING, Problem
from stack.rules.cel import syntax_error
from stack.rules.rule import Finding, Rule, Setting, error, rule, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

_TEMPLATE = "devices.claimTemplate"
_LOCAL_HOSTS = frozenset({"0.0.0.0", "127.0.0.1", "::", "::1", "localhost"})  # noqa: S104


def gives_what_engines_use(setting: Setting) -> Iterator[Finding]:
    """Ranks of every role against the accelerators of a Pod."""
    config, accelerator = setting.config, setting.recipe.accelerator
    devices, template = config.devices, config.devices.claim_template
    given = accelerator.per_pod
    if devices.npu.mode == "devicePlugin":
        given = devices.npu.count
    elif template is not None:
        given = sum(r.count for r in template.requests if r.device_class_name == accelerator.device_class_name)
    wrong = {role: ranks for role, ranks in setting.parallelism.items() if ranks.devices != given}
    if not wrong or not given:
        return
    used = " and ".join(f"{role} Pods use {ranks.devices} ({ranks})" for role, ranks in wrong.items())
    needed = " or ".join(sorted({str(ranks.devices) for ranks in wrong.values()}))
    if devices.npu.mode == "devicePlugin":
        yield error(
            "devices.npu.count",
            given,
            f"is not what the engines use: {used}",
            fix=f"Set devices.npu.count to {needed}, or change the parallelism in modelserver.serveArgs",
        )
    elif template is not None:
        yield error(
            f"{_TEMPLATE}.requests",
            f"{given} x {accelerator.device_class_name}",
            f"is not what the engines use: {used}",
            fix=f"Request {needed}, or change the parallelism in modelserver.serveArgs",
        )
    else:
        yield warning(
            "devices.claimTemplateName",
            devices.referenced_template() or "",
            f"must hand out another number than the recipe's {given}: {used}",
            fix=f"Name a template with {needed} x {accelerator.device_class_name}",
        )


def claims_accelerators(setting: Setting) -> Iterator[Finding]:
    """A managed template without the recipe's accelerator, or without any NIC while RDMA is on."""
    devices, accelerator = setting.config.devices, setting.recipe.accelerator
    if devices.claim_template is None:
        return
    classes = {request.device_class_name for request in devices.claim_template.requests}
    shown = ", ".join(sorted(classes))
    if devices.npu.mode == "dra" and accelerator.device_class_name not in classes:
        yield error(
            f"{_TEMPLATE}.requests",
            shown,
            f"has no request of {accelerator.device_class_name}, the accelerator of recipe {setting.recipe.name}",
            fix=f"Add a request of {accelerator.device_class_name}, or choose a recipe for these devices",
        )
    others = classes - {accelerator.device_class_name}
    if devices.rdma.enabled and devices.rdma.mode == "dra" and not others:
        yield error(
            f"{_TEMPLATE}.requests",
            shown,
            "has no request for NICs, and devices.rdma is on in mode dra",
            fix=f"Add a request of {accelerator.rdma_device_class_name}, or set devices.rdma.enabled: false",
        )
    is_unused = not devices.rdma.enabled or devices.rdma.mode != "dra"
    if is_unused and accelerator.rdma_device_class_name in classes:
        yield warning(
            f"{_TEMPLATE}.requests",
            shown,
            f"claims {accelerator.rdma_device_class_name}, and devices.rdma does not use it",
            fix="Remove the request, or set devices.rdma to enabled: true and mode: dra",
        )


def fits_one_claim(setting: Setting) -> Iterator[Finding]:
    """DRA's limits of one claim, and constraints over requests that are there."""
    template = setting.config.devices.claim_template
    if template is None:
        return
    for what, count in (("requests", len(template.requests)), ("constraints", len(template.constraints))):
        if count > MAX_REQUESTS:
            yield error(f"{_TEMPLATE}.{what}", f"{count} entries", f"DRA takes {MAX_REQUESTS}", fix="Use fewer")
    total = sum(request.count for request in template.requests)
    if total > MAX_DEVICES:
        yield error(
            f"{_TEMPLATE}.requests",
            f"{total} devices",
            f"one claim can be allocated {MAX_DEVICES} devices at most",
            fix="Request fewer devices per Pod",
        )
    known = [request.name for request in template.requests]
    for index, constraint in enumerate(template.constraints):
        for position, name in enumerate(constraint.requests):
            if name not in known:
                yield error(
                    f"{_TEMPLATE}.constraints[{index}].requests[{position}]",
                    name,
                    "is the name of no request",
                    fix=f"Use one of {', '.join(known)}",
                )


def selects_with_cel(setting: Setting) -> Iterator[Finding]:
    """Selectors that are no CEL expressions."""
    template = setting.config.devices.claim_template
    for index, request in enumerate(template.requests if template else ()):
        for position, selector in enumerate(request.selectors):
            problem = syntax_error(selector)
            if problem is not None:
                yield error(
                    f"{_TEMPLATE}.requests[{index}].selectors[{position}]",
                    selector,
                    f"is not a CEL expression: it {problem}",
                    fix='Write an expression over device, such as device.attributes["dra.net"].rdma',
                )


def keeps_devices_together(setting: Setting) -> Iterator[Finding]:
    """Accelerators and NICs of one claim without a constraint that joins them."""
    devices, accelerator = setting.config.devices, setting.recipe.accelerator
    template = devices.claim_template
    if template is None or not devices.rdma.enabled or devices.rdma.mode != "dra" or devices.npu.mode != "dra":
        return
    mine = {r.name for r in template.requests if r.device_class_name == accelerator.device_class_name}
    others = {r.name for r in template.requests} - mine
    joined = any(
        not constraint.requests or (mine & set(constraint.requests) and others & set(constraint.requests))
        for constraint in template.constraints
    )
    if mine and others and not joined:
        yield warning(
            f"{_TEMPLATE}.constraints",
            list(template.constraints),
            "does not keep accelerators and NICs on one NUMA node; such Pods start and fail at the first KV transfer",
            fix=f"Add requests: [{', '.join(sorted(mine | others))}], matchAttribute: resource.kubernetes.io/numaNode",
        )


def names_its_resource(setting: Setting) -> Iterator[Finding]:
    """NICs by device plugin without the name of the resource."""
    rdma = setting.config.devices.rdma
    if rdma.enabled and rdma.mode == "devicePlugin" and rdma.resource_name is None:
        yield Finding(
            problem=Problem(
                key="devices.rdma.resourceName",
                value=MISSING,
                why="mode is devicePlugin, and the name depends on the RDMA device plugin",
                fix="Write the resource that your nodes offer, as `kubectl describe node` shows it",
            ),
            is_error=True,
        )


def tells_nics_from_accelerators(setting: Setting) -> Iterator[Finding]:
    """One extended resource for both, so that a Pod would ask for one of the two counts only."""
    devices, accelerator = setting.config.devices, setting.recipe.accelerator
    mine = devices.npu.resource_name or accelerator.resource_name
    nics = devices.rdma
    if nics.enabled and nics.mode == "devicePlugin" and nics.resource_name == mine:
        yield error(
            "devices.rdma.resourceName",
            mine,
            "is the resource of the accelerators, and one resource cannot stand for both",
            fix="Write the resource of the NICs, as `kubectl describe node` shows it",
        )


def has_effect(setting: Setting) -> Iterator[Finding]:
    """Keys of the other mode, or of RDMA while it is off."""
    devices = setting.config.devices
    for kind, block in (("npu", devices.npu), ("rdma", devices.rdma)):
        given = block.model_fields_set
        if block.mode == "dra":
            for name, key in (("count", "count"), ("resource_name", "resourceName")):
                if name in given and (kind == "npu" or devices.rdma.enabled):
                    yield warning(
                        f"devices.{kind}.{key}",
                        getattr(block, name),
                        "has no effect in mode dra, where the claim template decides",
                        fix="Remove it, and write what a Pod gets into the claim template",
                    )
    rdma = devices.rdma
    for name, key in (
        ("mode", "mode"),
        ("count", "count"),
        ("resource_name", "resourceName"),
        ("discovery_timeout_seconds", "discoveryTimeoutSeconds"),
    ):
        if not rdma.enabled and name in rdma.model_fields_set:
            yield warning(
                f"devices.rdma.{key}",
                getattr(rdma, name),
                "has no effect while devices.rdma.enabled is false",
                fix="Remove it, or set devices.rdma.enabled: true",
            )
    if not devices.uses_claims():
        for name, key in (("claim_template", "claimTemplate"), ("claim_template_name", "claimTemplateName")):
            if getattr(devices, name) is not None:
                yield warning(
                    f"devices.{key}",
                    "given",
                    "has no effect, since nothing is claimed in mode devicePlugin",
                    fix="Remove it",
                )


def uses_rdma_where_it_helps(setting: Setting) -> Iterator[Finding]:
    """RDMA without the split, or the split without RDMA."""
    rdma = setting.config.devices.rdma
    if rdma.enabled and setting.roles == ("aggregated",):
        yield warning(
            "devices.rdma.enabled",
            value=True,
            why="aggregated Pods transfer no KV blocks, and still wait for NICs and unlimited memlock",
            fix="Set devices.rdma.enabled: false",
        )
    if not rdma.enabled and {"prefill", "decode"} <= set(setting.roles):
        yield warning(
            "devices.rdma.enabled",
            value=False,
            why="KV blocks travel from prefill to decode over plain TCP, which long prompts will feel",
            fix="Set devices.rdma.enabled: true where nodes have RDMA NICs",
        )


def is_reached_by_peers(setting: Setting) -> Iterator[Finding]:
    """One side-channel host for several Pods, or one that means the Pod itself."""
    host = setting.config.devices.rdma.side_channel.host
    if host is None or not setting.is_disaggregated:
        return
    key = "devices.rdma.sideChannel.host"
    if host in _LOCAL_HOSTS:
        yield error(
            key, host, "is no address that other Pods reach this one at", fix="Remove it: the Pod's own address is used"
        )
    elif sum(setting.pods.values()) > 1:
        yield warning(
            key,
            host,
            "is announced by every Pod as its own, so decode may ask the wrong prefill Pod",
            fix="Remove it: each Pod then announces its own address",
        )


RULES: tuple[Rule, ...] = (
    rule(gives_what_engines_use, "devices", "modelserver", "recipe"),
    rule(claims_accelerators, "devices", "recipe"),
    rule(fits_one_claim, "devices"),
    rule(selects_with_cel, "devices"),
    rule(keeps_devices_together, "devices", "recipe"),
    rule(names_its_resource, "devices"),
    rule(tells_nics_from_accelerators, "devices", "recipe"),
    rule(has_effect, "devices"),
    rule(uses_rdma_where_it_helps, "devices", "modelserver"),
    rule(is_reached_by_peers, "devices", "modelserver"),
)
