"""Objects of a cluster with devices, as the API server gives them back, in a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Object = dict[str, Any]
KINDS: dict[type, str] = {bool: "bool", int: "int", str: "string"}
NUMA = "resource.kubernetes.io/numaNode"


def node(
    name: str, *, labels: Mapping[str, str] | None = None, spec: Object | None = None, **allocatable: str
) -> Object:
    """A Node; amounts by keyword, `_` for what a Python name cannot hold."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110"} | {
        key.replace("__", "/").replace("_", "-").replace("-dot-", "."): value for key, value in allocatable.items()
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec or {},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def device(
    name: str,
    /,
    *,
    taints: Iterable[Object] = (),
    capacity: Mapping[str, str] | None = None,
    **values: bool | int | str | tuple[str, str],
) -> Object:
    """A device; attributes of its driver by keyword, `numa` is the standard one. A `tuple` is (type, value)."""
    attributes: Object = {}
    for key, value in values.items():
        kind, held = value if isinstance(value, tuple) else (KINDS[type(value)], value)
        attributes[NUMA if key == "numa" else key] = {kind: held}
    made: Object = {"name": name, "attributes": attributes}
    if capacity:
        made["capacity"] = {key: {"value": value} for key, value in capacity.items()}
    if held := list(taints):
        made["taints"] = held
    return made


def devices(prefix: str, *per_numa_node: int, **values: Any) -> list[Object]:
    """So many devices on each NUMA node."""
    numas = [numa for numa, count in enumerate(per_numa_node) for _ in range(count)]
    return [device(f"{prefix}-{index}", numa=numa, **values) for index, numa in enumerate(numas)]


def resource_slice(driver: str, held: Sequence[Object], *, on: str | None = None, **over: Any) -> Object:
    """A ResourceSlice, a whole pool by itself; other fields of its spec by keyword."""
    pool = {"name": on or "shared", "generation": 1, "resourceSliceCount": 1} | over.pop("pool", {})
    where: Object = {"nodeName": on} if on else {}
    name = f"{pool['name']}-{driver}-{pool['generation']}{over.pop('suffix', '')}"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {"driver": driver, "pool": pool, "devices": list(held), **where, **over},
    }


def device_class(
    name: str, *expressions: str, resource: str | None = None, created: str = "2026-01-01T00:00:00Z"
) -> Object:
    """A DeviceClass."""
    spec: Object = {"selectors": [{"cel": {"expression": expression}} for expression in expressions]}
    if resource:
        spec["extendedResourceName"] = resource
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": spec,
    }


def request(name: str, class_name: str, count: int = 1, *selectors: str, **over: Any) -> Object:
    """A request of a claim."""
    exactly: Object = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count, **over}
    if selectors:
        exactly["selectors"] = [{"cel": {"expression": expression}} for expression in selectors]
    return {"name": name, "exactly": exactly}


def claim_spec(*requests: Object, together: str | None = None, constraints: Sequence[Object] = ()) -> Object:
    """A claim's spec; `together` is an attribute that all its devices share."""
    held = [*constraints, *([{"matchAttribute": together}] if together else [])]
    return {"devices": {"requests": list(requests), **({"constraints": held} if held else {})}}


def pod_template(*claims: str, cpu: str = "1", labels: Mapping[str, str] | None = None, **spec: Any) -> Object:
    """A Pod template with a claim from each named claim template."""
    extended = spec.pop("extended", {})
    resources = {"requests": {"cpu": cpu, **extended}, "limits": dict(extended)}
    return {
        "metadata": {"labels": dict(labels or {})},
        "spec": {
            "containers": [{"name": "main", "image": "paper/main", "resources": resources}],
            "resourceClaims": [{"name": f"c{n}", "resourceClaimTemplateName": name} for n, name in enumerate(claims)],
            **spec,
        },
    }


def pod(name: str, *, on: str | None = None, cpu: str = "1", spec: Object | None = None, **metadata: Any) -> Object:
    """A live Pod of namespace `ns`, its uid made from its name."""
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", **metadata},
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
            **({"nodeName": on} if on else {}),
            **(spec or {}),
        },
        "status": {"phase": "Running" if on else "Pending"},
    }


def claim(name: str, held: Iterable[tuple[str, str, str]], *pods: str, **result: Any) -> Object:
    """An allocated claim of namespace `ns`: (driver, pool, device) of each, and the Pods it is reserved for."""
    results = [{"request": "r", "driver": d, "pool": p, "device": n, **result} for d, p, n in held]
    return {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"devices": {"requests": []}},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods],
        },
    }
