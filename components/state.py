"""Asks the engine what its state holds of this stack, before anything is registered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pulumi

from stack import labels, names
from stack.facts import STATE_UNKNOWN, HeldTopology, StateFacts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Object = dict[str, Any]
ANCHOR_TYPE = "kubernetes:core/v1:ConfigMap"
PROVIDER_TYPE = "pulumi:providers:kubernetes"


def read_state() -> StateFacts:
    """The stack's own resources as its last update left them; unknown when the engine does not tell."""
    stack = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    try:
        answer: Any = pulumi.runtime.invoke("pulumi:pulumi:readStackResourceOutputs", {"stackName": stack}).value
        return _state(answer["outputs"])
    except Exception as error:  # noqa: BLE001  # whatever an older or newer engine makes of it
        pulumi.log.debug(f"the state could not be read: {error!r}")
        return STATE_UNKNOWN


def _state(resources: Mapping[str, Any]) -> StateFacts:
    identifiers: list[str | None] = [
        resource["outputs"].get("clusterIdentifier")
        for resource in resources.values()
        if resource["type"] == PROVIDER_TYPE
    ]
    return StateFacts(
        topologies=tuple(_topologies(resources)),
        cluster_identifier=next((found for found in identifiers if found), None),
    )


def _topologies(resources: Mapping[str, Any]) -> Iterator[HeldTopology]:
    for resource in resources.values():
        outputs: Object = resource["outputs"]
        meta: Object = outputs.get("metadata") or {}
        found: Object = meta.get("labels") or {}
        data: Object = outputs.get("data") or {}
        release = found.get(labels.INSTANCE, "")
        if resource["type"] == ANCHOR_TYPE and meta.get("name") == names.topology_anchor(release):
            yield HeldTopology(release=release, namespace=meta.get("namespace", ""), key=data.get("key", ""))
