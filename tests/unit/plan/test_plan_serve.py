from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.builders import container, environment, plan, planned, pod

if TYPE_CHECKING:
    from stack.planned import StackPlan

SPLIT = ("prefill", "decode")


def serve_file(whole: StackPlan, role: str) -> dict[str, Any]:
    """What the engine of a role reads: the file in the ConfigMap that its Pod mounts."""
    [name] = [v["configMap"]["name"] for v in pod(whole, role)["volumes"] if "configMap" in v]
    [text] = planned(whole, "ConfigMap", name)["data"].values()
    return yaml.safe_load(text)


def arguments(**modelserver: Any) -> dict[str, dict[str, Any]]:
    whole = plan(modelserver=modelserver)
    return {role: serve_file(whole, role) for role in SPLIT}


def variables(role: str, **blocks: Any) -> dict[str, Any]:
    return environment(container(pod(plan(**blocks), role)))


def ports(of: dict[str, Any], prefix: str) -> list[int]:
    return [port["containerPort"] for port in of["ports"] if port["name"].startswith(f"{prefix}-")]


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("modelserver", "want_prefill", "want_decode"),
    [
        pytest.param({}, 4, 1, id="the recipe's, each role its own"),
        pytest.param({"serveArgs": {"common": {"max-num-seqs": 8}}}, 8, 8, id="common wins over the recipe's roles"),
        pytest.param(
            {"serveArgs": {"common": {"max-num-seqs": 8}, "decode": {"max-num-seqs": 2}}}, 8, 2, id="the role's wins"
        ),
    ],
)
def test_max_num_seqs_is(modelserver: dict[str, Any], want_prefill: int, want_decode: int) -> None:
    found = arguments(**modelserver)
    assert (found["prefill"]["max-num-seqs"], found["decode"]["max-num-seqs"]) == (want_prefill, want_decode)


@pytest.mark.parametrize(
    ("modelserver", "want_prefill", "want_decode"),
    [
        pytest.param({}, "minimax_m2", "minimax_m2", id="the recipe's"),
        pytest.param(
            {"serveArgs": {"decode": {"reasoning-parser": False}}},
            "minimax_m2",
            None,
            id="false leaves the flag of one role out",
        ),
        pytest.param(
            {"serveArgs": {"common": {"reasoning-parser": False}, "prefill": {"reasoning-parser": "mine"}}},
            "mine",
            None,
            id="false for all, and one role writes it again",
        ),
        pytest.param(
            {"removeServeArgs": ["reasoning-parser"], "serveArgs": {"prefill": {"reasoning-parser": "mine"}}},
            None,
            None,
            id="removed is removed, wherever it was written",
        ),
    ],
)
def test_the_parser_is(modelserver: dict[str, Any], want_prefill: str | None, want_decode: str | None) -> None:
    found = arguments(**modelserver)
    given = (found["prefill"].get("reasoning-parser"), found["decode"].get("reasoning-parser"))
    assert given == (want_prefill, want_decode)


def test_a_map_is_handed_over_as_the_json_text_that_the_engine_parses() -> None:
    written = {"kv_connector": "RblnNixlConnector", "kv_role": "kv_both", "nested": {"b": [1, 2]}}
    text = arguments(serveArgs={"common": {"kv-transfer-config": written}})["decode"]["kv-transfer-config"]
    assert isinstance(text, str)
    assert json.loads(text) == written


def test_a_bare_flag_is_true_in_the_file() -> None:
    assert arguments()["prefill"]["enable-prefix-caching"] is True


def test_the_model_comes_first_then_the_file_and_what_is_appended_comes_last() -> None:
    extra = ["--seed=1", "--max-num-seqs=2"]
    args = container(pod(plan(modelserver={"extraServeArgs": {"decode": extra}}), "decode"))["args"]
    assert args == ["MiniMaxAI/MiniMax-M2.7", "--config", "/etc/serving-stack/serve.yaml", *extra]


def test_what_is_appended_to_one_role_reaches_no_other() -> None:
    whole = plan(modelserver={"extraServeArgs": {"decode": ["--seed=1"]}})
    assert container(pod(whole, "prefill"))["args"] == container(pod(plan(), "prefill"))["args"]


def test_the_pods_of_prefill_are_pipelined_and_those_of_decode_hold_their_data_parallel_ranks() -> None:
    found = arguments()
    assert found["prefill"]["pipeline-parallel-size"] == 4
    assert "data-parallel-size" not in found["prefill"]
    assert "data-parallel-size-local" not in found["prefill"]
    assert (found["decode"]["data-parallel-size"], found["decode"]["data-parallel-size-local"]) == (4, 4)


@pytest.mark.parametrize(
    ("store", "want_argument", "want_home"),
    [
        pytest.param({}, "MiniMaxAI/MiniMax-M2.7", "/models", id="the volume is a Hugging Face cache"),
        pytest.param({"path": "minimax/m2.7"}, "/models/minimax/m2.7", None, id="the volume holds a folder"),
        pytest.param(
            {"path": "m2.7", "mountPath": "/weights"}, "/weights/m2.7", None, id="a folder of another mount path"
        ),
    ],
)
def test_the_model_is_loaded_from(store: dict[str, Any], want_argument: str, want_home: str | None) -> None:
    whole = plan(storage={"model": store})
    server = container(pod(whole, "prefill"))
    assert server["args"][0] == want_argument
    assert environment(server).get("HF_HOME") == want_home
    assert serve_file(whole, "prefill")["served-model-name"] == "MiniMaxAI/MiniMax-M2.7", "clients know it by its name"


# --- ports ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "blocks", "want_api", "want_nixl", "want_active"),
    [
        pytest.param("prefill", {}, [8000], [5600], "8000", id="prefill: one API server drives the pipeline"),
        pytest.param(
            "decode",
            {},
            [8200, 8201, 8202, 8203],
            [5600, 5601, 5602, 5603],
            "8000,8001,8002,8003",
            id="decode: one API server a rank behind the proxy, which the EPP addresses",
        ),
        pytest.param(
            "decode",
            {"routing": {"proxy": {"port": 9000, "modelServerPort": 9100}}},
            [9100, 9101, 9102, 9103],
            [5600, 5601, 5602, 5603],
            "9000,9001,9002,9003",
            id="decode with ports of the operator's",
        ),
        pytest.param(
            "decode",
            {"modelserver": {"serveArgs": {"decode": {"data-parallel-multi-port-external-lb": False}}}},
            [8200],
            [5600, 5601, 5602, 5603],
            "8000",
            id="decode with one API server for all ranks, each rank with its side channel",
        ),
        pytest.param(
            "decode",
            {
                "modelserver": {
                    "serveArgs": {"decode": {"data-parallel-multi-port-external-lb": False}},
                    "extraServeArgs": {"decode": ["--data-parallel-multi-port-external-lb"]},
                }
            },
            [8200, 8201, 8202, 8203],
            [5600, 5601, 5602, 5603],
            "8000,8001,8002,8003",
            id="a port a rank, asked for on the command line",
        ),
        pytest.param(
            "aggregated",
            {"modelserver": {"replicas": {"aggregated": 1}}},
            [8000, 8001, 8002, 8003],
            [],
            "8000,8001,8002,8003",
            id="aggregated: no proxy before the ranks, and no side channel",
        ),
        pytest.param(
            "prefill",
            {"devices": {"rdma": {"sideChannel": {"basePort": {"prefill": 6000}}}}},
            [8000],
            [6000],
            "8000",
            id="a side channel elsewhere",
        ),
    ],
)
def test_ports(  # the table's columns
    role: str, blocks: dict[str, Any], want_api: list[int], want_nixl: list[int], want_active: str
) -> None:
    whole = plan(**blocks)
    server = container(pod(whole, role))
    assert (ports(server, "api"), ports(server, "nixl")) == (want_api, want_nixl)
    assert serve_file(whole, role)["port"] == want_api[0]
    annotations = next(w for w in whole.modelserver.workloads if w.role == role).object.manifest["spec"]["template"][
        "metadata"
    ]["annotations"]
    assert annotations["inference.networking.k8s.io/active-ports"] == want_active


def test_only_decode_has_the_routing_proxy_and_only_with_the_split() -> None:
    names = {
        role: [c["name"] for c in pod(plan(modelserver=modelserver), role).get("initContainers", [])]
        for role, modelserver in (
            ("prefill", {}),
            ("decode", {}),
            ("aggregated", {"replicas": {"aggregated": 1}}),
        )
    }
    assert {role for role, found in names.items() if "routing-proxy" in found} == {"decode"}


# --- environment ------------------------------------------------------------------------------------------------------


def test_the_side_channel_is_announced_at_the_pods_own_address_and_first_port() -> None:
    found = variables("decode")
    assert found["VLLM_NIXL_SIDE_CHANNEL_HOST"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert found["VLLM_NIXL_SIDE_CHANNEL_PORT"] == "5600"


def test_a_side_channel_of_the_operators_is_announced_as_written() -> None:
    side = {"host": "10.0.0.1", "basePort": {"decode": 5700}}
    found = variables("decode", devices={"rdma": {"sideChannel": side}})
    assert (found["VLLM_NIXL_SIDE_CHANNEL_HOST"], found["VLLM_NIXL_SIDE_CHANNEL_PORT"]) == ("10.0.0.1", "5700")


def test_aggregated_pods_know_no_side_channel_and_no_kv_transfer() -> None:
    whole = plan(modelserver={"replicas": {"aggregated": 1}})
    assert not [name for name in environment(container(pod(whole, "aggregated"))) if "NIXL" in name]
    assert "kv-transfer-config" not in serve_file(whole, "aggregated")


@pytest.mark.parametrize(
    ("modelserver", "want_prefill", "want_decode"),
    [
        pytest.param({}, "llm-d", "llm-d", id="the recipe's"),
        pytest.param({"serveEnv": {"USER": "one"}}, "one", "one", id="serveEnv wins over the recipe"),
        pytest.param(
            {"serveEnv": {"USER": "one"}, "extraServeEnv": {"decode": {"USER": "two"}}},
            "one",
            "two",
            id="extraServeEnv wins for its role",
        ),
        pytest.param({"serveEnv": {"USER": 7}}, "7", "7", id="a number becomes text, as Kubernetes wants it"),
    ],
)
def test_a_variable_is(modelserver: dict[str, Any], want_prefill: str, want_decode: str) -> None:
    found = [variables(role, modelserver=modelserver)["USER"] for role in SPLIT]
    assert found == [want_prefill, want_decode]


def test_caches_and_home_lie_on_volumes_since_the_root_filesystem_is_read_only() -> None:
    found = variables("prefill", storage={"compileCache": {"mountPath": "/cache"}})
    assert (found["VLLM_CACHE_ROOT"], found["HOME"], found["HF_HOME"]) == ("/cache/.cache", "/tmp", "/models")  # noqa: S108


@pytest.mark.parametrize("role", SPLIT)
def test_secrets_are_references_and_never_values(role: str) -> None:
    found = variables(
        role, modelserver={"serveEnv": {"VLLM_API_KEY": {"secretKeyRef": {"name": "api", "key": "token"}}}}
    )
    assert found["HF_TOKEN"] == {"secretKeyRef": {"name": "llm-d-hf-token", "key": "HF_TOKEN"}}
    assert found["VLLM_API_KEY"] == {"secretKeyRef": {"name": "api", "key": "token"}}


def test_no_token_is_asked_for_when_the_model_needs_none() -> None:
    assert "HF_TOKEN" not in variables("prefill", modelserver={"hfTokenSecret": None})


def test_a_field_of_the_pod_is_referred_to() -> None:
    reference = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert variables("prefill", modelserver={"serveEnv": {"NODE": reference}})["NODE"] == reference


# --- tracing ----------------------------------------------------------------------------------------------------------

TRACED: dict[str, Any] = {
    "enabled": True,
    "collector": {"endpoint": "http://collector:4318/v1/traces", "protocol": "http/protobuf"},
    "sampler": "traceidratio",
    "samplerArg": "0.5",
}


def test_without_tracing_nothing_of_it_is_rendered() -> None:
    whole = plan()
    assert not [name for name in environment(container(pod(whole, "decode"))) if name.startswith("OTEL_")]
    assert "otlp-traces-endpoint" not in serve_file(whole, "decode")


def test_with_tracing_engine_and_proxy_send_to_the_collector_under_names_of_their_own() -> None:
    whole = plan(tracing=TRACED)
    engine = environment(container(pod(whole, "decode")))
    proxy = container(pod(whole, "decode"), "routing-proxy")
    assert serve_file(whole, "decode")["otlp-traces-endpoint"] == "http://collector:4318/v1/traces"
    assert engine["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] == "http/protobuf", "vLLM speaks gRPC without it"
    assert (engine["OTEL_TRACES_SAMPLER"], engine["OTEL_TRACES_SAMPLER_ARG"]) == ("traceidratio", "0.5")
    assert "--tracing=true" in proxy["args"]
    assert engine["OTEL_SERVICE_NAME"] == "vllm-decode"
    assert environment(proxy)["OTEL_SERVICE_NAME"] != "vllm-decode"
    assert environment(proxy)["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector:4318/v1/traces"
