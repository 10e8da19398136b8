"""Whose leave a Pod without a node waits for.

A Pod that was told to go holds its devices until it is gone, and that may take as long as its longest running request.
A Pod that waits for such a device is not stuck, it is early.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stack.rollout.pods import Object, is_leaving, is_over

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HOSTNAME = "kubernetes.io/hostname"
Claims = Mapping[str, Mapping[str, Object] | None]
"""ResourceClaims by namespace and name; None for a namespace whose claims may not be listed."""


@dataclass(frozen=True, kw_only=True)
class Devices:
    """What a Pod asks for or holds.

    Attributes:
        classes: DeviceClasses of its claims.
        resources: extended resources, as a device plugin hands them out.
        is_unknown: it has claims, and they could not be read: it may be any class.
    """

    classes: frozenset[str]
    resources: frozenset[str]
    is_unknown: bool = False

    def would_do_for(self, other: Devices) -> bool:
        """Whether one of these is of a kind that the other asks for; of claims that can't be read it is assumed."""
        if self.classes & other.classes or self.resources & other.resources:
            return True
        return (self.is_unknown and other.has_claims) or (self.has_claims and other.is_unknown)

    @property
    def has_claims(self) -> bool:
        """Whether it asks for any class, known or not."""
        return bool(self.classes) or self.is_unknown


def devices_of(pod: Object, claims: Claims, *, leaving: frozenset[str] | None = None) -> Devices:
    """What a Pod asks for, or gives back when it has left.

    Args:
        pod: a live Pod.
        claims: of its namespace at least.
        leaving: uids of all Pods that leave. If given, of the claims only those count that are free when these have
            left: allocated ones that no other Pod shares.
    """
    known = claims.get(pod["metadata"]["namespace"])
    names = list(_claim_names(pod))
    asked = [known[name] for name in names if name in known] if known is not None else []
    if leaving is not None:
        asked = [claim for claim in asked if _becomes_free(claim, leaving)]
    return Devices(
        classes=frozenset(name for claim in asked for name in asked_classes(claim["spec"])),
        resources=frozenset(extended_resources(pod["spec"])),
        is_unknown=known is None and has_claims(pod),
    )


def has_claims(pod: Object) -> bool:
    """Whether a Pod gets devices by ResourceClaims."""
    return bool(pod["spec"].get("resourceClaims"))


def asks_for_devices(pod: Object) -> bool:
    """Whether a Pod asks for any device, in either way."""
    return has_claims(pod) or next(extended_resources(pod["spec"]), None) is not None


def gives_back_devices(pod: Object) -> bool:
    """Whether a Pod leaves and holds what it has until then: one that is over, or has no node, holds nothing."""
    return is_leaving(pod) and not is_over(pod) and "nodeName" in pod["spec"]


def who_holds(waiting: Iterable[Object], leaving: Iterable[Object], claims: Claims) -> dict[str, Object]:
    """For each waiting Pod, by name, the first leaving one that holds a device which would do for it.

    A leaving Pod on a node that the waiting one may not use is none such, as far as the waiting one's node selector
    names a host; which other nodes it may use is for the scheduler to know.
    """
    leaving = sorted(
        filter(gives_back_devices, leaving), key=lambda pod: (pod["metadata"]["namespace"], pod["metadata"]["name"])
    )
    uids = frozenset(pod["metadata"]["uid"] for pod in leaving)
    held = [(pod, devices_of(pod, claims, leaving=uids)) for pod in leaving]
    found: dict[str, Object] = {}
    for pod in waiting:
        host = pod["spec"].get("nodeSelector", {}).get(HOSTNAME)
        asked = devices_of(pod, claims)
        for holder, devices in held:
            if devices.would_do_for(asked) and host in {None, holder["spec"]["nodeName"]}:
                found[pod["metadata"]["name"]] = holder
                break
    return found


def _claim_names(pod: Object) -> Iterator[str]:
    """Names of a Pod's claims: those made for it stand in its status, those it shares in its spec."""
    made: dict[str, str | None] = {
        status["name"]: status.get("resourceClaimName")
        for status in pod.get("status", {}).get("resourceClaimStatuses", ())
    }
    for claim in pod["spec"].get("resourceClaims", ()):
        name: str | None = claim.get("resourceClaimName") or made.get(claim["name"])
        if name is not None:
            yield name


def asked_classes(spec: Object) -> Iterator[str]:
    """DeviceClasses that the spec of a claim asks for, alternatives included."""
    for request in spec.get("devices", {}).get("requests") or ():
        choices: list[Object] = [request.get("exactly") or {}, *(request.get("firstAvailable") or ())]
        for choice in choices:
            if "deviceClassName" in choice:
                yield choice["deviceClassName"]


def _becomes_free(claim: Object, leaving: frozenset[str]) -> bool:
    status: Object = claim.get("status", {})
    return "allocation" in status and {user["uid"] for user in status.get("reservedFor", ())} <= leaving


def extended_resources(spec: Object) -> Iterator[str]:
    """Extended resources that a Pod's spec names, some more than once.

    They have a domain in their name; huge pages and what Kubernetes knows itself have none.
    """
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        resources: Object = container.get("resources") or {}
        asked: Object = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        for name in asked:
            if "/" in name:
                yield name
