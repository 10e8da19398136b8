"""Writes one planned object down as a Pulumi resource: one way for all components, so that none misses anything."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import pulumi
import pulumi_kubernetes as k8s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stack.planned import ObjectPlan

TYPED: dict[tuple[str, str], type[pulumi.CustomResource]] = {
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"): (
        k8s.admissionregistration.v1.ValidatingAdmissionPolicy
    ),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"): (
        k8s.admissionregistration.v1.ValidatingAdmissionPolicyBinding
    ),
    ("apps/v1", "Deployment"): k8s.apps.v1.Deployment,
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): k8s.rbac.v1.ClusterRole,
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): k8s.rbac.v1.ClusterRoleBinding,
    ("rbac.authorization.k8s.io/v1", "Role"): k8s.rbac.v1.Role,
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): k8s.rbac.v1.RoleBinding,
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): k8s.resource.v1.ResourceClaimTemplate,
    ("v1", "ConfigMap"): k8s.core.v1.ConfigMap,
    ("v1", "PersistentVolumeClaim"): k8s.core.v1.PersistentVolumeClaim,
    ("v1", "Secret"): k8s.core.v1.Secret,
    ("v1", "Service"): k8s.core.v1.Service,
    ("v1", "ServiceAccount"): k8s.core.v1.ServiceAccount,
}


def scoped(component: str, planned: ObjectPlan) -> str:
    """The logical name inside a component, so that two stacks in one program do not collide."""
    return f"{component}-{planned.logical_name}"


def declare(
    logical_name: str, planned: ObjectPlan, options: pulumi.ResourceOptions, *, owners: Sequence[Any] | None = None
) -> pulumi.CustomResource:
    """Register a planned object.

    Args:
        logical_name: its identity in the state: `scoped`, or the planned one where that is unique in a cluster.
        planned: the object as decided.
        options: its own options; `delete_before_replace` is added here, since an engine-made replacement creates first
            otherwise, which can't work with a fixed name.
        owners: `metadata.ownerReferences` that only a live object can give.
    """
    manifest = planned.manifest
    metadata: dict[str, Any] = dict(manifest["metadata"])
    if owners is not None:
        metadata["ownerReferences"] = list(owners)
    body: dict[str, Any] = {
        _snake(key): value for key, value in manifest.items() if key not in ("apiVersion", "kind", "metadata")
    }
    options = pulumi.ResourceOptions.merge(
        pulumi.ResourceOptions(delete_before_replace=not planned.is_named_by_content), options
    )
    kind = cast("Any", TYPED.get((manifest["apiVersion"], manifest["kind"])))
    if kind is None:
        return k8s.apiextensions.CustomResource(
            logical_name,
            api_version=manifest["apiVersion"],
            kind=manifest["kind"],
            metadata=metadata,
            opts=options,
            **body,
        )
    return kind(logical_name, metadata=metadata, opts=options, **body)


def _snake(key: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower()
