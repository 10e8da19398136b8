"""The plan is written down, field by field, and nothing else appears."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pulumi
import pulumi_kubernetes as k8s
import pytest

from components.objects import KubernetesObject, token
from stack import labels
from tests.components.programs import PLANS, whole_stack
from tests.components.recorder import UID, Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from stack.planned import StackPlan
    from tests.components.recorder import Stage


def identity(manifest: dict[str, Any]) -> tuple[str, str, str]:
    return manifest["apiVersion"], manifest["kind"], manifest["metadata"]["name"]


def wanted(planned: StackPlan, uid: str) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Every planned manifest; only the workloads get something added, which only the live anchor knows."""
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "rel-topology",
        "uid": uid,
        "blockOwnerDeletion": True,
    }
    manifests = {identity(o.manifest): o.manifest for o in planned.objects()}
    for workload in planned.modelserver.workloads:
        manifest = workload.object.manifest
        metadata = {**manifest["metadata"], "ownerReferences": [owner]}
        manifests[identity(manifest)] = {**manifest, "metadata": metadata}
    return manifests


def registered(seen: Recorder) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {identity(r.inputs): r.inputs for r in seen.objects}


def test_an_update_registers_the_plan_and_nothing_else(seen: Recorder, planned: StackPlan) -> None:
    assert len(seen.objects) == len(planned.objects())
    assert registered(seen) == wanted(planned, UID)


def test_a_preview_without_an_anchor_shows_a_stand_in_for_its_uid(
    situation: str, recording: Callable[[str, bool], Recorder], planned: StackPlan
) -> None:
    """Providers from 4.29 on give no uid in a preview of what does not exist yet."""
    seen = recording(situation, True)
    assert registered(seen) == wanted(planned, "00000000-0000-0000-0000-000000000000")


def test_nothing_but_the_stack_the_provider_components_and_objects_is_registered(seen: Recorder) -> None:
    others = {r.type for r in seen.resources if not r.is_object and not r.is_component}
    assert others == {"pulumi:pulumi:Stack", "pulumi:providers:kubernetes"}


@pytest.mark.parametrize(
    ("api_version", "generated"),
    [
        ("admissionregistration.k8s.io/v1", k8s.admissionregistration.v1.ValidatingAdmissionPolicy),
        ("admissionregistration.k8s.io/v1", k8s.admissionregistration.v1.ValidatingAdmissionPolicyBinding),
        ("apps/v1", k8s.apps.v1.Deployment),
        ("autoscaling/v2", k8s.autoscaling.v2.HorizontalPodAutoscaler),
        ("rbac.authorization.k8s.io/v1", k8s.rbac.v1.ClusterRole),
        ("resource.k8s.io/v1", k8s.resource.v1.ResourceClaimTemplate),
        ("v1", k8s.core.v1.ConfigMap),
        ("v1", k8s.core.v1.Secret),
    ],
)
def test_types_are_those_of_the_sdks_own_classes(api_version: str, generated: Any) -> None:
    """It is part of an object's identity in the state."""
    assert token(api_version, generated.__name__) == generated.pulumi_type


def test_the_type_of_a_custom_resource_is_that_of_the_sdks_class_for_all_of_them(declare: Stage) -> None:
    def program() -> None:
        k8s.apiextensions.CustomResource("any", api_version="gateway.networking.k8s.io/v1", kind="Gateway")

    [registered] = declare(program).of("Gateway")
    assert registered.type == token("gateway.networking.k8s.io/v1", "Gateway")


def test_what_a_secret_holds_is_sealed_in_the_state(declare: Stage) -> None:
    def program() -> None:
        for kind in ("Secret", "ConfigMap"):
            KubernetesObject(
                kind, {"apiVersion": "v1", "kind": kind, "metadata": {"name": "any"}}, pulumi.ResourceOptions()
            )

    sealed = {r.kind: list(r.request.additionalSecretOutputs) for r in declare(program).objects}
    assert sealed == {"Secret": ["data", "stringData"], "ConfigMap": []}


def test_every_object_can_be_found_again_by_an_emptied_state(seen: Recorder) -> None:
    for recorded in seen.objects:
        annotations = recorded.inputs["metadata"]["annotations"]
        assert annotations["pulumi.com/patchForce"] == "true"
        assert annotations["pulumi.com/patchFieldManager"] == "serving-stack"


def test_every_object_says_which_release_it_belongs_to(seen: Recorder) -> None:
    for recorded in seen.objects:
        assert recorded.inputs["metadata"]["labels"][labels.INSTANCE] == "rel"


def test_every_object_has_a_name_of_its_own_choice(seen: Recorder) -> None:
    """An object without a name would get one from the provider, at random."""
    assert all(recorded.inputs["metadata"]["name"] for recorded in seen.objects)


def test_what_the_provider_waits_for(seen: Recorder) -> None:
    """For no Deployment to become anything, which the program sees to, but for each to go, with its Pods."""
    skipping = {r.kind for r in seen.objects if "pulumi.com/skipAwait" in r.inputs["metadata"]["annotations"]}
    assert skipping <= {"Service", "PersistentVolumeClaim"}
    assert "Service" in skipping
    for recorded in seen.objects:
        annotations = recorded.inputs["metadata"]["annotations"]
        is_seen_to = recorded.kind in {"Deployment", "HorizontalPodAutoscaler", "ScaledObject", "PodAutoscaler"}
        assert annotations.get("pulumi.com/waitFor") == ("jsonpath={.metadata.uid}" if is_seen_to else None)
        assert "pulumi.com/deletionPropagationPolicy" not in annotations, "background would not wait for the Pods"


def test_a_wrong_uid_is_no_uid(declare: Stage) -> None:
    """An update in which the anchor has none must not make Deployments that the garbage collector takes at once."""
    recorder = Recorder(uid=None)
    with pytest.raises(pulumi.RunError, match="topology anchor has no uid"):
        declare(whole_stack(PLANS["the smallest"]), recorder=recorder)
    assert [r.name for r in recorder.of("Deployment")] == ["rel-epp"]
