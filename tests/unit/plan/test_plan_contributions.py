"""A role's contributions change exactly when its Pod template does: shown key by key, for every key there is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.config.guards import GUARD_NAMES
from stack.config.root import StackConfig
from stack.config.shape import every_key, written
from stack.contributions import trace_contributions
from stack.devices import plan_devices
from stack.errors import ConfigError
from stack.facts import NOTHING_READ, AnchorFacts, ClusterFacts, WorkloadFacts
from stack.modelserver import plan_workload
from stack.serve import plan_serve
from stack.topology import place, plan_topology
from tests.builders import accepted, merged, plan

if TYPE_CHECKING:
    from stack.planned import WorkloadPlan

Roles = frozenset[str]
NONE: Roles = frozenset()
PREFILL = frozenset({"prefill"})
DECODE = frozenset({"decode"})
BOTH = PREFILL | DECODE
DIGEST = f"sha256:{'0a' * 32}"
SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}
RESOURCES = {"cpu": "2", "memory": "4Gi"}

BASES: dict[str, dict[str, Any]] = {
    "the reference": {},
    "aggregated": {"modelserver": {"replicas": {"aggregated": 2}}},
    "placed": {
        "modelserver": {
            "nodePlacement": [
                {"role": "prefill", "node": "n1"},
                {"role": "decode", "node": "n1"},
                {"role": "decode", "node": "n2"},
            ]
        }
    },
    "plugins": {
        "devices": {"npu": {"mode": "devicePlugin"}, "rdma": {"mode": "devicePlugin", "resourceName": "rdma/hca"}}
    },
    "a managed claim": {
        "devices": {
            "claimTemplate": {
                "requests": [
                    {"name": "npu", "deviceClassName": "npu.rebellions.ai", "count": 4},
                    {"name": "nic", "deviceClassName": "dranet", "count": 2},
                ],
                "constraints": [{"requests": ["npu", "nic"], "matchAttribute": "resource.kubernetes.io/numaNode"}],
            }
        }
    },
    "chosen strategies": {"modelserver": {"strategy": {"type": "auto"}}},
    "without RDMA": {"devices": {"rdma": {"enabled": False}}},
    "traced": {"tracing": {"enabled": True}},
    "without a Gateway": {"gateway": {"enabled": False}},
    "empty volumes": {
        "storage": {"compileCache": {"kind": "emptyDir"}, "model": {"kind": "emptyDir", "existingClaim": None}}
    },
    "claims of the operator's": {
        "storage": {
            "compileCache": {"kind": "existingClaim", "existingClaim": {"prefill": "a", "decode": "b"}},
        }
    },
    "claims of the stack's": {"storage": {"model": {"kind": "pvc", "existingClaim": None}}},
    "offloading": {"storage": {"modelOffload": {"enabled": True}}},
    "own requests of the EPP": {"router": {"epp": {"resources": {"requests": {"cpu": "1"}}}}},
    "own flags": {"routing": {"proxy": {"image": {"tag": "mine"}}}},
    "monitored": {
        "monitoring": {
            "enabled": True,
            "scraper": {"serviceAccount": {"name": "vmagent", "namespace": "monitoring"}},
        }
    },
}


SCALER: dict[str, Any] = {"provider": "hpa", "minReplicas": 1, "maxReplicas": 8}


@dataclass(frozen=True)
class Change:
    """One key that gets a value, and the roles that restart by it."""

    key: str
    value: Any
    want: Roles
    base: str = "the reference"

    @property
    def blocks(self) -> dict[str, Any]:
        nested: Any = self.value
        for part in reversed(self.key.split(".")):
            nested = {part: nested}
        return nested


def for_roles(key: str, value: Any) -> list[Change]:
    """The same key of every role; the aggregated one where there is such a role."""
    return [
        Change(key.format(role="prefill"), value, PREFILL),
        Change(key.format(role="decode"), value, DECODE),
        Change(key.format(role="aggregated"), value, NONE),
        Change(key.format(role="aggregated"), value, frozenset({"aggregated"}), base="aggregated"),
    ]


CHANGES: list[Change] = [
    Change("release", "other", BOTH),
    Change("namespace", "other", NONE),
    Change("cluster.identifier", "other", NONE),
    Change("cluster.providerVersion", "4.25.0", NONE),
    Change("recipe", "gpt-oss-120b-nvidia", BOTH),
    # --- modelserver
    Change("modelserver.model", "other/model", BOTH),
    Change("modelserver.image.repository", "mirror.example/x", BOTH),
    Change("modelserver.image.tag", "9.9", BOTH),
    Change("modelserver.image.digest", DIGEST, BOTH),
    Change("modelserver.replicas.prefill", 2, NONE),
    Change("modelserver.replicas.decode", 2, NONE),
    Change("modelserver.replicas.aggregated", 3, NONE, base="aggregated"),
    Change("modelserver.nodePlacement", [{"role": "prefill", "node": "n1"}], NONE, base="placed"),
    Change(
        "modelserver.nodePlacement",
        [*BASES["placed"]["modelserver"]["nodePlacement"][:2], {"role": "decode", "node": "n3"}],
        DECODE,
        base="placed",
    ),
    Change("modelserver.strategy.type", "Recreate", NONE),
    Change("modelserver.strategy.allowOutage", ["prefill"], NONE, base="chosen strategies"),
    Change("modelserver.strategy.rollingUpdate.maxSurge", 2, NONE),
    Change("modelserver.strategy.rollingUpdate.maxUnavailable", 1, NONE),
    Change("modelserver.serveArgs.common", {"seed": 1}, BOTH),
    *for_roles("modelserver.serveArgs.{role}", {"seed": 1}),
    Change("modelserver.serveEnv", {"EXAMPLE": "1"}, BOTH),
    Change("modelserver.serveEnv", {"EXAMPLE": SECRET}, BOTH),
    *for_roles("modelserver.extraServeArgs.{role}", ["--seed=1"]),
    *for_roles("modelserver.extraServeEnv.{role}", {"EXAMPLE": "1"}),
    *for_roles("modelserver.extraServeEnv.{role}", {"EXAMPLE": {"fieldRef": {"fieldPath": "spec.nodeName"}}}),
    Change("modelserver.removeServeArgs", ["speculative-config"], BOTH),
    Change("modelserver.removeServeArgs", ["gpu-memory-utilization"], PREFILL),
    *(
        Change(f"modelserver.probes.{probe}.{key}", value, BOTH)
        for probe in ("startup", "readiness", "liveness")
        for key, value in (
            ("path", "/other"),
            ("periodSeconds", 20),
            ("failureThreshold", 7),
            ("timeoutSeconds", 3),
            ("initialDelaySeconds", 9),
        )
    ),
    Change("modelserver.resources.requests", RESOURCES, BOTH),
    Change("modelserver.resources.limits", RESOURCES, BOTH),
    *for_roles("modelserver.podOverrides.{role}.labels", {"team": "chat"}),
    *for_roles("modelserver.podOverrides.{role}.annotations", {"note": "hello"}),
    *for_roles("modelserver.podOverrides.{role}.nodeSelector", {"pool": "npu"}),
    *for_roles("modelserver.podOverrides.{role}.tolerations", [{"key": "npu", "operator": "Exists"}]),
    *for_roles("modelserver.podOverrides.{role}.affinity", {"podAffinity": {}}),
    *for_roles("modelserver.podOverrides.{role}.priorityClassName", "high"),
    *for_roles("modelserver.podOverrides.{role}.runtimeClassName", "rbln"),
    *for_roles("modelserver.podOverrides.{role}.schedulerName", "mine"),
    *for_roles("modelserver.podOverrides.{role}.resources.requests", RESOURCES),
    *for_roles("modelserver.podOverrides.{role}.resources.limits", RESOURCES),
    *for_roles("modelserver.podOverrides.{role}.podSecurityContext", {"fsGroup": 1600}),
    *for_roles("modelserver.podOverrides.{role}.securityContext", {"readOnlyRootFilesystem": False}),
    *for_roles(
        "modelserver.podOverrides.{role}.securityContext", {"privileged": True, "allowPrivilegeEscalation": True}
    ),
    Change("modelserver.hfTokenSecret.name", "other", BOTH),
    Change("modelserver.hfTokenSecret.key", "OTHER", BOTH),
    Change("modelserver.hfTokenSecret", None, BOTH),
    Change("modelserver.serviceAccountName", "mine", BOTH),
    # --- devices
    Change("devices.npu.mode", "devicePlugin", BOTH),
    Change("devices.npu.count", 8, NONE),
    Change("devices.npu.resourceName", "rebellions.ai/REBEL", NONE),
    Change("devices.npu.resourceName", "rebellions.ai/REBEL", BOTH, base="plugins"),
    Change("devices.rdma.enabled", value=False, want=BOTH),
    Change("devices.rdma.enabled", value=False, want=BOTH, base="plugins"),
    Change("devices.rdma.mode", "dra", BOTH, base="plugins"),
    Change("devices.rdma.mode", "devicePlugin", NONE, base="without RDMA"),
    Change("devices.rdma.count", 1, NONE),
    Change("devices.rdma.count", 1, BOTH, base="plugins"),
    Change("devices.rdma.resourceName", "other/hca", NONE),
    Change("devices.rdma.resourceName", "other/hca", BOTH, base="plugins"),
    Change("devices.rdma.discoveryTimeoutSeconds", 60, BOTH),
    Change("devices.rdma.discoveryTimeoutSeconds", 60, NONE, base="without RDMA"),
    Change("devices.rdma.sideChannel.host", "10.0.0.1", BOTH),
    Change("devices.rdma.sideChannel.host", "10.0.0.1", NONE, base="aggregated"),
    Change("devices.rdma.sideChannel.basePort.prefill", 5700, PREFILL),
    Change("devices.rdma.sideChannel.basePort.decode", 5700, DECODE),
    Change("devices.rdma.sideChannel.basePort.aggregated", 5700, NONE, base="aggregated"),
    Change("devices.claimTemplateName", "mine", BOTH),
    Change("devices.claimTemplateName", "mine", NONE, base="plugins"),
    Change("devices.claimTemplate", BASES["a managed claim"]["devices"]["claimTemplate"], BOTH),
    Change("devices.claimTemplate.constraints", [{"matchAttribute": "a.example/b"}], BOTH, base="a managed claim"),
    Change(
        "devices.claimTemplate.requests",
        [{"name": "npu", "deviceClassName": "npu.rebellions.ai", "count": 4}, {"name": "nic", "deviceClassName": "x"}],
        BOTH,
        base="a managed claim",
    ),
    # --- storage
    Change("storage.compileCache.kind", "emptyDir", BOTH),
    Change("storage.compileCache.size", "300Gi", NONE),
    Change("storage.compileCache.accessModes", ["ReadOnlyMany", "ReadWriteMany"], NONE),
    Change("storage.compileCache.storageClass", "fast", NONE),
    Change("storage.compileCache.adopt", value=True, want=NONE),
    Change("storage.compileCache.existingClaim.prefill", "x", NONE),
    Change("storage.compileCache.existingClaim.prefill", "x", PREFILL, base="claims of the operator's"),
    Change("storage.compileCache.existingClaim.decode", "x", DECODE, base="claims of the operator's"),
    Change("storage.compileCache.existingClaim.aggregated", "x", NONE, base="claims of the operator's"),
    Change("storage.compileCache.sizeLimit", "1Gi", NONE),
    Change("storage.compileCache.sizeLimit", "1Gi", BOTH, base="empty volumes"),
    Change("storage.compileCache.mountPath", "/cache", BOTH),
    Change("storage.model.kind", "pvc", BOTH),
    Change("storage.model.size", "1Ti", NONE, base="claims of the stack's"),
    Change("storage.model.accessModes", ["ReadOnlyMany", "ReadWriteMany"], NONE, base="claims of the stack's"),
    Change("storage.model.storageClass", "fast", NONE, base="claims of the stack's"),
    Change("storage.model.adopt", value=True, want=NONE, base="claims of the stack's"),
    Change("storage.model.existingClaim", "other", BOTH),
    Change("storage.model.sizeLimit", "1Ti", BOTH, base="empty volumes"),
    Change("storage.model.mountPath", "/weights", BOTH),
    Change("storage.model.path", "m2.7", BOTH),
    Change("storage.model.readOnly", value=True, want=BOTH),
    Change("storage.modelOffload.enabled", value=True, want=BOTH),
    Change("storage.modelOffload.size", "1Ti", NONE),
    Change("storage.modelOffload.size", "1Ti", BOTH, base="offloading"),
    Change("storage.modelOffload.storageClass", "fast", BOTH, base="offloading"),
    Change("storage.modelOffload.mountPath", "/kv", BOTH, base="offloading"),
    Change("storage.shm.sizeLimit", "30Gi", BOTH),
    Change("storage.tmp.sizeLimit", "30Gi", BOTH),
    # --- routing proxy
    Change("routing.proxy.image.repository", "mirror.example/x", DECODE),
    Change("routing.proxy.image.tag", "v0.9.0", DECODE),
    Change("routing.proxy.image.digest", DIGEST, DECODE),
    Change("routing.proxy.port", 9000, DECODE),
    Change("routing.proxy.port", 9000, NONE, base="aggregated"),
    Change("routing.proxy.modelServerPort", 9200, DECODE),
    Change("routing.proxy.kvConnector", "mooncake", DECODE),
    Change("routing.proxy.secure", value=True, want=DECODE, base="without a Gateway"),
    Change("routing.proxy.resources.requests", RESOURCES, DECODE),
    Change("routing.proxy.resources.limits", RESOURCES, DECODE),
    Change("routing.proxy.extraArgs", ["--zap-log-level=4"], DECODE),
    # --- gateway and router
    Change("gateway.enabled", value=False, want=NONE),
    Change("gateway.className", "agentgateway", NONE),
    Change("gateway.name", "other", NONE),
    Change("gateway.port", 8080, NONE),
    Change("gateway.annotations", {"a": "b"}, NONE),
    Change("gateway.requestTimeout", "1h", NONE),
    Change("gateway.hostnames", ["a.example.com"], NONE),
    Change("gateway.backend", {"name": "envoy", "port": 80}, NONE),
    Change("router.epp.version", "v0.9.0", DECODE),  # the proxy has the EPP's version
    Change("router.epp.version", "v0.9.0", NONE, base="aggregated"),
    Change("router.epp.version", "v0.9.0", DECODE, base="own flags"),  # flags are written for it, whatever the image
    Change("router.epp.image.repository", "mirror.example/x", NONE),
    Change("router.epp.image.tag", "v9", NONE),
    Change("router.epp.image.digest", DIGEST, NONE),
    Change("router.epp.replicas", 2, NONE),
    Change("router.epp.resources.requests", RESOURCES, NONE),
    Change("router.epp.resources.limits", {"cpu": "8"}, NONE, base="own requests of the EPP"),
    Change("router.epp.pluginsConfigFile", "payload-agnostic.yaml", NONE),
    Change("router.epp.pluginsCustomConfig", {"a.yaml": "kind: EndpointPickerConfig\n"}, NONE),
    Change("router.epp.extProcPort", 9102, NONE),
    Change("router.epp.grpcHealthPort", 9103, NONE),
    Change("router.epp.metricsPort", 9190, NONE),
    Change("router.epp.drainSeconds", 600, NONE),
    Change("router.epp.env", {"EXAMPLE": SECRET}, NONE),
    Change("router.epp.extraArgs", ["--v=4"], NONE),
    Change("router.epp.hfTokenSecret.name", "other", NONE),
    Change("router.epp.hfTokenSecret.key", "OTHER", NONE),
    Change("router.epp.affinity", {"podAffinity": {}}, NONE),
    Change("router.epp.nodeSelector", {"a": "b"}, NONE),
    Change("router.epp.tolerations", [{"operator": "Exists"}], NONE),
    Change("router.inferencePool.create", value=False, want=NONE),
    Change("router.inferencePool.failureMode", "FailClose", NONE),
    Change("router.modelServers.targetPorts", [8003, 8002, 8001, 8000], NONE),
    Change("router.modelServers.matchLabels", {"example.com/pool": "one"}, BOTH),
    # --- leaving
    Change("drain.mode", "idle", BOTH),
    Change("drain.mode", "off", BOTH),
    Change("drain.engineVersion", "0.17.1", BOTH),  # without the flag
    Change("drain.engineVersion", "0.31.0", NONE),  # the same way out
    *for_roles("drain.shutdownTimeoutSeconds.{role}", 90),
    Change("drain.routerDelaySeconds", 25, BOTH),
    Change("drain.marginSeconds", 40, BOTH),
    Change("drain.kvPullSeconds", 10, PREFILL),
    *(Change(f"drain.longestRequestSeconds.{role}", 200, NONE) for role in ("prefill", "decode", "aggregated")),
    # --- how changes go on
    Change("rollout.patienceSeconds", 60, NONE),
    Change("rollout.protectTopology", value=True, want=NONE),
    *(Change(f"guards.{name}", "warn", NONE) for name in GUARD_NAMES),
    # --- budgets: evictions alone ask them
    Change("disruptionBudget.enabled", value=False, want=NONE),
    Change("disruptionBudget.maxUnavailable", 2, NONE),
    Change("disruptionBudget.unhealthyPodEvictionPolicy", "IfHealthyBudget", NONE),
    # --- autoscaling: none of it reaches a Pod template
    Change("autoscaling.prefill", {**SCALER, "tokensPerSecond": 9000}, NONE),
    Change("autoscaling.decode", SCALER, NONE),
    Change("autoscaling.aggregated", SCALER, NONE, base="aggregated"),
    Change("autoscaling.ratio", {"min": 0.5, "max": 2}, NONE),
    Change("autoscaling.prometheus", {"serverAddress": "http://prometheus"}, NONE),
    # --- monitoring, tracing, the rest
    Change("monitoring.enabled", value=True, want=NONE, base="monitored"),
    Change("monitoring.provider", "prometheus-operator", NONE, base="monitored"),
    Change("monitoring.interval", "30s", NONE, base="monitored"),
    Change("monitoring.labels", {"a": "b"}, NONE, base="monitored"),
    Change("monitoring.scraper.serviceAccount.name", "other", NONE, base="monitored"),
    Change("monitoring.scraper.serviceAccount.namespace", "other", NONE, base="monitored"),
    Change("monitoring.tokenSecret", "other", NONE, base="monitored"),
    Change("monitoring.rules.enabled", value=False, want=NONE, base="monitored"),
    Change("monitoring.rules.queueSeconds", 3, NONE, base="monitored"),
    Change("monitoring.rules.volumeFreePercent", 20, NONE, base="monitored"),
    Change("monitoring.rules.runbookUrl", "https://example.com", NONE, base="monitored"),
    Change("monitoring.dashboard.enabled", value=False, want=NONE, base="monitored"),
    Change("monitoring.dashboard.labels", {"a": "b"}, NONE, base="monitored"),
    Change("tracing.enabled", value=True, want=BOTH),
    *(
        Change(f"tracing.{key}", value, want, base=base)
        for want, base in ((NONE, "the reference"), (BOTH, "traced"))
        for key, value in (
            ("collector.endpoint", "http://other:4318"),
            ("collector.protocol", "http/protobuf"),
            ("sampler", "traceidratio"),
            ("samplerArg", "0.9"),
        )
    ),
    Change("imagePullSecrets", ["pull"], BOTH),
    Change("eppServiceName", "picker", NONE),
]
NOT_CHANGEABLE = {
    "context": "pins the cluster, and stands outside of these blocks",
    "router.epp.distribution": "changes together with its version, which is a key of its own",
    "router.modelServers.type": "knows one value",
    "router.modelServers.protocol": "knows one value",
}


@cache
def _workloads(text: str) -> dict[tuple[str, int | None], WorkloadPlan]:
    return _plan_workloads(json.loads(text), NOTHING_READ)


def workloads(blocks: dict[str, Any]) -> dict[tuple[str, int | None], WorkloadPlan]:
    """Role workloads alone: what a whole plan has besides them takes most of its time."""
    return _workloads(json.dumps(blocks))


def _plan_workloads(blocks: dict[str, Any], facts: ClusterFacts) -> dict[tuple[str, int | None], WorkloadPlan]:
    found = accepted(**blocks)
    config, recipe = found.config, found.recipe
    placements, devices = place(config), plan_devices(config, recipe)
    model = config.modelserver.model or recipe.model
    topology = plan_topology(config, placements, model=model, leave_seconds=1, facts=facts)
    planned: dict[tuple[str, int | None], WorkloadPlan] = {}
    for placement in placements:
        serve = plan_serve(config, recipe, placement.role, is_disaggregated=topology.is_disaggregated)
        contributions = trace_contributions(config, recipe, placement, serve, topology=topology, devices=devices)
        planned[placement.role, placement.entry] = plan_workload(
            config, recipe, placement, serve, topology=topology, devices=devices, contributions=contributions
        )
    return planned


def restarts(before: dict[str, Any], after: dict[str, Any]) -> Roles:
    """Roles whose Pod template changes; fails where a workload's contributions say otherwise."""
    return compare(workloads(before), workloads(after))


def compare(old: dict[tuple[str, int | None], WorkloadPlan], new: dict[tuple[str, int | None], WorkloadPlan]) -> Roles:
    found: set[str] = set()
    for key in old.keys() & new.keys():
        templates = [it[key].object.manifest["spec"]["template"] for it in (old, new)]
        told = {
            name: (old[key].contributions.get(name), new[key].contributions.get(name))
            for name in old[key].contributions.keys() | new[key].contributions.keys()
            if old[key].contributions.get(name) != new[key].contributions.get(name)
        }
        assert (templates[0] != templates[1]) == bool(told), (key, told)
        if told:
            found.add(key[0])
    return frozenset(found)


def test_the_workloads_looked_at_here_are_those_of_the_plan() -> None:
    for blocks in (BASES["the reference"], BASES["placed"], BASES["traced"]):
        assert list(workloads(blocks).values()) == list(plan(**blocks).modelserver.workloads)


def test_every_key_of_the_configuration_is_changed_here() -> None:
    keys = [written(path).partition("[]")[0] for path in every_key(StackConfig)]
    leaves = {key for key in keys if not any(other.startswith(f"{key}.") for other in keys)}
    changed = {change.key for change in CHANGES}
    assert {
        leaf
        for leaf in leaves - set(NOT_CHANGEABLE)
        if not any(key == leaf or leaf.startswith(f"{key}.") for key in changed)
    } == set()


@pytest.mark.parametrize("change", CHANGES, ids=[f"{change.key} on {change.base}" for change in CHANGES])
def test_a_change_restarts_the_roles_it_reaches_and_they_can_tell_why(change: Change) -> None:
    base = BASES[change.base]
    assert restarts(base, merged(base, change.blocks)) == change.want


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(list(BASES.values())),
    st.lists(st.sampled_from(CHANGES), max_size=3),
    st.sampled_from(CHANGES),
)
def test_contributions_change_exactly_when_the_template_does(
    base: dict[str, Any], written_already: list[Change], change: Change
) -> None:
    before = base
    for each in written_already:
        before = merged(before, each.blocks)
    try:
        restarts(before, merged(before, change.blocks))
    except ConfigError:
        return  # a rule refuses one of the two


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, {"modelserver": {"image": {"tag": "0.12.0"}}}, id="the recipe's tag"),
        pytest.param({}, {"modelserver": {"model": "MiniMaxAI/MiniMax-M2.7"}}, id="the recipe's model"),
        pytest.param({}, {"modelserver": {"serveArgs": {"common": {"block-size": 4096}}}}, id="an argument"),
        pytest.param(
            {"modelserver": {"serveArgs": {"common": {"seed": 1}}}},
            {"modelserver": {"serveArgs": {"common": {"seed": 1}, "decode": {"seed": 1}, "prefill": {"seed": 1}}}},
            id="the common argument in each role",
        ),
        pytest.param(
            {"modelserver": {"serveArgs": {"common": {"speculative-config": {"method": "ngram"}}}}},
            {"modelserver": {"serveArgs": {"common": {"speculative-config": '{"method": "ngram"}'}}}},
            id="a map as its JSON text",
        ),
        pytest.param({}, {"modelserver": {"serveEnv": {"USER": "llm-d"}}}, id="a variable of the recipe's"),
        pytest.param({}, {"modelserver": {"serveEnv": {"HF_HOME": "/models"}}}, id="a variable that follows anyway"),
        pytest.param(
            {"modelserver": {"serveEnv": {"A": 1}}}, {"modelserver": {"serveEnv": {"A": "1"}}}, id="a number as text"
        ),
        pytest.param(
            {},
            {
                "modelserver": {
                    "resources": {
                        "requests": {"cpu": 40, "memory": "471040Mi"},
                        "limits": {"cpu": "40000m", "memory": "460Gi"},
                    }
                }
            },
            id="the recipe's amounts in other units",
        ),
        pytest.param({}, {"modelserver": {"serviceAccountName": "rel-modelserver"}}, id="the stack's account by name"),
        pytest.param({}, {"modelserver": {"probes": {"startup": {"periodSeconds": 30}}}}, id="the recipe's probe"),
        pytest.param(
            {},
            {"modelserver": {"podOverrides": {"decode": {"podSecurityContext": {"runAsUser": 2000}}}}},
            id="the user",
        ),
        pytest.param({}, {"devices": {"claimTemplateName": "npu-rdma"}}, id="the default template by name"),
        pytest.param({}, {"storage": {"shm": {"sizeLimit": "20480Mi"}}}, id="the recipe's shared memory"),
        pytest.param(
            {"storage": {"compileCache": {"existingClaim": {r: f"rel-compile-cache-{r}" for r in BOTH}}}},
            {
                "storage": {
                    "compileCache": {
                        "kind": "existingClaim",
                        "existingClaim": {r: f"rel-compile-cache-{r}" for r in BOTH},
                    }
                }
            },
            id="the stack's own claims as existing ones",
        ),
        pytest.param({}, {"routing": {"proxy": {"image": {"tag": "v0.10.0"}}}}, id="the proxy's version"),
        pytest.param(
            {"router": {"modelServers": {"matchLabels": {"example.com/pool": "one"}}}},
            {
                "router": {
                    "modelServers": {"matchLabels": {"example.com/pool": "one", "llm-d.ai/model": "MiniMax-M2.7"}}
                }
            },
            id="a label of the recipe's",
        ),
    ],
)
def test_writing_what_is_in_force_already_restarts_nothing(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert restarts(before, after) == NONE


def test_a_reassignment_is_the_reason_for_every_entry_it_restarts() -> None:
    entries = [("prefill", "n1"), ("decode", "n2")]
    blocks: dict[str, Any]
    moved: dict[str, Any]
    blocks, moved = (
        {"modelserver": {"nodePlacement": [{"role": role, "node": node} for role, node in nodes]}}
        for nodes in (entries, [("prefill", "n3"), ("decode", "n2")])
    )
    key = plan(**blocks).modelserver.topology.key
    facts = ClusterFacts(
        anchor_is_known=True,
        anchor=AnchorFacts(key=key, generation=1, uid="u"),
        workloads={
            role: WorkloadFacts(name=role, role=role, entry=index, node=node)
            for index, (role, node) in enumerate(entries)
        },
    )
    assert compare(_plan_workloads(blocks, facts), _plan_workloads(blocks, facts)) == NONE
    assert compare(_plan_workloads(blocks, facts), _plan_workloads(moved, facts)) == BOTH


def test_values_are_those_in_force_as_canonical_json() -> None:
    found = workloads({"modelserver": {"podOverrides": {"decode": {"resources": {"requests": {"memory": "1024Mi"}}}}}})
    decode = found["decode", None].contributions
    assert decode["modelserver.image.tag"] == '"0.12.0"'
    assert decode["modelserver.serveArgs.decode.max-num-seqs"] == "1"
    assert decode["modelserver.podOverrides.decode.resources.requests.memory"] == '"1Gi"'
    assert decode["devices.rdma.enabled"] == "true"
    assert list(decode) == sorted(decode)


def test_secrets_are_told_by_name_only() -> None:
    found = workloads({"modelserver": {"serveEnv": {"VLLM_API_KEY": SECRET}}})["decode", None].contributions
    assert found["modelserver.hfTokenSecret.name"] == '"llm-d-hf-token"'
    assert json.loads(found["modelserver.extraServeEnv.decode.VLLM_API_KEY"]) == SECRET


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_no_key_of_another_role_or_of_none_is_told(base: dict[str, Any]) -> None:
    for (role, _), workload in workloads(base).items():
        others = {"prefill", "decode", "aggregated"} - {role}
        told = [key for key in workload.contributions if others & set(key.split("."))]
        told += [key for key in workload.contributions if key.startswith(("gateway", "monitoring", "namespace"))]
        assert told == []
