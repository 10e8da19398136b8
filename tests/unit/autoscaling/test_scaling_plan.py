"""What is planned for a scaled role: capacity, target, query, the scaler's object, and the number of Pods."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.autoscaling import aibrix_target, expected_pods, plan_signal, quantity, target_of
from stack.capacity import is_slots
from stack.config.autoscaling import RoleScalingConfig
from stack.facts import FactsError, StateFacts, WorkloadFacts
from stack.plan import plan_stack
from tests.builders import EMPTY_CLUSTER, accepted, plan

if TYPE_CHECKING:
    from stack.errors import Problem
    from stack.planned import StackPlan

KEDA: dict[str, Any] = {"prometheus": {"serverAddress": "http://prometheus:9090"}}


def scaled(**over: Any) -> dict[str, Any]:
    return {"decode": {"provider": "hpa", "minReplicas": 2, "maxReplicas": 8} | over}


def spec_of(planned: StackPlan, role: str) -> dict[str, Any]:
    [scaler] = [each for each in planned.modelserver.scalers if each.role == role]
    return scaler.object.manifest["spec"]


def workload(planned: StackPlan, role: str) -> Any:
    [found] = [each for each in planned.modelserver.workloads if each.role == role]
    return found


# --- capacity ---------------------------------------------------------------------------------------------------------


def test_slots_are_those_of_all_ranks_of_a_pod_and_follow_the_argument() -> None:
    reference = plan().outputs["capacity"]
    # The reference decodes with 4 ranks of 1 request each, at a port each; prefill runs 4 in one pipeline.
    assert reference["decode"]["slotsPerPod"] == 4
    assert reference["decode"]["slotsPerEndpoint"] == 1
    assert reference["prefill"]["slotsPerPod"] == reference["prefill"]["slotsPerEndpoint"] == 4
    doubled = plan(modelserver={"serveArgs": {"decode": {"max-num-seqs": 2}}}).outputs["capacity"]
    assert doubled["decode"]["slotsPerPod"] == 8
    appended = plan(modelserver={"extraServeArgs": {"decode": ["--max-num-seqs=8"]}}).outputs["capacity"]
    assert appended["decode"]["slotsPerPod"] == 32, "what is appended wins"


def test_capacity_of_a_role_is_its_pods_times_their_slots() -> None:
    fixed = plan(modelserver={"replicas": {"decode": 5}}).outputs["capacity"]["decode"]
    assert (fixed["pods"], fixed["slots"]) == ({"min": 5, "max": 5}, {"min": 20, "max": 20})
    between = plan(autoscaling=scaled()).outputs["capacity"]["decode"]
    assert (between["pods"], between["slots"]) == ({"min": 2, "max": 8}, {"min": 8, "max": 32})


@pytest.mark.parametrize("value", [None, True, False, 0, -1, 1.5, "4", "x"])
def test_nothing_but_a_whole_number_of_1_or_more_is_a_number_of_slots(value: object) -> None:
    assert not is_slots(value)


# --- scalers ----------------------------------------------------------------------------------------------------------


def test_kubernetes_own_scaler_aims_at_a_share_of_the_slots_of_each_pod() -> None:
    spec = spec_of(plan(autoscaling=scaled()), "decode")
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "rel-decode"}
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 8)
    assert spec["metrics"] == [
        {
            "type": "Pods",
            "pods": {
                "metric": {"name": "vllm_num_requests_running"},
                "target": {"type": "AverageValue", "averageValue": "2400m"},  # 0.6 of 4
            },
        }
    ]


def test_pods_come_and_go_one_at_a_time_unless_told_otherwise() -> None:
    behavior = spec_of(plan(autoscaling=scaled()), "decode")["behavior"]
    assert behavior == {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 180}],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": 300,
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}],
        },
    }


def test_prefill_is_scaled_by_tokens_in_flight_to_pods_that_are_there() -> None:
    blocks = {"prefill": {"provider": "keda", "maxReplicas": 8, "tokensPerSecond": 9000}, **KEDA}
    spec = spec_of(plan(autoscaling=blocks), "prefill")
    [trigger] = spec["triggers"]
    assert trigger["metricType"] == "AverageValue"
    assert trigger["metadata"]["threshold"] == "13500"  # 1.5 s at 9000 tokens a second
    query = trigger["metadata"]["query"]
    assert query.startswith("sum(")
    assert "llm_d_epp_inflight_tokens" in query
    assert "and on (pod) vllm:num_requests_running" in query, "the endpoint picker shows Pods that are gone as well"


def test_a_metric_that_is_missing_is_never_read_as_idle() -> None:
    for signal in ({"signal": "occupancy"}, {"signal": "queueTime"}):
        spec = spec_of(
            plan(autoscaling={"decode": scaled()["decode"] | {"provider": "keda"} | signal, **KEDA}), "decode"
        )
        [trigger] = spec["triggers"]
        assert trigger["metadata"]["ignoreNullValues"] == "false"
        assert "vector(0)" not in trigger["metadata"]["query"]
        assert spec["fallback"] == {"failureThreshold": 3, "replicas": 2, "behavior": "currentReplicasIfHigher"}
        assert spec["minReplicaCount"] == 2, "KEDA's own is 0"


def test_a_time_is_not_divided_among_pods() -> None:
    keda = {"decode": {"provider": "keda", "maxReplicas": 8, "signal": "queueTime", "queueSeconds": 2}, **KEDA}
    [trigger] = spec_of(plan(autoscaling=keda), "decode")["triggers"]
    assert (trigger["metricType"], trigger["metadata"]["threshold"]) == ("Value", "2")
    hpa = {"decode": {"provider": "hpa", "maxReplicas": 8, "signal": "queueTime"}}
    [metric] = spec_of(plan(autoscaling=hpa), "decode")["metrics"]
    assert metric["type"] == "External"
    assert metric["external"]["target"] == {"type": "Value", "value": "1"}
    assert metric["external"]["metric"] == {"name": "rel_decode_queue_seconds"}


def test_aibrix_makes_an_hpa_of_it_with_a_whole_number() -> None:
    planned = plan(
        modelserver={"replicas": {"aggregated": 2}},
        devices={"rdma": {"enabled": False}},
        autoscaling={"aggregated": {"provider": "aibrix", "maxReplicas": 4}},
    )
    [scaler] = planned.modelserver.scalers
    spec = scaler.object.manifest["spec"]
    assert spec["scalingStrategy"] == "HPA"
    [source] = spec["metricsSources"]
    assert source["targetValue"] == str(int(0.6 * planned.outputs["capacity"]["aggregated"]["slotsPerPod"]))
    assert scaler.target == int(source["targetValue"]), "alerts and outputs follow what it is told"
    assert planned.outputs["autoscaling"]["aggregated"]["target"] == scaler.target
    assert aibrix_target(0.3) == 1, "0 would be no target"


def test_no_query_counts_pods_of_a_release_whose_name_begins_alike() -> None:
    config = accepted(autoscaling=scaled()).config
    [pattern] = re.findall('pod=~"([^"]*)"', plan_signal(config, "decode", 4).query)
    assert re.fullmatch(pattern, "rel-decode-7d9c5b8f4-x2x4z")
    for other in ("rel-decode-2-decode-7d9c5b8f4-x2x4z", "other-rel-decode-7d9c5b8f4-x2x4z", "rel-prefill-7d9c-x2x4z"):
        assert not re.fullmatch(pattern, other)


def test_the_ratio_is_held_from_both_sides() -> None:
    blocks = {
        "prefill": {"provider": "keda", "minReplicas": 2, "maxReplicas": 8, "tokensPerSecond": 9000},
        "decode": {"provider": "keda", "minReplicas": 2, "maxReplicas": 8},
        "ratio": {"min": 0.5, "max": 2},
        **KEDA,
    }
    planned = plan(autoscaling=blocks)
    held = {role: spec_of(planned, role)["triggers"][1] for role in ("prefill", "decode")}
    assert all(each["type"] == "kubernetes-workload" for each in held.values())
    assert held["prefill"]["metadata"] == {  # a prefill Pod for every second decode Pod
        "podSelector": "app.kubernetes.io/instance=rel,app.kubernetes.io/component=decode",
        "value": "2",
    }
    assert held["decode"]["metadata"] == {
        "podSelector": "app.kubernetes.io/instance=rel,app.kubernetes.io/component=prefill",
        "value": "2",
    }


# --- the number of Pods -----------------------------------------------------------------------------------------------


def test_who_is_scaled_has_no_count_in_its_manifest_and_its_strategy_does_not_follow_the_load() -> None:
    found = workload(plan(autoscaling=scaled()), "decode")
    assert "replicas" not in found.object.manifest["spec"]
    assert (found.replicas, found.floor, found.most) == (2, 2, 8)
    assert found.counted["spec"]["replicas"] == 2
    other = workload(plan(autoscaling=scaled()), "prefill")
    assert (other.object.manifest["spec"]["replicas"], other.is_scaled) == (4, False)


def test_time_is_allowed_for_as_many_pods_as_there_may_be() -> None:
    few, many = (workload(plan(autoscaling=scaled(maxReplicas=most)), "decode") for most in (4, 8))
    each = few.ready_seconds + few.leave_seconds
    assert many.timeout_seconds - few.timeout_seconds == 4 * each


@pytest.mark.parametrize(
    ("live", "want"),
    [
        pytest.param(None, 2, id="nothing there: the floor"),
        pytest.param(5, 5, id="as it is"),
        pytest.param(1, 2, id="brought to the floor"),
        pytest.param(9, 8, id="brought to the ceiling"),
    ],
)
def test_the_live_count_stays(live: int | None, want: int) -> None:
    facts = EMPTY_CLUSTER
    if live is not None:
        there = WorkloadFacts(name="rel-decode", role="decode", entry=None, node=None, replicas=live)
        facts = replace(EMPTY_CLUSTER, workloads={"rel-decode": there})
    assert workload(plan(facts, autoscaling=scaled()), "decode").replicas == want


@pytest.mark.parametrize(
    ("live", "state", "want"),
    [
        pytest.param(5, StateFacts(topologies=()), 5, id="it runs, and the state was emptied"),
        pytest.param(1, StateFacts(topologies=()), 2, id="and never below the floor"),
        pytest.param(5, StateFacts(topologies=(), workloads=frozenset({"rel-prefill"})), 5, id="or an old one"),
        pytest.param(5, StateFacts(topologies=(), workloads=frozenset({"rel-decode"})), None, id="the engine knows it"),
        pytest.param(5, StateFacts(unknown="silent"), None, id="whether it does is not known"),
        pytest.param(None, StateFacts(topologies=()), None, id="nothing runs: the scaler brings it"),
    ],
)
def test_what_the_engine_does_not_know_is_taken_over_with_its_number(
    live: int | None, state: StateFacts, want: int | None
) -> None:
    facts = EMPTY_CLUSTER
    if live is not None:
        there = WorkloadFacts(name="rel-decode", role="decode", entry=None, node=None, replicas=live)
        facts = replace(EMPTY_CLUSTER, workloads={"rel-decode": there})
    found = workload(plan_stack(accepted(autoscaling=scaled()), facts, state), "decode")
    assert found.object.manifest["spec"].get("replicas") == want
    assert found.is_scaled


@pytest.mark.parametrize(("live", "provider", "is_refused"), [(0, "hpa", True), (1, "hpa", False), (0, "keda", False)])
def test_a_role_at_0_that_does_not_come_back_by_itself_is_refused(
    live: int, provider: str, *, is_refused: bool
) -> None:
    there = WorkloadFacts(name="rel-decode", role="decode", entry=None, node=None, replicas=live)
    facts = replace(EMPTY_CLUSTER, workloads={"rel-decode": there})
    keda = KEDA if provider == "keda" else {}
    told: tuple[Problem, ...] = ()
    try:
        plan(facts, autoscaling={**scaled(provider=provider), **keda})
    except FactsError as error:
        told = error.problems
    assert [each.key for each in told] == ["autoscaling.decode.provider"] * is_refused
    assert all("kubectl -n ns scale deployment/rel-decode --replicas=2" in each.fix for each in told)


@pytest.mark.parametrize(("provider", "kind"), [("hpa", "horizontalpodautoscaler"), ("keda", "scaledobject")])
def test_a_roll_out_knows_which_scaler_to_look_at(provider: str, kind: str) -> None:
    keda = KEDA if provider == "keda" else {}
    roll_outs = plan(autoscaling={**scaled(provider=provider), **keda}).roll_outs
    assert (roll_outs["rel-decode"].floor, roll_outs["rel-decode"].scaler) == (2, f"{kind} rel-decode")
    assert (roll_outs["rel-prefill"].floor, roll_outs["rel-prefill"].scaler) == (None, "")


def test_the_budget_counts_the_ceiling_whatever_runs() -> None:
    [line] = [each for each in plan(autoscaling=scaled()).budget.lines if each.part == "decode"]
    assert (line.pods, line.least) == (8, 2)
    assert str(line).startswith("decode: 2 to 8 x ")


SHARES = st.floats(min_value=0.01, max_value=1)


@settings(max_examples=200, deadline=None)
@given(share=SHARES, slots=st.integers(1, 5000))
def test_no_target_is_above_the_slots(share: float, slots: int) -> None:
    target = target_of("decode", RoleScalingConfig(provider="hpa", occupancy=share), slots)
    assert target is not None
    assert 0 < target <= slots
    assert aibrix_target(target) <= slots


@settings(max_examples=200, deadline=None)
@given(floor=st.integers(1, 50), more=st.integers(0, 50), live=st.none() | st.integers(0, 200))
def test_a_scaled_role_is_always_between_its_bounds(floor: int, more: int, live: int | None) -> None:
    found = expected_pods("keda", (floor, floor + more), live=live, configured=7)
    assert floor <= found <= floor + more
    assert live is None or not floor <= live <= floor + more or found == live
    assert expected_pods("none", (floor, floor), live=live, configured=7) == 7


@pytest.mark.parametrize(("number", "want"), [(2.4, "2400m"), (19, "19"), (0.0001, "1m"), (13500.0, "13500")])
def test_numbers_are_written_as_kubernetes_gives_them_back(number: float, want: str) -> None:
    assert quantity(number) == want
