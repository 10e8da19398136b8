from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from stack.names import content_hash
from tests.builders import container, kinds, plan, planned, pod

if TYPE_CHECKING:
    from stack.planned import StackPlan

MANAGED: dict[str, Any] = {
    "requests": [
        {
            "name": "npu",
            "deviceClassName": "npu.rebellions.ai",
            "count": 4,
            "selectors": ['device.attributes["npu.rebellions.ai"].productName.startsWith("RBLN-CR")'],
        },
        {"name": "nic", "deviceClassName": "dranet", "count": 2},
    ],
    "constraints": [{"requests": ["npu", "nic"], "matchAttribute": "resource.kubernetes.io/numaNode"}],
}
PLUGIN: dict[str, Any] = {
    "npu": {"mode": "devicePlugin"},
    "rdma": {"mode": "devicePlugin", "resourceName": "rdma/hca"},
}


def asked(whole: StackPlan, role: str = "decode") -> tuple[Any, Any]:
    """Claims of a role's Pod, and extended resources of its engine."""
    spec = pod(whole, role)
    limits = container(spec)["resources"]["limits"]
    return spec.get("resourceClaims"), {name: amount for name, amount in limits.items() if "/" in name}


def claim(name: str) -> list[dict[str, str]]:
    return [{"name": "devices", "resourceClaimTemplateName": name}]


@pytest.mark.parametrize(
    ("devices", "want_claims", "want_extended", "want_budget"),
    [
        pytest.param({}, claim("npu-rdma"), {}, (None, None), id="nothing written: the template npu-rdma decides"),
        pytest.param(
            {"claimTemplateName": "mine"}, claim("mine"), {}, (None, None), id="a template of the operator's decides"
        ),
        pytest.param(
            PLUGIN, None, {"rebellions.ai/npu": "4", "rdma/hca": "2"}, (4, 2), id="device plugins, with counts"
        ),
        pytest.param(
            {"npu": {"mode": "devicePlugin", "resourceName": "rebellions.ai/REBEL"}, "rdma": {"enabled": False}},
            None,
            {"rebellions.ai/REBEL": "4"},
            (4, 0),
            id="another resource, and no RDMA",
        ),
        pytest.param(
            {"npu": {"mode": "devicePlugin"}},
            claim("npu-rdma"),
            {"rebellions.ai/npu": "4"},
            (4, None),
            id="NPUs by plugin, NICs claimed",
        ),
        pytest.param(
            {"rdma": {"mode": "devicePlugin", "resourceName": "rdma/hca", "count": 1}},
            claim("npu-rdma"),
            {"rdma/hca": "1"},
            (None, 1),
            id="NPUs claimed, NICs by plugin",
        ),
        pytest.param({"rdma": {"enabled": False}}, claim("npu-rdma"), {}, (None, 0), id="NPUs claimed, no RDMA"),
    ],
)
def test_a_pod_asks_for(
    devices: dict[str, Any], want_claims: Any, want_extended: dict[str, str], want_budget: tuple[Any, Any]
) -> None:
    whole = plan(devices=devices)
    assert asked(whole) == (want_claims, want_extended)
    assert asked(whole, "prefill") == asked(whole)
    line = next(line for line in whole.budget.lines if line.part == "decode")
    assert (line.accelerators, line.nics) == want_budget
    assert kinds(whole, "ResourceClaimTemplate") == []


def test_the_engine_uses_the_claim_of_its_pod_and_so_does_the_check_before_it() -> None:
    spec = pod(plan(), "prefill")
    assert container(spec)["resources"]["claims"] == [{"name": "devices"}]
    assert container(spec, "rdma-discovery")["resources"]["claims"] == [{"name": "devices"}]


def test_extended_resources_stand_in_requests_and_limits_since_they_cannot_be_overcommitted() -> None:
    resources = container(pod(plan(devices=PLUGIN), "prefill"))["resources"]
    for amounts in (resources["requests"], resources["limits"]):
        assert (amounts["rebellions.ai/npu"], amounts["rdma/hca"]) == ("4", "2")


def test_the_check_asks_the_plugin_for_nics_and_never_for_accelerators() -> None:
    resources = container(pod(plan(devices=PLUGIN), "prefill"), "rdma-discovery")["resources"]
    assert {name for name in resources["limits"] if "/" in name} == {"rdma/hca"}


def test_a_managed_template_is_written_as_the_kubernetes_api_has_it() -> None:
    found = planned(plan(devices={"claimTemplate": MANAGED}), "ResourceClaimTemplate")
    assert found["apiVersion"] == "resource.k8s.io/v1"
    assert found["spec"] == {
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "npu",
                        "exactly": {
                            "deviceClassName": "npu.rebellions.ai",
                            "allocationMode": "ExactCount",
                            "count": 4,
                            "selectors": [{"cel": {"expression": MANAGED["requests"][0]["selectors"][0]}}],
                        },
                    },
                    {
                        "name": "nic",
                        "exactly": {"deviceClassName": "dranet", "allocationMode": "ExactCount", "count": 2},
                    },
                ],
                "constraints": [{"requests": ["npu", "nic"], "matchAttribute": "resource.kubernetes.io/numaNode"}],
            }
        }
    }


def test_a_managed_template_is_named_by_its_content_and_every_role_names_it() -> None:
    whole = plan(devices={"claimTemplate": MANAGED})
    found = planned(whole, "ResourceClaimTemplate")
    assert found["metadata"]["name"] == f"rel-devices-{content_hash(found['spec'])}"
    assert asked(whole, "prefill")[0] == asked(whole, "decode")[0] == claim(found["metadata"]["name"])
    assert whole.claims[0].is_named_by_content
    assert whole.claims[0].logical_name.endswith(content_hash(found["spec"]))


def test_the_same_content_has_the_same_name_and_other_content_another() -> None:
    def name(template: dict[str, Any], **blocks: Any) -> str:
        return kinds(plan(devices={"claimTemplate": template}, **blocks), "ResourceClaimTemplate")[0]

    reordered = {
        "constraints": MANAGED["constraints"],
        "requests": [dict(reversed(request.items())) for request in MANAGED["requests"]],
    }
    others: list[dict[str, Any]] = [
        {**MANAGED, "constraints": [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]},
        {**MANAGED, "requests": [{**MANAGED["requests"][0], "selectors": []}, MANAGED["requests"][1]]},
        {**MANAGED, "requests": [MANAGED["requests"][0], {**MANAGED["requests"][1], "count": 1}]},
    ]
    assert name(reordered) == name(MANAGED)
    assert name(MANAGED, modelserver={"image": {"tag": "9.9"}}) == name(MANAGED)
    assert len({name(MANAGED), *map(name, others)}) == 4


def test_a_managed_template_tells_the_budget_what_a_pod_gets() -> None:
    line = plan(devices={"claimTemplate": MANAGED}).budget.lines[0]
    assert (line.accelerators, line.nics) == (4, 2)


def test_nics_of_a_class_that_the_recipe_does_not_know_are_not_taken_for_none() -> None:
    other = {**MANAGED, "requests": [MANAGED["requests"][0], {"name": "nic", "deviceClassName": "other.example.com"}]}
    line = plan(devices={"claimTemplate": other}).budget.lines[0]
    assert (line.accelerators, line.nics) == (4, None)
