"""Alerts and dashboard as planned. What they do with series is for `tests/e2e/test_alerts.py`, with Prometheus."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import ROOT, kinds, plan, planned

if TYPE_CHECKING:
    from stack.planned import StackPlan

PROMETHEUS: dict[str, Any] = {"enabled": True, "provider": "prometheus-operator"}
VICTORIA: dict[str, Any] = {
    "enabled": True,
    "scraper": {"serviceAccount": {"name": "vmagent", "namespace": "monitoring"}},
}
PLACED: dict[str, Any] = {
    "modelserver": {"nodePlacement": [{"role": role, "node": node} for role in ("prefill", "decode") for node in "ab"]}
}
HPA: dict[str, Any] = {"provider": "hpa", "minReplicas": 2, "maxReplicas": 6}


def monitored(monitoring: dict[str, Any] | None = None, **blocks: Any) -> StackPlan:
    return plan(monitoring=PROMETHEUS | (monitoring or {}), **blocks)


def alerts(whole: StackPlan, role: str | None) -> dict[str, dict[str, Any]]:
    """Alerts of a role, or of the stack, by name without `ServingStack`."""
    rules = [rule for group in planned(whole, "PrometheusRule")["spec"]["groups"] for rule in group["rules"]]
    return {rule["alert"].removeprefix("ServingStack"): rule for rule in rules if rule["labels"].get("role") == role}


def dashboard(whole: StackPlan) -> dict[str, Any]:
    return json.loads(planned(whole, "ConfigMap", "rel-dashboard")["data"]["serving-stack.json"])


def panel(whole: StackPlan, role: str, title: str) -> dict[str, str]:
    """Queries of a panel of a role by their legends."""
    row = ""
    for each in dashboard(whole)["panels"]:
        if each["type"] == "row":
            row = each["title"].partition(":")[0]
        elif (row, each["title"]) == (role, title):
            return {target["legendFormat"]: target["expr"] for target in each["targets"]}
    raise AssertionError(title)


# --- alerts -----------------------------------------------------------------------------------------------------------


def test_rules_come_as_the_kind_that_the_operator_reads_with_its_labels() -> None:
    labels = {"labels": {"team": "blue"}}
    victoria, prometheus = plan(monitoring=VICTORIA | labels), monitored(labels)
    assert (kinds(victoria, "VMRule"), kinds(victoria, "PrometheusRule")) == (["rel"], [])
    assert (kinds(prometheus, "VMRule"), kinds(prometheus, "PrometheusRule")) == ([], ["rel"])
    for whole, kind in ((victoria, "VMRule"), (prometheus, "PrometheusRule")):
        assert planned(whole, kind)["metadata"]["labels"]["team"] == "blue"


@pytest.mark.parametrize("part", ["rules", "dashboard"])
def test_each_of_the_two_can_be_left_out(part: str) -> None:
    whole = monitored({part: {"enabled": False}})
    assert (kinds(whole, "PrometheusRule") == []) == (part == "rules")
    assert ("rel-dashboard" not in kinds(whole, "ConfigMap")) == (part == "dashboard")


def test_every_role_hears_of_the_same_and_the_stack_of_what_is_shared() -> None:
    whole = monitored()
    of_role = {"QueueTime", "AtCeiling", "RollOutStuck", "RollOutSlow", "DrainRanOut", "ClaimsHeld"}
    assert alerts(whole, "prefill").keys() == alerts(whole, "decode").keys() == of_role
    assert alerts(whole, None).keys() == {"StreamsCut", "VolumeNearlyFull"}


@pytest.mark.parametrize(
    ("blocks", "want"),
    [
        pytest.param({"autoscaling": {"decode": HPA}}, True, id="between two bounds"),
        pytest.param({"autoscaling": {"decode": HPA | {"maxReplicas": 2}}}, False, id="between bounds that are one"),
        pytest.param({}, False, id="without a scaler"),
    ],
)
def test_only_what_is_scaled_can_flap(blocks: dict[str, Any], *, want: bool) -> None:
    assert ("ReplicasFlap" in alerts(monitored(**blocks), "decode")) == want


def test_every_alert_says_what_to_do_in_the_document() -> None:
    text = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
    headings = {line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")}
    whole = monitored(autoscaling={"decode": HPA})
    known = alerts(whole, "decode") | alerts(whole, "prefill") | alerts(whole, None)
    for name, rule in known.items():
        assert name in headings
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{name.lower()}"


def test_the_document_can_be_elsewhere() -> None:
    rule = alerts(monitored({"rules": {"runbookUrl": "https://example.com/alerts"}}), "decode")["QueueTime"]
    assert rule["annotations"]["runbook_url"] == "https://example.com/alerts#queuetime"
    assert "runbook" not in rule["annotations"]


@pytest.mark.parametrize(
    ("blocks", "alert", "want"),
    [
        pytest.param({}, "AtCeiling", "> 0.9 * 4 * sum(", id="slots of the recipe: one for each of four ranks"),
        pytest.param(
            {"modelserver": {"serveArgs": {"decode": {"max-num-seqs": 2}}}}, "AtCeiling", "> 0.9 * 8 * sum(", id="slots"
        ),
        # 0.6 of 4 slots, times 6 Pods
        pytest.param({"autoscaling": {"decode": HPA}}, "AtCeiling", "> 14.4)", id="target and ceiling"),
        pytest.param({"autoscaling": {"decode": HPA}}, "AtCeiling", ">= 6 and", id="ceiling"),
        pytest.param(
            {"autoscaling": {"decode": HPA | {"signal": "queueTime", "queueSeconds": 3}}},
            "AtCeiling",
            "> 3)",
            id="a time in the queue is not divided among Pods",
        ),
        pytest.param({"autoscaling": {"decode": HPA}}, "ReplicasFlap", "> 4 and", id="span of the bounds"),
        # 4 Pods up at 180 s and down at 300 s, three times
        pytest.param({"autoscaling": {"decode": HPA}}, "ReplicasFlap", "[5760s]", id="time for three whole ways"),
        # 4 Pods up at 180 s, and down after an hour each, three times
        pytest.param(
            {
                "autoscaling": {
                    "decode": HPA | {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 3600, "pods": 2}}}
                }
            },
            "ReplicasFlap",
            "[45360s]",
            id="none goes down before its window has passed",
        ),
        # 4 Pods up at 60 s and down at 300 s, three times
        pytest.param(
            {"autoscaling": {"decode": HPA | {"provider": "aibrix"}}}, "ReplicasFlap", "[4320s]", id="AIBrix's own pace"
        ),
        pytest.param({}, "DrainRanOut", "- 40)", id="30 s of margin and a scrape"),
        pytest.param({"drain": {"marginSeconds": 60}}, "DrainRanOut", "- 70)", id="margin"),
        pytest.param({"drain": {"marginSeconds": 60}}, "ClaimsHeld", "> 60", id="margin of one that stays"),
    ],
)
def test_thresholds_are_the_plans(blocks: dict[str, Any], alert: str, want: str) -> None:
    assert want in alerts(monitored(**blocks), "decode")[alert]["expr"]


def test_pulls_of_a_prefill_pod_come_after_its_drain() -> None:
    assert "- 70)" in alerts(monitored(), "prefill")["DrainRanOut"]["expr"], "30 s for pulls"


def test_deadlines_of_roll_outs_are_those_of_the_deployments() -> None:
    whole = monitored()
    [workload] = [w for w in whole.modelserver.workloads if w.role == "decode"]
    found = alerts(whole, "decode")
    assert found["RollOutSlow"]["for"] == f"{workload.timeout_seconds}s"
    deadline = workload.object.manifest["spec"]["progressDeadlineSeconds"]
    assert f" {deadline} s" in found["RollOutStuck"]["annotations"]["description"]


@pytest.mark.parametrize(
    ("interval", "want"),
    [("500ms", "[10m:1s]"), ("1m30s", "[10m:90s]"), ("10s500ms", "[10m:11s]"), ("1d", "[10m:86400s]")],
)
def test_scrapes_count_in_whole_seconds(interval: str, want: str) -> None:
    assert want in alerts(monitored({"interval": interval}), "decode")["DrainRanOut"]["expr"]


@pytest.mark.parametrize("blocks", [{}, PLACED], ids=["replicas", "placed"])
def test_an_alert_speaks_of_the_roles_pods_and_of_no_others(blocks: dict[str, Any]) -> None:
    whole = monitored(**blocks)
    expr = alerts(whole, "decode")["ClaimsHeld"]["expr"]
    match = re.search(r'pod=~"([^"]+)"', expr)
    assert match is not None
    names = [w.object.name for w in whole.modelserver.workloads if w.role == "decode"]
    assert all(re.fullmatch(match[1], f"{name}-5d8f7c9b6-x2x4z") for name in names)
    others = ("rel-prefill", "rel-epp", "rel-decode-prefill", "other-rel-decode", "rel")
    assert not any(re.fullmatch(match[1], f"{name}-5d8f7c9b6-x2x4z") for name in others)


@pytest.mark.parametrize(
    ("blocks", "want"),
    [
        pytest.param({}, {"model-store", "rel-compile-cache-decode", "rel-compile-cache-prefill"}, id="claims"),
        pytest.param(
            {"storage": {"model": {"readOnly": True}}},
            {"rel-compile-cache-decode", "rel-compile-cache-prefill"},
            id="what nobody writes to does not fill up",
        ),
    ],
)
def test_volumes_are_those_that_are_written_to(blocks: dict[str, Any], want: set[str]) -> None:
    match = re.search(
        r'persistentvolumeclaim=~"([^"]+)"', alerts(monitored(**blocks), None)["VolumeNearlyFull"]["expr"]
    )
    assert match is not None
    assert set(match[1].split("|")) == want


def test_other_gateways_count_resets_as_envoy_does() -> None:
    rule = alerts(monitored(gateway={"className": "kgateway"}), None)["StreamsCut"]
    assert 'envoy_cluster_upstream_rq_rx_reset{job="ns/rel-gateway"}' in rule["expr"]


# --- dashboard --------------------------------------------------------------------------------------------------------


def test_grafanas_sidecar_finds_it_by_a_label() -> None:
    labels = planned(monitored(), "ConfigMap", "rel-dashboard")["metadata"]["labels"]
    assert labels["grafana_dashboard"] == "1"
    own = planned(monitored({"dashboard": {"labels": {"dash": "yes"}}}), "ConfigMap", "rel-dashboard")["metadata"][
        "labels"
    ]
    assert own["dash"] == "yes"
    assert "grafana_dashboard" not in own


@pytest.mark.parametrize(("sequences", "slots"), [(1, 4), (16, 64)])
def test_slots_follow_the_plan(sequences: int, slots: int) -> None:
    whole = monitored(modelserver={"serveArgs": {"decode": {"max-num-seqs": sequences}}})
    assert whole.outputs["capacity"]["decode"]["slotsPerPod"] == slots
    found = panel(whole, "decode", "Slots")
    assert found["slots"].startswith(f"{slots} * sum(max by (deployment) (kube_deployment_status_replicas_available{{")
    assert found["run"].startswith("sum(vllm:num_requests_running{")


def test_bounds_and_drains_are_lines_beside_what_is_measured() -> None:
    whole = monitored(autoscaling={"decode": HPA}, drain={"shutdownTimeoutSeconds": {"decode": 120}})
    pods = panel(whole, "decode", "Pods")
    assert (pods["floor"], pods["ceiling"]) == ("vector(2)", "vector(6)")
    assert panel(whole, "decode", "Duration of requests")["N = 120 s"] == "vector(120)"
    assert "floor" not in panel(whole, "prefill", "Pods")


@pytest.mark.parametrize(
    "blocks", [{}, {"autoscaling": {"decode": HPA}}, PLACED], ids=["reference", "scaled", "placed"]
)
def test_panels_lie_beside_and_below_one_another(blocks: dict[str, Any]) -> None:
    panels = dashboard(monitored(**blocks))["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for each in panels:
        at = each["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_two_stacks_have_two_dashboards() -> None:
    uids = {
        json.loads(planned(whole, "ConfigMap", name)["data"]["serving-stack.json"])["uid"]
        for whole, name in (
            (monitored(), "rel-dashboard"),
            (monitored(namespace="other"), "rel-dashboard"),
            (monitored(release="two"), "two-dashboard"),
        )
    }
    assert len(uids) == 3
    assert all(len(uid) <= 40 for uid in uids), "Grafana takes no longer ones"
