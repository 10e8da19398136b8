"""What is said of quotas and LimitRanges against the API server: objects are created without effect."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from local.api import ApiError
from local.errors import DeadlineError
from local.waiting import wait_until
from stack.facts import Reference
from stack.guards.limit_ranges import troubles_of_pod
from stack.guards.quota import charge_of_claim, charge_of_object, charge_of_pod, charge_of_volume_claim
from stack.scalars import amount
from tests import devices as make

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local.api import Api
    from local.control_plane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("small")]

Object = dict[str, Any]
NAMESPACE = "quota-agrees"
DRA = "resource.k8s.io/v1"
VERSIONS = {
    "ResourceClaim": DRA,
    "ResourceClaimTemplate": DRA,
    "Deployment": "apps/v1",
    "HTTPRoute": "gateway.networking.k8s.io/v1",
}
REFUSED = frozenset({403, 422})
"""HTTP statuses of admission and validation."""
ROOMS, PODS_IN_EACH, ENOUGH = 40, 5, 30
CPU, MEMORY = ("100m", "250m", "500m", "1", "2", "4"), ("64Mi", "128Mi", "256Mi", "1Gi", "2Gi", "4Gi")
LARGE: Object = {
    "initContainers": [
        {"name": "first", "image": "i", "resources": resources}
        for resources in [{"requests": {"cpu": "9", "memory": "1Mi"}, "limits": {"cpu": "9", "memory": "1Mi"}}]
    ]
    + [
        {
            "name": "sidecar",
            "image": "i",
            "restartPolicy": "Always",
            "resources": {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}},
        }
    ],
    "containers": [
        {
            "name": "main",
            "image": "i",
            "resources": {
                "requests": {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "1Gi", "example.com/npu": "4"},
                "limits": {"cpu": "3", "memory": "2Gi", "ephemeral-storage": "2Gi", "example.com/npu": "4"},
            },
        }
    ],
}


POD: Object = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
PORTS = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
OBJECTS: list[tuple[str, Object]] = [
    ("Service", {"ports": PORTS, "selector": {"a": "b"}}),
    ("Service", {"ports": PORTS, "selector": {"a": "b"}, "type": "NodePort"}),
    ("Service", {"ports": PORTS, "type": "LoadBalancer"}),
    ("Service", {"ports": PORTS, "type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}),
    ("Deployment", {"selector": {"matchLabels": {"a": "b"}}, "template": POD}),
    ("ResourceClaimTemplate", {"spec": make.claim_spec(make.request("a", "dranet"))}),
    ("HTTPRoute", {"rules": [{"backendRefs": [{"name": "somewhere", "port": 80}]}]}),
]
STORED: Object = {
    "accessModes": ["ReadWriteMany"],
    "storageClassName": "kwok-volume",
    "resources": {"requests": {"storage": "3Gi"}},
}


def charge_of(kind: str, spec: Object) -> dict[str, int]:
    """What the guard says that an object counts for."""
    match kind:
        case "Pod":
            return charge_of_pod(spec)
        case "ResourceClaim":
            return charge_of_claim(spec, {"npu.rebellions.ai": "rebellions.ai/npu"})
        case "PersistentVolumeClaim":
            return charge_of_volume_claim(spec, "kwok-volume")
        case _:
            reference = Reference(api_version=VERSIONS.get(kind, "v1"), kind=kind, name="tried", namespace=NAMESPACE)
            return charge_of_object(reference, {"spec": spec})


@pytest.fixture(scope="module")
def api(plane_of: Callable[[str], ControlPlane]) -> Iterator[Api]:
    api = plane_of("small").api
    names = [NAMESPACE, *(f"{NAMESPACE}-{number}" for number in range(ROOMS))]
    for name in names:
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for name in names:
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait_until(lambda account=account: api.find(account) is not None, timeout=60, what=account)
    yield api
    for name in names:
        api.delete(f"/api/v1/namespaces/{name}")


def try_to_create(api: Api, kind: str, spec: Object, namespace: str = NAMESPACE) -> str | None:
    """What the API server has against an object; None if it would take it."""
    version = VERSIONS.get(kind, "v1")
    manifest = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "tried", "namespace": namespace},
        "spec": spec,
    }
    path, _, _ = api.path_of(manifest).rpartition("/")
    try:
        api.request("POST", path, manifest, query={"dryRun": "All"})
    except ApiError as error:
        if error.status not in REFUSED:
            raise
        return str(error)
    return None


def quantity(resource: str, units: int) -> str:
    return f"{units}m" if resource.endswith("cpu") else str(units)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        pytest.param("Pod", LARGE, id="Pod"),
        pytest.param(
            "ResourceClaim",
            make.claim_spec(
                make.request("a", "dranet", 2),
                {"name": "b", "exactly": {"deviceClassName": "dranet", "allocationMode": "All"}},
                {"name": "c", "firstAvailable": [{"name": "x", "deviceClassName": "npu.rebellions.ai", "count": 3}]},
            ),
            id="claim",
        ),
        pytest.param("PersistentVolumeClaim", STORED, id="volume"),
        pytest.param(
            "PersistentVolumeClaim",
            {key: value for key, value in STORED.items() if key != "storageClassName"},
            id="volume of the default class",
        ),
        *(pytest.param(kind, spec, id=f"{kind} {spec.get('type', '')}".strip()) for kind, spec in OBJECTS),
    ],
)
def test_what_one_counts_for_is_what_the_api_server_counts(api: Api, kind: str, spec: Object) -> None:
    """Exactly that much is enough, and of nothing less is."""
    charge = charge_of(kind, spec)
    exact = {resource: quantity(resource, units) for resource, units in charge.items()}
    name = kind.lower()
    path = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas/{name}"
    meta = {"name": name, "namespace": NAMESPACE}
    api.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": exact}})

    def is_known(hard: Object) -> bool:
        found: Object = api.get(path).get("status", {}).get("hard", {})
        return {r: amount(q) for r, q in found.items()} == {r: amount(q) for r, q in hard.items()}

    def verdict(hard: Object) -> str | None:
        api.patch(path, {"spec": {"hard": hard}})
        wait_until(lambda: is_known(hard), timeout=60, what="the quota's status")
        return try_to_create(api, kind, spec)

    def come_to(hard: Object, part: str) -> None:
        """What the API server says has this in it, once it knows of the quota; it says nothing of what it takes."""
        said: list[str] = []
        try:
            wait_until(lambda: said.append(verdict(hard) or "taken") or part in said[-1], timeout=30, what=part)
        except DeadlineError:
            raise AssertionError(f"with {hard} it said {said[-1]}") from None

    try:
        come_to(exact, "taken")
        for resource, units in charge.items():
            come_to(exact | {resource: quantity(resource, units - 1)}, f"requested: {resource}=")
    finally:
        api.delete(path)


def test_what_limit_ranges_refuse_is_what_the_api_server_refuses(api: Api) -> None:
    random = Random(7)  # noqa: S311  # the same in every run
    taken: dict[bool, int] = {True: 0, False: 0}
    for number in range(ROOMS):
        namespace = f"{NAMESPACE}-{number}"
        limits = limits_by(random)
        made = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "some", "namespace": namespace}}
        try:
            live = api.create(made | {"spec": {"limits": limits}})
        except ApiError as error:
            if error.status not in REFUSED:
                raise
            continue  # it contradicts itself
        for _ in range(PODS_IN_EACH):
            pod = pod_by(random)
            said, told = try_to_create(api, "Pod", pod, namespace), list(troubles_of_pod(pod, [live]))
            assert (said is not None) == bool(told), f"{limits}\n{pod}\nsaid: {said}\ntold: {told}"
            taken[said is None] += 1
    print(f"{sum(taken.values())} Pods, {taken[True]} taken, {taken[False]} refused")  # noqa: T201  # the counts are the result
    assert min(taken.values()) >= ENOUGH


def limits_by(random: Random) -> list[Object]:
    """Bounds of one kind that do not contradict one another, mostly."""
    limit: Object = {"type": random.choice(("Container", "Container", "Pod"))}
    fields = ("min", "defaultRequest", "default", "max") if limit["type"] == "Container" else ("min", "max")
    for resource, amounts in (("cpu", CPU), ("memory", MEMORY)):
        places = sorted(random.sample(range(len(amounts)), len(fields)))
        for field, place in zip(fields, places, strict=True):
            if random.random() < 0.3:
                limit.setdefault(field, {})[resource] = amounts[place]
        if random.random() < 0.2:
            limit.setdefault("maxLimitRequestRatio", {})[resource] = random.choice(("1", "2", "4"))
    return [limit]


def pod_by(random: Random) -> Object:
    """One to three containers, one of them perhaps before or beside the others."""
    containers = [container_by(random, f"c{index}") for index in range(random.randint(1, 2))]
    first = container_by(random, "first")
    kind = random.choice(({}, {}, {"restartPolicy": "Always"}))
    return {"containers": containers, "initContainers": [first | kind] if random.random() < 0.5 else []}


def container_by(random: Random, name: str) -> Object:
    resources: Object = {"requests": {}, "limits": {}}
    for resource, amounts in (("cpu", CPU), ("memory", MEMORY)):
        low, high = sorted(random.sample(range(len(amounts)), 2))
        if random.random() < 0.6:
            resources["requests"][resource] = amounts[low]
        if random.random() < 0.6:
            resources["limits"][resource] = amounts[high]
    return {"name": name, "image": "i", "resources": resources}
