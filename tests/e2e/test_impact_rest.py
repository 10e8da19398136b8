"""The impact table, the rows that no other module has: several keys of one kind in one change, so that it costs little.

That each of them alone would do the same is what `tests/unit/plan/test_plan_contributions.py` shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from stack.report import Verdict
from tests.e2e.impact import DECODE, EPP, NONE, PREFILL, SERVERS, Cell, cell, cells, deployment, see, start, volumes
from tests.e2e.prediction import as_foreseen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("impact-rest")]
POOL, ROUTE, SERVICE = (frozenset({of}) for of in ("InferencePool/rel", "HTTPRoute/rel", "Service/rel-epp"))
SCRAPED = ("prefill", "decode", "gateway")
PODS, PICKER = frozenset(f"PodMonitor/rel-{part}" for part in SCRAPED), frozenset({"ServiceMonitor/rel-epp-monitor"})
VOLUMES = frozenset(
    f"PersistentVolumeClaim/rel-{name}" for name in ("compile-cache-prefill", "compile-cache-decode", "model-cache")
)
CLASS_OF_RUNTIME = "impact-rest"
GUARDS = ("volumes", "prerequisites", "names", "nodes", "quota", "serial", "devices")
OTHER_CLAIM = {"adopt": True, "storageClass": "kwok-volume-late", "accessModes": ["ReadWriteMany", "ReadOnlyMany"]}
"""What a claim that is there does not become."""
FAMILY = {"rebellions.ai/npu.family": "rebel100"}
"""Label of every node here."""
PLACEMENT: dict[str, Any] = {
    "nodeSelector": FAMILY,
    "tolerations": [{"key": "example.com/maintenance", "operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": next(iter(FAMILY)), "operator": "Exists"}]}]
            }
        }
    },
}
PLUGINS = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: []
schedulingProfiles: []
"""
SERVING = "llm-d.ai/inference-serving"
TOKEN = {"name": "registry-login", "key": "TOKEN"}


def below_all(place: str, *keys: str) -> frozenset[str]:
    """Keys of one place."""
    return frozenset(f"{place}.{key}" for key in keys)


RULES, DASHBOARD = frozenset({"VMRule/rel"}), frozenset({"ConfigMap/rel-dashboard"})
"""They name the volumes that model servers write to."""


@pytest.fixture(scope="module")
def live(module_bench_of: Callable[[str], Bench]) -> Iterator[Bench]:
    bench = module_bench_of("small")
    for name in ("cache-a", "cache-b"):
        bench.add_model_store(name)
    api, kind = bench.plane.api, {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass"}
    api.create({**kind, "metadata": {"name": CLASS_OF_RUNTIME}, "handler": "runc"})
    try:
        yield start(bench, monitoring={"enabled": True, "provider": "prometheus-operator"})
    finally:
        api.delete(f"/apis/node.k8s.io/v1/runtimeclasses/{CLASS_OF_RUNTIME}")


@cells(
    Cell(
        key="rollout, guards, adopt, class and modes of claims, failureMode, targetPorts, monitoring",
        change={
            "rollout": {"patienceSeconds": 240, "protectTopology": True},
            "guards": dict.fromkeys(GUARDS, "warn"),
            "storage": {"compileCache": OTHER_CLAIM, "model": OTHER_CLAIM},
            "router": {
                "inferencePool": {"failureMode": "FailClose"},
                "modelServers": {"targetPorts": [8000, 8001]},
            },
            "monitoring": {"interval": "20s", "labels": {"example.com/team": "blue"}, "tokenSecret": "reader"},
        },
        creates=frozenset(
            {
                "ValidatingAdmissionPolicy/rel.ns.topology",
                "ValidatingAdmissionPolicyBinding/rel.ns.topology",
            }
        ),
        updates=POOL | PODS | PICKER | {"PrometheusRule/rel"},
        replaces=frozenset({"Secret/reader"}),
    ),
    Cell(
        key="monitoring, another operator",
        change={
            "monitoring": {
                "provider": "victoriametrics",
                "tokenSecret": None,
                "scraper": {"serviceAccount": {"name": "agent", "namespace": "monitoring"}},
            }
        },
        creates=frozenset(
            {f"VMPodScrape/rel-{part}" for part in SCRAPED} | {"VMServiceScrape/rel-epp-monitor", "VMRule/rel"},
        ),
        updates=frozenset({"ClusterRoleBinding/rel-ns-epp-metrics-reader"}),
        deletes=PODS | PICKER | {"Secret/reader", "PrometheusRule/rel"},
    ),
)
def test_what_no_pod_reads_restarts_none(live: Bench, each: Cell) -> None:
    assert each.restarts == NONE
    see(live, each)


def test_a_claim_does_not_shrink_and_no_pod_restarts(live: Bench) -> None:
    """The guard that would refuse it before only warns here; so the API server does."""
    good, before, kept = live.blocks, live.parts(), volumes(live)
    live.change(storage={"compileCache": {"size": "5Gi"}, "model": {"size": "10Gi"}})
    with as_foreseen(live, fails=True):
        said = live.refuse()
    assert "can not be less than status.capacity" in said
    report = live.report()
    assert report is not None
    assert report.verdict is Verdict.NOTHING_RESTARTS
    assert live.parts() == before
    assert volumes(live) == kept
    live.write(**good)
    assert live.preview() == {}


@cells(
    cell(
        "router.epp, all that its Pod reads",
        {
            "image": {"repository": "mirror.example/picker", "tag": "next"},
            "env": {"EXAMPLE": "yes"},
            "extraArgs": ["--v=4"],
            "drainSeconds": 30,
            "extProcPort": 9102,
            "grpcHealthPort": 9103,
            "metricsPort": 9190,
            "hfTokenSecret": TOKEN,
            "pluginsCustomConfig": {"mine.yaml": PLUGINS},
            "pluginsConfigFile": "mine.yaml",
            **PLACEMENT,
        },
        EPP,
        changes=frozenset({"ConfigMap/rel-epp-*"}),
        updates=POOL | SERVICE,
        because=below_all(
            "router.epp",
            *("image.repository", "image.tag", "env.EXAMPLE", "extraArgs", "drainSeconds"),
            *("extProcPort", "grpcHealthPort", "metricsPort", "hfTokenSecret.name", "hfTokenSecret.key"),
            *("pluginsCustomConfig.mine.yaml", "pluginsConfigFile", *PLACEMENT),
        ),
    ),
    cell(
        "router.epp.version",
        "v0.9.0",
        EPP | DECODE,
        because=frozenset({"router.epp.version", "routing.proxy.image.tag"}),
    ),
)
def test_the_endpoint_picker_restarts_and_decode_only_where_its_proxy_follows(live: Bench, each: Cell) -> None:
    see(live, each)


@cells(
    Cell(
        key="modelserver.hfTokenSecret, modelserver.serviceAccountName, router.modelServers.matchLabels",
        change={
            "modelserver": {"hfTokenSecret": TOKEN, "serviceAccountName": "default"},
            "router": {"modelServers": {"matchLabels": {SERVING: "true", "example.com/pool": "a"}}},
        },
        restarts=SERVERS,
        updates=POOL,
        deletes=frozenset({"ServiceAccount/rel-modelserver"}),
        because=below_all("modelserver", "hfTokenSecret.name", "hfTokenSecret.key", "serviceAccountName")
        | {"router.modelServers.matchLabels.example.com/pool"},
    ),
    Cell(
        key="storage.model.kind, storage.model.sizeLimit, storage.compileCache.existingClaim",
        change={
            "storage": {
                "model": {"kind": "emptyDir", "sizeLimit": "30Gi"},
                "compileCache": {
                    "kind": "existingClaim",
                    "existingClaim": {"prefill": "cache-a", "decode": "cache-a"},
                },
            }
        },
        restarts=SERVERS,
        deletes=VOLUMES,
        updates=RULES,
        replaces=DASHBOARD,
        because=frozenset(
            {
                "storage.model.kind",
                "storage.model.existingClaim",
                "storage.model.sizeLimit",
                "storage.compileCache.existingClaim.{part}",
            }
        ),
    ),
)
def test_all_model_servers_restart(live: Bench, each: Cell) -> None:
    see(live, each)


@cells(
    Cell(
        key="modelserver.podOverrides.prefill, storage.compileCache.existingClaim.prefill",
        change={
            "modelserver": {
                "podOverrides": {
                    "prefill": {
                        **PLACEMENT,
                        "priorityClassName": "system-cluster-critical",
                        "runtimeClassName": CLASS_OF_RUNTIME,
                        "resources": {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"memory": "8Gi"}},
                        "podSecurityContext": {"fsGroup": 3000},
                        "securityContext": {"readOnlyRootFilesystem": False},
                    }
                }
            },
            "storage": {"compileCache": {"existingClaim": {"prefill": "cache-b"}}},
        },
        restarts=PREFILL,
        updates=RULES,
        replaces=DASHBOARD,
        because=below_all(
            "modelserver.podOverrides.prefill",
            f"nodeSelector.{next(iter(FAMILY))}",
            *("tolerations", "affinity", "priorityClassName", "runtimeClassName"),
            # The recipe limits CPUs, too.
            *("resources.requests.cpu", "resources.requests.memory", "resources.limits.cpu", "resources.limits.memory"),
            *("podSecurityContext.fsGroup", "securityContext.readOnlyRootFilesystem"),
        )
        | {"storage.compileCache.existingClaim.prefill"},
    )
)
def test_only_the_role_restarts(live: Bench, each: Cell) -> None:
    see(live, each)


@cells(
    cell(
        "router.inferencePool.create",
        value=False,
        restarts=EPP,
        replaces=frozenset({deployment("epp")}),
        updates=SERVICE,
        deletes=POOL | ROUTE,
        because=frozenset(
            {
                "router.inferencePool.create",
                f"router.modelServers.matchLabels.{SERVING}",
                "router.modelServers.matchLabels.example.com/pool",
                "router.modelServers.targetPorts",
            }
        ),
    ),
    Cell(
        key="router.modelServers.targetPorts, gateway.backend, without a pool",
        change={
            "router": {"modelServers": {"targetPorts": [8000]}},
            "gateway": {"backend": {"name": "proxy", "port": 8080}},
        },
        restarts=EPP,
        creates=ROUTE,
        because=frozenset({"router.modelServers.targetPorts"}),
    ),
    Cell(
        key="router.modelServers.matchLabels, without a pool",
        change={"router": {"modelServers": {"matchLabels": {"example.com/pool": "b"}}}},
        restarts=SERVERS | EPP,
        because=frozenset({"router.modelServers.matchLabels.example.com/pool"}),
    ),
)
def test_without_a_pool_the_endpoint_picker_knows_itself_which_pods_it_looks_at(live: Bench, each: Cell) -> None:
    see(live, each)


def test_after_all_of_it_nothing_is_left_to_change(live: Bench) -> None:
    assert live.preview() == {}
