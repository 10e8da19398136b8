from __future__ import annotations

from typing import Any

import pytest

from tests.builders import kinds, plan, planned

PLACED: dict[str, Any] = {
    "modelserver": {"nodePlacement": [{"role": role, "node": node} for role in ("prefill", "decode") for node in "ab"]}
}
AGGREGATED: dict[str, Any] = {
    "modelserver": {"replicas": {"aggregated": 2}},
    "devices": {"rdma": {"enabled": False}},
}
KIND = "PodDisruptionBudget"


@pytest.mark.parametrize(
    ("blocks", "want"),
    [
        pytest.param({}, ["rel-prefill", "rel-decode"], id="prefill and decode"),
        pytest.param(AGGREGATED, ["rel-aggregated"], id="aggregated"),
        pytest.param(PLACED, ["rel-prefill", "rel-decode"], id="placed, where a role has several Deployments"),
        pytest.param({"modelserver": {"replicas": {"prefill": 0}}}, ["rel-decode"], id="a role without Pods has none"),
        pytest.param({"disruptionBudget": {"enabled": False}}, [], id="off"),
    ],
)
def test_each_role_has_one_budget(blocks: dict[str, Any], want: list[str]) -> None:
    assert kinds(plan(**blocks), KIND) == want


@pytest.mark.parametrize("blocks", [{}, AGGREGATED, PLACED], ids=["apart", "aggregated", "placed"])
def test_a_pod_is_of_one_budget_since_with_two_no_eviction_works(blocks: dict[str, Any]) -> None:
    whole = plan(**blocks)
    for workload in whole.modelserver.workloads:
        labels = workload.object.manifest["spec"]["template"]["metadata"]["labels"]
        budgets = [planned(whole, KIND, name) for name in kinds(whole, KIND)]
        selecting = [b for b in budgets if b["spec"]["selector"]["matchLabels"].items() <= labels.items()]
        assert [b["metadata"]["name"] for b in selecting] == [f"rel-{workload.role}"]


def test_another_release_in_the_namespace_is_left_alone() -> None:
    selector = planned(plan(), KIND, "rel-decode")["spec"]["selector"]["matchLabels"]
    other = plan(release="rel-two").modelserver.workloads[1].object.manifest["spec"]["template"]["metadata"]["labels"]
    assert not selector.items() <= other.items()


def test_one_pod_may_go_and_a_broken_one_always() -> None:
    spec = planned(plan(), KIND, "rel-decode")["spec"]
    assert (spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    assert "minAvailable" not in spec, "with one replica it would keep the node from ever being drained"


def test_the_operator_chooses() -> None:
    chosen = {"maxUnavailable": 2, "unhealthyPodEvictionPolicy": "IfHealthyBudget"}
    spec = planned(plan(disruptionBudget=chosen), KIND, "rel-decode")["spec"]
    assert (spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]) == (2, "IfHealthyBudget")


def test_a_budget_changes_no_pod() -> None:
    with_one, without = (
        {w.object.name: w.object.manifest for w in whole.modelserver.workloads}
        for whole in (plan(), plan(disruptionBudget={"enabled": False}))
    )
    assert with_one == without
