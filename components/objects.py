"""Writes one planned object down as a Pulumi resource: one way for all components, so that none misses anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pulumi

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stack.planned import ObjectPlan

CORE_GROUP = {"v1": "core/v1"}
"""What Pulumi calls the group that has no name."""
KEPT_SECRET = {"Secret": ["data", "stringData"]}
"""Outputs by kind that the engine seals in the state, whatever it was given."""


class KubernetesObject(pulumi.CustomResource):
    """Any object in the cluster, by its manifest.

    The SDK has a class for each kind, which sends the same: to import those of `core/v1` takes longer than to import
    everything else that the program needs, and all that they know besides is types, which a manifest does without.

    Attributes:
        metadata: as it is in the cluster.
    """

    metadata: pulumi.Output[Any]

    def __init__(self, name: str, manifest: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(
            token(manifest["apiVersion"], manifest["kind"]),
            name,
            dict(manifest),
            pulumi.ResourceOptions.merge(
                pulumi.ResourceOptions(additional_secret_outputs=KEPT_SECRET.get(manifest["kind"])), opts
            ),
        )


def token(api_version: str, kind: str) -> str:
    """The Kubernetes provider's type token of a kind: permanent, it is part of an object's identity in the state."""
    return f"kubernetes:{CORE_GROUP.get(api_version, api_version)}:{kind}"


def scoped(component: str, planned: ObjectPlan) -> str:
    """The logical name inside a component, so that two stacks in one program do not collide."""
    return f"{component}-{planned.logical_name}"


def declare(
    logical_name: str, planned: ObjectPlan, options: pulumi.ResourceOptions, *, owners: Sequence[Any] | None = None
) -> KubernetesObject:
    """Register a planned object.

    Args:
        logical_name: its identity in the state: `scoped`, or the planned one where that is unique in a cluster.
        planned: the object as decided.
        options: its own options; `delete_before_replace` is added here, since an engine-made replacement creates first
            otherwise, which can't work with a fixed name.
        owners: `metadata.ownerReferences` that only a live object can give.
    """
    metadata: dict[str, Any] = dict(planned.manifest["metadata"])
    if owners is not None:
        metadata["ownerReferences"] = list(owners)
    options = pulumi.ResourceOptions.merge(
        pulumi.ResourceOptions(delete_before_replace=not planned.is_named_by_content), options
    )
    return KubernetesObject(logical_name, {**planned.manifest, "metadata": metadata}, options)
