"""The role Deployments and what their Pods read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stack import labels, names
from stack.devices import CLAIM
from stack.epp import PROXY_CONTAINER, ProxyDecisions, known_proxy_versions, render_proxy
from stack.planned import ObjectPlan, WorkloadPlan
from stack.record import write_record
from stack.resources import canonical_resources
from stack.rolling import recreate, strategy_of
from stack.scalars import canonical
from stack.serve import COMMAND, CONFIG_DIR, CONFIG_FILE, env_entry, tracing_env
from stack.startup import render_probes, startup_budget_seconds
from stack.storage import plan_mounts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stack.config.modelserver import PodOverrideConfig
    from stack.config.root import StackConfig
    from stack.devices import DevicesPlan
    from stack.planned import TopologyPlan
    from stack.recipes.model import Recipe
    from stack.scalars import Role
    from stack.serve import RoleServe
    from stack.topology import Placement

SLACK_SECONDS = 300
"""What scheduling, image pull and garbage collection may add to a start or a leave before the engine stops waiting."""

USER, GROUP = 2000, 0  # "Pod spec requirements": the image declares user 2000
FS_GROUP = 2000

RAISE_MEMLOCK = "ulimit -l unlimited"
"""What a privileged root may do where the node's container runtime limits locked memory."""

RDMA_CHECK = """\
set -eu
if [ "$(ulimit -l)" != unlimited ]; then
  echo "memlock is limited to $(ulimit -l) KiB: NIXL cannot pin its buffers." >&2
  echo "Let the node's container runtime allow unlimited memlock." >&2
  exit 1
fi
waited=0
while :; do
  active=0
  for state in "${SYSFS:-/sys}"/class/infiniband/*/ports/*/state; do
    if [ -r "$state" ] && grep -qw ACTIVE "$state"; then active=$((active + 1)); fi
  done
  [ "$active" -lt "$RDMA_PORTS_NEEDED" ] || exit 0
  if [ "$waited" -ge "$RDMA_DISCOVERY_TIMEOUT_SECONDS" ]; then
    echo "$active of $RDMA_PORTS_NEEDED RDMA ports active after $waited s." >&2
    exit 1
  fi
  sleep 1
  waited=$((waited + 1))
done
"""
"""Runs before the model server when RDMA is on.

A Pod without a usable port or with limited memlock must fail before it loads weights.
"""
RDMA_CHECK_PRIVILEGED = f"{RAISE_MEMLOCK} 2>/dev/null || :\n{RDMA_CHECK}"
"""Raises memlock first, as the model server will; where that fails, the check says so."""


def image_reference(repository: str, tag: str | None, digest: str | None) -> str:
    """`repository:tag` or `repository@digest`."""
    return f"{repository}@{digest}" if digest else f"{repository}:{tag}"


def modelserver_image(config: StackConfig, recipe: Recipe) -> str:
    """The operator's image, completed by the recipe's repository and tag; a digest takes the place of that tag."""
    image = config.modelserver.image
    return image_reference(image.repository or recipe.image.repository, image.tag or recipe.image.tag, image.digest)


def plan_serve_config(config: StackConfig, serve: RoleServe) -> ObjectPlan:
    """The role's serve ConfigMap, named by its content; one per role, so that a change restarts that role only."""
    data = {CONFIG_FILE: serve.config_text}
    name = names.serve_config_map(config.release, serve.role, data)
    return ObjectPlan(
        logical_name=name.removeprefix(f"{config.release}-"),
        is_named_by_content=True,
        manifest={
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": labels.object_meta(
                name, release=config.release, namespace=config.namespace, component=serve.role
            ),
            "data": data,
        },
    )


def plan_service_account(config: StackConfig) -> tuple[ObjectPlan, ...]:
    """The model servers' ServiceAccount, unless the operator names one. It needs no right, so it gets no token."""
    if config.modelserver.service_account_name is not None:
        return ()
    return (
        ObjectPlan(
            logical_name="modelserver-service-account",
            manifest={
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": labels.object_meta(
                    names.modelserver_service_account(config.release),
                    release=config.release,
                    namespace=config.namespace,
                    component="modelserver",
                ),
                "automountServiceAccountToken": False,
            },
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """How many Pods a role has after the update, and between which bounds its scaler keeps it.

    Attributes:
        is_found: whether its Deployment lives and the engine does not know it. What leaves the number out then gives
            it up, if it was ours, and Kubernetes sets it to 1; so this once it is written.
    """

    pods: int
    floor: int
    ceiling: int
    is_found: bool = False


def plan_workload(
    config: StackConfig,
    recipe: Recipe,
    placement: Placement,
    serve: RoleServe,
    *,
    topology: TopologyPlan,
    devices: DevicesPlan,
    contributions: Mapping[str, str],
    after: tuple[str, ...] = (),
    held: Mapping[str, Any] | None = None,
    scaled: Scaled | None = None,
) -> WorkloadPlan:
    """One role Deployment, or one nodePlacement entry's.

    Args:
        config: the configuration.
        recipe: the recipe it names.
        placement: which one.
        serve: how it serves.
        topology: the topology.
        devices: what its Pods claim.
        contributions: what its Pod template is made from.
        after: names of the workloads that must have rolled out before.
        held: the strategy that it has, where that is known.
        scaled: how many Pods it has and may have, where something else says it: then the manifest does not.
    """
    budget = startup_budget_seconds(config, recipe)
    grace = serve.drain.grace
    selector = select(config, placement)
    annotations: dict[str, str] = {**labels.WAIT_FOR_UID, labels.APPLIED: write_record(contributions)}
    if placement.entry is not None:
        annotations[labels.NODE] = placement.node or ""
    fixed = placement.replicas
    count = scaled or Scaled(pods=fixed, floor=fixed, ceiling=fixed)
    spec: dict[str, Any] = {
        **({"replicas": count.pods} if scaled is None or scaled.is_found else {}),
        "selector": {"matchLabels": selector},
        # By the fewest Pods, since it must not change with the number that a scaler chooses.
        "strategy": recreate() if placement.entry is not None else strategy_of(config, count.floor, held=held),
        "progressDeadlineSeconds": budget + grace,
        "template": {
            "metadata": _pod_meta(config, recipe, placement, serve, topology=topology),
            "spec": _pod_spec(config, recipe, placement, serve, topology=topology, devices=devices, selector=selector),
        },
    }
    name = names.workload(config.release, placement.role, placement.entry)
    return WorkloadPlan(
        object=ObjectPlan(
            logical_name=placement.suffix,
            manifest={
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": labels.object_meta(
                    name,
                    release=config.release,
                    namespace=config.namespace,
                    component=placement.role,
                    labels={labels.ROLE: labels.ROLE_LABEL_VALUES[placement.role]}
                    | ({labels.ENTRY: str(placement.entry)} if placement.entry is not None else {}),
                    annotations=annotations,
                ),
                "spec": spec,
            },
        ),
        role=placement.role,
        entry=placement.entry,
        replicas=count.pods,
        floor=None if scaled is None else scaled.floor,
        most=count.ceiling,
        ready_seconds=budget,
        leave_seconds=grace,
        # One Pod after another in the worst case, each leaving before the next one loads.
        timeout_seconds=max(1, count.ceiling) * (budget + grace) + SLACK_SECONDS,
        contributions=contributions,
        after=after,
    )


def select(config: StackConfig, placement: Placement) -> dict[str, str]:
    """Selector of a workload's Pods: release, role, and in nodePlacement mode the entry."""
    selector: dict[str, str] = {labels.INSTANCE: config.release, labels.COMPONENT: placement.role}
    return selector if placement.entry is None else selector | {labels.ENTRY: str(placement.entry)}


def own_labels(config: StackConfig, placement: Placement) -> dict[str, str]:
    """Labels of a Pod that nothing written in the configuration can change; the topology key comes beside them."""
    return {
        **labels.common_labels(config.release, placement.role),
        **select(config, placement),
        labels.ROLE: labels.ROLE_LABEL_VALUES[placement.role],
    }


def _pod_meta(
    config: StackConfig,
    recipe: Recipe,
    placement: Placement,
    serve: RoleServe,
    *,
    topology: TopologyPlan,
) -> dict[str, Any]:
    overrides = config.modelserver.pod_overrides.of(placement.role)
    return {
        "labels": {
            **overrides.labels,
            **recipe.labels,
            **config.router.model_servers.match_labels,
            **own_labels(config, placement),
            labels.TOPOLOGY: topology.key,
        },
        "annotations": {
            **overrides.annotations,
            labels.ACTIVE_PORTS: ",".join(map(str, serve.active_ports)),
        },
    }


def _pod_spec(
    config: StackConfig,
    recipe: Recipe,
    placement: Placement,
    serve: RoleServe,
    *,
    topology: TopologyPlan,
    devices: DevicesPlan,
    selector: Mapping[str, str],
) -> dict[str, Any]:
    overrides = config.modelserver.pod_overrides.of(placement.role)
    mounts = plan_mounts(config, recipe, placement.role, plan_serve_config(config, serve).name)
    spec: dict[str, Any] = {
        "serviceAccountName": config.modelserver.service_account_name
        or names.modelserver_service_account(config.release),
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": serve.drain.grace,
        "securityContext": pod_security(overrides),
        "containers": [_server_container(config, recipe, placement, serve, devices=devices, mounts=mounts)],
        "volumes": [mount.volume for mount in mounts],
    }
    if serve.drain.shares_process_namespace:
        spec["shareProcessNamespace"] = True
    init: list[dict[str, Any]] = []
    if config.devices.rdma.enabled:
        init.append(_rdma_container(config, recipe, devices, overrides))
    if placement.role == "decode" and topology.is_disaggregated:
        init.append(_proxy_container(config, serve, overrides))
    if init:
        spec["initContainers"] = init
    if devices.template_name is not None:
        spec["resourceClaims"] = [{"name": CLAIM, "resourceClaimTemplateName": devices.template_name}]
    if config.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in config.image_pull_secrets]
    node_selector = dict(overrides.node_selector)
    if placement.node is not None:
        node_selector["kubernetes.io/hostname"] = placement.node
    else:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                # Not DoNotSchedule: nodes without devices would count as empty and forbid a second Pod anywhere.
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": dict(selector)},
                "matchLabelKeys": ["pod-template-hash"],
            }
        ]
    spec |= {
        key: value
        for key, value in {
            "nodeSelector": node_selector,
            "tolerations": [t.model_dump(by_alias=True, exclude_none=True) for t in overrides.tolerations],
            "affinity": overrides.affinity,
            "priorityClassName": overrides.priority_class_name,
            "runtimeClassName": overrides.runtime_class_name,
            "schedulerName": overrides.scheduler_name,
        }.items()
        if value
    }
    return spec


def pod_security(overrides: PodOverrideConfig) -> dict[str, Any]:
    """Security context of a role Pod (*Pod spec requirements*), with the role's overrides."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": GROUP,
        "fsGroup": FS_GROUP,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
        **overrides.pod_security_context,
    }


def container_security(overrides: PodOverrideConfig | None = None) -> dict[str, Any]:
    """Security context of a container (*Pod spec requirements*), with the role's overrides.

    The overrides are for the model server, and for the check before it, which must find what the model server will.
    """
    return {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
        **(overrides.security_context if overrides is not None else {}),
    }


def proxy_security(overrides: PodOverrideConfig) -> dict[str, Any]:
    """Security context of the routing proxy: no override reaches it, so in a Pod of root it has the stack's user."""
    security = container_security()
    return security | {"runAsUser": USER} if pod_security(overrides)["runAsUser"] == 0 else security


def raises_memlock(config: StackConfig, overrides: PodOverrideConfig) -> bool:
    """Whether a role raises its limit of locked memory itself: with RDMA, which pins buffers, and privileged."""
    return config.devices.rdma.enabled and overrides.security_context.get("privileged") is True


def _command(config: StackConfig, role: Role) -> list[str]:
    if not raises_memlock(config, config.modelserver.pod_overrides.of(role)):
        return list(COMMAND)
    # The container's args follow as the shell's; its own $0 stands before them.
    return ["/bin/sh", "-c", f'{RAISE_MEMLOCK} && exec {" ".join(COMMAND)} "$@"', COMMAND[0]]


def modelserver_resources(config: StackConfig, recipe: Recipe, role: Role) -> dict[str, dict[str, str]]:
    """Requests and limits of the model server container, without devices.

    The role's override, else the operator's for all roles, else the recipe's; each as a whole.
    """
    overrides = config.modelserver.pod_overrides.of(role)
    return canonical_resources(overrides.resources or config.modelserver.resources or recipe.resources)


def _server_container(
    config: StackConfig,
    recipe: Recipe,
    placement: Placement,
    serve: RoleServe,
    *,
    devices: DevicesPlan,
    mounts: tuple[Any, ...],
) -> dict[str, Any]:
    resources: dict[str, Any] = modelserver_resources(config, recipe, placement.role)
    for name, count in devices.extended.items():
        for amounts in ("requests", "limits"):
            resources[amounts] = {**resources.get(amounts, {}), name: canonical(str(count))}
    if devices.template_name is not None:
        resources["claims"] = [{"name": CLAIM}]
    return {
        "name": "modelserver",
        "image": modelserver_image(config, recipe),
        "command": _command(config, placement.role),
        "args": [serve.model_argument, "--config", f"{CONFIG_DIR}/{CONFIG_FILE}", *serve.extra_args],
        "env": [dict(entry) for entry in serve.env],
        "ports": [
            *_ports("api", serve.server_ports),
            *_ports("nixl", serve.side_channel_ports),
        ],
        "resources": resources,
        "volumeMounts": [mount.mount for mount in mounts],
        "securityContext": container_security(config.modelserver.pod_overrides.of(placement.role)),
        **render_probes(config, recipe, serve),
        **_lifecycle(serve),
    }


def _lifecycle(serve: RoleServe) -> dict[str, Any]:
    hook = serve.drain.hook
    return {} if hook is None else {"lifecycle": {"preStop": {"exec": {"command": hook}}}}


def _ports(prefix: str, ports: tuple[int, ...]) -> list[dict[str, Any]]:
    return [{"name": f"{prefix}-{rank}", "containerPort": port, "protocol": "TCP"} for rank, port in enumerate(ports)]


def decide_proxy(config: StackConfig, serve: RoleServe) -> ProxyDecisions:
    """What the routing proxy is rendered from.

    Without a version of its own it has the EPP's, since the two are released together.
    """
    proxy, epp = config.routing.proxy, config.router.epp
    known = known_proxy_versions()
    fitting = epp.version if epp.distribution == "llm-d" else known[0]
    version = proxy.image.tag if proxy.image.tag in known else fitting  # a tag of one's own says nothing about flags
    return ProxyDecisions(
        version=version,
        port=proxy.port,
        model_server_port=proxy.model_server_port,
        data_parallel_size=len(serve.server_ports),
        kv_connector=proxy.kv_connector,
        is_secure=proxy.secure,
        is_traced=config.tracing.enabled,
        extra_args=proxy.extra_args,
    )


def _proxy_container(config: StackConfig, serve: RoleServe, overrides: PodOverrideConfig) -> dict[str, Any]:
    """A native sidecar: it runs before the engine starts and until after it has stopped, so that streams can end."""
    proxy = config.routing.proxy
    rendered = render_proxy(decide_proxy(config, serve))
    container: dict[str, Any] = {
        "name": PROXY_CONTAINER,
        "image": image_reference(
            proxy.image.repository or rendered.image_repository,
            proxy.image.tag or rendered.image_tag,
            proxy.image.digest,
        ),
        "args": list(rendered.args),
        "restartPolicy": "Always",
        "ports": _ports("http", rendered.ports),
        "securityContext": proxy_security(overrides),
    }
    if resources := canonical_resources(proxy.resources):
        container["resources"] = resources
    if config.tracing.enabled:
        container["env"] = [
            env_entry(name, value)
            for name, value in sorted(tracing_env(config, service="llm-d-router/routing-proxy").items())
        ]
    return container


def _rdma_container(
    config: StackConfig, recipe: Recipe, devices: DevicesPlan, overrides: PodOverrideConfig
) -> dict[str, Any]:
    needed = 1 if devices.nics is None else devices.nics
    # Limits as well: without them the Pod would lose the Guaranteed class, and with it its exclusive CPUs.
    amounts = {"cpu": "100m", "memory": "64Mi"}
    if devices.nic_resource is not None:
        amounts[devices.nic_resource] = canonical(str(devices.extended[devices.nic_resource]))
    resources: dict[str, Any] = {"requests": dict(amounts), "limits": dict(amounts)}
    if devices.template_name is not None:
        resources["claims"] = [{"name": CLAIM}]
    return {
        "name": "rdma-discovery",
        "image": modelserver_image(config, recipe),
        "command": ["/bin/sh", "-c", RDMA_CHECK_PRIVILEGED if raises_memlock(config, overrides) else RDMA_CHECK],
        "env": [
            {"name": "RDMA_DISCOVERY_TIMEOUT_SECONDS", "value": str(config.devices.rdma.discovery_timeout_seconds)},
            {"name": "RDMA_PORTS_NEEDED", "value": str(needed)},
        ],
        "resources": resources,
        "securityContext": container_security(overrides),
    }
