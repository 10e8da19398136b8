"""What a stack refers to by name without making it, under which key, and for which workloads.

What Pods refer to is read from their templates, so that nothing is forgotten; the key is the one under which the
operator wrote it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stack.config.env import FromSecret
from stack.facts import Reference
from stack.gateway import GATEWAY_API, POOL_GROUP
from stack.protection import API_VERSION as ADMISSION
from stack.rollout import devices

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from stack.config.root import StackConfig
    from stack.planned import Manifest, ObjectPlan, StackPlan, WorkloadPlan

DRA = "resource.k8s.io/v1"
EPP = "epp"
CUSTOM_METRICS, EXTERNAL_METRICS = "custom.metrics.k8s.io/v1beta2", "external.metrics.k8s.io/v1beta1"
"""The newest versions; which of them an adapter serves matters to nobody."""
BUILT_IN = frozenset({"v1", "apps/v1", "autoscaling/v2", "policy/v1", "rbac.authorization.k8s.io/v1"})
"""API versions that every Kubernetes serves."""


@dataclass(frozen=True, kw_only=True)
class Use:
    """A key that names something, and the Deployments whose Pods need it.

    Attributes:
        entry: of a Secret, the key in it that is used; None for a pull Secret and for what is no Secret.
    """

    key: str
    workloads: frozenset[str]
    entry: str | None = None


def deployments(plan: StackPlan) -> dict[str, tuple[str, Manifest]]:
    """Every Deployment of the plan by name, with its part: a role, or `epp`; with its Pods, whoever counts them."""
    found = {workload.object.name: (workload.role, workload.counted) for workload in plan.modelserver.workloads}
    return found | {planned.name: (EPP, planned.manifest) for planned in plan.router if planned.kind == "Deployment"}


def key_of_count(workload: WorkloadPlan) -> str:
    """The key that says how many Pods a workload has: of a scaled one the bound that lowers it."""
    if workload.floor is None:
        return f"modelserver.replicas.{workload.role}"
    bound = "minReplicas" if workload.replicas <= workload.floor else "maxReplicas"
    return f"autoscaling.{workload.role}.{bound}"


def key_of_counts(plan: StackPlan, names: Collection[str]) -> str:
    """The keys that say how many Pods some Deployments have together.

    Args:
        plan: the plan.
        names: of Deployments; what is no role has no say.
    """
    counted = [workload for workload in plan.modelserver.workloads if workload.object.name in names]
    if not any(workload.is_scaled for workload in counted):
        return "modelserver.replicas"
    return ", ".join(dict.fromkeys(map(key_of_count, counted)))


def pod_spec(manifest: Manifest) -> Manifest:
    """Spec of a Deployment's Pods."""
    return manifest["spec"]["template"]["spec"]


def made(plan: StackPlan) -> dict[Reference, ObjectPlan]:
    """Every planned object but the volumes, which are judged by themselves."""
    volumes = {volume.object.name for volume in plan.volumes}
    return {
        Reference(
            api_version=planned.manifest["apiVersion"],
            kind=planned.kind,
            name=planned.name,
            namespace=planned.manifest["metadata"].get("namespace"),
        ): planned
        for planned in plan.objects()
        if not (planned.kind == "PersistentVolumeClaim" and planned.name in volumes)
    }


# --- Secrets ----------------------------------------------------------------------------------------------------------


def secrets(config: StackConfig, plan: StackPlan) -> dict[str, tuple[Use, ...]]:
    """Secrets that Pods name, and for each the keys it is written under."""
    made = {planned.name for planned in plan.objects() if planned.kind == "Secret"}
    found: defaultdict[str, dict[str, Use]] = defaultdict(dict)
    for name, (part, manifest) in deployments(plan).items():
        for secret, use in _secrets_of(config, name, part, pod_spec(manifest)):
            if secret not in made:
                known = found[secret].get(use.key, use)
                found[secret][use.key] = replace(known, workloads=known.workloads | use.workloads)
    return {secret: tuple(uses.values()) for secret, uses in found.items()}


def _secrets_of(config: StackConfig, name: str, part: str, pod: Manifest) -> Iterator[tuple[str, Use]]:
    workloads = frozenset({name})
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        for entry in container.get("env", ()):
            source = entry.get("valueFrom", {}).get("secretKeyRef")
            if source is not None:
                key = _key_of_variable(config, part, entry["name"], source["name"])
                yield source["name"], Use(key=key, workloads=workloads, entry=source["key"])
    pull = [secret["name"] for secret in pod.get("imagePullSecrets", ())]
    for index, secret in enumerate(pull):
        yield secret, Use(key=f"imagePullSecrets[{index}]", workloads=workloads)


def _key_of_variable(config: StackConfig, part: str, variable: str, secret: str) -> str:
    server, epp = config.modelserver, config.router.epp
    places: list[tuple[str, Mapping[str, Any]]] = [("router.epp.env", epp.env)]
    token = epp.hf_token_secret
    where = "router.epp"
    if part != EPP:
        own: Mapping[str, Any] = getattr(server.extra_serve_env, part)
        places = [(f"modelserver.extraServeEnv.{part}", own), ("modelserver.serveEnv", server.serve_env)]
        token = server.hf_token_secret
        where = "modelserver"
    for place, variables in places:
        if isinstance(variables.get(variable), FromSecret):
            return f"{place}.{variable}.secretKeyRef.name"
    assert token is not None  # noqa: S101  # nothing else fills a variable from a Secret
    assert token.name == secret  # noqa: S101
    return f"{where}.hfTokenSecret.name"


# --- other objects ----------------------------------------------------------------------------------------------------


def namespace_of(config: StackConfig) -> Reference:
    """The namespace, which is never made."""
    return Reference(api_version="v1", kind="Namespace", name=config.namespace)


def objects(config: StackConfig, plan: StackPlan) -> dict[Reference, Use]:
    """Objects without which the API server takes no Pod, by what names them."""
    found: dict[Reference, Use] = {}
    for name, (part, manifest) in deployments(plan).items():
        if part == EPP:
            continue
        pod = pod_spec(manifest)
        overrides = f"modelserver.podOverrides.{part}"
        named: list[tuple[str, str, str | None, str, str | None]] = [
            (
                "scheduling.k8s.io/v1",
                "PriorityClass",
                pod.get("priorityClassName"),
                f"{overrides}.priorityClassName",
                None,
            ),
            ("node.k8s.io/v1", "RuntimeClass", pod.get("runtimeClassName"), f"{overrides}.runtimeClassName", None),
            (
                "v1",
                "ServiceAccount",
                config.modelserver.service_account_name,
                "modelserver.serviceAccountName",
                config.namespace,
            ),
        ]
        for api_version, kind, given, key, namespace in named:
            if given:
                reference = Reference(api_version=api_version, kind=kind, name=given, namespace=namespace)
                known = found.get(reference, Use(key=key, workloads=frozenset()))
                found[reference] = Use(key=known.key, workloads=known.workloads | {name})
    return found


def gateway_class(config: StackConfig) -> Reference | None:
    """The class of the Gateway; None without a Gateway."""
    if not config.gateway.enabled:
        return None
    return Reference(api_version=f"{GATEWAY_API}/v1", kind="GatewayClass", name=config.gateway.class_name)


def crd(kind_plural: str, group: str) -> Reference:
    """The CustomResourceDefinition of a kind."""
    return Reference(
        api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition", name=f"{kind_plural}.{group}"
    )


ROUTES, POOLS = crd("httproutes", GATEWAY_API), crd("inferencepools", POOL_GROUP)


# --- API versions -----------------------------------------------------------------------------------------------------


def kinds(config: StackConfig, plan: StackPlan) -> dict[str, dict[str, str]]:
    """API versions that not every cluster serves: `group/version` -> kind -> the key that asks for it."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for planned in plan.objects():
        version = planned.manifest["apiVersion"]
        if version not in BUILT_IN:
            found[version][planned.kind] = _key_of_kind(config, version)
    if claims(plan):
        found[DRA]["ResourceClaimTemplate"] = "devices"
    return dict(found)


KEYS_OF_GROUPS: Mapping[str, str] = {
    "networking.istio.io": "gateway.className",
    "keda.sh": "autoscaling",
    "autoscaling.aibrix.ai": "autoscaling",
    GATEWAY_API: "gateway.enabled",
    POOL_GROUP: "router.inferencePool.create",
    ADMISSION.rpartition("/")[0]: "rollout.protectTopology",
    "resource.k8s.io": "devices",
}
"""The key that has objects of an API group made. What is in none of these is for `monitoring`."""


def metrics(plan: StackPlan) -> dict[str, str]:
    """APIs of metrics that Kubernetes' own scaler asks, by whomever it was made: `group/version` -> the key.

    KEDA brings its own. Others have the signal from an adapter, as one of each Pod or as one of the role.
    """
    return {
        CUSTOM_METRICS if scaler.signal == "occupancy" else EXTERNAL_METRICS: f"autoscaling.{scaler.role}.provider"
        for scaler in reversed(plan.modelserver.scalers)
        if scaler.provider in {"hpa", "aibrix"}
    }


def _key_of_kind(config: StackConfig, version: str) -> str:
    key = KEYS_OF_GROUPS.get(version.rpartition("/")[0])
    assert key is not None or config.monitoring.enabled  # noqa: S101  # nothing else is of a group of its own
    return key or "monitoring.provider"


# --- devices ----------------------------------------------------------------------------------------------------------


def claims(plan: StackPlan) -> dict[str, frozenset[str]]:
    """Claim templates that Pods name, and the workloads."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name, (_, manifest) in deployments(plan).items():
        for claim in pod_spec(manifest).get("resourceClaims", ()):
            found[claim["resourceClaimTemplateName"]].add(name)
    return {template: frozenset(names) for template, names in found.items()}


def extended_resources(pod: Manifest) -> frozenset[str]:
    """Extended resources that a Pod asks for: those with a domain that is not Kubernetes' own."""
    return frozenset(name for name in devices.extended_resources(pod) if not name.startswith("kubernetes.io/"))


def device_classes(template: Manifest) -> frozenset[str]:
    """DeviceClasses that a claim template asks for, alternatives included."""
    return frozenset(devices.asked_classes(template["spec"]["spec"]))


# --- volumes ----------------------------------------------------------------------------------------------------------


def mounted_claims(plan: StackPlan) -> dict[str, dict[str, bool]]:
    """PersistentVolumeClaims that Pods mount: claim -> workload -> whether only for reading."""
    found: defaultdict[str, dict[str, bool]] = defaultdict(dict)
    for name, (_, manifest) in deployments(plan).items():
        pod = pod_spec(manifest)
        mounts = [mount for container in pod["containers"] for mount in container.get("volumeMounts", ())]
        read_only = {mount["name"] for mount in mounts if mount.get("readOnly")}
        for volume in pod.get("volumes", ()):
            source = volume.get("persistentVolumeClaim")
            if source is not None:
                found[source["claimName"]][name] = bool(source.get("readOnly")) or volume["name"] in read_only
    return dict(found)
