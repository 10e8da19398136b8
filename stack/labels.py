"""Labels, annotations and metadata, decided in one place.

Selectors use the stable few (`instance`, `component`, for nodePlacement the entry) and never a version. What the engine
needs on every object to recover from an emptied or outdated state stands here too, so that a golden file shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
PART_OF = "app.kubernetes.io/part-of"
MANAGED_BY = "app.kubernetes.io/managed-by"
ROLE = "llm-d.ai/role"
INFERENCE_SERVING = "llm-d.ai/inference-serving"
TOPOLOGY = "serving-stack.dev/topology"
"""On every role Pod: the topology key it was made under. New Pods wait until no Pod with another key is left."""
ENTRY = "serving-stack.dev/entry"
"""On the workload and Pod of a nodePlacement entry: its index in the list."""
NODE = "serving-stack.dev/node"
"""Annotation of a nodePlacement workload: its node, read back to tell a reassignment from an addition."""
GENERATION = "serving-stack.dev/generation"
"""Annotation of the topology anchor: how often nodePlacement entries were reassigned."""
APPLIED = "serving-stack.dev/applied"
"""Annotation of a Deployment: what its Pod template was made from, by config key. See `stack.record`."""
ACTIVE_PORTS = "inference.networking.k8s.io/active-ports"
"""On role Pods: the ports this Pod serves. Without it the EPP takes every targetPort of the pool for every Pod."""

EPP_WITH_POOL, EPP_WITHOUT_POOL = "llm-d-router-gateway", "llm-d-router-standalone"
"""Labels by which the EPP's Pods are selected; their value is the EPP's name (llm-d router chart)."""

FIELD_MANAGER = "pulumi.com/patchFieldManager"
"""Annotation: as whom the provider applies an object."""
OURS: Mapping[str, str] = {
    # Together with the provider's upsert these let an emptied or outdated state find its objects again; with fewer of
    # them it failed on "already exists" or on field conflicts (tried with provider 4.25 and 4.34).
    "pulumi.com/patchForce": "true",
    FIELD_MANAGER: "serving-stack",
}
SKIP_AWAIT: Mapping[str, str] = {"pulumi.com/skipAwait": "true"}
WAIT_FOR_UID: Mapping[str, str] = {"pulumi.com/waitFor": "jsonpath={.metadata.uid}"}
"""True at once: the program decides when a Deployment is rolled out, but deletion is awaited, unlike with skipAwait."""

ROLE_LABEL_VALUES: Mapping[str, str] = {
    "prefill": "prefill",
    "decode": "decode",
    # The value that the role filters of the llm-d router accept for a Pod that does both.
    "aggregated": "prefill-decode",
}


def common_labels(release: str, component: str | None = None) -> dict[str, str]:
    """Labels of every object of a release; `component` names the part it belongs to."""
    labels = {INSTANCE: release, MANAGED_BY: "pulumi", PART_OF: "serving-stack"}
    return labels | {COMPONENT: component} if component else labels


def object_meta(
    name: str,
    *,
    release: str,
    namespace: str | None,
    component: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Metadata of an object of this release; `namespace=None` for cluster-scoped ones.

    What `labels` and `annotations` add never takes the place of the stack's own: guards and the engine look for those.
    """
    meta: dict[str, Any] = {"name": name}
    if namespace is not None:
        meta["namespace"] = namespace
    meta["labels"] = {**(labels or {}), **common_labels(release, component)}
    meta["annotations"] = {**(annotations or {}), **OURS}
    return meta
