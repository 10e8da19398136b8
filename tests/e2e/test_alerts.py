"""The rendered alerts, evaluated by Prometheus' own rule engine: series in, alerts out, firing and not firing."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.builders import plan, planned

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from local.toolchain import Toolbox
    from stack.planned import StackPlan

pytestmark = pytest.mark.e2e

MONITORED: dict[str, Any] = {"enabled": True, "provider": "prometheus-operator"}
HPA: dict[str, Any] = {"decode": {"provider": "hpa", "minReplicas": 2, "maxReplicas": 4}}
POD = "rel-decode-5d8f7c9b6-x2x4z"
NS = 'namespace="ns"'
RUNNING = f'vllm:num_requests_running{{{NS},pod="{POD}"}}'
WAITING = f'vllm:num_requests_waiting{{{NS},pod="{POD}"}}'
QUEUED = f'vllm:request_queue_time_seconds_bucket{{{NS},pod="{POD}",le="%s"}}'
COUNTED = f'vllm:request_queue_time_seconds_count{{{NS},pod="{POD}"}}'
DEPLOYMENT = f'{NS},deployment="rel-decode"'
LEAVES = f'kube_pod_deletion_timestamp{{{NS},pod="{POD}"}}'
RESETS = 'istio_requests_total{job="ns/rel-gateway",reporter="source",response_code="200",response_flags="%s"}'
VOLUME = f'kubelet_volume_stats_%s_bytes{{{NS},persistentvolumeclaim="rel-compile-cache-decode"}}'

SLOTS = 4
"""Of a decode Pod: the recipe has one sequence for each of its four ranks."""
DELAY, N, MARGIN, SCRAPE = 20, 60, 30, 10
GRACE = DELAY + N + MARGIN


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is scraped every 10 s, and which alerts fire at a time.

    Attributes:
        series: name and labels -> values in promtool's notation, `a+bxn` being n more, each b higher.
        at: when the alerts are looked at.
        fires: names of the alerts that fire then, without `ServingStack`.
        blocks: configuration beside monitoring.
        monitoring: more of its block.
    """

    series: Mapping[str, str]
    at: str
    fires: frozenset[str] = frozenset()
    blocks: Mapping[str, Any] = field(default_factory=dict[str, Any])
    monitoring: Mapping[str, Any] = field(default_factory=dict[str, Any])


def steady(value: float, minutes: int = 30) -> str:
    return f"{value}+0x{minutes * 6}"


def queue(below_one: int, above_one: int) -> dict[str, str]:
    """Requests every 10 s that waited less than 0.3 s, and between 1.5 and 2 s."""
    both = below_one + above_one
    return {
        QUEUED % "0.3": f"0+{below_one}x180",
        QUEUED % "1.5": f"0+{below_one}x180",
        QUEUED % "2": f"0+{both}x180",
        QUEUED % "+Inf": f"0+{both}x180",
        COUNTED: f"0+{both}x180",
    }


def deployment(**numbers: int | str) -> dict[str, str]:
    """Series of kube-state-metrics about the decode Deployment."""
    names = {
        "wanted": "spec_replicas",
        "ready": "status_replicas_available",
        "updated": "status_replicas_updated",
    }
    return {
        f"kube_deployment_{names[name]}{{{DEPLOYMENT}}}": value if isinstance(value, str) else steady(value, 600)
        for name, value in numbers.items()
    }


def progressing(status: str) -> dict[str, str]:
    label = f'{DEPLOYMENT},condition="Progressing",status="%s"'
    return {
        f"kube_deployment_status_condition{{{label % each}}}": steady(1 if each == status else 0)
        for each in ("true", "false", "unknown")
    }


SCALERS: dict[str, tuple[str, dict[str, Any]]] = {
    "hpa": ("rel-decode", {"autoscaling": HPA}),
    "keda": (
        "keda-hpa-rel-decode",
        {
            "autoscaling": {
                "decode": HPA["decode"] | {"provider": "keda"},
                "prometheus": {"serverAddress": "http://prometheus:9090"},
            }
        },
    ),
    "aibrix": ("rel-decode-hpa", {"autoscaling": {"decode": HPA["decode"] | {"provider": "aibrix"}}}),
}
"""Provider -> the HorizontalPodAutoscaler that works for it, and the configuration."""


def scaling_active(name: str, status: str) -> dict[str, str]:
    """Series of kube-state-metrics about a HorizontalPodAutoscaler."""
    label = f'{NS},horizontalpodautoscaler="{name}",condition="ScalingActive",status="%s"'
    return {
        f"kube_horizontalpodautoscaler_status_condition{{{label % each}}}": steady(1 if each == status else 0, 600)
        for each in ("true", "false", "unknown")
    }


def zigzag(low: int, high: int, times: int) -> str:
    """Down and up, 5 minutes each."""
    return " ".join([f"{high}x29 {low}x29"] * times)


CASES: dict[str, Case] = {
    # -- queue
    "19 of 20 requests run at once": Case(series=queue(20, 1), at="25m"),
    "one of 10 waits for more than a second": Case(series=queue(9, 1), at="25m", fires=frozenset({"QueueTime"})),
    "but for a short time": Case(series=queue(9, 1), at="9m"),
    "a limit of one's own": Case(series=queue(9, 1), at="25m", monitoring={"rules": {"queueSeconds": 3}}),
    "the limit of the scaler": Case(
        series=queue(9, 1),
        at="25m",
        blocks={"autoscaling": {"decode": HPA["decode"] | {"signal": "queueTime", "queueSeconds": 3}}},
    ),
    "nobody gets out of the queue, so nothing is counted": Case(
        series={WAITING: steady(3), COUNTED: steady(100)}, at="25m", fires=frozenset({"QueueTime"})
    ),
    "nothing waits, and nothing is counted": Case(series={WAITING: steady(0), COUNTED: steady(100)}, at="25m"),
    "no metrics at all": Case(series={"up": steady(1)}, at="25m"),
    "another release's queue": Case(
        series={key.replace("rel-decode", "rel-decode-prefill"): value for key, value in queue(1, 1).items()}, at="25m"
    ),
    # -- ceiling
    "all slots of all Ready Pods run": Case(
        series={RUNNING: steady(2 * SLOTS)} | deployment(ready=2, wanted=4), at="25m", fires=frozenset({"AtCeiling"})
    ),
    "half of them": Case(series={RUNNING: steady(SLOTS)} | deployment(ready=2, wanted=4), at="25m"),
    "one Pod more, and the same load is no longer too much": Case(
        series={RUNNING: steady(2 * SLOTS)} | deployment(ready=3, wanted=4), at="25m"
    ),
    "larger Pods, and the same load is no longer too much": Case(
        series={RUNNING: steady(2 * SLOTS)} | deployment(ready=2, wanted=4),
        at="25m",
        blocks={"modelserver": {"serveArgs": {"decode": {"max-num-seqs": 2}}}},
    ),
    "two series of one Deployment after kube-state-metrics moved": Case(
        series={RUNNING: steady(SLOTS + 1)}
        | {
            f'kube_deployment_status_replicas_available{{{DEPLOYMENT},instance="{each}"}}': steady(1)
            for each in ("a", "b")
        },
        at="25m",
        fires=frozenset({"AtCeiling"}),
    ),
    "a scaler at its ceiling and above its target": Case(
        series={RUNNING: steady(10)} | deployment(ready=4, wanted=4),
        at="25m",
        blocks={"autoscaling": HPA},
        fires=frozenset({"AtCeiling"}),
    ),
    "a scaler at its ceiling and below its target": Case(
        series={RUNNING: steady(9)} | deployment(ready=4, wanted=4), at="25m", blocks={"autoscaling": HPA}
    ),
    "a scaler above its target that still adds Pods": Case(
        series={RUNNING: steady(10)} | deployment(ready=3, wanted=3), at="25m", blocks={"autoscaling": HPA}
    ),
    # -- roll-outs
    "the deadline of a roll-out has passed": Case(
        series=progressing("false"), at="25m", fires=frozenset({"RollOutStuck"})
    ),
    "a roll-out goes on": Case(series=progressing("true") | deployment(wanted=4, updated=2), at="25m"),
    "a roll-out goes on for longer than all its Pods may take": Case(
        series=progressing("true") | deployment(wanted=4, updated=3), at="590m", fires=frozenset({"RollOutSlow"})
    ),
    "all Pods are of the new template": Case(series=deployment(wanted=4, updated=4), at="590m"),
    # -- flapping
    "from floor to ceiling and back for half a day": Case(
        series=deployment(wanted=zigzag(2, 4, 12)),
        at="2h",
        blocks={"autoscaling": HPA},
        fires=frozenset({"ReplicasFlap"}),
    ),
    "up and down once": Case(
        series=deployment(wanted="2x120 3x60 4x120 3x60 2x120"), at="80m", blocks={"autoscaling": HPA}
    ),
    "up and down by hand, without a scaler": Case(series=deployment(wanted=zigzag(2, 4, 12)), at="2h"),
    # -- scalers that do nothing
    **{
        f"{provider} finds no metric": Case(
            series=scaling_active(name, "false"), at="130m", blocks=blocks, fires=frozenset({"ScalerInactive"})
        )
        for provider, (name, blocks) in SCALERS.items()
    },
    "a scaler that has its metrics": Case(
        series=scaling_active("rel-decode", "true"), at="130m", blocks={"autoscaling": HPA}
    ),
    "none yet, while the first Pod loads": Case(
        series=scaling_active("rel-decode", "false"), at="30m", blocks={"autoscaling": HPA}
    ),
    "somebody else's scaler": Case(
        series=scaling_active("rel-decode-2", "false"), at="130m", blocks={"autoscaling": HPA}
    ),
    "one that is held at a bound": Case(
        series={
            key.replace("ScalingActive", "ScalingLimited"): values
            for key, values in scaling_active("rel-decode", "false").items()
        },
        at="130m",
        blocks={"autoscaling": HPA},
    ),
    # -- a Pod leaves at 10m; kube-state-metrics tells when its grace period ends
    "a Pod that runs requests to the end of N": Case(
        series={LEAVES: f"_x60 {600 + GRACE}x8 stale", RUNNING: "3x68 stale"},
        at="15m",
        fires=frozenset({"DrainRanOut"}),
    ),
    "a Pod whose last request ends in time": Case(
        series={LEAVES: f"_x60 {600 + GRACE}x8 stale", RUNNING: "3x63 0x4 stale"}, at="15m"
    ),
    "a Pod that is idle and gone after 20 s": Case(
        series={LEAVES: f"_x60 {600 + GRACE}x2 stale", RUNNING: "0x62 stale"}, at="15m"
    ),
    "a busy Pod that nobody deleted": Case(series={RUNNING: steady(SLOTS)}, at="15m"),
    "nothing drains by decision": Case(
        series={LEAVES: "_x60 630x3 stale", RUNNING: "3x63 stale"}, at="15m", blocks={"drain": {"mode": "off"}}
    ),
    "N was longer when the Pod had to leave": Case(
        series={LEAVES: f"_x60 {600 + GRACE + 300}x8 stale", RUNNING: "3x68 stale"},
        at="15m",
        blocks={"drain": {"shutdownTimeoutSeconds": {"decode": N + 300}}, "gateway": {"requestTimeout": "0s"}},
    ),
    "a Pod that is there long after its grace period": Case(
        series={LEAVES: steady(600 + GRACE)}, at="15m", fires=frozenset({"ClaimsHeld"})
    ),
    "a Pod in its grace period": Case(series={LEAVES: steady(600 + GRACE)}, at="11m"),
    "a Pod of the stack's router": Case(series={LEAVES.replace("rel-decode", "rel-epp"): steady(600)}, at="15m"),
    # -- streams
    "responses break off while a Pod leaves": Case(
        series={LEAVES: f"_x60 {600 + GRACE}x8 stale", RESETS % "UR": "5x63 8x60"},
        at="12m",
        fires=frozenset({"StreamsCut"}),
    ),
    "the first one ever, whose counter was not there before": Case(
        series={LEAVES: f"_x60 {600 + GRACE}x8 stale", RESETS % "DC,UC": "_x63 1x60"},
        at="12m",
        fires=frozenset({"StreamsCut"}),
    ),
    "responses break off while nothing leaves": Case(series={RESETS % "UR": "5x63 8x60"}, at="12m"),
    "a Pod leaves and no response breaks off": Case(
        series={LEAVES: f"_x60 {600 + GRACE}x8 stale", RESETS % "UR": steady(5)}, at="12m"
    ),
    "clients that go away are no broken responses": Case(
        series={LEAVES: f"_x60 {600 + GRACE}x8 stale", RESETS % "DC": "5x63 8x60"}, at="12m"
    ),
    "a response that timed out in the middle is no end of its Pod": Case(
        series={LEAVES: f"_x60 {600 + GRACE}x8 stale", RESETS % "URX": "5x63 8x60", RESETS % "UT,URX": "5x63 8x60"},
        at="12m",
    ),
    "no connection was made": Case(
        series={LEAVES: f"_x60 {600 + GRACE}x8 stale", RESETS % "UF": "5x63 8x60", RESETS % "UF,URX": "5x63 8x60"},
        at="12m",
    ),
    "a connection that ended before a byte of the response": Case(
        series={LEAVES: f"_x60 {600 + GRACE}x8 stale", RESETS.replace('"200"', '"503"') % "UC": "5x63 8x60"},
        at="12m",
    ),
    "one flag of several": Case(
        series={LEAVES: f"_x60 {600 + GRACE}x8 stale", RESETS % "DC,UPE,SI": "5x63 8x60"},
        at="12m",
        fires=frozenset({"StreamsCut"}),
    ),
    "without a Gateway nobody counts": Case(
        series={LEAVES: f"_x60 {600 + GRACE}x8 stale", RESETS % "UR": "5x63 8x60"},
        at="12m",
        blocks={"gateway": {"enabled": False}},
    ),
    # -- volumes
    "a volume with 5% left": Case(
        series={VOLUME % "available": steady(5), VOLUME % "capacity": steady(100)},
        at="25m",
        fires=frozenset({"VolumeNearlyFull"}),
    ),
    "a volume with 20% left": Case(
        series={VOLUME % "available": steady(20), VOLUME % "capacity": steady(100)}, at="25m"
    ),
    "20% left where a quarter is wanted": Case(
        series={VOLUME % "available": steady(20), VOLUME % "capacity": steady(100)},
        at="25m",
        monitoring={"rules": {"volumeFreePercent": 25}},
        fires=frozenset({"VolumeNearlyFull"}),
    ),
}


def monitored(case: Case) -> StackPlan:
    return plan(**case.blocks, monitoring=MONITORED | dict(case.monitoring))


def promtool(toolbox: Toolbox, *arguments: str | Path) -> str:
    found = subprocess.run(
        [toolbox.path("promtool"), *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def write_rules(whole: StackPlan, path: Path, kind: str = "PrometheusRule") -> dict[str, Any]:
    """The rules as a file of Prometheus' own."""
    spec = planned(whole, kind)["spec"]
    path.write_text(yaml.safe_dump(spec))
    return spec


@pytest.mark.parametrize(
    "blocks",
    [
        {},
        {"autoscaling": HPA},
        {"gateway": {"className": "agentgateway"}},
        {"modelserver": {"nodePlacement": [{"role": r, "node": n} for r in ("prefill", "decode") for n in "ab"]}},
        {"modelserver": {"replicas": {"aggregated": 2}}, "devices": {"rdma": {"enabled": False}}},
    ],
    ids=["reference", "scaled", "another gateway", "placed", "aggregated"],
)
def test_prometheus_accepts_every_rule(toolbox: Toolbox, tmp_path: Path, blocks: dict[str, Any]) -> None:
    whole = plan(**blocks, monitoring=MONITORED)
    spec = write_rules(whole, tmp_path / "rules.yaml")
    said = promtool(toolbox, "check", "rules", "--lint=all", "--lint-fatal", tmp_path / "rules.yaml")
    assert f"{sum(len(group['rules']) for group in spec['groups'])} rules found" in said


def test_victoria_metrics_gets_the_same_rules() -> None:
    scraper = {"serviceAccount": {"name": "vmagent", "namespace": "monitoring"}}
    victoria = planned(plan(monitoring={"enabled": True, "scraper": scraper}), "VMRule")
    assert victoria["apiVersion"] == "operator.victoriametrics.com/v1beta1"
    assert victoria["spec"] == planned(plan(monitoring=MONITORED), "PrometheusRule")["spec"]


def test_each_case_does_what_its_name_says(toolbox: Toolbox, tmp_path: Path) -> None:
    """All at once: promtool takes a second to start, and there are many."""
    for number, (name, case) in enumerate(CASES.items()):
        rules = tmp_path / f"rules-{number}.yaml"
        spec = write_rules(monitored(case), rules)
        alerts = sorted({rule["alert"] for group in spec["groups"] for rule in group["rules"]})
        assert {f"ServingStack{each}" for each in case.fires} <= set(alerts)
        test = {
            "name": name,
            "interval": f"{SCRAPE}s",
            "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
            "promql_expr_test": [
                {
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": case.at,
                    "exp_samples": [
                        {"labels": f'{{alertname="ServingStack{each}"}}', "value": 1} for each in sorted(case.fires)
                    ],
                }
            ],
        }
        (tmp_path / f"test-{number}.yaml").write_text(
            yaml.safe_dump({"rule_files": [rules.name], "evaluation_interval": "30s", "tests": [test]})
        )
    tests = sorted(tmp_path.glob("test-*.yaml"))
    promtool(toolbox, "test", "rules", *tests)


def test_every_alert_fires_in_some_case_and_keeps_silent_in_another() -> None:
    fired = {each for case in CASES.values() for each in case.fires}
    spec = planned(plan(monitoring=MONITORED, autoscaling=HPA), "PrometheusRule")["spec"]
    assert {f"ServingStack{each}" for each in fired} == {
        rule["alert"] for group in spec["groups"] for rule in group["rules"]
    }


@pytest.mark.parametrize("blocks", [{}, {"autoscaling": HPA}], ids=["reference", "scaled"])
def test_every_query_of_the_dashboard_is_promql(toolbox: Toolbox, tmp_path: Path, blocks: dict[str, Any]) -> None:
    """As recording rules, since those are what promtool parses."""
    text = planned(plan(**blocks, monitoring=MONITORED), "ConfigMap", "rel-dashboard")["data"]["serving-stack.json"]
    queries = [target["expr"] for panel in json.loads(text)["panels"] for target in panel.get("targets", ())]
    assert len(queries) > 30
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(queries)} rules found" in promtool(toolbox, "check", "rules", tmp_path / "rules.yaml")
