from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import container, kinds, plan, planned, pod, template

if TYPE_CHECKING:
    from stack.planned import StackPlan

VICTORIA: dict[str, Any] = {
    "enabled": True,
    "scraper": {"serviceAccount": {"name": "vmagent", "namespace": "monitoring"}},
}
PROMETHEUS: dict[str, Any] = {"enabled": True, "provider": "prometheus-operator"}
PROVIDERS = pytest.mark.parametrize(
    ("block", "pods", "services"),
    [
        pytest.param(VICTORIA, "VMPodScrape", "VMServiceScrape", id="VictoriaMetrics"),
        pytest.param(PROMETHEUS, "PodMonitor", "ServiceMonitor", id="Prometheus Operator"),
    ],
)


def monitored(block: dict[str, Any], **blocks: Any) -> StackPlan:
    return plan(monitoring=block, **blocks)


def test_off_it_makes_nothing() -> None:
    assert plan().monitoring == ()


@PROVIDERS
def test_each_role_the_gateway_and_the_epp_are_scraped_by_an_object_of_their_own(
    block: dict[str, Any], pods: str, services: str
) -> None:
    whole = monitored(block)
    assert kinds(whole, pods) == ["rel-prefill", "rel-decode", "rel-gateway"]
    assert kinds(whole, services) == ["rel-epp-monitor"]


@PROVIDERS
def test_a_roles_object_selects_its_pods_of_this_release_and_every_api_server(
    block: dict[str, Any], pods: str, services: str
) -> None:
    del services
    whole = monitored(block | {"interval": "30s"})
    spec = planned(whole, pods, "rel-decode")["spec"]
    selector = spec["selector"]["matchLabels"]
    assert selector == {"app.kubernetes.io/instance": "rel", "llm-d.ai/role": "decode"}
    assert selector.items() <= template(whole, "decode")["metadata"]["labels"].items()
    assert not selector.items() <= template(whole, "prefill")["metadata"]["labels"].items()
    api = [port["name"] for port in container(pod(whole, "decode"))["ports"] if port["name"].startswith("api-")]
    assert [endpoint["port"] for endpoint in spec["podMetricsEndpoints"]] == api
    assert len(api) == 4
    assert {(endpoint["path"], endpoint["interval"]) for endpoint in spec["podMetricsEndpoints"]} == {
        ("/metrics", "30s")
    }


@PROVIDERS
def test_the_epps_object_finds_its_service_by_labels_and_port(block: dict[str, Any], pods: str, services: str) -> None:
    del pods
    whole = monitored(block)
    spec = planned(whole, services)["spec"]
    service = planned(whole, "Service")
    assert spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert spec["selector"]["matchLabels"]["app.kubernetes.io/instance"] == "rel"
    assert {endpoint["port"] for endpoint in spec["endpoints"]} <= {p["name"] for p in service["spec"]["ports"]}


def test_victoria_metrics_reads_with_its_own_token_and_is_given_the_right() -> None:
    whole = monitored(VICTORIA)
    assert planned(whole, "ClusterRole", "rel-ns-epp-metrics-reader")["rules"] == [
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    ]
    binding = planned(whole, "ClusterRoleBinding", "rel-ns-epp-metrics-reader")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "vmagent", "namespace": "monitoring"}]
    assert kinds(whole, "Secret") == []
    [endpoint] = planned(whole, "VMServiceScrape")["spec"]["endpoints"]
    assert endpoint["bearerTokenFile"] == "/var/run/secrets/kubernetes.io/serviceaccount/token"


@pytest.mark.parametrize(
    ("given", "want_secret"),
    [
        pytest.param({}, "rel-epp-metrics-reader", id="a name of the stack's"),
        pytest.param({"tokenSecret": "mine"}, "mine", id="a name of the operator's"),
    ],
)
def test_prometheus_reads_with_a_token_of_the_epps_account_in(given: dict[str, str], want_secret: str) -> None:
    whole = monitored(PROMETHEUS | given)
    secret = planned(whole, "Secret")
    assert secret["metadata"]["name"] == want_secret
    assert secret["type"] == "kubernetes.io/service-account-token"
    assert secret["metadata"]["annotations"]["kubernetes.io/service-account.name"] == "rel-epp"
    assert not {"data", "stringData"} & secret.keys(), "Kubernetes fills it"
    [endpoint] = planned(whole, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["authorization"] == {"type": "Bearer", "credentials": {"name": want_secret, "key": "token"}}
    binding = planned(whole, "ClusterRoleBinding", "rel-ns-epp-metrics-reader")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "rel-epp", "namespace": "ns"}]


@pytest.mark.parametrize(
    ("class_name", "want_port", "want_path"),
    [
        pytest.param("istio", 15090, "/stats/prometheus", id="istio"),
        pytest.param("agentgateway", 15020, "/metrics", id="agentgateway"),
    ],
)
def test_the_gateways_proxies_are_scraped_at(class_name: str, want_port: int, want_path: str) -> None:
    whole = monitored(VICTORIA, gateway={"className": class_name, "name": "mine"})
    spec = planned(whole, "VMPodScrape", "rel-gateway")["spec"]
    assert spec["selector"]["matchLabels"] == {"gateway.networking.k8s.io/gateway-name": "mine"}
    [endpoint] = spec["podMetricsEndpoints"]
    assert (endpoint["portNumber"], endpoint["path"]) == (want_port, want_path)


def test_without_a_gateway_nothing_looks_for_its_proxies() -> None:
    assert "rel-gateway" not in kinds(monitored(VICTORIA, gateway={"enabled": False}), "VMPodScrape")


def test_labels_of_the_operators_are_on_every_scrape_object_beside_the_release() -> None:
    whole = monitored(PROMETHEUS | {"labels": {"release": "kube-prometheus"}})
    for kind in ("PodMonitor", "ServiceMonitor"):
        for name in kinds(whole, kind):
            found = planned(whole, kind, name)["metadata"]["labels"]
            assert (found["release"], found["app.kubernetes.io/instance"]) == ("kube-prometheus", "rel")


@pytest.mark.parametrize("block", [VICTORIA, PROMETHEUS], ids=["VictoriaMetrics", "Prometheus Operator"])
def test_monitoring_touches_no_pod(block: dict[str, Any]) -> None:
    """Of no Deployment, the EPP's included: its requests would be cut off to look at it."""
    before, after = (
        {o.name: o.manifest for o in whole.objects() if o.kind == "Deployment"} for whole in (plan(), monitored(block))
    )
    assert before == after
    assert before.keys() == {"rel-prefill", "rel-decode", "rel-epp"}


def test_metrics_of_the_epp_are_never_open_to_everybody() -> None:
    for whole in (plan(), monitored(VICTORIA)):
        args = planned(whole, "Deployment", "rel-epp")["spec"]["template"]["spec"]["containers"][0]["args"]
        assert [arg for arg in args if "auth" in arg] == [], "asking for a token is the EPP's default"
