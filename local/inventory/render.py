"""An inventory as Kubernetes objects: pure, no server involved.

Every object carries the label `local.serving-stack.dev/inventory`, by which the plane finds those that a later
inventory no longer has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local.inventory.model import Version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from local.inventory.model import AttributeValue, DeviceClass, DeviceGroup, Inventory, NodeGroup, StorageClass

Object = dict[str, Any]

INVENTORY_LABEL = "local.serving-stack.dev/inventory"
FAKE_NODE = {"kwok.x-k8s.io/node": "fake"}
STANDARD = "resource.kubernetes.io"
FIRST_BUS = 0x10  # leaves room below, as on real machines, for what hangs on the first root port


def render_nodes(inventory: Inventory) -> tuple[Object, ...]:
    """Return the Nodes, with status, in the order of the file."""
    return tuple(_render_node(inventory, *node) for node in _each_node(inventory))


def _each_node(inventory: Inventory) -> Iterator[tuple[str, int, int, NodeGroup]]:
    """Yield name, index over all nodes, index in the group, and the group."""
    over_all = 0
    for prefix, group in inventory.nodes.items():
        for index in range(group.count):
            yield f"{prefix}-{index}", over_all, index, group
            over_all += 1


def _render_node(inventory: Inventory, name: str, over_all: int, index: int, group: NodeGroup) -> Object:
    zone = {"topology.kubernetes.io/zone": group.zones[index % len(group.zones)]} if group.zones else {}
    amounts = {
        "cpu": group.cpu,
        "memory": group.memory,
        "ephemeral-storage": group.ephemeral_storage,
        "pods": str(group.pods),
        **{resource: str(count) for resource, count in group.extended_resources.items()},
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                **zone,
                **group.labels,
                INVENTORY_LABEL: inventory.name,
            },
            "annotations": FAKE_NODE,
        },
        "spec": {
            "podCIDR": f"10.{128 + over_all // 256}.{over_all % 256}.0/24",
            "podCIDRs": [f"10.{128 + over_all // 256}.{over_all % 256}.0/24"],
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "addresses": [
                {"type": "InternalIP", "address": f"10.64.{over_all // 250}.{over_all % 250 + 1}"},
                {"type": "Hostname", "address": name},
            ],
        },
    }


def render_slices(inventory: Inventory, node_uids: Mapping[str, str]) -> tuple[Object, ...]:
    """Return one ResourceSlice for each node and driver, owned by the node as a real driver's is.

    Args:
        inventory: What there is.
        node_uids: uid of each Node by name.
    """
    return tuple(
        _render_slice(inventory, node=name, uid=node_uids[name], driver=driver, devices=devices)
        for name, _, index, group in _each_node(inventory)
        for driver in dict.fromkeys(devices.driver for devices in group.devices)
        for devices in [list(_render_devices(group, driver, name, index))]
    )


def _render_slice(inventory: Inventory, *, node: str, uid: str, driver: str, devices: list[Object]) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": f"{node}-{driver}",
            "labels": {INVENTORY_LABEL: inventory.name},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}],
        },
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def _render_devices(group: NodeGroup, driver: str, node: str, node_index: int) -> Iterator[Object]:
    for numa in range(group.numa_nodes):
        bus = FIRST_BUS
        for devices in group.devices:
            for position in range(devices.per_numa_node):
                if devices.driver == driver:
                    index = numa * devices.per_numa_node + position
                    words = {"node": node, "nodeIndex": str(node_index), "numa": str(numa), "index": str(index)}
                    yield _render_device(devices, words, numa, f"{numa:04x}:{bus:02x}:00.0")
                bus += 1


def _render_device(devices: DeviceGroup, words: Mapping[str, str], numa: int, bus_id: str) -> Object:
    attributes: Object = {
        f"{STANDARD}/numaNode": {"int": numa},
        f"{STANDARD}/pciBusID": {"string": bus_id},
        f"{STANDARD}/pcieRoot": {"string": f"pci{numa:04x}:00"},
    }
    for name, value in devices.attributes.items():
        attributes[name] = _render_attribute(value, words)
    device: Object = {"name": devices.name.format_map(words), "attributes": attributes}
    if devices.capacity:
        device["capacity"] = {name: {"value": amount} for name, amount in devices.capacity.items()}
    return device


def _render_attribute(value: AttributeValue, words: Mapping[str, str]) -> Object:
    match value:
        case bool():
            return {"bool": value}
        case int():
            return {"int": value}
        case Version():
            return {"version": value.version}
        case str():
            return {"string": value.format_map(words)}


def render_classes(inventory: Inventory) -> tuple[Object, ...]:
    """Return the DeviceClasses and the StorageClasses."""
    return (
        *(_render_device_class(inventory, wanted) for wanted in inventory.device_classes),
        *(_render_storage_class(inventory, wanted) for wanted in inventory.storage_classes),
    )


def _render_device_class(inventory: Inventory, wanted: DeviceClass) -> Object:
    spec: Object = {"selectors": [{"cel": {"expression": wanted.selector or f'device.driver == "{wanted.driver}"'}}]}
    if wanted.extended_resource_name:
        spec["extendedResourceName"] = wanted.extended_resource_name
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": wanted.name, "labels": {INVENTORY_LABEL: inventory.name}},
        "spec": spec,
    }


def _render_storage_class(inventory: Inventory, wanted: StorageClass) -> Object:
    default = {"storageclass.kubernetes.io/is-default-class": "true"} if wanted.default else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": wanted.name, "labels": {INVENTORY_LABEL: inventory.name}, "annotations": default},
        "provisioner": f"local.serving-stack.dev/{'shared' if wanted.shared else 'single-node'}",
        "reclaimPolicy": "Delete",
        "allowVolumeExpansion": wanted.expandable,
        "volumeBindingMode": wanted.binding,
    }


def render_cluster_objects(inventory: Inventory) -> tuple[Object, ...]:
    """Return the cluster-scoped extras, labelled as the inventory's."""
    return tuple(_labelled(manifest, inventory) for manifest in inventory.cluster_objects)


def render_namespace(inventory: Inventory, namespace: str) -> tuple[Object, ...]:
    """Return a Namespace and what an operator has prepared in it."""
    labels = {INVENTORY_LABEL: inventory.name}
    created: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    prepared = (_labelled(manifest, inventory) for manifest in inventory.namespace_objects)
    return (created, *({**each, "metadata": {**each["metadata"], "namespace": namespace}} for each in prepared))


def _labelled(manifest: Object, inventory: Inventory) -> Object:
    metadata = manifest["metadata"]
    labels = {**metadata.get("labels", {}), INVENTORY_LABEL: inventory.name}
    return {**manifest, "metadata": {**metadata, "labels": labels}}
