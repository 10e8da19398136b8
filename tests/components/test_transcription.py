"""The plan is written down, field by field, and nothing else appears."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pulumi
import pytest

from components.objects import TYPED
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


@pytest.mark.parametrize(("api_version", "kind"), sorted(TYPED))
def test_typed_resources_are_of_the_planned_api_version(api_version: str, kind: str) -> None:
    pulumi_type: str = TYPED[api_version, kind].pulumi_type  # type: ignore[attr-defined]  # every generated class has one
    group = api_version if "/" in api_version else f"core/{api_version}"
    assert pulumi_type == f"kubernetes:{group}:{kind}"


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
        is_deployment = recorded.kind == "Deployment"
        assert annotations.get("pulumi.com/waitFor") == ("jsonpath={.metadata.uid}" if is_deployment else None)
        assert "pulumi.com/deletionPropagationPolicy" not in annotations, "background would not wait for the Pods"


def test_a_wrong_uid_is_no_uid(declare: Stage) -> None:
    """An update in which the anchor has none must not make Deployments that the garbage collector takes at once."""
    recorder = Recorder(uid=None)
    with pytest.raises(pulumi.RunError, match="topology anchor has no uid"):
        declare(whole_stack(PLANS["the smallest"]), recorder=recorder)
    assert [r.name for r in recorder.of("Deployment")] == ["rel-epp"]
