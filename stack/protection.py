"""What keeps the topology anchor from being deleted or changed by accident, where the operator wants that.

The anchor owns every model server: deleted in the background it takes them all down, and changed it would have the next
update do the same. A ValidatingAdmissionPolicy of the API server refuses both, whoever asks. It leaves alone what the
engine does (its deletes are in the foreground), the end of the whole namespace, labels and annotations, and every other
object: other namespaces are not even looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stack import labels, names
from stack.planned import ObjectPlan

if TYPE_CHECKING:
    from stack.config.root import StackConfig

API_VERSION = "admissionregistration.k8s.io/v1"


def plan_protection(config: StackConfig, anchor_name: str) -> tuple[ObjectPlan, ...]:
    """Policy and binding, in this order; none unless `rollout.protectTopology` asks for them."""
    if not config.rollout.protect_topology:
        return ()
    name = names.topology_policy(config.release, config.namespace)
    meta = labels.object_meta(name, release=config.release, namespace=None, component="topology")
    policy: dict[str, Any] = {
        # A check that fails must not let through what it was made for; it asks nobody, so it fails for no outage.
        "failurePolicy": "Fail",
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": config.namespace}},
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["configmaps"],
                    "operations": ["UPDATE", "DELETE"],
                    "scope": "Namespaced",
                }
            ],
        },
        "matchConditions": [
            {
                "name": "topology-anchor",
                # Not resourceNames above: in the delete of a whole collection the request has no name (tried with
                # Kubernetes 1.36), the object has.
                "expression": f"oldObject.metadata.name == '{anchor_name}'",
            }
        ],
        "validations": [_may_delete(config, anchor_name), _may_update(config, anchor_name)],
    }
    return (
        ObjectPlan(
            logical_name="topology-policy",
            manifest={
                "apiVersion": API_VERSION,
                "kind": "ValidatingAdmissionPolicy",
                "metadata": meta,
                "spec": policy,
            },
        ),
        ObjectPlan(
            logical_name="topology-policy-binding",
            manifest={
                "apiVersion": API_VERSION,
                "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": meta,
                "spec": {"policyName": name, "validationActions": ["Deny"]},
            },
        ),
    )


def _may_delete(config: StackConfig, anchor_name: str) -> dict[str, Any]:
    """In the foreground, as the engine does it, or with the namespace."""
    return {
        "expression": "request.operation != 'DELETE' || has(namespaceObject.metadata.deletionTimestamp) || "
        "(has(request.options.propagationPolicy) && request.options.propagationPolicy == 'Foreground')",
        "message": f"{anchor_name} owns every model server of release {config.release}, and deleting it takes them "
        "all down. Use `pulumi up` or `pulumi destroy`; if you mean it, "
        f"`kubectl -n {config.namespace} delete configmap {anchor_name} --cascade=foreground`.",
        "reason": "Forbidden",
    }


def _may_update(config: StackConfig, anchor_name: str) -> dict[str, Any]:
    """Anything but the data. A key without value and none at all are different here, as they are for the engine."""
    return {
        "expression": "request.operation != 'UPDATE' || (has(object.data) == has(oldObject.data) && "
        "(!has(object.data) || object.data == oldObject.data))",
        "message": f"{anchor_name} says which topology the model servers of release {config.release} run under. "
        "Change the stack file and run `pulumi up`.",
        "reason": "Forbidden",
    }
