"""The shape of an inventory file, and the rules that Kubernetes would only enforce once the plane runs.

Fields are camelCase in the file. Quantities are Kubernetes quantities, written as strings.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # pydantic reads the annotations
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

MAX_DEVICES_PER_SLICE = 128  # k8s.io/api/resource/v1, ResourceSliceMaxDevices
PLACEHOLDERS = {"node": "node", "nodeIndex": "0", "numa": "0", "index": "0"}

Quantity = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$")]
ObjectName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
NodePrefix = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=50)]
DriverName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=63)]
ResourceName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]+/[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$")]


def _has_known_placeholders(text: str) -> str:
    try:
        text.format_map(PLACEHOLDERS)
    except (KeyError, IndexError, ValueError):
        known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        raise ValueError(f"has a placeholder that is none of {known}") from None
    return text


Template = Annotated[str, AfterValidator(_has_known_placeholders)]


class Strict(BaseModel):
    """Frozen, and closed to keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=to_camel)


class Version(Strict):
    """A device attribute of type version (semver)."""

    version: Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+([-+].*)?$")]


AttributeValue = bool | int | Template | Version


class DeviceGroup(Strict):
    """Devices of one kind, the same number on every NUMA node of a node, published in their driver's ResourceSlice."""

    driver: DriverName = Field(description="DRA driver that publishes them, `device.driver` in CEL.")
    name: Template = Field(description="Name of each device; {index} counts over the node.")
    per_numa_node: int = Field(ge=1, description="How many on each NUMA node.")
    attributes: Mapping[str, AttributeValue] = Field(
        default={},
        description="Besides numaNode, pciBusID and pcieRoot of resource.kubernetes.io, which are made up.",
    )
    capacity: Mapping[str, Quantity] = Field(default={}, description="Amounts, for instance memory.")

    @model_validator(mode="after")
    def _names_differ(self) -> DeviceGroup:
        if "{index}" not in self.name:
            raise ValueError("name must contain {index}, or all devices of the group would have the same name")
        return self


class NodeGroup(Strict):
    """Nodes that are alike. They are called `<key>-0`, `<key>-1`, ..."""

    count: int = Field(ge=0, le=5000, description="How many.")
    zones: tuple[str, ...] = Field(default=(), description="topology.kubernetes.io/zone, taken in turn.")
    labels: Mapping[str, str] = Field(default={}, description="Labels of every node of the group.")
    cpu: Quantity = Field(description="Allocatable CPUs.")
    memory: Quantity = Field(description="Allocatable memory.")
    ephemeral_storage: Quantity = Field(default="2Ti", description="Allocatable local disk.")
    pods: int = Field(default=110, ge=1, description="How many Pods fit.")
    numa_nodes: int = Field(default=1, ge=1, le=16, description="NUMA nodes of each node.")
    devices: tuple[DeviceGroup, ...] = Field(default=(), description="Devices published by DRA drivers.")
    extended_resources: Mapping[ResourceName, Annotated[int, Field(ge=0)]] = Field(
        default={}, description="Devices counted by device plugins, per node."
    )

    @model_validator(mode="after")
    def _fits_in_slices(self) -> NodeGroup:
        for driver in {group.driver for group in self.devices}:
            groups = [group for group in self.devices if group.driver == driver]
            total = self.numa_nodes * sum(group.per_numa_node for group in groups)
            if total > MAX_DEVICES_PER_SLICE:
                raise ValueError(
                    f"{driver} has {total} devices on a node; a ResourceSlice holds {MAX_DEVICES_PER_SLICE}"
                )
            if len({group.name for group in groups}) < len(groups):
                raise ValueError(f"two groups of {driver} give their devices the same names")
        return self


class DeviceClass(Strict):
    """A DeviceClass: what a claim asks for by name."""

    name: ObjectName
    driver: DriverName = Field(description="Whose devices; also the selector, unless one is given.")
    selector: str | None = Field(default=None, description="CEL expression that picks the devices.")
    extended_resource_name: ResourceName | None = Field(
        default=None, description="Lets Pods ask for the devices as an extended resource too."
    )


class StorageClass(Strict):
    """A StorageClass whose volumes exist on paper."""

    name: ObjectName
    default: bool = Field(default=False, description="Used by claims that name no class.")
    expandable: bool = Field(default=True, description="Whether a claim may grow.")
    shared: bool = Field(default=True, description="Whether volumes can be used from several nodes (ReadWriteMany).")
    binding: Literal["Immediate", "WaitForFirstConsumer"] = Field(
        default="Immediate", description="Bind at once, or when a Pod wants it."
    )


def _is_manifest(manifest: dict[str, Any]) -> dict[str, Any]:
    missing = [key for key in ("apiVersion", "kind") if not isinstance(manifest.get(key), str)]
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):  # pyright: ignore[reportUnknownMemberType]  # JSON
        missing.append("metadata.name")
    elif "namespace" in metadata:
        raise ValueError("must not name a namespace; it is put into every namespace the plane creates")
    if missing:
        raise ValueError(f"is no manifest: {', '.join(missing)} missing")
    return manifest


Manifest = Annotated[dict[str, Any], AfterValidator(_is_manifest)]


class Inventory(Strict):
    """Everything a plane has before anything is deployed on it."""

    name: NodePrefix
    description: str
    nodes: Mapping[NodePrefix, NodeGroup]
    device_classes: tuple[DeviceClass, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    cluster_objects: tuple[Manifest, ...] = Field(default=(), description="Applied once, after the CRDs.")
    namespace_objects: tuple[Manifest, ...] = Field(
        default=(), description="Applied in every namespace that the plane creates."
    )

    @model_validator(mode="after")
    def _hangs_together(self) -> Inventory:
        problems: list[str] = []
        if not any(group.count for group in self.nodes.values()):
            problems.append("nodes: there is no node")
        published = {group.driver for nodes in self.nodes.values() for group in nodes.devices}
        problems += [
            f"deviceClasses: {wanted.name} selects devices of {wanted.driver}, which no node has"
            for wanted in self.device_classes
            if wanted.driver not in published
        ]
        if sum(storage.default for storage in self.storage_classes) > 1:
            problems.append("storageClasses: more than one is the default")
        for key, names in (
            ("deviceClasses", [device_class.name for device_class in self.device_classes]),
            ("storageClasses", [storage.name for storage in self.storage_classes]),
        ):
            problems += [f"{key}: {name} is there twice" for name in sorted({n for n in names if names.count(n) > 1})]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def node_count(self) -> int:
        """How many nodes there are."""
        return sum(group.count for group in self.nodes.values())

    def devices_by_driver(self) -> dict[str, int]:
        """Return how many devices each DRA driver publishes over all nodes."""
        counts: dict[str, int] = {}
        for nodes in self.nodes.values():
            for group in nodes.devices:
                here = nodes.count * nodes.numa_nodes * group.per_numa_node
                counts[group.driver] = counts.get(group.driver, 0) + here
        return counts
