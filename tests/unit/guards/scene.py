"""A stack file and a cluster around it in which nothing stands in the way, to change one thing in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stack import labels
from stack.facts import ClusterFacts, Reference, Surroundings
from stack.guards import check_guards, references
from stack.guards.wanted import fixed_names, wanted
from stack.plan import plan_stack
from tests.builders import EMPTY_CLUSTER, accepted, merged
from tests.devices import device_class, node

if TYPE_CHECKING:
    from stack.config.root import StackConfig
    from stack.guards import GuardFinding
    from stack.planned import StackPlan

Object = dict[str, Any]
NPU, NIC = "npu.rebellions.ai", "dranet"
TEMPLATE: Object = {
    "metadata": {"name": "npu-rdma", "namespace": "ns"},
    "spec": {
        "spec": {
            "devices": {
                "requests": [
                    {"name": "npu", "exactly": {"deviceClassName": NPU, "count": 4}},
                    {"name": "nic", "exactly": {"deviceClassName": NIC, "count": 2}},
                ]
            }
        }
    },
}
GOING: Object = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@dataclass(frozen=True)
class Scene:
    """A plan and what is around it."""

    config: StackConfig
    plan: StackPlan
    around: Surroundings

    def but(self, **parts: Any) -> Scene:
        """The same with other surroundings."""
        return replace(self, around=replace(self.around, **parts))

    def without(self, *kinds: str) -> Scene:
        """The same without objects of these kinds."""
        return self.but(objects={ref: None if ref.kind in kinds else meta for ref, meta in self.around.objects.items()})

    def with_metadata(self, kind: str, **meta: Any) -> Scene:
        """The same with other metadata on every object of a kind."""
        return self.but(
            objects={ref: meta if ref.kind == kind else known for ref, known in self.around.objects.items()}
        )

    def findings(self) -> tuple[GuardFinding, ...]:
        return check_guards(self.config, self.plan, self.around)

    def only(self) -> GuardFinding:
        """The one thing that is found."""
        [found] = self.findings()
        return found

    def letters(self) -> list[str]:
        """`refuses` or `warns`, and the key, of everything that is found."""
        return [f"{'refuses' if each.is_refusal else 'warns'} {each.problem.key}" for each in self.findings()]


def scene(facts: ClusterFacts = EMPTY_CLUSTER, **blocks: Any) -> Scene:
    """The smallest stack with blocks over it, where everything is there that it refers to, and nothing else."""
    taken = accepted(**blocks)
    config, plan = taken.config, plan_stack(taken, facts)
    asked = wanted(config, plan)
    ours = {"labels": labels.common_labels("rel")}
    fixed = set(fixed_names(plan))
    live = [
        claim(name) for name in references.mounted_claims(plan) if name not in {v.object.name for v in plan.volumes}
    ]
    return Scene(
        config,
        plan,
        Surroundings(
            nodes=[node(f"npu-{index}", cpu="128", memory="1200Gi") for index in range(4)],
            pods=[],
            release_pods=[],
            slices=[],
            resource_claims=[],
            device_classes={name: device_class(name, "true") for name in (NPU, NIC)},
            claim_templates=dict.fromkeys(asked.claim_templates, TEMPLATE),
            storage_classes={"standard": storage_class("standard", is_default=True)},
            volume_claims={each["metadata"]["name"]: each for each in live},
            replica_sets=[],
            deployments=[],
            secrets=dict.fromkeys(asked.secrets, True),
            # Those with fixed names are not there yet; the others must be.
            objects={reference: None if reference in fixed else ours for reference in asked.objects},
            groups={},
            served={version: frozenset(kinds) for version, kinds in references.kinds(config, plan).items()}
            | dict.fromkeys(references.metrics(plan), frozenset({"MetricValueList"})),
            server_version="v1.36.3",
        ),
    )


def claim(name: str, *, size: str = "500Gi", modes: tuple[str, ...] = ("ReadWriteMany",), **over: Any) -> Object:
    """A bound PersistentVolumeClaim of class `standard`."""
    live: Object = {
        "metadata": {"name": name, "namespace": "ns", "labels": labels.common_labels("rel")},
        "spec": {
            "accessModes": list(modes),
            "storageClassName": "standard",
            "resources": {"requests": {"storage": size}},
            "volumeMode": "Filesystem",
        },
        "status": {"phase": "Bound", "accessModes": list(modes), "capacity": {"storage": size}},
    }
    return merged(live, over)


def storage_class(name: str, *, is_default: bool = False, **over: Any) -> Object:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if is_default else {}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "allowVolumeExpansion": True,
        "volumeBindingMode": "Immediate",
        **over,
    }


def pod(
    name: str, maker: str | None = "rel-decode", *, on: str | None = None, namespace: str = "ns", **over: Any
) -> Object:
    """A Pod with the release's labels, made by a ReplicaSet of that Deployment, or by hand."""
    made: Object = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**labels.common_labels("rel", "decode"), "pod-template-hash": "abc"},
        },
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Running"},
    }
    if maker is not None:
        owner = {"kind": "ReplicaSet", "name": f"{maker}-abc", "uid": "u", "controller": True}
        made["metadata"]["ownerReferences"] = [owner]
    if on is not None:
        made["spec"]["nodeName"] = on
    return merged(made, over)


def asking(**amounts: str) -> Object:
    """Spec of a Pod of one container with these requests."""
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": amounts}}]}}


def reference(of: Scene, kind: str) -> Reference:
    """The only object of a kind that is looked up."""
    [found] = [each for each in of.around.objects if each.kind == kind]
    return found
