from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import container, environment, kinds, plan, planned

if TYPE_CHECKING:
    from stack.planned import StackPlan

MONITORED: dict[str, Any] = {
    "enabled": True,
    "scraper": {"serviceAccount": {"name": "vmagent", "namespace": "monitoring"}},
}


def epp(whole: StackPlan) -> dict[str, Any]:
    return planned(whole, "Deployment", "rel-epp")["spec"]


def picker(whole: StackPlan) -> dict[str, Any]:
    return container(epp(whole)["template"]["spec"], "epp")


def files(whole: StackPlan) -> dict[str, str]:
    [name] = [v["configMap"]["name"] for v in epp(whole)["template"]["spec"]["volumes"] if "configMap" in v]
    return planned(whole, "ConfigMap", name)["data"]


def rights(whole: StackPlan, kind: str, name: str) -> set[tuple[str, str, str]]:
    """(group, resource, verb) of a role."""
    return {
        (group, resource, verb)
        for rule in planned(whole, kind, name)["rules"]
        for group in rule.get("apiGroups", [])
        for resource in rule.get("resources", [])
        for verb in rule["verbs"]
    }


# --- pool -------------------------------------------------------------------------------------------------------------


def test_the_pool_selects_the_pods_of_this_release_and_asks_its_epp() -> None:
    pool = planned(plan(), "InferencePool")
    assert pool["apiVersion"] == "inference.networking.k8s.io/v1"
    assert pool["metadata"]["name"] == "rel"
    assert pool["spec"] == {
        "selector": {"matchLabels": {"llm-d.ai/inference-serving": "true", "app.kubernetes.io/instance": "rel"}},
        "appProtocol": "http",
        "targetPorts": [{"number": port} for port in (8000, 8001, 8002, 8003)],
        "endpointPickerRef": {"name": "rel-epp", "port": {"number": 9002}, "failureMode": "FailOpen"},
    }


@pytest.mark.parametrize(
    ("blocks", "want_ports"),
    [
        pytest.param({}, [8000, 8001, 8002, 8003], id="one for each decode rank, of which prefill uses the first"),
        pytest.param(
            {"modelserver": {"replicas": {"prefill": 1, "decode": 0}}}, [8000], id="prefill alone has one API server"
        ),
        pytest.param(
            {"routing": {"proxy": {"port": 9000}}}, [8000, 9000, 9001, 9002, 9003], id="decode elsewhere than prefill"
        ),
        pytest.param(
            {"router": {"modelServers": {"targetPorts": [8003, 8002, 8001, 8000]}}},
            [8003, 8002, 8001, 8000],
            id="the operator's, as written",
        ),
        pytest.param(
            {
                "recipe": "qwen3-0.6b",
                "modelserver": {
                    "replicas": {"aggregated": 1},
                    "serveArgs": {
                        "aggregated": {"data-parallel-size": 8, "data-parallel-multi-port-external-lb": True}
                    },
                },
                "devices": {"npu": {"mode": "devicePlugin", "count": 8}, "rdma": {"enabled": False}},
            },
            list(range(8000, 8008)),
            id="eight ranks, as many as a pool has ports",
        ),
    ],
)
def test_target_ports(blocks: dict[str, Any], want_ports: list[int]) -> None:
    ports = planned(plan(**blocks), "InferencePool")["spec"]["targetPorts"]
    assert [port["number"] for port in ports] == want_ports


def test_the_pool_asks_the_service_of_the_operators_name_and_port() -> None:
    whole = plan(eppServiceName="picker", router={"epp": {"extProcPort": 9102}})
    reference = planned(whole, "InferencePool")["spec"]["endpointPickerRef"]
    service = planned(whole, "Service")
    assert (reference["name"], reference["port"]["number"]) == ("picker", 9102)
    assert service["metadata"]["name"] == "picker"
    assert 9102 in {port["port"] for port in service["spec"]["ports"]}


def test_fail_close_is_passed_on() -> None:
    whole = plan(router={"inferencePool": {"failureMode": "FailClose"}})
    assert planned(whole, "InferencePool")["spec"]["endpointPickerRef"]["failureMode"] == "FailClose"


# --- EPP --------------------------------------------------------------------------------------------------------------


def test_the_epp_has_the_charts_ports_probes_and_resources() -> None:
    found = picker(plan())
    assert {port["name"]: port["containerPort"] for port in found["ports"]} == {
        "grpc": 9002,
        "grpc-health": 9003,
        "metrics": 9090,
    }
    assert found["livenessProbe"]["grpc"] == {"port": 9003, "service": "inference-extension"}
    assert (found["livenessProbe"]["initialDelaySeconds"], found["livenessProbe"]["periodSeconds"]) == (5, 10)
    assert found["readinessProbe"]["periodSeconds"] == 2
    assert found["resources"] == {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"memory": "16Gi"}}


WHOLE: dict[str, Any] = {"modelserver": {"replicas": {"aggregated": 1}}}
GAIE: dict[str, Any] = {"distribution": "gaie", "version": "v1.5.0"}


def leave(whole: StackPlan) -> tuple[int, str | None, int]:
    """Seconds of the preStop, the drain argument, and the grace period."""
    found = picker(whole)
    [pre_stop] = found["lifecycle"].values()
    drain = next((arg for arg in found["args"] if arg.startswith("--drain-timeout=")), None)
    return pre_stop["sleep"]["seconds"], drain, epp(whole)["template"]["spec"]["terminationGracePeriodSeconds"]


@pytest.mark.parametrize(
    ("blocks", "want"),
    [
        pytest.param({}, (10, "--drain-timeout=10s", 115), id="by default"),
        pytest.param({"router": {"epp": {"drainSeconds": 600}}}, (10, "--drain-timeout=10s", 655), id="long answers"),
        pytest.param(
            {**WHOLE, "router": {"epp": {**GAIE, "drainSeconds": 600}}},
            (600, None, 635),
            id="long answers and an EPP that cuts them when it is told to stop",
        ),
    ],
)
def test_the_epp_leaves_after_the_streams_that_it_carries(
    blocks: dict[str, Any], want: tuple[int, str | None, int]
) -> None:
    assert leave(plan(**blocks)) == want


def test_an_epp_that_hangs_is_restarted_before_a_long_drain_is_over() -> None:
    whole = plan(**WHOLE, router={"epp": {**GAIE, "drainSeconds": 600}})
    assert picker(whole)["livenessProbe"]["terminationGracePeriodSeconds"] == 30


def test_how_long_the_epp_drains_touches_no_model_server() -> None:
    one, other = (
        [w.object.manifest for w in plan(router={"epp": {"drainSeconds": seconds}}).modelserver.workloads]
        for seconds in (60, 600)
    )
    assert one == other


@pytest.mark.parametrize(
    ("replicas", "want"),
    [
        pytest.param(1, 600, id="one: the new one starts beside the old one"),
        pytest.param(2, 600 + 655, id="several: the old ones leave first"),
    ],
)
def test_a_roll_out_of_the_epp_counts_as_stuck_only_after_it_could_have_been_over(replicas: int, want: int) -> None:
    whole = plan(router={"epp": {"replicas": replicas, "drainSeconds": 600}})
    assert epp(whole)["progressDeadlineSeconds"] == want


def test_the_epp_is_told_its_pool_and_its_file() -> None:
    args = picker(plan())["args"]
    assert {"--pool-name=rel", "--pool-namespace=ns", "--config-file=/config/default-plugins.yaml"} <= set(args)
    assert {mount["mountPath"] for mount in picker(plan())["volumeMounts"]} == {"/config"}
    assert files(plan()).keys() == {"default-plugins.yaml", "payload-agnostic.yaml"}


@pytest.mark.parametrize(
    ("create", "want_key"),
    [
        pytest.param(True, "llm-d-router-gateway", id="with a pool"),
        pytest.param(False, "llm-d-router-standalone", id="standalone"),
    ],
)
def test_the_selector_says_whether_there_is_a_pool(create: bool, want_key: str) -> None:
    whole = plan(router={"inferencePool": {"create": create}})
    want = {want_key: "rel-epp", "app.kubernetes.io/instance": "rel"}
    assert epp(whole)["selector"]["matchLabels"] == want
    assert planned(whole, "Service")["spec"]["selector"] == want
    assert want.items() <= epp(whole)["template"]["metadata"]["labels"].items()


def test_standalone_the_epp_finds_pods_by_labels_and_there_is_no_pool() -> None:
    whole = plan(router={"inferencePool": {"create": False}})
    assert kinds(whole, "InferencePool") == []
    args = picker(whole)["args"]
    assert "--endpoint-selector=app.kubernetes.io/instance=rel,llm-d.ai/inference-serving=true" in args
    assert "--endpoint-target-ports=8000,8001,8002,8003" in args
    assert not [arg for arg in args if arg.startswith("--pool-name=")]


def test_toggling_the_pool_touches_no_model_server() -> None:
    one, other = (
        [w.object.manifest for w in plan(router={"inferencePool": {"create": create}}).modelserver.workloads]
        for create in (True, False)
    )
    assert one == other


def test_a_changed_plugin_configuration_is_another_map_and_so_rolls_the_epp() -> None:
    custom = {"mine.yaml": "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: []\n"}
    before, after = plan(), plan(router={"epp": {"pluginsCustomConfig": custom}})
    assert files(after)["mine.yaml"] == custom["mine.yaml"]
    assert epp(before)["template"] != epp(after)["template"]
    assert epp(plan(modelserver={"image": {"tag": "9"}}))["template"] == epp(before)["template"]


def test_one_epp_is_replaced_by_a_ready_one_and_needs_no_lease() -> None:
    whole = plan()
    assert epp(whole)["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    assert not [resource for _, resource, _ in rights(whole, "Role", "rel-epp-sa") if resource == "leases"]
    assert "--ha-enable-leader-election=true" not in picker(whole)["args"]


def test_several_epps_elect_a_leader_and_are_replaced_together() -> None:
    whole = plan(router={"epp": {"replicas": 2}})
    assert epp(whole)["replicas"] == 2
    assert epp(whole)["strategy"] == {"type": "Recreate"}
    granted = {verb for _, resource, verb in rights(whole, "Role", "rel-epp-sa") if resource == "leases"}
    assert {"get", "create", "update"} <= granted
    assert "--ha-enable-leader-election=true" in picker(whole)["args"]


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_program_awaits_the_epp_and_not_the_provider(replicas: int) -> None:
    """Of several the others stand by and are never Ready, for which the provider would wait in vain."""
    whole = plan(router={"epp": {"replicas": replicas}})
    annotations = planned(whole, "Deployment", "rel-epp")["metadata"]["annotations"]
    assert annotations["pulumi.com/waitFor"] == "jsonpath={.metadata.uid}"
    assert annotations["pulumi.com/patchForce"] == "true"


def test_the_epps_amounts_are_written_in_the_api_servers_form() -> None:
    whole = plan(router={"epp": {"resources": {"requests": {"cpu": 0.5, "memory": "1024Mi"}, "limits": {}}}})
    assert picker(whole)["resources"] == {"requests": {"cpu": "500m", "memory": "1Gi"}}


def test_the_epps_secrets_are_references() -> None:
    secret = {"secretKeyRef": {"name": "s", "key": "k"}}
    found = environment(picker(plan(router={"epp": {"env": {"EXAMPLE": secret}}})))
    assert found["HF_TOKEN"] == {"secretKeyRef": {"name": "llm-d-hf-token", "key": "HF_TOKEN"}}
    assert found["EXAMPLE"] == secret
    assert "HF_TOKEN" not in environment(picker(plan(router={"epp": {"hfTokenSecret": None}})))


def test_variables_that_refer_to_others_stand_after_them() -> None:
    entries = [entry["name"] for entry in picker(plan(tracing={"enabled": True}))["env"]]
    assert entries.index("NAMESPACE") < entries.index("OTEL_RESOURCE_ATTRIBUTES")


def test_the_epp_runs_where_the_operator_says() -> None:
    where: dict[str, Any] = {
        "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"podAffinity": {}},
    }
    spec = epp(plan(router={"epp": where}))["template"]["spec"]
    assert {key: spec[key] for key in where} == where
    assert not where.keys() & epp(plan())["template"]["spec"].keys()


def test_an_image_of_the_operators_is_used() -> None:
    digest = f"sha256:{'0a' * 32}"
    assert picker(plan())["image"] == "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.10.0"
    mirrored = plan(router={"epp": {"image": {"repository": "mirror.example/epp", "digest": digest}}})
    assert picker(mirrored)["image"] == f"mirror.example/epp@{digest}"


# --- rights -----------------------------------------------------------------------------------------------------------

READ = ("get", "list", "watch")


def test_the_epp_may_see_pods_pools_objectives_and_rewrites_and_nothing_else() -> None:
    whole = plan()
    assert rights(whole, "Role", "rel-epp-sa") == {("", "pods", verb) for verb in READ}
    assert rights(whole, "Role", "rel-epp-non-sa") == {
        *(("inference.networking.k8s.io", "inferencepools", verb) for verb in READ),
        *(
            (group, resource, verb)
            for group in ("inference.networking.x-k8s.io", "llm-d.ai")
            for resource in ("inferenceobjectives", "inferencemodelrewrites")
            for verb in READ
        ),
    }
    assert kinds(whole, "ClusterRole") == []


def test_every_role_is_bound_to_the_epps_account_in_its_namespace() -> None:
    whole = plan(monitoring=MONITORED)
    bindings = [*kinds(whole, "RoleBinding"), "rel-ns-epp"]
    assert bindings == ["rel-epp-sa", "rel-epp-non-sa", "rel-ns-epp"]
    for name in bindings:
        kind = "ClusterRole" if name == "rel-ns-epp" else "Role"
        binding = planned(whole, f"{kind}Binding", name)
        assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "rel-epp", "namespace": "ns"}]
    assert epp(whole)["template"]["spec"]["serviceAccountName"] == "rel-epp"


def test_only_with_monitoring_the_epp_may_check_who_reads_its_metrics() -> None:
    assert rights(plan(monitoring=MONITORED), "ClusterRole", "rel-ns-epp") == {
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    }


def test_the_service_is_not_waited_for_and_speaks_http2_to_the_picker() -> None:
    service = planned(plan(), "Service")
    assert service["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"
    ports = {port["name"]: port for port in service["spec"]["ports"]}
    assert ports["grpc-ext-proc"]["port"] == 9002
    assert ports["grpc-ext-proc"]["appProtocol"] == "kubernetes.io/h2c"
    assert ports["http-metrics"]["port"] == 9090
