"""What a change does to a role that is scaled, and what of a scaler the guards refuse."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cli.agreement import compare
from stack import labels
from stack.facts import NOT_TRIED, NOTHING_AROUND, TrialFacts
from stack.guards.references import key_of_count, key_of_counts
from stack.guards.scaling import guard_ceilings
from stack.guards.wanted import wanted
from stack.impact import Happening
from stack.report import EngineStep
from tests.builders import merged
from tests.devices import devices, node, resource_slice
from tests.unit.guards.changing import BASE, weigh
from tests.unit.guards.scene import NIC, NPU, scene
from tests.unit.guards.test_guard_quota import quota, weighed
from tests.unit.impact.world import World, change, keys, part, replica_set, stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.guards.scene import Scene

SCALED: dict[str, Any] = {"autoscaling": {"decode": {"provider": "hpa", "minReplicas": 2, "maxReplicas": 8}}}
FOUR: dict[str, Any] = {"modelserver": {"replicas": {"prefill": 4, "decode": 4}}}


def at(count: int) -> Callable[[World], None]:
    """The scaler has brought decode to so many Pods."""

    def scale(world: World) -> None:
        name = "rel-decode"
        world.deployments[name]["spec"]["replicas"] = count
        for there in (world.replica_sets, world.pods):
            there[:] = [each for each in there if not each["metadata"]["name"].startswith(name)]
        world.give(name, world.deployments[name]["spec"]["template"], count)

    return scale


def test_turning_a_scaler_on_or_off_touches_no_pod_that_stays() -> None:
    on = change(FOUR, SCALED)
    assert part(on, "decode").happens is Happening.STAYS
    assert part(on, "decode").after == 4
    off = change(FOUR | SCALED, {"autoscaling": {"decode": {"provider": "none"}}}, meanwhile=at(6))
    assert part(off, "decode").happens is Happening.SCALES_DOWN
    assert keys(part(off, "decode").keys) == ["modelserver.replicas.decode: 6 -> 4"]


def test_a_restart_counts_the_pods_that_the_scaler_chose() -> None:
    found = part(
        change(FOUR | SCALED, {"modelserver": {"serveArgs": {"decode": {"seed": 7}}}}, meanwhile=at(6)), "decode"
    )
    assert (found.happens, found.before, found.after, found.new) == (Happening.RESTARTS, 6, 6, 6)


def test_a_live_count_outside_of_the_bounds_is_brought_between_them() -> None:
    found = part(
        change(FOUR, {"autoscaling": {"decode": {"provider": "hpa", "minReplicas": 1, "maxReplicas": 3}}}), "decode"
    )
    assert (found.happens, found.after) == (Happening.SCALES_DOWN, 3)
    assert keys(found.keys) == ["autoscaling.decode: 4 -> 3"]


def test_the_engine_has_nothing_to_do_where_the_scaler_has() -> None:
    few = {"decode": {"provider": "hpa", "minReplicas": 1, "maxReplicas": 3}}
    assert compare(change(FOUR, {"autoscaling": few}), ()) == (), "it is the scaler that takes a Pod"
    update = EngineStep(
        operation="update", kind="Deployment", namespace="ns", name="rel-decode", paths=("spec.replicas",)
    )
    [found] = compare(change(FOUR, SCALED), (update,))
    assert "its spec.replicas has to stay" in found.impact


def test_after_another_topology_a_role_returns_at_its_floor_and_it_is_said() -> None:
    found = change(FOUR | SCALED, {"modelserver": {"model": "other/model"}}, meanwhile=at(6))
    decode, prefill = part(found, "decode"), part(found, "prefill")
    assert (decode.before, decode.after) == (6, 2)
    assert "it returns at its floor of 2 (autoscaling.decode.minReplicas), and has 6 now" in decode.notes
    assert not [note for note in prefill.notes if "floor" in note]


# --- guards -----------------------------------------------------------------------------------------------------------


def hpa(name: str = "theirs", *, target: str = "rel-decode", **meta: Any) -> dict[str, Any]:
    aim = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    return {"metadata": {"name": name, "namespace": "ns", **meta}, "spec": {"scaleTargetRef": aim}}


def owned_by(kind: str, name: str) -> dict[str, Any]:
    return {"ownerReferences": [{"kind": kind, "name": name, "controller": True}]}


@pytest.mark.parametrize(
    ("live", "want"),
    [
        pytest.param(hpa(), "delete horizontalpodautoscaler theirs", id="by hand"),
        pytest.param(hpa("rel-decode"), "delete horizontalpodautoscaler rel-decode", id="by hand under our name"),
        pytest.param(
            hpa("keda-hpa-x", **owned_by("ScaledObject", "x")), "delete scaledobject x", id="somebody's ScaledObject"
        ),
        pytest.param(hpa("rel-decode", labels=labels.common_labels("rel", "decode")), None, id="ours"),
        pytest.param(hpa("keda-hpa-rel-decode", **owned_by("ScaledObject", "rel-decode")), None, id="ours, by KEDA"),
    ],
)
def test_a_second_scaler_of_a_role_is_refused(live: dict[str, Any], want: str | None) -> None:
    found = scene(**SCALED).but(scalers=[live]).findings()
    if want is None:
        assert found == ()
    else:
        [only] = found
        assert only.is_refusal
        assert only.problem.key == "autoscaling.decode.provider"
        assert want in only.problem.fix


def test_a_scaler_of_a_role_that_the_stack_does_not_scale_is_warned_of() -> None:
    [found] = scene(**SCALED).but(scalers=[hpa(target="rel-prefill")]).findings()
    assert (found.is_refusal, found.problem.key) == (False, "autoscaling.prefill.provider")
    assert "each change of it resets the number to 4" in found.problem.why
    assert scene().but(scalers=[hpa(target="of-others")]).findings() == ()
    off = scene().but(scalers=[hpa("rel-decode", labels=labels.common_labels("rel", "decode"))])
    assert off.findings() == (), "our own is there until this update takes it away"
    placed = scene(modelserver={"nodePlacement": [{"role": "decode", "node": "npu-0"}]})
    [found] = placed.but(scalers=[hpa(target="rel-decode-0")]).findings()
    assert (found.is_refusal, found.problem.key) == (False, "modelserver.nodePlacement[0]")


def test_scalers_are_asked_for_by_guards_that_look_at_them() -> None:
    cases: tuple[tuple[dict[str, Any], bool, bool], ...] = (
        ({}, True, False),
        (SCALED, True, True),
        ({"guards": {"names": "off"}}, False, False),
        (SCALED | {"guards": {"names": "off"}}, True, True),
        (SCALED | {"guards": {"names": "off", "devices": "off"}}, False, False),
    )
    for blocks, want_scalers, want_slices in cases:
        whole = scene(**blocks)
        asked = wanted(whole.config, whole.plan, NOTHING_AROUND, frozenset())
        assert asked.scalers is want_scalers, blocks
        assert asked.slices is want_slices, "a ceiling is judged also when no Pod starts"


def with_ceiling(most: int, nodes: int, *, tainted: bool = False) -> Scene:
    """Nodes with 8 NPUs and 4 NICs each, which is enough for two Pods each."""
    taints = {"taints": [{"key": "k", "effect": "NoSchedule"}]} if tainted else {}
    spec: dict[str, Any] = {"unschedulable": True, **taints} if tainted else {}
    return scene(
        modelserver={"replicas": {"prefill": 1, "decode": 1}},
        autoscaling={"decode": {"provider": "hpa", "maxReplicas": most}},
    ).but(
        scalers=[],
        nodes=[merged(node(f"n{index}", cpu="128", memory="1200Gi"), {"spec": spec}) for index in range(nodes)],
        slices=[
            resource_slice(driver, [{**each, **taints} for each in devices(driver[0], count)], on=f"n{index}")
            for index in range(nodes)
            for driver, count in ((NPU, 8), (NIC, 4))
        ],
    )


def after(before: Scene, whole: Scene) -> Scene:
    """What `before` made runs, and `whole` is to be applied."""
    running = [stored(each.counted) for each in before.plan.modelserver.workloads]
    live = [
        hpa("rel-decode", labels=labels.common_labels("rel", "decode"))
        | {"spec": scaler.object.manifest["spec"] | {"scaleTargetRef": {"kind": "Deployment", "name": scaler.workload}}}
        for scaler in before.plan.modelserver.scalers
    ]
    return whole.but(deployments=running, scalers=live)


def ceilings(whole: Scene) -> list[str]:
    """`refuses` or `warns`, and the key."""
    found = guard_ceilings(whole.config, whole.plan, whole.around, NOT_TRIED)
    return [f"{'refuses' if each.is_refusal else 'warns'} {each.problem.key}" for each in found]


REFUSED, WARNED = ["refuses autoscaling.decode.maxReplicas"], ["warns autoscaling.decode.maxReplicas"]


def test_a_ceiling_that_no_devices_exist_for_is_refused() -> None:
    assert ceilings(with_ceiling(3, nodes=2)) == [], "3 of decode and 1 of prefill take all there is"
    assert ceilings(with_ceiling(4, nodes=2)) == REFUSED


def test_what_takes_no_pods_for_now_exists_all_the_same() -> None:
    assert ceilings(with_ceiling(3, nodes=2, tainted=True)) == []
    assert ceilings(with_ceiling(4, nodes=2, tainted=True)) == REFUSED


@pytest.mark.parametrize(
    ("most_before", "want"),
    [
        pytest.param(4, WARNED, id="nothing changes, and a node has gone since"),
        pytest.param(6, WARNED, id="a ceiling that is lowered, and not enough"),
        pytest.param(3, REFUSED, id="a ceiling that is raised"),
    ],
)
def test_a_ceiling_is_refused_only_by_the_change_that_raises_it(most_before: int, want: list[str]) -> None:
    assert ceilings(after(with_ceiling(most_before, nodes=2), with_ceiling(4, nodes=2))) == want


def test_a_scaler_that_is_new_and_a_pod_that_needs_more_are_judged_like_a_ceiling_that_is_raised() -> None:
    whole, fixed = with_ceiling(4, nodes=2), scene(modelserver={"replicas": {"prefill": 1, "decode": 4}})
    assert ceilings(after(fixed, whole)) == REFUSED, "nothing scaled decode before"
    there = after(whole, whole)
    assert there.around.deployments is not None
    live = copy.deepcopy(list(there.around.deployments))
    [decode] = [each for each in live if each["metadata"]["name"] == "rel-decode"]
    decode["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    assert ceilings(there.but(deployments=live)) == REFUSED, "a Pod requests more"
    [planned] = [each for each in whole.plan.modelserver.workloads if each.role == "decode"]
    old = replica_set(decode | {"metadata": decode["metadata"] | {"uid": "u"}}, planned.counted["spec"]["template"], 0)
    tried = TrialFacts(results={"rel-decode": planned.counted})
    back = there.but(deployments=live, replica_sets=[old])
    [found] = guard_ceilings(back.config, back.plan, back.around, tried)
    assert not found.is_refusal, "it had that template before"


def test_without_knowing_what_was_there_a_ceiling_is_not_refused() -> None:
    assert ceilings(after(with_ceiling(3, nodes=2), with_ceiling(4, nodes=2)).but(scalers=None)) == WARNED


# --- keys -------------------------------------------------------------------------------------------------------------


def test_the_key_of_a_count_is_the_bound_that_a_scaler_is_at() -> None:
    whole = scene(autoscaling={"decode": {"provider": "hpa", "minReplicas": 2, "maxReplicas": 8}})
    workloads = {each.role: each for each in whole.plan.modelserver.workloads}
    assert key_of_count(workloads["prefill"]) == "modelserver.replicas.prefill"
    assert key_of_count(workloads["decode"]) == "autoscaling.decode.minReplicas"
    assert key_of_count(replace(workloads["decode"], replicas=5)) == "autoscaling.decode.maxReplicas"
    both = "modelserver.replicas.prefill, autoscaling.decode.minReplicas"
    assert key_of_counts(whole.plan, ["rel-decode", "rel-prefill", "rel-epp"]) == both
    assert key_of_counts(whole.plan, ["rel-prefill", "rel-epp"]) == "modelserver.replicas"


def test_guards_name_the_bound_of_a_scaled_role() -> None:
    small = [node("n", cpu="39", memory="1200Gi")]
    one = scene(modelserver={"replicas": {"prefill": 0, "decode": 2}}, **SCALED).but(nodes=small)
    assert "autoscaling.decode.minReplicas" in [each.problem.key for each in one.findings()], "nodes, each"
    large = [node("n", cpu="128", memory="1200Gi")]
    both = scene(modelserver={"replicas": {"prefill": 2, "decode": 2}}, **SCALED).but(nodes=large)
    want = "modelserver.replicas.prefill, autoscaling.decode.minReplicas"
    assert want in [each.problem.key for each in both.findings()], "nodes, together"
    before: dict[str, Any] = merged(BASE, {"autoscaling": {"decode": {"provider": "hpa", "maxReplicas": 4}}})
    more: dict[str, Any] = {"autoscaling": {"decode": {"minReplicas": 3}}}
    found = weigh(before, more, published=3, elsewhere={"n2": 0})
    assert "autoscaling.decode.minReplicas" in {each.key for each in found.refusals}, "devices"
    quotas = weighed(more, quota({"pods": "4"}, {"pods": "4"}), base=merged(before, {"guards": {"quota": "enforce"}}))
    assert want in {each.key for each in quotas.refusals}, "quota"
