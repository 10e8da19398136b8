"""Another release that rolls on the same devices; what counts as rolling, and as the same."""

from __future__ import annotations

from typing import Any

import pytest

from stack import labels
from stack.guards.serial import is_rolling, named_templates
from tests.builders import merged
from tests.unit.guards.scene import NIC, NPU, TEMPLATE, Scene, scene

ROLLING: dict[str, Any] = {"status": {"updatedReplicas": 1}}
PLUGIN: dict[str, Any] = {"npu": {"mode": "devicePlugin"}, "rdma": {"enabled": False}}
OTHER_CLASS = {"spec": {"spec": {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "gpu"}}]}}}}


def deployment(namespace: str = "far", release: str = "chat", **over: Any) -> dict[str, Any]:
    """A role Deployment of two Pods that is through, unless told otherwise."""
    live: dict[str, Any] = {
        "metadata": {
            "name": "chat-decode",
            "namespace": namespace,
            "generation": 3,
            "labels": {labels.INSTANCE: release, labels.ROLE: "decode"},
        },
        "spec": {
            "replicas": 2,
            "template": {
                "spec": {
                    "containers": [{"name": "c"}],
                    "resourceClaims": [{"name": "devices", "resourceClaimTemplateName": "theirs"}],
                }
            },
        },
        "status": {
            "observedGeneration": 3,
            "replicas": 2,
            "updatedReplicas": 2,
            "availableReplicas": 2,
            "conditions": [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}],
        },
    }
    return merged(live, over)


def beside(rival: dict[str, Any], template: dict[str, Any] | None = TEMPLATE, **blocks: Any) -> Scene:
    """The stack beside a Deployment of somebody else with this claim template."""
    return scene(**blocks).but(deployments=[rival], templates_elsewhere={("far", "theirs"): template})


@pytest.mark.parametrize(
    ("over", "want"),
    [
        pytest.param({}, False, id="it is through"),
        pytest.param({"status": {"availableReplicas": 1}}, False, id="a Pod is not Ready any more"),
        pytest.param(
            {"status": {"replicas": 0, "updatedReplicas": 0, "availableReplicas": 0}},
            False,
            id="it lost its Pods later, as in a namespace that goes",
        ),
        pytest.param({"metadata": {"generation": 4}}, True, id="its controller has not seen the change"),
        pytest.param({"status": {"updatedReplicas": 1}}, True, id="a Pod is still of the old template"),
        pytest.param({"status": {"replicas": 3}}, True, id="an old Pod is still there"),
        pytest.param(
            {"status": {"conditions": [{"type": "Progressing", "reason": "ReplicaSetUpdated"}]}},
            True,
            id="its new Pods start",
        ),
        pytest.param(
            {"status": {"conditions": [{"type": "Progressing", "reason": "ProgressDeadlineExceeded"}]}},
            True,
            id="it is stuck",
        ),
        pytest.param({"spec": {"paused": True}} | ROLLING, False, id="it is paused"),
        pytest.param({"metadata": {"deletionTimestamp": "x"}} | ROLLING, False, id="it goes"),
    ],
)
def test_a_deployment_rolls_when(over: dict[str, Any], want: bool) -> None:
    assert is_rolling(deployment(**over)) is want


def test_a_release_that_rolls_on_the_same_devices_is_waited_for() -> None:
    found = beside(deployment(**ROLLING)).only()
    assert found.is_refusal
    assert (found.problem.key, found.problem.value) == ("devices", f"{NIC}, {NPU}")
    assert "release chat in namespace far is rolling out Deployment chat-decode" in found.problem.why
    assert "(1 of 2 Pods are new)" in found.problem.why
    assert "`kubectl -n far rollout status deployment chat-decode`" in found.problem.fix
    assert (found.workloads, found.idle) == ({"rel-prefill", "rel-decode"}, "omit"), "only who starts Pods has to wait"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(deployment(), id="one that is through"),
        pytest.param(deployment("ns", "rel", **ROLLING), id="the stack itself"),
    ],
)
def test_nobody_waits_for(other: dict[str, Any]) -> None:
    assert beside(other).findings() == ()


def test_another_release_in_the_same_namespace_counts() -> None:
    rival = deployment("ns", "chat", **ROLLING)
    assert scene().but(deployments=[rival], templates_elsewhere={("ns", "theirs"): TEMPLATE}).letters() == [
        "refuses devices"
    ]


def test_other_devices_are_nobodys_concern() -> None:
    assert beside(deployment(**ROLLING), OTHER_CLASS).findings() == ()
    assert beside(deployment(**ROLLING), None).findings() == (), "its template is not there, so it takes nothing"


def test_devices_that_are_not_known_are_said() -> None:
    found = scene().but(deployments=[deployment(**ROLLING)])
    assert found.letters() == ["warns devices"]
    assert "it is not known which devices that takes" in found.only().problem.why


@pytest.mark.parametrize(
    ("resource", "want"),
    [
        pytest.param("rebellions.ai/npu", True, id="the same resource of a device plugin"),
        pytest.param("nvidia.com/gpu", False, id="another resource"),
    ],
)
def test_devices_of_a_device_plugin(resource: str, want: bool) -> None:
    rival = deployment(**ROLLING)
    limits = {"limits": {resource: "4", "cpu": "1"}}
    rival["spec"]["template"]["spec"] = {"containers": [{"name": "c", "resources": limits}]}
    assert scene(devices=PLUGIN).but(deployments=[rival]).letters() == ["refuses devices"] * want


def test_a_class_that_backs_a_resource_is_the_same_devices() -> None:
    backed: dict[str, Any] = {NPU: {"spec": {"extendedResourceName": "rebellions.ai/npu"}}, NIC: {"spec": {}}}
    found = scene(devices=PLUGIN).but(
        deployments=[deployment(**ROLLING)],
        templates_elsewhere={("far", "theirs"): TEMPLATE},
        device_classes=backed,
    )
    assert found.only().problem.value == NPU


def test_only_templates_of_who_rolls_are_asked_for() -> None:
    live = [deployment(**ROLLING), deployment("still"), deployment("ns", "rel", **ROLLING)]
    assert named_templates(live, namespace="ns", release="rel") == {("far", "theirs")}
