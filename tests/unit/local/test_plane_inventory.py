"""Inventories: what the files say, what they are refused for, and the objects made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from local.inventory import InventoryError, inventory_names, load_inventory, read_inventory
from local.inventory.render import (
    INVENTORY_LABEL,
    render_classes,
    render_cluster_objects,
    render_namespace,
    render_nodes,
    render_slices,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from local.inventory import Inventory


def uids(inventory: Inventory) -> dict[str, str]:
    return {node["metadata"]["name"]: f"uid-of-{node['metadata']['name']}" for node in render_nodes(inventory)}


def attributes(device: dict[str, Any]) -> dict[str, Any]:
    return {name: next(iter(value.values())) for name, value in device["attributes"].items()}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write_inventory(text: str) -> Path:
        path = tmp_path / "inventory.yaml"
        path.write_text(text)
        return path

    return write_inventory


# -- what comes with the plane ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "want_nodes", "want_devices"),
    [
        ("reference", 4, {"npu.rebellions.ai": 32, "dra.net": 16}),
        ("small", 2, {"npu.rebellions.ai": 16, "dra.net": 8}),
        ("spare", 5, {"npu.rebellions.ai": 40, "dra.net": 20}),
        ("gpu", 4, {"gpu.nvidia.com": 32, "dra.net": 32}),
        ("device-plugin", 4, {}),
        ("gpu-device-plugin", 4, {}),
    ],
)
def test_the_inventories_have_the_devices_they_promise(
    name: str, want_nodes: int, want_devices: dict[str, int]
) -> None:
    inventory = load_inventory(name)
    assert inventory.name == name
    assert inventory.node_count == want_nodes
    assert inventory.devices_by_driver() == want_devices


def test_every_inventory_is_listed_by_the_test_above() -> None:
    assert set(inventory_names()) == {"reference", "small", "spare", "gpu", "device-plugin", "gpu-device-plugin"}


def test_a_reference_node_has_four_npus_and_two_nics_on_each_of_two_numa_nodes() -> None:
    inventory = load_inventory("reference")
    slices = [each["spec"] for each in render_slices(inventory, uids(inventory)) if each["spec"]["nodeName"] == "npu-0"]
    found = {
        (spec["driver"], attributes(device)["resource.kubernetes.io/numaNode"], device["name"])
        for spec in slices
        for device in spec["devices"]
    }
    assert found == {
        *(("npu.rebellions.ai", 0, f"rbln{index}") for index in range(4)),
        *(("npu.rebellions.ai", 1, f"rbln{index}") for index in range(4, 8)),
        *(("dra.net", 0, f"nic{index}") for index in range(2)),
        *(("dra.net", 1, f"nic{index}") for index in range(2, 4)),
    }


def test_a_reference_node_has_room_for_two_model_servers_and_an_endpoint_picker() -> None:
    for group in load_inventory("reference").nodes.values():
        assert int(group.cpu) >= 2 * 40 + 4
        assert int(group.memory.removesuffix("Gi")) >= 2 * 460 + 8


# -- rendering --------------------------------------------------------------------------------------------------------


def test_there_is_one_slice_for_each_node_and_driver_and_it_goes_with_its_node() -> None:
    inventory = load_inventory("small")
    slices = render_slices(inventory, uids(inventory))
    assert [(each["spec"]["nodeName"], each["spec"]["driver"]) for each in slices] == [
        ("npu-0", "npu.rebellions.ai"),
        ("npu-0", "dra.net"),
        ("npu-1", "npu.rebellions.ai"),
        ("npu-1", "dra.net"),
    ]
    for each in slices:
        node = each["spec"]["nodeName"]
        assert each["spec"]["pool"] == {"name": node, "generation": 1, "resourceSliceCount": 1}
        [owner] = each["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", node, f"uid-of-{node}")


def test_no_two_devices_of_a_node_share_a_bus_address() -> None:
    inventory = load_inventory("reference")
    for node in uids(inventory):
        buses = [
            attributes(device)["resource.kubernetes.io/pciBusID"]
            for each in render_slices(inventory, uids(inventory))
            if each["spec"]["nodeName"] == node
            for device in each["spec"]["devices"]
        ]
        assert len(set(buses)) == len(buses) == 12


def test_attributes_keep_their_types_and_placeholders_are_filled_in(write: Callable[[str], Path]) -> None:
    path = write("""
basedOn: small
nodes:
  npu:
    count: 2
    numaNodes: 1
    devices:
    - driver: gpu.example.com
      name: gpu-{index}
      perNumaNode: 1
      attributes:
        uuid: '{node}/{nodeIndex}/{numa}/{index}'
        rdma: true
        mtu: 4200
        driverVersion: {version: 1.2.3}
      capacity: {memory: 80Gi}
deviceClasses: []
""")
    inventory = read_inventory(path)
    last = render_slices(inventory, uids(inventory))[-1]["spec"]["devices"][0]
    assert last["name"] == "gpu-0"
    assert last["capacity"] == {"memory": {"value": "80Gi"}}
    assert last["attributes"] == {
        "resource.kubernetes.io/numaNode": {"int": 0},
        "resource.kubernetes.io/pciBusID": {"string": "0000:10:00.0"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
        "uuid": {"string": "npu-1/1/0/0"},
        "rdma": {"bool": True},
        "mtu": {"int": 4200},
        "driverVersion": {"version": "1.2.3"},
    }


def test_a_node_is_marked_for_kwok_and_says_what_it_can_hold() -> None:
    node = render_nodes(load_inventory("device-plugin"))[1]
    assert node["metadata"]["name"] == "npu-1"
    assert node["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake"}
    assert node["metadata"]["labels"] == {
        "kubernetes.io/hostname": "npu-1",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": "zone-b",
        "rebellions.ai/npu.family": "rebel100",
        INVENTORY_LABEL: "device-plugin",
    }
    assert node["status"]["allocatable"] == {
        "cpu": "128",
        "memory": "1200Gi",
        "ephemeral-storage": "2Ti",
        "pods": "110",
        "rebellions.ai/npu": "8",
        "rdma/hca_shared_devices_a": "4",
    }


def test_nodes_have_addresses_and_pod_ranges_of_their_own(write: Callable[[str], Path]) -> None:
    nodes = render_nodes(read_inventory(write("{basedOn: small, nodes: {npu: {count: 600}}}")))
    assert len({node["spec"]["podCIDR"] for node in nodes}) == 600
    assert len({node["status"]["addresses"][0]["address"] for node in nodes}) == 600
    assert nodes[599]["spec"]["podCIDR"] == "10.130.87.0/24"
    assert nodes[599]["status"]["addresses"][0]["address"] == "10.64.2.100"


def test_device_classes_select_by_driver_and_the_vendors_has_its_extended_resource() -> None:
    classes = {each["metadata"]["name"]: each["spec"] for each in render_classes(load_inventory("small"))[:2]}
    assert classes == {
        "npu.rebellions.ai": {
            "selectors": [{"cel": {"expression": 'device.driver == "npu.rebellions.ai"'}}],
            "extendedResourceName": "rebellions.ai/npu",
        },
        "dranet": {"selectors": [{"cel": {"expression": 'device.driver == "dra.net"'}}]},
    }


def test_one_storage_class_is_the_default_and_one_cannot_grow() -> None:
    classes = [each for each in render_classes(load_inventory("small")) if each["kind"] == "StorageClass"]
    defaults = [each["metadata"]["name"] for each in classes if each["metadata"]["annotations"]]
    assert defaults == ["kwok-volume"]
    growing = {each["metadata"]["name"]: each["allowVolumeExpansion"] for each in classes}
    assert growing["kwok-volume"]
    assert not growing["kwok-volume-fixed"]


def test_what_an_operator_prepares_goes_into_the_namespace_after_the_namespace_itself() -> None:
    namespace, *prepared = render_namespace(load_inventory("reference"), "llm")
    assert (namespace["kind"], namespace["metadata"]["name"]) == ("Namespace", "llm")
    assert [(each["kind"], each["metadata"]["name"]) for each in prepared] == [
        ("Secret", "llm-d-hf-token"),
        ("Secret", "registry-pull"),
        ("PersistentVolumeClaim", "model-store"),
        ("ResourceClaimTemplate", "npu-rdma"),
    ]
    assert {each["metadata"]["namespace"] for each in prepared} == {"llm"}


def test_everything_outside_namespaces_is_labelled_so_that_it_can_be_found_again() -> None:
    inventory = load_inventory("gpu")
    rendered = (
        *render_nodes(inventory),
        *render_slices(inventory, uids(inventory)),
        *render_classes(inventory),
        *render_cluster_objects(inventory),
    )
    assert {each["metadata"]["labels"][INVENTORY_LABEL] for each in rendered} == {"gpu"}


# -- files that are refused -------------------------------------------------------------------------------------------

BAD = {
    "a misspelt key": ("{basedOn: small, nodes: {npu: {cuont: 3}}}", "nodes.npu.cuont = 3: Extra inputs"),
    "a number where a quantity belongs": ("{basedOn: small, nodes: {npu: {cpu: 128}}}", "nodes.npu.cpu = 128:"),
    "a quantity that is none": ("{basedOn: small, nodes: {npu: {memory: 12 Gb}}}", 'nodes.npu.memory = "12 Gb":'),
    "a count below zero": ("{basedOn: small, nodes: {npu: {count: -1}}}", "nodes.npu.count = -1:"),
    "no node at all": ("{basedOn: small, nodes: {npu: {count: 0}}}", "nodes: there is no node"),
    "a node name that is no name": (
        "{basedOn: small, nodes: {npu: null, Big_Node: {count: 1, cpu: '1', memory: 1Gi}}, deviceClasses: []}",
        "nodes.Big_Node",
    ),
    "a class of devices that nobody has": (
        "{basedOn: small, deviceClasses: [{name: tpu, driver: tpu.example.com}]}",
        "tpu selects devices of tpu.example.com, which no node has",
    ),
    "two default storage classes": (
        "{basedOn: small, storageClasses: [{name: a, default: true}, {name: b, default: true}]}",
        "storageClasses: more than one is the default",
    ),
    "a storage class twice": (
        "{basedOn: small, storageClasses: [{name: a}, {name: a}]}",
        "storageClasses: a is there twice",
    ),
    "more devices than a slice holds": (
        "{basedOn: small, nodes: {npu: {devices: [{driver: d, name: 'x{index}', perNumaNode: 65}]}}}",
        "d has 130 devices on a node; a ResourceSlice holds 128",
    ),
    "devices that all have one name": (
        "{basedOn: small, nodes: {npu: {devices: [{driver: d, name: x, perNumaNode: 1}]}}, deviceClasses: []}",
        "name must contain {index}",
    ),
    "a placeholder that nobody fills in": (
        "{basedOn: small, nodes: {npu: {devices: [{driver: d, name: '{index}{rack}', perNumaNode: 1}]}}}",
        "has a placeholder that is none of {node}, {nodeIndex}, {numa}, {index}",
    ),
    "a manifest without a kind": (
        "{basedOn: small, clusterObjects: [{apiVersion: v1, metadata: {name: x}}]}",
        "clusterObjects[0]: is no manifest: kind missing",
    ),
    "a manifest that names its namespace": (
        "{basedOn: small, namespaceObjects: [{apiVersion: v1, kind: Secret, metadata: {name: x, namespace: y}}]}",
        "namespaceObjects[0]: must not name a namespace",
    ),
    "a base that does not exist": ("{basedOn: smal}", "basedOn = smal: there is no such inventory"),
    "a key given twice": ("{basedOn: small, name: a, name: b}", "the key name is given twice"),
    "a list": ("[1, 2]", "is not a map of keys"),
    "no YAML": ("{", "is not YAML"),
    "something missing": ("{name: x, nodes: {}}", "description: is missing"),
}


@pytest.mark.parametrize("why", BAD)
def test_a_bad_inventory_is_refused_with_the_key_that_is_wrong(why: str, write: Callable[[str], Path]) -> None:
    text, want = BAD[why]
    with pytest.raises(InventoryError) as refused:
        read_inventory(write(text))
    assert any(want in problem for problem in refused.value.problems), refused.value.problems


def test_every_problem_is_named_at_once(write: Callable[[str], Path]) -> None:
    with pytest.raises(InventoryError) as refused:
        read_inventory(write("{basedOn: small, nodes: {npu: {cpu: 1, memory: 2, pods: 0}}}"))
    assert {problem.split(" ")[0] for problem in refused.value.problems} == {
        "nodes.npu.cpu",
        "nodes.npu.memory",
        "nodes.npu.pods",
    }


def test_a_file_that_is_not_there_is_a_letter_and_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="cannot be read: No such file"):
        load_inventory(str(tmp_path / "none.yaml"))


def test_a_name_that_is_not_there_lists_those_that_are() -> None:
    with pytest.raises(InventoryError, match=r"there are device-plugin, gpu, .*reference, small, spare"):
        load_inventory("large")


def test_a_change_replaces_lists_and_merges_maps(write: Callable[[str], Path]) -> None:
    inventory = read_inventory(write("{basedOn: small, nodes: {npu: {labels: {a: b}, zones: [z]}}}"))
    group = inventory.nodes["npu"]
    assert group.labels == {"rebellions.ai/npu.family": "rebel100", "a": "b"}
    assert group.zones == ("z",)
    assert group.count == 2
