"""Another release that rolls on the same devices; what counts as rolling, and as the same."""

from __future__ import annotations

from typing import Any

import pytest

from stack import labels
from stack.guards.serial import guard_serial, is_rolling, named_templates
from tests.builders import merged
from tests.devices import claim_spec, device, device_class, request, resource_slice
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


DRIVER = "npu.example"


def template_of(class_name: str, *selectors: str, **over: Any) -> dict[str, Any]:
    return {"spec": {"spec": claim_spec(request("r", class_name, 1, *selectors, **over))}}


def model_is(model: str) -> str:
    return f'device.attributes["{DRIVER}"].model == "{model}"'


CLASSES = {
    NPU: device_class(NPU, f'device.driver == "{DRIVER}"'),
    "large": device_class("large", f'device.driver == "{DRIVER}"', model_is("large")),
    "small": device_class("small", f'device.driver == "{DRIVER}"', model_is("small")),
    "odd": device_class("odd", "device.unheard"),
}
SLICES = [resource_slice(DRIVER, [device("d-0", model="large"), device("d-1", model="small")], on="npu-0")]


@pytest.mark.parametrize(
    ("ours", "theirs", "slices", "want"),
    [
        pytest.param(template_of("large"), template_of("small"), SLICES, [], id="classes without a device in common"),
        pytest.param(
            template_of(NPU),
            template_of("small"),
            SLICES,
            [f"refuses devices = {NPU} (there small)"],
            id="another class of the same devices",
        ),
        pytest.param(
            template_of(NPU, model_is("large")),
            template_of(NPU, model_is("small")),
            SLICES,
            [],
            id="one class, and requests without a device in common",
        ),
        pytest.param(
            template_of(NPU, model_is("large")),
            template_of(NPU, f"{model_is('large')} || false"),
            SLICES,
            [f"refuses devices = {NPU}"],
            id="one class, and requests in other words",
        ),
        pytest.param(
            template_of(NPU, model_is("large")),
            template_of(NPU),
            [],
            [f"refuses devices = {NPU}"],
            id="any of the class",
        ),
        pytest.param(
            template_of("large"),
            template_of("small"),
            None,
            ["warns devices = large (there small)"],
            id="classes of devices that could not be read",
        ),
        pytest.param(
            template_of("large"),
            template_of("odd"),
            SLICES,
            ["warns devices = large (there odd)"],
            id="a selector that is not known here",
        ),
        pytest.param(
            template_of("large"), template_of("gone"), SLICES, [], id="a class that is not there gives nobody a device"
        ),
        pytest.param(
            template_of(NPU), template_of(NPU, adminAccess=True), SLICES, [], id="who only looks at devices takes none"
        ),
    ],
)
def test_devices_are_the_same_when_a_published_one_would_do_for_both(
    ours: dict[str, Any], theirs: dict[str, Any], slices: list[dict[str, Any]] | None, want: list[str]
) -> None:
    found = scene().but(
        deployments=[deployment(**ROLLING)],
        claim_templates={"npu-rdma": ours},
        templates_elsewhere={("far", "theirs"): theirs},
        device_classes=CLASSES,
        slices=slices,
        nodes=None,
    )
    told = guard_serial(found.plan, found.around)
    assert [f"{'refuses' if f.is_refusal else 'warns'} {f.problem.key} = {f.problem.value}" for f in told] == want


def test_every_class_provides_a_resource_of_its_name_and_of_several_for_one_the_youngest_does() -> None:
    classes = {
        "old": device_class("old", resource="rebellions.ai/npu", created="2025-01-01T00:00:00Z"),
        "young": device_class("young", resource="rebellions.ai/npu", created="2026-01-01T00:00:00Z"),
    }
    rival = deployment(**ROLLING)
    limits = {"limits": {"deviceclass.resource.kubernetes.io/young": "4"}}
    rival["spec"]["template"]["spec"] = {"containers": [{"name": "c", "resources": limits}]}
    found = scene(devices=PLUGIN).but(deployments=[rival], device_classes=classes)
    assert found.only().problem.value == "young"


def test_only_templates_of_who_rolls_are_asked_for() -> None:
    live = [deployment(**ROLLING), deployment("still"), deployment("ns", "rel", **ROLLING)]
    assert named_templates(live, namespace="ns", release="rel") == {("far", "theirs")}
