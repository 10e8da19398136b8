"""Rules about what operators add to Pods, and about requests and limits.

What is checked here is what the API server checks at admission: relations between requests and limits, huge pages,
fields of security contexts and affinity by name. Labels and annotations are looked at in `metadata`.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from stack.config.shape import near_key, written
from stack.modelserver import container_security, pod_security
from stack.rules.rule import Finding, Rule, Setting, error, rule, warning
from stack.scalars import ROLES, amount

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stack.config.modelserver import PodOverrideConfig
    from stack.config.resources import ResourcesConfig
    from stack.recipes import Resources

_AFFINITY: Final = ("nodeAffinity", "podAffinity", "podAntiAffinity")
_SHARED_SECURITY: Final = (
    "appArmorProfile",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "seLinuxOptions",
    "seccompProfile",
    "windowsOptions",
)
_POD_SECURITY: Final = (
    *_SHARED_SECURITY,
    "fsGroup",
    "fsGroupChangePolicy",
    "seLinuxChangePolicy",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "sysctls",
)
_CONTAINER_SECURITY: Final = (
    *_SHARED_SECURITY,
    "allowPrivilegeEscalation",
    "capabilities",
    "privileged",
    "procMount",
    "readOnlyRootFilesystem",
)
_NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_SMALLEST_MEMORY: Final = Decimal(2**20)
_FINEST_CPU: Final = Decimal("0.001")


def are_fields_of_kubernetes(setting: Setting) -> Iterator[Finding]:
    """Free maps: names of their fields, and users that contradict the stack's runAsNonRoot."""
    for role in ROLES:
        overrides, place = setting.config.modelserver.pod_overrides.of(role), f"modelserver.podOverrides.{role}"
        yield from _known(f"{place}.affinity", overrides.affinity, _AFFINITY)
        yield from _known(f"{place}.podSecurityContext", overrides.pod_security_context, _POD_SECURITY)
        yield from _known(f"{place}.securityContext", overrides.security_context, _CONTAINER_SECURITY)
        security = overrides.security_context
        yield from _is_no_root_by_mistake(place, overrides)
        if security.get("privileged") is True and security.get("allowPrivilegeEscalation") is not True:
            yield error(
                f"{place}.securityContext.privileged",
                value=True,
                why="Kubernetes refuses it with allowPrivilegeEscalation: false, which the stack sets",
                fix="Remove it, or set allowPrivilegeEscalation: true beside it",
            )
    yield from _known("router.epp.affinity", setting.config.router.epp.affinity, _AFFINITY)


def _is_no_root_by_mistake(place: str, overrides: PodOverrideConfig) -> Iterator[Finding]:
    """Root under runAsNonRoot, which the kubelet refuses; what the container says wins over what the Pod says."""
    of_pod, of_container = pod_security(overrides), container_security(overrides)

    def in_force(field: str) -> object:
        value = of_container.get(field)
        return of_pod.get(field) if value is None else value

    user = in_force("runAsUser")
    if user == 0 and not isinstance(user, bool) and in_force("runAsNonRoot") is True:
        key = "podSecurityContext" if of_container.get("runAsUser") is None else "securityContext"
        yield error(
            f"{place}.{key}.runAsUser",
            0,
            "is root, and the stack sets runAsNonRoot: true, so the container would not start",
            fix="Choose another user, or set runAsNonRoot: false in podSecurityContext and securityContext too",
        )


def _known(place: str, given: Mapping[str, object], known: tuple[str, ...]) -> Iterator[Finding]:
    for key, value in given.items():
        if key not in known:
            near = near_key(key, list(known))
            yield error(
                f"{place}.{key}",
                value,
                "is no field that Kubernetes knows there",
                fix=f"Did you mean {near}?" if near else f"Use one of {', '.join(sorted(known))}",
            )


def _containers(setting: Setting) -> Iterator[tuple[str, ResourcesConfig | Resources]]:
    modelserver, spoken = setting.config.modelserver, False
    for role in setting.roles:
        own = modelserver.pod_overrides.of(role).resources
        if own is not None:
            yield f"modelserver.podOverrides.{role}.resources", own
        elif modelserver.resources is not None and not spoken:
            spoken = True
            yield "modelserver.resources", modelserver.resources
    yield "routing.proxy.resources", setting.config.routing.proxy.resources
    yield "router.epp.resources", setting.config.router.epp.resources


def are_admitted(setting: Setting) -> Iterator[Finding]:
    """Requests against limits, huge pages, devices that belong elsewhere, amounts without a unit."""
    for place, resources in _containers(setting):
        requests, limits = resources.requests, resources.limits
        for name, limit in limits.items():
            request = requests.get(name)
            if request is not None and amount(request) > amount(limit):
                yield error(
                    written((*place.split("."), "requests", name)),
                    request,
                    f"is more than the limit of {limit}",
                    fix="Lower the request, or raise the limit",
                )
        for name in sorted({*requests, *limits}):
            request, limit = requests.get(name), limits.get(name)
            key = written((*place.split("."), "limits" if request is None else "requests", name))
            value = limit if request is None else request
            assert value is not None  # noqa: S101  # one of the two names it
            if name not in _NATIVE and (limit is None or (request is not None and amount(request) != amount(limit))):
                yield error(
                    key,
                    value,
                    "must be the same in requests and limits, since it cannot be overcommitted",
                    fix="Write the same amount in both",
                )
            if name.startswith("hugepages-") and not ({"cpu", "memory"} & {*requests, *limits}):
                yield error(key, value, "needs cpu or memory beside it", fix="Add a request of cpu or memory")
            if "/" in name and amount(value) != amount(value).to_integral_value():
                yield error(key, value, "is not a whole number of devices", fix="Write a whole number")
            if name == "memory" and 0 < amount(value) < _SMALLEST_MEMORY:
                yield warning(key, value, f"is {amount(value):f} bytes", fix="Write a unit, such as 8Gi")
            if name == "cpu" and 0 < amount(value) < _FINEST_CPU:
                yield error(key, value, "is finer than 1m, the finest share of a CPU", fix="Write 1m or more")


def ask_for_devices_in_one_place(setting: Setting) -> Iterator[Finding]:
    """Devices of the stack among plain resources."""
    own = {setting.recipe.accelerator.resource_name, setting.config.devices.npu.resource_name}
    own.add(setting.config.devices.rdma.resource_name)
    for place, resources in _containers(setting):
        for name in sorted({*resources.requests, *resources.limits} & own):
            yield error(
                written((*place.split("."), "requests" if name in resources.requests else "limits", name)),
                "given",
                "is asked for by the stack itself, as devices says",
                fix="Remove it, and set devices.npu or devices.rdma",
            )


def are_pinned(setting: Setting) -> Iterator[Finding]:
    """Images under a moving tag."""
    config = setting.config
    for key, image in (
        ("modelserver.image", config.modelserver.image),
        ("routing.proxy.image", config.routing.proxy.image),
        ("router.epp.image", config.router.epp.image),
    ):
        if image.tag is not None and re.fullmatch(r"latest|main|master|nightly|dev", image.tag):
            yield warning(
                f"{key}.tag",
                image.tag,
                "is a tag that moves: nodes and restarts may get different images, and going back is not possible",
                fix="Use the tag of a release, or a digest",
            )


def pull_with_each_secret_once(setting: Setting) -> Iterator[Finding]:
    """Pull secrets named twice, which server-side apply refuses."""
    secrets = setting.config.image_pull_secrets
    for index, name in enumerate(secrets):
        if name in secrets[:index]:
            yield error(f"imagePullSecrets[{index}]", name, "is in the list already", fix="Remove it")


RULES: tuple[Rule, ...] = (
    rule(are_fields_of_kubernetes, "modelserver", "router"),
    rule(are_admitted, "modelserver", "routing", "router"),
    rule(ask_for_devices_in_one_place, "modelserver", "routing", "router", "devices", "recipe"),
    rule(are_pinned, "modelserver", "routing", "router"),
    rule(pull_with_each_secret_once, "image_pull_secrets"),
)
