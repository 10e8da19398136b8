"""The table of `docs/changes.md`, row by row: what is foreseen of each change is what the table says of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from world import Blocks, change, part, restarted

from stack.impact import Happening, Method
from tests.builders import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NONE: frozenset[str] = frozenset()
PREFILL, DECODE, EPP = (frozenset({part}) for part in ("prefill", "decode", "epp"))
SERVERS = PREFILL | DECODE
UP, DOWN, CREATED, DELETED = Happening.SCALES_UP, Happening.SCALES_DOWN, Happening.CREATED, Happening.DELETED
DIGEST = f"sha256:{'0a' * 32}"
PLACED: Blocks = {
    "modelserver": {
        "nodePlacement": [
            {"role": "prefill", "node": "n1"},
            {"role": "decode", "node": "n1"},
            {"role": "decode", "node": "n2"},
        ]
    }
}
AGGREGATED: Blocks = {"modelserver": {"replicas": {"aggregated": 2}}}
TRACED: Blocks = {"tracing": {"enabled": True}}
PLUGINS: Blocks = {
    "devices": {"npu": {"mode": "devicePlugin"}, "rdma": {"mode": "devicePlugin", "resourceName": "rdma/hca"}}
}
MANAGED: Blocks = {
    "devices": {
        "claimTemplate": {
            "requests": [
                {"name": "npu", "deviceClassName": "npu.rebellions.ai", "count": 4},
                {"name": "nic", "deviceClassName": "dranet", "count": 2},
            ],
            "constraints": [{"requests": ["npu", "nic"], "matchAttribute": "resource.kubernetes.io/numaNode"}],
        }
    }
}
OWN_CLAIMS: Blocks = {
    "storage": {"compileCache": {"kind": "existingClaim", "existingClaim": {"prefill": "a", "decode": "b"}}}
}
MADE: Blocks = {"storage": {"model": {"kind": "pvc", "existingClaim": None}}}
EMPTY_DIRS: Blocks = {
    "storage": {"compileCache": {"kind": "emptyDir"}, "model": {"kind": "emptyDir", "existingClaim": None}}
}
MONITORED: Blocks = {
    "monitoring": {
        "enabled": True,
        "scraper": {"serviceAccount": {"name": "vmagent", "namespace": "monitoring"}},
    }
}
SCALED: Blocks = {"autoscaling": {"decode": {"provider": "hpa", "maxReplicas": 8}}}
SEVERAL: Blocks = {"router": {"epp": {"replicas": 2}}}
NO_POOL: Blocks = {"router": {"inferencePool": {"create": False}}}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A change, and what the table says of it.

    Attributes:
        restarts: parts whose Pods are all new.
        others: what happens to parts that do not stay and do not restart.
        how: in which order roles restart.
        how_epp: in which order the endpoint picker does.
    """

    change: Blocks
    before: Blocks = field(default_factory=dict[str, Any])
    restarts: frozenset[str] = NONE
    others: Mapping[str, Happening] = field(default_factory=dict[str, Happening])
    how: Method = Method.ROLLING
    how_epp: Method = Method.ROLLING


def at(key: str, value: Any, restarts: frozenset[str] = NONE, before: Blocks | None = None, **more: Any) -> Case:
    """One key that gets a value."""
    for word in reversed(key.split(".")):
        value = {word: value}
    return Case(change=value, restarts=restarts, before=before or {}, **more)


def placed(*entries: tuple[str, str]) -> Blocks:
    return {"modelserver": {"nodePlacement": [{"role": role, "node": node} for role, node in entries]}}


def both(key: str, value: Any) -> list[Case]:
    """The same key of each role."""
    return [at(key.format(role=role), value, frozenset({role})) for role in ("prefill", "decode")]


def each(place: str, values: Mapping[str, Any], restarts: frozenset[str], before: Blocks | None = None) -> list[Case]:
    """Several keys below one, one after another."""
    return [at(f"{place}.{key}", value, restarts, before) for key, value in values.items()]


RESOURCES = {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "4Gi"}}
OVERRIDES: dict[str, Any] = {
    "labels": {"team": "chat"},
    "annotations": {"note": "hello"},
    "nodeSelector": {"pool": "npu"},
    "tolerations": [{"key": "npu", "operator": "Exists"}],
    "affinity": {"podAffinity": {}},
    "priorityClassName": "high",
    "runtimeClassName": "rbln",
    "schedulerName": "mine",
    "resources": RESOURCES,
    "podSecurityContext": {"fsGroup": 1600},
    "securityContext": {"readOnlyRootFilesystem": False},
}
TRACING: dict[str, Any] = {
    "collector.endpoint": "http://other:4318",
    "collector.protocol": "http/protobuf",
    "sampler": "traceidratio",
    "samplerArg": "0.9",
}
ALL_DOWN: dict[str, Any] = {"restarts": SERVERS, "how": Method.ALL_DOWN}
TO_NODES = placed(("prefill", "n1"), ("decode", "n1"), ("decode", "n2"))

ROWS: dict[str, list[Case]] = {
    "`modelserver.replicas.<role>`, more": [
        at("modelserver.replicas.prefill", 6, others={"prefill": UP}),
        at("modelserver.replicas.decode", 5, others={"decode": UP}),
    ],
    "`modelserver.replicas.<role>`, fewer": [
        at("modelserver.replicas.prefill", 1, others={"prefill": DOWN}),
        at("modelserver.replicas.decode", 3, others={"decode": DOWN}),
    ],
    "`modelserver.replicas.<role>` to 0": [
        at("modelserver.replicas.prefill", 0, others={"prefill": DELETED}),
        at("modelserver.replicas.decode", 0, others={"decode": DELETED}),
    ],
    "`modelserver.replicas.<role>` from 0": [
        at(
            "modelserver.replicas.prefill",
            4,
            before={"modelserver": {"replicas": {"prefill": 0}}},
            others={"prefill": CREATED},
        ),
    ],
    "`autoscaling.<role>`, on, off, or another scaler": [
        at("autoscaling.decode", {"provider": "hpa", "maxReplicas": 8}),
        at("autoscaling.decode.provider", "none", before=SCALED),
        at("autoscaling", {"decode": {"provider": "keda"}, "prometheus": {"serverAddress": "http://p"}}, before=SCALED),
    ],
    "`autoscaling.*`, bounds, target, pace": [
        at("autoscaling.decode.maxReplicas", 9, before=SCALED),
        at("autoscaling.decode.occupancy", 0.5, before=SCALED),
        at("autoscaling.decode.behavior", {"scaleUp": {"periodSeconds": 300}}, before=SCALED),
    ],
    "`modelserver.nodePlacement`, entries more or fewer at the end": [
        Case(
            before=PLACED,
            change=placed(("prefill", "n1"), ("decode", "n1"), ("decode", "n2"), ("decode", "n3")),
            others={"decode": UP},
        ),
        Case(before=PLACED, change=placed(("prefill", "n1"), ("decode", "n1")), others={"decode": DOWN}),
        Case(before=PLACED, change=placed(("prefill", "n1")), others={"decode": DELETED}),
    ],
    "`modelserver.image.*` (tag to digest and back in one change: write the one, remove the other)": [
        *each("modelserver.image", {"tag": "0.12.1", "repository": "mirror.example/x", "digest": DIGEST}, SERVERS),
        Case(
            before={"modelserver": {"image": {"digest": DIGEST}}},
            change={"modelserver": {"image": {"digest": None, "tag": "0.12.1"}}},
            restarts=SERVERS,
        ),
    ],
    "`modelserver.serveArgs.common`, `.serveEnv`, `.removeServeArgs`, `.probes.*`, `.resources`, `.hfTokenSecret.*`, "
    "`.serviceAccountName`": each(
        "modelserver",
        {
            "serveArgs.common": {"seed": 1},
            "serveEnv": {"EXAMPLE": "1"},
            "removeServeArgs": ["speculative-config"],
            "probes.startup": {"failureThreshold": 300},
            "probes.readiness": {"periodSeconds": 20},
            "probes.liveness": {"timeoutSeconds": 3},
            "resources": RESOURCES,
            "hfTokenSecret.name": "other",
            "hfTokenSecret.key": "OTHER",
            "serviceAccountName": "mine",
        },
        SERVERS,
    ),
    "`modelserver.serveArgs.<role>`, `.extraServeArgs.<role>`": [
        *both("modelserver.serveArgs.{role}", {"seed": 1}),
        *both("modelserver.extraServeArgs.{role}", ["--seed=1"]),
    ],
    "`modelserver.extraServeEnv.<role>`, `.podOverrides.<role>.*`": [
        *both("modelserver.extraServeEnv.{role}", {"EXAMPLE": "1"}),
        *(case for key, value in OVERRIDES.items() for case in both(f"modelserver.podOverrides.{{role}}.{key}", value)),
    ],
    "`modelserver.strategy.*`": [
        Case(change={"modelserver": {"strategy": {"type": "Recreate"}}}),
        at("modelserver.strategy.rollingUpdate", {"maxSurge": 0, "maxUnavailable": 1}),
    ],
    "`tracing.enabled`": [at("tracing.enabled", value=True, restarts=SERVERS | EPP)],
    "`tracing.collector.*`, `tracing.sampler`, `tracing.samplerArg`": [
        *(
            at(f"tracing.{key}", value, SERVERS if key == "collector.protocol" else SERVERS | EPP, TRACED)
            for key, value in TRACING.items()
        ),
        *each("tracing", TRACING, NONE),
    ],
    "`imagePullSecrets`": [at("imagePullSecrets", ["pull"], SERVERS | EPP)],
    "`drain.mode`, `.engineVersion` where another mode follows, `.routerDelaySeconds`, `.marginSeconds`": each(
        "drain", {"mode": "idle", "engineVersion": "0.17.1", "routerDelaySeconds": 25, "marginSeconds": 40}, SERVERS
    ),
    "`drain.shutdownTimeoutSeconds.<role>`": [
        at("drain.shutdownTimeoutSeconds.prefill", 200, frozenset({"prefill"})),
        at("drain.shutdownTimeoutSeconds.decode", 50, frozenset({"decode"})),
        at("drain.shutdownTimeoutSeconds.decode", 200, frozenset({"decode"}) | EPP),
    ],
    "`drain.kvPullSeconds`": [at("drain.kvPullSeconds", 10, frozenset({"prefill"}))],
    "`drain.longestRequestSeconds.<role>`": [
        at("drain.longestRequestSeconds.prefill", 200, NONE),
        at("drain.longestRequestSeconds.decode", 200, EPP),
    ],
    "`rollout.*`": each("rollout", {"patienceSeconds": 60, "protectTopology": True}, NONE),
    "`guards.*`": each("guards", {"devices": "warn", "serial": "off"}, NONE),
    "`replicas` to `nodePlacement` and back": [
        Case(change=TO_NODES, **ALL_DOWN),
        Case(before=PLACED, change={"modelserver": {"nodePlacement": []}}, **ALL_DOWN),
    ],
    "`modelserver.nodePlacement[]`, another node or role at an entry that runs, also by a mere reorder": [
        Case(before=PLACED, change=placed(("prefill", "n1"), ("decode", "n3"), ("decode", "n2")), **ALL_DOWN),
        Case(before=PLACED, change=placed(("prefill", "n1"), ("prefill", "n1"), ("decode", "n2")), **ALL_DOWN),
        Case(before=PLACED, change=placed(("prefill", "n1"), ("decode", "n2"), ("decode", "n1")), **ALL_DOWN),
    ],
    "aggregated to prefill and decode, and back": [
        Case(
            before=AGGREGATED,
            change={"modelserver": {"replicas": {"aggregated": None, "prefill": 1, "decode": 1}}},
            restarts=EPP,
            others={"aggregated": DELETED, "prefill": CREATED, "decode": CREATED},
        ),
        Case(
            change=AGGREGATED,
            restarts=EPP,
            others={"aggregated": CREATED, "prefill": DELETED, "decode": DELETED},
        ),
    ],
    "`modelserver.model`, or another `recipe` with another model": [
        at("modelserver.model", "other/model", **ALL_DOWN),
        # Another context length and block size of the plugins.
        at("recipe", "gpt-oss-120b-nvidia", restarts=SERVERS | EPP, how=Method.ALL_DOWN),
    ],
    "`devices.claimTemplateName`": [at("devices.claimTemplateName", "mine", SERVERS)],
    "`devices.claimTemplate.*`": [
        Case(change=MANAGED, restarts=SERVERS),
        at("devices.claimTemplate.constraints", [{"matchAttribute": "a.example/b"}], SERVERS, MANAGED),
    ],
    "`devices.npu.mode`, `devices.rdma.mode`, `devices.rdma.enabled`, `devices.rdma.discoveryTimeoutSeconds`, "
    "`devices.rdma.sideChannel.host`": [
        at("devices.npu.mode", "devicePlugin", SERVERS),
        at("devices.rdma.mode", "dra", SERVERS, PLUGINS),
        at("devices.rdma.enabled", value=False, restarts=SERVERS),
        at("devices.rdma.discoveryTimeoutSeconds", 60, SERVERS),
        at("devices.rdma.sideChannel.host", "10.0.0.1", SERVERS),
    ],
    "`devices.rdma.sideChannel.basePort.<role>`": both("devices.rdma.sideChannel.basePort.{role}", 5700),
    "`devices.npu.count`, `.resourceName`, `devices.rdma.count`, `.resourceName` in mode `devicePlugin` (`npu.count` "
    "together with the parallelism in `serveArgs`)": [
        at("devices.npu.resourceName", "rebellions.ai/REBEL", SERVERS, PLUGINS),
        at("devices.rdma.count", 1, SERVERS, PLUGINS),
        at("devices.rdma.resourceName", "other/hca", SERVERS, PLUGINS),
        Case(
            before=PLUGINS,
            change={
                "devices": {"npu": {"count": 8}},
                "modelserver": {
                    "serveArgs": {
                        "prefill": {"pipeline-parallel-size": 8, "max-num-seqs": 8},
                        "decode": {"data-parallel-size": 8},
                    }
                },
            },
            restarts=SERVERS,
        ),
    ],
    "the same in mode `dra`": each(
        "devices",
        {"npu.count": 8, "npu.resourceName": "rebellions.ai/REBEL", "rdma.count": 1, "rdma.resourceName": "x/y"},
        NONE,
    ),
    "`storage.compileCache.size`, `storage.model.size`, larger": [
        at("storage.compileCache.size", "300Gi"),
        at("storage.model.size", "1Ti", before=MADE),
    ],
    # That it is refused is the guards' business; no Pod is touched.
    "the same, smaller": [at("storage.compileCache.size", "100Gi"), at("storage.model.size", "1Gi", before=MADE)],
    "`storage.compileCache.storageClass`, `.accessModes`, the same of `storage.model`, while the claim exists": [
        at(f"storage.{volume}.{key}", value, before=before)
        for volume, before in (("compileCache", {}), ("model", MADE))
        for key, value in (("storageClass", "fast"), ("accessModes", ["ReadOnlyMany", "ReadWriteMany"]))
    ],
    "`storage.compileCache.kind`, `.existingClaim.<role>`, `storage.model.kind`, `.existingClaim`": [
        at("storage.compileCache.kind", "emptyDir", SERVERS),
        at("storage.compileCache.existingClaim.prefill", "x", PREFILL, OWN_CLAIMS),
        at("storage.compileCache.existingClaim.decode", "x", DECODE, OWN_CLAIMS),
        Case(change=MADE, restarts=SERVERS),
        at("storage.model.existingClaim", "other", SERVERS),
    ],
    "`storage.compileCache.adopt`, `storage.model.adopt`": [
        at("storage.compileCache.adopt", value=True),
        at("storage.model.adopt", value=True, before=MADE),
    ],
    "`storage.compileCache.mountPath`, `.sizeLimit`, `storage.model.mountPath`, `.path`, `.readOnly`, `.sizeLimit`, "
    "`storage.modelOffload.*`, `storage.shm.sizeLimit`, `storage.tmp.sizeLimit`": [
        *each(
            "storage",
            {
                "compileCache.mountPath": "/cache",
                "model.mountPath": "/weights",
                "model.path": "m2.7",
                "model.readOnly": True,
                "modelOffload.enabled": True,
                "shm.sizeLimit": "30Gi",
                "tmp.sizeLimit": "30Gi",
            },
            SERVERS,
        ),
        *each("storage", {"compileCache.sizeLimit": "1Gi", "model.sizeLimit": "1Ti"}, SERVERS, EMPTY_DIRS),
        *each(
            "storage.modelOffload",
            {"size": "1Ti", "storageClass": "fast", "mountPath": "/kv"},
            SERVERS,
            {"storage": {"modelOffload": {"enabled": True}}},
        ),
    ],
    "`gateway.requestTimeout`, `.hostnames`, `.annotations`, `.port`, `.className`, `.backend.*`": each(
        "gateway",
        {
            "requestTimeout": "1h",
            "hostnames": ["a.example.com"],
            "annotations": {"a": "b"},
            "port": 8080,
            "className": "agentgateway",
            "backend": {"name": "envoy", "port": 80},
        },
        NONE,
    ),
    "`gateway.name`, `gateway.enabled`": each("gateway", {"name": "other", "enabled": False}, NONE),
    "`disruptionBudget.*`": each(
        "disruptionBudget",
        {"enabled": False, "maxUnavailable": 2, "unhealthyPodEvictionPolicy": "IfHealthyBudget"},
        NONE,
    ),
    "`monitoring.*`, `.rules.*` and `.dashboard.*` included": [
        Case(change=MONITORED),
        *each(
            "monitoring",
            {
                "enabled": False,
                "provider": "prometheus-operator",
                "interval": "30s",
                "labels": {"a": "b"},
                "tokenSecret": "other",
                "scraper.serviceAccount.name": "other",
                "rules.volumeFreePercent": 20,
                "dashboard.enabled": False,
            },
            NONE,
            MONITORED,
        ),
    ],
    "`routing.proxy.*`": [
        *each(
            "routing.proxy",
            {
                "image.repository": "mirror.example/x",
                "image.tag": "v0.9.0",
                "port": 9000,
                "modelServerPort": 9200,
                "kvConnector": "mooncake",
                "resources": RESOURCES,
                "extraArgs": ["--zap-log-level=4"],
            },
            DECODE,
        ),
        at("routing.proxy.secure", value=True, restarts=DECODE, before={"gateway": {"enabled": False}}),
    ],
    "`eppServiceName`": [at("eppServiceName", "picker")],
    "`router.epp.pluginsCustomConfig`, `.pluginsConfigFile`": each(
        "router.epp",
        {
            "pluginsCustomConfig": {"a.yaml": "kind: EndpointPickerConfig\n"},
            "pluginsConfigFile": "payload-agnostic.yaml",
        },
        EPP,
    ),
    "`router.epp.resources`, `.image`, `.env`, `.extraArgs`, `.hfTokenSecret`, `.drainSeconds`, ports and placement": [
        *each(
            "router.epp",
            {
                "resources.requests": {"cpu": "2", "memory": "8Gi"},
                "image.tag": "v9",
                "env": {"EXAMPLE": "1"},
                "extraArgs": ["--v=4"],
                "hfTokenSecret.name": "other",
                "hfTokenSecret.key": "TOKEN",
                "drainSeconds": 600,
                "extProcPort": 9102,
                "grpcHealthPort": 9103,
                "metricsPort": 9190,
                "affinity": {"podAffinity": {}},
                "nodeSelector": {"a": "b"},
                "tolerations": [{"operator": "Exists"}],
            },
            EPP,
        ),
        at("router.epp.drainSeconds", 600, EPP, SEVERAL, how_epp=Method.RECREATE),
    ],
    "`router.epp.replicas`, from one to several and back": [
        at("router.epp.replicas", 2, EPP, how_epp=Method.RECREATE),
        at("router.epp.replicas", 1, EPP, SEVERAL),
    ],
    "`router.epp.replicas`, from several to more or fewer": [
        at("router.epp.replicas", 3, before=SEVERAL, others={"epp": UP}),
        at("router.epp.replicas", 2, before={"router": {"epp": {"replicas": 3}}}, others={"epp": DOWN}),
    ],
    "`router.epp.version`, `.distribution`": [
        at("router.epp.version", "v0.9.0", EPP | DECODE),
        at("router.epp.version", "v0.9.0", EPP, AGGREGATED),
        at("router.epp", {"distribution": "gaie", "version": "v1.5.0"}, EPP, AGGREGATED),
    ],
    "`router.inferencePool.create`": [
        at("router.inferencePool.create", value=False, restarts=EPP, how_epp=Method.REPLACE),
        at("router.inferencePool.create", value=True, restarts=EPP, before=NO_POOL, how_epp=Method.REPLACE),
    ],
    "`router.inferencePool.failureMode`, `router.modelServers.targetPorts`": [
        at("router.inferencePool.failureMode", "FailClose"),
        at("router.modelServers.targetPorts", [8003, 8002, 8001, 8000]),
        at("router.modelServers.targetPorts", [8003, 8002, 8001, 8000], EPP, NO_POOL),
    ],
    "`router.modelServers.matchLabels`": [
        at("router.modelServers.matchLabels", {"example.com/pool": "one"}, SERVERS),
        at("router.modelServers.matchLabels", {"example.com/pool": "one"}, SERVERS | EPP, NO_POOL),
    ],
}


def rows_of_the_document() -> Iterator[str]:
    text = (ROOT / "docs" / "changes.md").read_text(encoding="utf-8")
    table = text[text.index("## The table") : text.index("### Refused while the stack is live")]
    for line in table.splitlines():
        cells = line.split("|")
        if len(cells) > 2 and cells[1].strip() not in {"change", ""} and not cells[1].startswith("---"):
            yield cells[1].strip()


def test_every_row_of_the_table_has_its_cases() -> None:
    assert list(ROWS) == list(rows_of_the_document())


CASES = [pytest.param(case, id=f"{row[:60]} {i}") for row, cases in ROWS.items() for i, case in enumerate(cases)]


@pytest.mark.parametrize("case", CASES)
def test_what_is_foreseen_is_what_the_table_says(case: Case) -> None:
    found = change(case.before, case.change)
    assert restarted(found) == case.restarts
    others = {each.part: each.happens for each in found.parts if each.part not in case.restarts}
    assert {name: happens for name, happens in others.items() if happens is not Happening.STAYS} == case.others
    assert {part(found, name).method for name in case.restarts - EPP} <= {case.how}
    assert {part(found, name).method for name in case.restarts & EPP} <= {case.how_epp}
    assert found.restarts == bool(case.restarts)
    assert found.unknown == ()


@pytest.mark.parametrize("case", CASES)
def test_what_restarts_can_tell_why(case: Case) -> None:
    found = change(case.before, case.change)
    why = {each.part: each.keys or found.topology for each in found.parts if each.part in case.restarts}
    assert all(why.values()), why
    assert all(each.reason is None and each.paths == () for each in found.parts)


def test_the_same_configuration_changes_nothing() -> None:
    for blocks in ({}, PLACED, AGGREGATED, TRACED, PLUGINS, MANAGED, OWN_CLAIMS, MADE, EMPTY_DIRS, MONITORED, NO_POOL):
        assert change(blocks, {}).changes_nothing
