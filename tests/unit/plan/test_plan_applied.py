"""The applied configuration: defaults of every source filled in, and fit to be a stack file again.

That it gives the same plan is checked for every stack file, situation and found configuration in `test_plan_stack`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from stack.facts import NOTHING_READ
from stack.plan import plan_stack
from stack.recipes import load_recipe
from stack.rules import Accepted, accept
from tests.builders import accepted, plan


def value_of(applied: Any, key: str) -> Any:
    for part in key.split("."):
        applied = applied[part]
    return applied


def read_back(before: Accepted) -> Accepted:
    applied = json.loads(json.dumps(plan_stack(before, NOTHING_READ).applied))
    return accept(applied, context=before.config.context)


PROMETHEUS: dict[str, Any] = {"enabled": True, "provider": "prometheus-operator"}
BY_PLUGIN: dict[str, Any] = {"npu": {"mode": "devicePlugin"}, "rdma": {"mode": "devicePlugin", "resourceName": "r/hca"}}


@pytest.mark.parametrize(
    ("blocks", "key", "want"),
    [
        ({}, "modelserver.model", "MiniMaxAI/MiniMax-M2.7"),
        ({}, "modelserver.image.tag", "0.12.0"),
        ({}, "modelserver.replicas", {"prefill": 4, "decode": 4, "aggregated": 0}),
        ({"modelserver": {"replicas": {"aggregated": 2}}}, "modelserver.replicas.prefill", 0),
        ({}, "modelserver.serveArgs.prefill.pipeline-parallel-size", 4),
        ({"modelserver": {"serveArgs": {"common": {"seed": 3}}}}, "modelserver.serveArgs.decode.seed", 3),
        ({"modelserver": {"serveEnv": {"A": 1}}}, "modelserver.extraServeEnv.decode.A", "1"),
        ({}, "modelserver.extraServeEnv.decode.VLLM_ENGINE_READY_TIMEOUT_S", "9600"),
        ({}, "modelserver.probes.startup.failureThreshold", 240),
        ({"modelserver": {"probes": {"startup": {"periodSeconds": 5}}}}, "modelserver.probes.startup.periodSeconds", 5),
        ({}, "modelserver.resources.requests.cpu", "40"),
        ({"modelserver": {"hfTokenSecret": None}}, "modelserver.hfTokenSecret", None),
        ({}, "devices.claimTemplateName", "npu-rdma"),
        (
            {"devices": BY_PLUGIN},
            "devices.npu",
            {"mode": "devicePlugin", "count": 4, "resourceName": "rebellions.ai/npu"},
        ),
        ({}, "storage.shm.sizeLimit", "20Gi"),
        ({}, "storage.compileCache.size", "200Gi"),
        ({}, "routing.proxy.image.tag", "v0.10.0"),
        ({}, "gateway.name", "rel"),
        ({}, "router.epp.image.repository", "ghcr.io/llm-d/llm-d-router-endpoint-picker"),
        ({}, "router.epp.drainSeconds", 60),
        ({}, "storage.compileCache.adopt", False),
        ({}, "rollout.patienceSeconds", 300),
        ({}, "router.modelServers.targetPorts", [8000, 8001, 8002, 8003]),
        ({"monitoring": PROMETHEUS}, "monitoring.tokenSecret", "rel-epp-metrics-reader"),
        ({}, "eppServiceName", "rel-epp"),
    ],
)
def test_an_operator_finds_what_is_in_force(blocks: dict[str, Any], key: str, want: Any) -> None:
    assert value_of(plan(**blocks).applied, key) == want


@pytest.mark.parametrize(
    ("blocks", "key"),
    [
        pytest.param({}, "context", id="the context is no block of the stack file"),
        pytest.param({}, "modelserver.serviceAccountName", id="a named ServiceAccount would be the operator's"),
        pytest.param({}, "devices.npu.count", id="the claim decides, and the key would be warned about"),
        pytest.param({}, "storage.model.size", id="a key of another kind of volume"),
        pytest.param({}, "storage.model.adopt", id="a claim of the operator's is not adopted"),
        pytest.param({}, "modelserver.podOverrides.decode", id="nothing was overridden"),
        pytest.param(
            {"modelserver": {"image": {"digest": f"sha256:{'0' * 64}"}}},
            "modelserver.image.tag",
            id="a digest takes the recipe's tag's place",
        ),
        pytest.param(
            {"modelserver": {"removeServeArgs": ["speculative-config"]}},
            "modelserver.serveArgs.prefill.speculative-config",
            id="a flag that is removed",
        ),
    ],
)
def test_what_would_mean_something_else_when_written_is_left_out(blocks: dict[str, Any], key: str) -> None:
    with pytest.raises(KeyError):
        value_of(plan(**blocks).applied, key)


@pytest.mark.parametrize(
    "blocks",
    [
        pytest.param(
            {"modelserver": {"nodePlacement": [{"role": "prefill", "node": "a"}, {"role": "decode", "node": "b"}]}},
            id="replicas at 0 beside nodePlacement",
        ),
        pytest.param({"modelserver": {"strategy": {"type": "Recreate"}}}, id="Recreate without numbers"),
        pytest.param(
            {
                "modelserver": {
                    "serveArgs": {"common": {"speculative-config": False, "seed": 1}, "prefill": {"seed": 2}}
                }
            },
            id="a flag of the recipe left out, and a role's own value",
        ),
        pytest.param(
            {"modelserver": {"serveArgs": {"common": {"additional-config": {"a": None}}}}}, id="null inside a map"
        ),
        pytest.param(
            {"modelserver": {"extraServeEnv": {"decode": {"A": {"fieldRef": {"fieldPath": "status.hostIP"}}}}}},
            id="an environment by reference",
        ),
        pytest.param(
            {"modelserver": {"podOverrides": {"aggregated": {"labels": {"a": "b"}}}}}, id="a role that has no Pods"
        ),
        pytest.param({"devices": {"rdma": {"enabled": False}}}, id="without RDMA"),
        pytest.param({"devices": BY_PLUGIN}, id="devices by plugin"),
        pytest.param({"gateway": {"enabled": False}}, id="without a Gateway"),
        pytest.param({"storage": {"compileCache": {"kind": "emptyDir", "size": "1Gi"}}}, id="a size without effect"),
        pytest.param({"storage": {"compileCache": {"adopt": True}, "model": {"adopt": False}}}, id="adopted claims"),
        pytest.param({"router": {"epp": {"drainSeconds": 600}}}, id="a long drain"),
        pytest.param({"rollout": {"patienceSeconds": 60, "protectTopology": True}}, id="a protected anchor"),
        pytest.param({"routing": {"proxy": {"image": {"tag": "mine"}}}}, id="a proxy of the operator's"),
        pytest.param(
            {
                "router": {"epp": {"distribution": "gaie", "version": "v1.5.0"}},
                "modelserver": {"replicas": {"aggregated": 1}},
            },
            id="the other EPP",
        ),
        pytest.param({"router": {"epp": {"hfTokenSecret": None}}}, id="no token"),
        pytest.param({"recipe": "gpt-oss-120b-nvidia"}, id="GPUs"),
    ],
)
def test_it_may_be_written_into_a_stack_file(blocks: dict[str, Any]) -> None:
    before = accepted(**blocks)
    after = read_back(before)
    want, found = plan_stack(before, NOTHING_READ), plan_stack(after, NOTHING_READ)
    assert replace(found, warnings=()) == replace(want, warnings=())
    keys = [{warning.key for warning in each.warnings} for each in (before, after)]
    assert keys[0] == keys[1], "what it says about itself is no more and no less"


def test_it_holds_no_value_of_a_recipe_that_was_replaced() -> None:
    given = {"requests": {"cpu": "2"}}
    found = plan(modelserver={"resources": given}).applied["modelserver"]["resources"]
    assert found == {"requests": {"cpu": "2"}, "limits": {}}
    assert load_recipe("minimax-m2.7-rbln").resources.limits, "the recipe has limits"
