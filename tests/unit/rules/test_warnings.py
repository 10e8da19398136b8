"""What is legal and probably not meant: warned about, and not refused."""

from __future__ import annotations

from typing import Any

import pytest

from stack.rules import accept
from tests.builders import SMALLEST, merged

MANAGED: dict[str, Any] = {
    "claimTemplate": {
        "requests": [
            {"name": "npu", "deviceClassName": "npu.rebellions.ai", "count": 4},
            {
                "name": "nic",
                "deviceClassName": "dranet",
                "count": 2,
                "selectors": ['device.attributes["dra.net"].rdma'],
            },
        ],
        "constraints": [{"requests": ["npu", "nic"], "matchAttribute": "resource.kubernetes.io/numaNode"}],
    }
}

TABLE: list[tuple[str, dict[str, Any], list[str]]] = [
    # What an operator of the chart would write without a second thought: nothing to say.
    ("the reference", {}, []),
    ("4P5D, the chart's example", {"modelserver": {"replicas": {"prefill": 4, "decode": 5}}}, []),
    (
        "no spare devices",
        {"modelserver": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}},
        [],
    ),
    ("a managed claim template", {"devices": MANAGED}, []),
    (
        "two Pods of one role on one node",
        {"modelserver": {"nodePlacement": [{"role": role, "node": "a"} for role in ("prefill", "decode", "decode")]}},
        ["disruptionBudget.maxUnavailable"],
    ),
    ("GPUs of another recipe", {"recipe": "gpt-oss-120b-nvidia"}, []),
    ("a small model", {"recipe": "qwen3-0.6b"}, []),
    (
        "aggregated without RDMA",
        {"modelserver": {"replicas": {"aggregated": 2}}, "devices": {"rdma": {"enabled": False}}},
        [],
    ),
    (
        "Prometheus Operator",
        {"monitoring": {"enabled": True, "provider": "prometheus-operator"}},
        [],
    ),
    (
        "more sequences and another length by appended arguments",
        {"modelserver": {"extraServeArgs": {"decode": ["--max-num-seqs=2", "--seed=1"]}}},
        [],
    ),
    (
        "a secret by reference",
        {"modelserver": {"serveEnv": {"MY_TOKEN": {"secretKeyRef": {"name": "a", "key": "b"}}}}},
        [],
    ),
    ("no token at all", {"modelserver": {"hfTokenSecret": None}, "router": {"epp": {"hfTokenSecret": None}}}, []),
    # Topology
    ("prefill alone answers nothing", {"modelserver": {"replicas": {"decode": 0}}}, ["modelserver.replicas.decode"]),
    (
        "decode alone prefills by itself",
        {"modelserver": {"replicas": {"prefill": 0}}},
        ["modelserver.replicas.prefill"],
    ),
    (
        "a strategy beside nodePlacement",
        {
            "modelserver": {
                "nodePlacement": [{"role": "prefill", "node": "a"}, {"role": "decode", "node": "a"}],
                "strategy": {"type": "Recreate"},
            }
        },
        ["disruptionBudget.maxUnavailable", "modelserver.strategy"],
    ),
    (
        "settings of roles without Pods",
        {
            "modelserver": {
                "serveArgs": {"aggregated": {"seed": 1}},
                "extraServeArgs": {"aggregated": ["--seed=1"]},
                "extraServeEnv": {"aggregated": {"A": "b"}},
                "podOverrides": {"aggregated": {"labels": {"a": "b"}}},
            }
        },
        [f"modelserver.{key}.aggregated" for key in ("extraServeArgs", "extraServeEnv", "podOverrides", "serveArgs")],
    ),
    # Rolling updates
    (
        "the only Pod of a role goes first",
        {
            "modelserver": {
                "replicas": {"prefill": 1, "decode": 4},
                "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            }
        },
        ["disruptionBudget.maxUnavailable", "modelserver.strategy.rollingUpdate.maxUnavailable"],
    ),
    (
        "a percentage that rounds to nothing, for both roles",
        {"modelserver": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "10%"}}}},
        ["modelserver.strategy.rollingUpdate.maxUnavailable"] * 2,
    ),
    # Disruption budgets
    (
        "a role of one Pod and a budget of one",
        {"modelserver": {"replicas": {"prefill": 1, "decode": 2}}},
        ["disruptionBudget.maxUnavailable"],
    ),
    (
        "as many Pods as the budget has, in both roles told once",
        {"modelserver": {"replicas": {"prefill": 2, "decode": 2}}, "disruptionBudget": {"maxUnavailable": 2}},
        ["disruptionBudget.maxUnavailable"],
    ),
    (
        "a role of one Pod that may stop",
        {
            "modelserver": {
                "replicas": {"prefill": 1, "decode": 2},
                "strategy": {"type": "auto", "allowOutage": ["prefill"]},
            }
        },
        [],
    ),
    (
        "a role of one Pod without a budget",
        {"modelserver": {"replicas": {"prefill": 1, "decode": 2}}, "disruptionBudget": {"enabled": False}},
        [],
    ),
    (
        "a scaler that may leave one Pod",
        {"autoscaling": {"decode": {"provider": "hpa", "minReplicas": 1, "maxReplicas": 4}}},
        ["disruptionBudget.maxUnavailable"],
    ),
    # Volumes
    (
        "a cache for one node under a surge",
        {
            "modelserver": {"replicas": {"prefill": 1, "decode": 1}},
            "storage": {"compileCache": {"accessModes": ["ReadWriteOnce"]}},
        },
        ["disruptionBudget.maxUnavailable", "storage.compileCache.accessModes"],
    ),
    (
        "a cache for one node without a surge",
        {
            "modelserver": {"replicas": {"prefill": 1, "decode": 1}, "strategy": {"type": "Recreate"}},
            "storage": {"compileCache": {"accessModes": ["ReadWriteOnce"]}},
        },
        ["disruptionBudget.maxUnavailable"],
    ),
    (
        "a cache for one Pod without a surge",
        {
            "modelserver": {"replicas": {"prefill": 1, "decode": 1}, "strategy": {"type": "Recreate"}},
            "storage": {"compileCache": {"accessModes": ["ReadWriteOncePod"]}},
        },
        ["disruptionBudget.maxUnavailable"],
    ),
    (
        "a cache for one node with all Pods of a role on one node",
        {
            "modelserver": {
                "nodePlacement": [{"role": "prefill", "node": "a"}] + [{"role": "decode", "node": "b"}] * 2
            },
            "storage": {"compileCache": {"accessModes": ["ReadWriteOnce"]}},
        },
        ["disruptionBudget.maxUnavailable"],
    ),
    (
        "a model claim for one node and one Pod under a surge",
        {
            "modelserver": {"replicas": {"aggregated": 1}},
            "devices": {"rdma": {"enabled": False}},
            "storage": {"model": {"kind": "pvc", "existingClaim": None, "accessModes": ["ReadWriteOnce"]}},
        },
        ["disruptionBudget.maxUnavailable", "storage.model.accessModes"],
    ),
    (
        "a cache that nothing can fill",
        {"storage": {"compileCache": {"accessModes": ["ReadOnlyMany"]}}},
        ["storage.compileCache.accessModes"],
    ),
    (
        "keys of other kinds",
        {"storage": {"compileCache": {"kind": "emptyDir", "size": "10Gi"}, "model": {"size": "1Ti"}}},
        ["storage.compileCache.kind", "storage.compileCache.size", "storage.model.size"],
    ),
    (
        "a claim's name while the kind is still pvc",
        {"storage": {"compileCache": {"existingClaim": {"prefill": "a", "decode": "b"}}}},
        ["storage.compileCache.existingClaim"],
    ),
    (
        "a model loaded by every Pod",
        {"storage": {"model": {"kind": "emptyDir", "existingClaim": None}}},
        ["storage.model.kind"],
    ),
    (
        "a new model claim mounted read-only",
        {"storage": {"model": {"kind": "pvc", "existingClaim": None, "readOnly": True}}},
        ["storage.model.readOnly"],
    ),
    (
        "adoption where no claim is made",
        {"storage": {"compileCache": {"kind": "emptyDir", "adopt": True}, "model": {"adopt": True}}},
        ["storage.compileCache.adopt", "storage.compileCache.kind", "storage.model.adopt"],
    ),
    ("adoption where claims are made", {"storage": {"compileCache": {"adopt": True}}}, []),
    ("sizes in bytes", {"storage": {"compileCache": {"size": 200}}}, ["storage.compileCache.size"]),
    ("shared memory that fills the memory", {"storage": {"shm": {"sizeLimit": "500Gi"}}}, ["storage.shm.sizeLimit"]),
    # Devices
    (
        "ranks that the recipe's claim does not fit",
        {"modelserver": {"serveArgs": {"decode": {"data-parallel-size": 8}}}},
        ["devices.claimTemplateName"],
    ),
    (
        "counts that the claim decides",
        {"devices": {"npu": {"count": 4}, "rdma": {"count": 2, "resourceName": "example.com/nic"}}},
        ["devices.npu.count", "devices.rdma.count", "devices.rdma.resourceName"],
    ),
    (
        "RDMA keys while it is off",
        {"devices": {"rdma": {"enabled": False, "discoveryTimeoutSeconds": 60}}},
        ["devices.rdma.discoveryTimeoutSeconds", "devices.rdma.enabled"],
    ),
    (
        "a template while nothing is claimed",
        {"devices": {"npu": {"mode": "devicePlugin"}, "rdma": {"enabled": False}, "claimTemplateName": "a"}},
        ["devices.claimTemplateName", "devices.rdma.enabled"],
    ),
    ("NICs that nobody needs", {"modelserver": {"replicas": {"aggregated": 2}}}, ["devices.rdma.enabled"]),
    (
        "devices of one claim on any NUMA node",
        {"devices": {"claimTemplate": {"requests": MANAGED["claimTemplate"]["requests"]}}},
        ["devices.claimTemplate.constraints"],
    ),
    (
        "claimed NICs while RDMA is off",
        {"devices": MANAGED | {"rdma": {"enabled": False}}},
        ["devices.claimTemplate.requests", "devices.rdma.enabled"],
    ),
    (
        "one host for every Pod",
        {"devices": {"rdma": {"sideChannel": {"host": "10.0.0.7"}}}},
        ["devices.rdma.sideChannel.host"],
    ),
    # Arguments and environment
    (
        "a duplicate, of which the last wins",
        {"modelserver": {"extraServeArgs": {"decode": ["--seed=1", "--seed=2"]}}},
        ["modelserver.extraServeArgs.decode[0]"],
    ),
    (
        "flags to remove that are not there, or there twice",
        {"modelserver": {"removeServeArgs": ["trust-remote-cod", "trust-remote-code", "trust-remote-code"]}},
        ["modelserver.removeServeArgs[0]", "modelserver.removeServeArgs[2]"],
    ),
    (
        "a flag written and removed",
        {"modelserver": {"serveArgs": {"common": {"seed": 1}}, "removeServeArgs": ["seed"]}},
        ["modelserver.removeServeArgs[0]"],
    ),
    (
        "an unknown flag under an image of one's own",
        {"modelserver": {"image": {"tag": "mine"}, "serveArgs": {"common": {"brand-new": True}}}},
        ["modelserver.serveArgs.common.brand-new"],
    ),
    (
        "the split without a KV connector",
        {"modelserver": {"removeServeArgs": ["kv-transfer-config"]}},
        ["modelserver.serveArgs.decode.kv-transfer-config", "modelserver.serveArgs.prefill.kv-transfer-config"],
    ),
    ("another model under the recipe", {"modelserver": {"model": "some/other"}}, ["modelserver.model"]),
    (
        "a cache root outside the cache",
        {"modelserver": {"serveEnv": {"VLLM_CACHE_ROOT": "/tmp/cache"}}},  # noqa: S108
        ["modelserver.serveEnv.VLLM_CACHE_ROOT"],
    ),
    (
        "a probe that waits longer than its period",
        {"modelserver": {"probes": {"readiness": {"timeoutSeconds": 20}}}},
        ["modelserver.probes.readiness.timeoutSeconds"],
    ),
    # Pods
    ("an image that moves", {"modelserver": {"image": {"tag": "latest"}}}, ["modelserver.image.tag"]),
    (
        "memory in bytes",
        {"modelserver": {"resources": {"requests": {"cpu": 4, "memory": 8}}}},
        ["modelserver.resources.requests.memory"],
    ),
    # Traces
    ("traces to a collector", {"tracing": {"enabled": True, "collector": {"endpoint": "http://otel:4317"}}}, []),
    (
        "traces over HTTP, which only the engines speak",
        {
            "tracing": {
                "enabled": True,
                "collector": {"endpoint": "http://otel:4318/v1/traces", "protocol": "http/protobuf"},
            }
        },
        ["tracing.collector.protocol"],
    ),
    (
        "traces over HTTP to no path",
        {"tracing": {"enabled": True, "collector": {"endpoint": "http://otel:4318", "protocol": "http/protobuf"}}},
        ["tracing.collector.endpoint", "tracing.collector.protocol"],
    ),
    (
        "a sampler that only the engines have",
        {"tracing": {"enabled": True, "sampler": "always_on"}},
        ["tracing.sampler"],
    ),
    (
        "a sampler and a protocol while tracing is off",
        {"tracing": {"sampler": "always_on", "collector": {"protocol": "http/protobuf"}}},
        [],
    ),
    # Labels, annotations, mounts and devices that look like the stack's and are the operator's
    (
        "labels of the recipe with the recipe's values in the pool",
        {"router": {"modelServers": {"matchLabels": {"llm-d.ai/model": "MiniMax-M2.7", "team": "chat"}}}},
        [],
    ),
    (
        "labels and annotations of others",
        {
            "monitoring": {
                "enabled": True,
                "provider": "prometheus-operator",
                "labels": {"release": "kube-prometheus-stack"},
            },
            "gateway": {"annotations": {"networking.istio.io/service-type": "ClusterIP"}},
        },
        [],
    ),
    (
        "mount paths that only begin alike",
        {
            "storage": {
                "compileCache": {"mountPath": "/data"},
                "model": {"mountPath": "/data-models"},
                "modelOffload": {"enabled": True, "mountPath": "/data_kv"},
            }
        },
        [],
    ),
    (
        "mount paths in one folder, and an offload path that nobody mounts",
        {
            "storage": {
                "compileCache": {"mountPath": "/data/cache"},
                "model": {"mountPath": "/data/models"},
                "modelOffload": {"mountPath": "/data"},
            }
        },
        [],
    ),
    (
        "accelerators and NICs by resources of their own",
        {
            "devices": {
                "npu": {"mode": "devicePlugin", "resourceName": "rebellions.ai/REBEL"},
                "rdma": {"mode": "devicePlugin", "resourceName": "example.com/nic"},
            }
        },
        [],
    ),
    # Router, gateway, monitoring
    ("two endpoint pickers", {"router": {"epp": {"replicas": 2}}}, ["router.epp.replicas"]),
    (
        "a target port at which nobody serves",
        {"router": {"modelServers": {"targetPorts": [8000, 8001, 8002, 8003, 8004]}}},
        ["router.modelServers.targetPorts"],
    ),
    (
        "TLS at the proxy behind a gateway of one's own",
        {"routing": {"proxy": {"secure": True}}, "gateway": {"enabled": False}},
        ["routing.proxy.secure"],
    ),
    (
        "TLS at a proxy that aggregated Pods do not have",
        {
            "routing": {"proxy": {"secure": True}},
            "modelserver": {"replicas": {"aggregated": 1}},
            "devices": {"rdma": {"enabled": False}},
        },
        ["disruptionBudget.maxUnavailable"],
    ),
    (
        "the drain that follows anyway",
        {"modelserver": {"serveArgs": {"common": {"shutdown-timeout": 60}}}},
        [],
    ),
    (
        "a Gateway without a pool to lead to",
        {"router": {"inferencePool": {"create": False}}},
        ["router.inferencePool.create"],
    ),
    (
        "a Gateway that leads to a Service instead of a pool",
        {"router": {"inferencePool": {"create": False}}, "gateway": {"backend": {"name": "envoy", "port": 80}}},
        [],
    ),
    ("a backend beside the pool", {"gateway": {"backend": {"name": "envoy", "port": 80}}}, ["gateway.backend"]),
    ("gateway keys while it is off", {"gateway": {"enabled": False, "port": 81}}, ["gateway.enabled"]),
    (
        "an account for Prometheus Operator",
        {
            "monitoring": {
                "enabled": True,
                "provider": "prometheus-operator",
                "scraper": {"serviceAccount": {"name": "a", "namespace": "b"}},
            }
        },
        ["monitoring.scraper"],
    ),
    (
        "a token Secret for VictoriaMetrics",
        {
            "monitoring": {
                "enabled": True,
                "tokenSecret": "a",
                "scraper": {"serviceAccount": {"name": "a", "namespace": "b"}},
            }
        },
        ["monitoring.tokenSecret"],
    ),
]


@pytest.mark.parametrize(("sentence", "over", "want_keys"), TABLE, ids=[row[0] for row in TABLE])
def test_warns_and_accepts(sentence: str, over: dict[str, Any], want_keys: list[str]) -> None:
    warnings = accept(merged(SMALLEST, over), context="test").warnings
    assert [warning.key for warning in warnings] == sorted(want_keys), f"{sentence}: {list(map(str, warnings))}"
