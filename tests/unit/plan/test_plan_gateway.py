from __future__ import annotations

from typing import Any

import pytest

from stack import labels
from tests.builders import kinds, plan, planned


def gateway(**block: Any) -> Any:
    return plan(gateway=block)


def test_by_default_an_istio_gateway_of_the_releases_name_listens_on_port_80() -> None:
    found = planned(plan(), "Gateway")
    assert found["apiVersion"] == "gateway.networking.k8s.io/v1"
    assert found["metadata"]["name"] == "rel"
    assert found["spec"]["gatewayClassName"] == "istio"
    [listener] = found["spec"]["listeners"]
    assert (listener["port"], listener["protocol"]) == (80, "HTTP")


def test_the_gateway_has_what_the_operator_writes() -> None:
    found = planned(
        gateway(name="mine", className="agentgateway", port=8080, annotations={"example.com/lb": "internal"}), "Gateway"
    )
    assert found["metadata"]["name"] == "mine"
    assert found["metadata"]["annotations"]["example.com/lb"] == "internal"
    assert found["spec"]["gatewayClassName"] == "agentgateway"
    assert found["spec"]["listeners"][0]["port"] == 8080


def test_the_route_sends_everything_from_the_gateway_to_the_pool() -> None:
    spec = planned(gateway(name="mine", requestTimeout="1h"), "HTTPRoute")["spec"]
    assert [(parent["kind"], parent["name"]) for parent in spec["parentRefs"]] == [("Gateway", "mine")]
    [rule] = spec["rules"]
    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/"}}]
    assert rule["backendRefs"] == [{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "rel"}]
    assert rule["timeouts"] == {"request": "1h"}


def test_without_a_pool_the_route_leads_to_the_service_that_the_operator_names() -> None:
    without = {"inferencePool": {"create": False}}
    found = plan(router=without, gateway={"backend": {"name": "envoy", "port": 8443}})
    [rule] = planned(found, "HTTPRoute")["spec"]["rules"]
    assert rule["backendRefs"] == [{"group": "", "kind": "Service", "name": "envoy", "port": 8443}]
    assert kinds(plan(router=without), "HTTPRoute") == []


def test_the_route_answers_to_every_name_or_to_those_written() -> None:
    assert "hostnames" not in planned(plan(), "HTTPRoute")["spec"]
    names = ["llm.example.com", "*.example.org"]
    assert planned(gateway(hostnames=names), "HTTPRoute")["spec"]["hostnames"] == names


@pytest.mark.parametrize(
    ("class_name", "want_rules"),
    [
        pytest.param("istio", ["rel-epp"], id="istio"),
        pytest.param("agentgateway", [], id="agentgateway"),
        pytest.param("istio-remote", [], id="another one whose name begins so"),
    ],
)
def test_a_destination_rule_for_class(class_name: str, want_rules: list[str]) -> None:
    assert kinds(gateway(className=class_name), "DestinationRule") == want_rules


def test_the_destination_rule_trusts_the_certificate_that_the_epp_made_itself() -> None:
    found = planned(plan(eppServiceName="picker"), "DestinationRule")
    assert found["apiVersion"].startswith("networking.istio.io/")
    assert found["spec"] == {
        "host": "picker.ns.svc.cluster.local",
        "trafficPolicy": {"tls": {"mode": "SIMPLE", "insecureSkipVerify": True}},
    }


def test_disabled_nothing_of_it_is_made() -> None:
    whole = gateway(enabled=False)
    assert whole.gateway == ()
    assert whole.outputs["endpoint"] is None
    assert whole.outputs["names"]["gateway"] is None
    assert kinds(whole, "InferencePool") == ["rel"], "a route of the operator's may point at it"


def test_without_a_pool_there_is_no_route_that_would_lead_nowhere() -> None:
    whole = plan(router={"inferencePool": {"create": False}})
    assert kinds(whole, "Gateway") == ["rel"]
    assert kinds(whole, "HTTPRoute") == []


@pytest.mark.parametrize(
    ("block", "want_endpoint"),
    [
        pytest.param({}, "http://rel-istio.ns.svc.cluster.local:80/v1", id="Istio adds its class"),
        pytest.param(
            {"className": "agentgateway", "name": "mine", "port": 8080},
            "http://mine.ns.svc.cluster.local:8080/v1",
            id="another class does not",
        ),
    ],
)
def test_the_endpoint_is(block: dict[str, Any], want_endpoint: str) -> None:
    assert gateway(**block).outputs["endpoint"] == want_endpoint


def test_labels_and_annotations_of_an_operator_never_take_ours_away() -> None:
    """The rules refuse them first; this is what stands behind the rules."""
    meta = labels.object_meta(
        "x",
        release="rel",
        namespace="ns",
        labels={labels.INSTANCE: "other", "theirs": "1"},
        annotations={"pulumi.com/patchForce": "false", "theirs": "1"},
    )
    assert (meta["labels"][labels.INSTANCE], meta["labels"]["theirs"]) == ("rel", "1")
    assert (meta["annotations"]["pulumi.com/patchForce"], meta["annotations"]["theirs"]) == ("true", "1")
