"""What has to be there before the stack is: found missing now instead of by Pods that never start.

Of each thing only the cause is told: without the namespace nothing in it is looked for, and without an API nothing of
its kinds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stack.gateway import GATEWAY_API, POOL_GROUP
from stack.guards import references
from stack.guards.finding import GuardFinding, refusal, warning
from stack.guards.volumes import DEFAULT_CLASS, default_class
from stack.storage import block_of
from stack.version import UNKNOWN, minor_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from stack.config.root import StackConfig
    from stack.facts import Object, Surroundings
    from stack.planned import Manifest, StackPlan

OLDEST_SERVER = (1, 30)
"""Where the endpoint picker's preStop sleep works; native sidecars do since 1.29 (KEP-3960, KEP-753)."""
OLDEST_ROUTES = (1, 2)
"""Gateway API in whose standard channel an HTTPRoute has timeouts (GEP-1742)."""
OLDEST_POOLS = (1, 4)
"""Gateway API Inference Extension whose InferencePool has `appProtocol` (its CRDs, v1.3.0 and v1.4.0)."""
BUILT_IN_PRIORITIES = frozenset({"system-cluster-critical", "system-node-critical"})
PROJECTS = {
    GATEWAY_API: "the CRDs of the Gateway API, v1.2 or newer",
    POOL_GROUP: "the CRDs of the Gateway API Inference Extension, v1.4 or newer",
    "networking.istio.io": "Istio",
    "keda.sh": "KEDA 2.18 or newer",
    "autoscaling.aibrix.ai": "AIBrix",
    "monitoring.coreos.com": "the Prometheus Operator",
    "operator.victoriametrics.com": "the VictoriaMetrics operator",
}
"""What brings the kinds of a group."""


def guard_prerequisites(config: StackConfig, plan: StackPlan, surroundings: Surroundings) -> Iterator[GuardFinding]:
    """Everything that is missing or too old."""
    yield from _server(surroundings)
    missing = list(_kinds(config, plan, surroundings))
    yield from missing
    yield from _bundles(config, plan, surroundings)
    yield from _metrics(plan, surroundings)
    has_dra = not any(finding.problem.key == "devices" for finding in missing)
    namespace = list(_namespace(config, surroundings))
    yield from namespace
    yield from _cluster_wide(config, plan, surroundings)
    if has_dra:
        yield from _device_classes(config, plan, surroundings)
    if namespace:  # what is in it follows from that
        return
    yield from _secrets(config, plan, surroundings)
    yield from _storage_classes(config, plan, surroundings)
    if has_dra:
        yield from _claim_templates(config, plan, surroundings)


# --- the API ----------------------------------------------------------------------------------------------------------


def _server(surroundings: Surroundings) -> Iterator[GuardFinding]:
    version = minor_version(surroundings.server_version)
    if UNKNOWN != version < OLDEST_SERVER:
        yield refusal(
            "prerequisites",
            "kubernetes:context",
            surroundings.server_version,
            f"this API server is older than {_dotted(OLDEST_SERVER)} and would silently drop fields that Pods need",
            fix="Upgrade the cluster, or choose the context of another",
        )


def _kinds(config: StackConfig, plan: StackPlan, surroundings: Surroundings) -> Iterator[GuardFinding]:
    for version, kinds in references.kinds(config, plan).items():
        served = surroundings.served.get(version)
        if served is None:
            continue
        for key in sorted(set(kinds.values())):
            lacking = sorted(kind for kind, of in kinds.items() if of == key and kind not in served)
            if lacking:
                yield _missing_kind(config, key, version, lacking, is_served=bool(served), surroundings=surroundings)


def _missing_kind(
    config: StackConfig, key: str, version: str, kinds: list[str], *, is_served: bool, surroundings: Surroundings
) -> GuardFinding:
    group = version.rpartition("/")[0]
    others = (surroundings.groups or {}).get(group, ())
    if is_served:
        has = "is there without it, so it is too old"
    elif others:
        has = f"is there only as {', '.join(others)}, which is too old or too new"
    else:
        has = "is not there"
    if group in PROJECTS:
        fix = f"Install {PROJECTS[group]}; `kubectl api-resources --api-group={group}` shows what there is"
    elif group == "resource.k8s.io":
        fix = "Upgrade the cluster to Kubernetes 1.34 or newer, or take devices with devices.npu.mode: devicePlugin"
    else:
        fix = "Upgrade the cluster; `kubectl api-versions` shows what it has"
    if key in {"gateway.enabled", "router.inferencePool.create", "rollout.protectTopology"}:
        fix += f". Or set {key}: false"
    return refusal(
        "prerequisites",
        key,
        _value_at(config, key),
        f"{_and(kinds)} of {version} {'is' if len(kinds) == 1 else 'are'} needed, and group {group} {has}",
        fix=fix,
    )


def _value_at(config: StackConfig, key: str) -> object:
    """What the operator wrote, or the default; nothing for a whole block."""
    found: object = config
    for part in key.split("."):
        found = getattr(found, re.sub(r"([A-Z])", r"_\1", part).lower())
    return "" if key == "devices" else found


def _and(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _bundles(config: StackConfig, plan: StackPlan, surroundings: Surroundings) -> Iterator[GuardFinding]:
    """CRDs that serve the version, but are from a release in which a field was not there yet."""
    kinds = {planned.kind for planned in plan.objects()}
    for reference, kind, annotation, oldest, key in (
        (references.ROUTES, "HTTPRoute", f"{GATEWAY_API}/bundle-version", OLDEST_ROUTES, "gateway.enabled"),
        (
            references.POOLS,
            "InferencePool",
            f"{POOL_GROUP}/bundle-version",
            OLDEST_POOLS,
            "router.inferencePool.create",
        ),
    ):
        found = surroundings.objects.get(reference)
        if found is None or kind not in kinds:
            continue
        annotations: Mapping[str, str] = found.get("annotations") or {}
        version = re.match(r"v?([0-9]+)\.([0-9]+)\.", annotations.get(annotation, ""))
        is_experimental = annotations.get(f"{GATEWAY_API}/channel") == "experimental"
        if version is not None and (int(version[1]), int(version[2])) < oldest and not is_experimental:
            group = reference.name.partition(".")[2]
            yield refusal(
                "prerequisites",
                key,
                _value_at(config, key),
                f"the CRD of {kind} is of {annotations[annotation]} and lacks a field that is used; it came with "
                f"v{_dotted(oldest)}",
                fix=f"Install {PROJECTS[group]}",
            )


def _metrics(plan: StackPlan, surroundings: Surroundings) -> Iterator[GuardFinding]:
    """Metrics that nobody serves: an adapter may come after the stack whose metrics it needs, so nothing is refused.

    An adapter without any metric yet lists no kinds, so only its group is looked at.
    """
    for version, key in references.metrics(plan).items():
        group = version.rpartition("/")[0]
        if surroundings.served.get(version, True) or (surroundings.groups or {}).get(group, (version,)):
            continue
        scalers = [scaler for scaler in plan.modelserver.scalers if key == f"autoscaling.{scaler.role}.provider"]
        yield warning(
            "prerequisites",
            key,
            scalers[0].provider,
            f"nothing serves {group}, so this scaler finds no metric, and the number of Pods stays as it is",
            fix="Install a metrics adapter, such as prometheus-adapter, with the rule in docs/scaling.md, or use "
            "provider: keda",
        )


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


# --- objects ----------------------------------------------------------------------------------------------------------


def _namespace(config: StackConfig, surroundings: Surroundings) -> Iterator[GuardFinding]:
    reference = references.namespace_of(config)
    if reference not in surroundings.objects:
        return
    found = surroundings.objects[reference]
    if found is None:
        yield refusal(
            "prerequisites",
            "namespace",
            config.namespace,
            "there is no such namespace, and it is never made by the stack, whose volumes would go with it",
            fix=f"Make it: `kubectl create namespace {config.namespace}`, with what belongs in it (Secrets, claims)",
        )
    elif "deletionTimestamp" in found:
        yield refusal(
            "prerequisites",
            "namespace",
            config.namespace,
            "this namespace is being deleted, and nothing can be made in it",
            fix=f"Wait until `kubectl get namespace {config.namespace}` finds it no more, then make it again",
        )


def _cluster_wide(config: StackConfig, plan: StackPlan, surroundings: Surroundings) -> Iterator[GuardFinding]:
    has_namespace = surroundings.objects.get(references.namespace_of(config), {}) is not None
    for reference, use in references.objects(config, plan).items():
        if reference.kind == "PriorityClass" and reference.name in BUILT_IN_PRIORITIES:
            continue
        is_missing = reference in surroundings.objects and surroundings.objects[reference] is None
        if is_missing and (has_namespace or reference.namespace is None):
            where = f" in namespace {reference.namespace}" if reference.namespace is not None else ""
            kubectl = f"kubectl{f' -n {reference.namespace}' if reference.namespace is not None else ''}"
            yield refusal(
                "prerequisites",
                use.key,
                reference.name,
                f"there is no {reference.kind} of this name{where}, and without it the API server takes no Pod",
                fix=f"Make it, or name one of those that `{kubectl} get {reference.kind.lower()}` shows",
                workloads=use.workloads,
                idle="warn",
            )
    if not surroundings.served.get(f"{GATEWAY_API}/v1", True):
        return  # without the API there can be no class
    gateway_class = references.gateway_class(config)
    if (
        gateway_class is not None
        and gateway_class in surroundings.objects
        and surroundings.objects[gateway_class] is None
    ):
        yield warning(
            "prerequisites",
            "gateway.className",
            config.gateway.class_name,
            "there is no GatewayClass of this name, so nothing serves the Gateway until one is there",
            fix="Install the gateway that brings it, or name one of those that `kubectl get gatewayclass` shows",
        )


def _secrets(config: StackConfig, plan: StackPlan, surroundings: Surroundings) -> Iterator[GuardFinding]:
    for name, uses in references.secrets(config, plan).items():
        if surroundings.secrets.get(name, True):
            continue
        first, *others = uses
        also = f" (also named by {', '.join(use.key for use in others)})" if others else ""
        entries = sorted({use.entry for use in uses if use.entry is not None})
        then = (
            "and from a registry that wants a login no image can be pulled"
            if not entries
            else "and no container that takes a variable from it starts"
        )
        kubectl = f"kubectl -n {config.namespace}"
        make = (
            f"`{kubectl} create secret docker-registry {name} ...`"
            if not entries
            else f"`{kubectl} create secret generic {name} {' '.join(f'--from-file={each}=...' for each in entries)}`"
        )
        without = ", or set it to null if the model needs no token" if ".hfTokenSecret." in first.key else ""
        yield refusal(
            "prerequisites",
            first.key,
            name,
            f"there is no Secret of this name in namespace {config.namespace}{also}, {then}",
            fix=f"Make it ({make}){without}",
            workloads=[workload for use in uses for workload in use.workloads],
            idle="warn",
        )


# --- storage ----------------------------------------------------------------------------------------------------------


def _storage_classes(config: StackConfig, plan: StackPlan, surroundings: Surroundings) -> Iterator[GuardFinding]:
    """Of claims that are not there yet, and of each Pod's own."""
    classes, live = surroundings.storage_classes, surroundings.volume_claims
    if classes is None:
        return
    storage = config.storage
    wanted: dict[str, tuple[str | None, str]] = {}
    for volume in plan.volumes:
        name = volume.object.name
        if live is not None and name not in live:
            wanted[f"{block_of(config, volume)}.storageClass"] = (
                volume.object.manifest["spec"].get("storageClassName"),
                f"claim {name}",
            )
    if storage.model_offload.enabled:
        wanted["storage.modelOffload.storageClass"] = (storage.model_offload.storage_class, "every Pod's offload claim")
    for key, (name, claim) in wanted.items():
        yield from _storage_class(key, name, claim, classes)


def _storage_class(key: str, name: str | None, claim: str, classes: Mapping[str, Object]) -> Iterator[GuardFinding]:
    if name is None:
        if default_class(classes) is None:
            yield refusal(
                "prerequisites",
                key,
                "",
                f"{claim} names no class and the cluster has no default one, so it would never get a volume",
                fix=f"Set it to one of the classes there are ({_names(classes)}), or make one the default: "
                f"`kubectl annotate storageclass <name> {DEFAULT_CLASS[0]}=true`",
            )
    elif name not in classes:
        yield refusal(
            "prerequisites",
            key,
            name,
            f"there is no StorageClass of this name, so {claim} would never get a volume",
            fix=f"Set it to one of those there are ({_names(classes)}), or make it",
        )


def _names(found: Iterable[str]) -> str:
    return ", ".join(sorted(found)) or "none"


# --- devices ----------------------------------------------------------------------------------------------------------


def _device_classes(config: StackConfig, plan: StackPlan, surroundings: Surroundings) -> Iterator[GuardFinding]:
    """Classes that a claim template of the stack names."""
    classes = surroundings.device_classes
    template = config.devices.claim_template
    if classes is None or not plan.claims or template is None:
        return
    for index, request in enumerate(template.requests):
        if request.device_class_name not in classes:
            yield _missing_class(
                f"devices.claimTemplate.requests[{index}].deviceClassName",
                request.device_class_name,
                "",
                classes,
                references.claims(plan).get(plan.claims[0].name, frozenset()),
            )


def _missing_class(
    key: str, name: str, who: str, classes: Mapping[str, Object], workloads: Iterable[str]
) -> GuardFinding:
    return refusal(
        "prerequisites",
        key,
        name,
        f"{who}there is no DeviceClass of this name, so no Pod would get a device",
        fix=f"Install the driver that brings it, or name one of those there are ({_names(classes)})",
        workloads=workloads,
        idle="warn",
    )


def _claim_templates(config: StackConfig, plan: StackPlan, surroundings: Surroundings) -> Iterator[GuardFinding]:
    """Templates of the operator, and the classes that they name."""
    managed = {planned.name for planned in plan.claims}
    for name, workloads in references.claims(plan).items():
        if name in managed or name not in surroundings.claim_templates:
            continue
        template = surroundings.claim_templates[name]
        if template is None:
            yield refusal(
                "prerequisites",
                "devices.claimTemplateName",
                name,
                f"there is no ResourceClaimTemplate of this name in namespace {config.namespace}, and Pods that name "
                "it never start",
                fix=f"Make it, name one of those that `kubectl -n {config.namespace} get resourceclaimtemplate` shows, "
                "or let the stack make one: devices.claimTemplate",
                workloads=workloads,
                idle="warn",
            )
        else:
            yield from _classes_of(template, name, workloads, surroundings)


def _classes_of(
    template: Manifest, name: str, workloads: frozenset[str], surroundings: Surroundings
) -> Iterator[GuardFinding]:
    classes = surroundings.device_classes
    for wanted in sorted(references.device_classes(template)) if classes is not None else ():
        if classes is not None and wanted not in classes:
            who = f"ResourceClaimTemplate {name} asks for it, and "
            yield _missing_class("devices.claimTemplateName", wanted, who, classes, workloads)
