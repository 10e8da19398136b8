"""The guard of devices: which change finds what it needs, which does not, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from stack import labels
from stack.plan import plan_stack
from stack.weigh import Weighed, weigh_change
from tests.builders import accepted, merged
from tests.devices import claim, device_class, devices, node, resource_slice
from tests.unit.impact.world import World, first_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from stack.facts import Surroundings

Blocks = dict[str, Any]
NPU = "npu.rebellions.ai"
BASE: Blocks = {
    "recipe": "qwen3-0.6b",
    "modelserver": {
        "replicas": {"prefill": 1, "decode": 2},
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
    },
    "devices": {
        "rdma": {"enabled": False},
        "claimTemplate": {"requests": [{"name": "npu", "deviceClassName": NPU, "count": 1}]},
    },
    "guards": {"nodes": "off", "prerequisites": "off", "names": "off", "volumes": "off", "serial": "off"},
}
IMAGE: Blocks = {"modelserver": {"image": {"tag": "next"}}}
NEITHER_MORE_NOR_ALL: Blocks = {
    "modelserver": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}},
}
WHY = "devices for the Pods that this change adds: "


def around(world: World, surroundings: Surroundings, published: int) -> Surroundings:
    """One node with so many NPUs; every Pod that is on it holds one."""
    holders = [
        pod["metadata"]["name"] for pod in world.pods if pod["spec"] and labels.ROLE in pod["metadata"]["labels"]
    ]
    pods = [merged(pod, {"spec": {"containers": [{"name": "main"}]}}) for pod in world.pods]
    return replace(
        surroundings,
        nodes=[node("n1")],
        pods=pods,
        release_pods=pods,
        slices=[resource_slice(NPU, devices("npu", published, productName="one"), on="n1")],
        device_classes={NPU: device_class(NPU, f"device.driver == '{NPU}'")},
        resource_claims=[
            claim(f"claim-{index}", [(NPU, "n1", f"npu-{index}")], name) for index, name in enumerate(holders)
        ],
        server_version="v1.36.3",
    )


def weigh(
    before: Blocks,
    after: Blocks,
    *,
    published: int,
    meanwhile: Callable[[World], object] = lambda _: None,
    seen: Callable[[Surroundings], Surroundings] = lambda surroundings: surroundings,
) -> Weighed:
    """Weigh a change of a stack that runs on a node with so many NPUs."""
    world = World.running(first_plan(**before))
    meanwhile(world)
    wanted = accepted(**merged(before, after))
    plan = plan_stack(wanted, world.facts())
    return weigh_change(wanted.config, plan, seen(around(world, world.around(), published)), world.trial(plan))


def spares(weighed: Weighed) -> dict[str, str | None]:
    return {part.part: part.spare for part in weighed.impact.parts}


def test_a_restart_of_both_roles_needs_one_pods_devices_of_each() -> None:
    """Three Pods hold 3 and each role adds one: 5 are enough for both, 4 for one, 3 for none."""
    weighed = weigh(BASE, IMAGE, published=5)
    assert weighed.refusals == weighed.warnings == ()
    assert spares(weighed) == {"prefill": "free", "decode": "free", "epp": None}
    for published in (4, 3):
        weighed = weigh(BASE, IMAGE, published=published)
        [letter] = weighed.refusals
        assert letter.key == "modelserver.strategy.rollingUpdate"
        assert letter.value == "maxSurge 1, maxUnavailable 0"
        assert letter.why.startswith(f"{WHY}cannot fit")
        assert letter.fix.startswith("Set maxSurge: 0 and maxUnavailable: 1")
        assert letter.fix.endswith("`guards.devices: warn` lets it pass")
        assert spares(weighed) == {"prefill": "not free", "decode": "not free", "epp": None}


def test_what_each_needs_and_finds_is_told() -> None:
    [letter] = weigh(BASE, IMAGE, published=3).refusals
    assert f"prefill: 1 Pod with 1 {NPU} each, 0 fit; no node has anything for it free" in letter.why
    assert f"decode: 1 Pod with 1 {NPU} each, 0 fit; no node has anything for it free" in letter.why


def test_without_surge_nothing_is_needed() -> None:
    weighed = weigh(merged(BASE, NEITHER_MORE_NOR_ALL), IMAGE, published=3)
    assert weighed.refusals == weighed.warnings == ()


@pytest.mark.parametrize(("product", "fits"), [("one", True), ("other", False)])
def test_a_restart_that_asks_for_devices_that_there_are_not_is_refused_in_any_way(product: str, *, fits: bool) -> None:
    selector = f"device.attributes['{NPU}'].productName == '{product}'"
    request = {"name": "npu", "deviceClassName": NPU, "selectors": [selector]}
    weighed = weigh(
        merged(BASE, NEITHER_MORE_NOR_ALL), {"devices": {"claimTemplate": {"requests": [request]}}}, published=3
    )
    assert (weighed.refusals == ()) is fits
    if not fits:
        [letter] = weighed.refusals
        assert letter.key == "devices"
        assert letter.why.startswith("devices for when this change is through, its Pods: cannot fit")


@pytest.mark.parametrize(("published", "fits"), [(4, True), (3, False)])
def test_a_role_that_grows_needs_devices_for_its_new_pods(published: int, *, fits: bool) -> None:
    weighed = weigh(BASE, {"modelserver": {"replicas": {"decode": 3}}}, published=published)
    assert (weighed.refusals == ()) is fits
    if not fits:
        [letter] = weighed.refusals
        assert (letter.key, letter.value) == ("modelserver.replicas", "decode 3")


@pytest.mark.parametrize(("published", "fits"), [(3, True), (2, False)])
def test_a_mode_switch_has_the_devices_of_all_that_leaves(published: int, *, fits: bool) -> None:
    """Three entries where three Pods were; with one device fewer one of them finds none."""
    places = [{"role": role, "node": "n1"} for role in ("prefill", "decode", "decode")]
    placed = {"modelserver": {"replicas": {"prefill": 0, "decode": 0}, "nodePlacement": places}}
    weighed = weigh(BASE, placed, published=published)
    assert (weighed.refusals == ()) is fits
    if not fits:
        assert [letter.key for letter in weighed.refusals] == ["modelserver.nodePlacement"]


def test_one_role_may_wait_for_the_devices_of_another_that_shrinks() -> None:
    """Which of its Pods leave is for Kubernetes to choose, so it is no proof."""
    weighed = weigh(BASE, {"modelserver": {"replicas": {"prefill": 2, "decode": 1}}}, published=3)
    assert weighed.refusals == ()
    [letter] = weighed.warnings
    assert "they fit once Pods of decode have left" in letter.why
    assert weigh(BASE, {"modelserver": {"replicas": {"prefill": 4, "decode": 1}}}, published=3).refusals


def test_a_role_at_0_gives_its_devices_before_another_grows() -> None:
    weighed = weigh(BASE, {"modelserver": {"replicas": {"prefill": 0, "aggregated": 0, "decode": 3}}}, published=3)
    assert weighed.refusals == weighed.warnings == ()


def test_a_pod_more_and_a_pod_fewer_at_a_time_needs_none_beside() -> None:
    both = {"modelserver": {"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}}}
    weighed = weigh(merged(BASE, both), IMAGE, published=3)
    assert weighed.refusals == ()
    [letter] = weighed.warnings
    assert "they fit once Pods of decode and prefill have left" in letter.why


def test_a_roll_out_that_hangs_with_its_first_new_pod_goes_back_without_any_device() -> None:
    """All of the earlier template are still there."""
    weighed = weigh(
        BASE,
        {},
        published=3,
        meanwhile=lambda world: world.roll(
            first_plan(**merged(BASE, IMAGE)), "rel-decode", taken=0, given=1, placed=False, ready=False
        ),
    )
    assert weighed.refusals == weighed.warnings == ()


def test_going_back_is_never_refused_for_devices() -> None:
    """Half-way through one is exchanged, and for the way back there is none to spare."""
    weighed = weigh(
        BASE,
        {},
        published=3,
        meanwhile=lambda world: world.roll(first_plan(**merged(BASE, IMAGE)), "rel-decode", taken=1, given=1),
    )
    assert weighed.refusals == ()
    [letter] = weighed.warnings
    assert letter.why.startswith(f"{WHY}cannot fit")


def test_a_change_that_makes_no_pod_is_not_judged() -> None:
    assert weigh(BASE, {}, published=0).refusals == ()
    assert weigh(BASE, {"modelserver": {"replicas": {"decode": 1}}}, published=0).refusals == ()


@pytest.mark.parametrize("force", ["warn", "off"])
def test_a_guard_that_is_not_enforced_lets_it_pass(force: str) -> None:
    weighed = weigh(merged(BASE, {"guards": {"devices": force}}), IMAGE, published=3)
    assert weighed.refusals == ()
    assert len(weighed.warnings) == (force == "warn")


@pytest.mark.parametrize("missing", ["slices", "resource_claims", "nodes", "pods", "device_classes"])
def test_what_could_not_be_read_is_never_fine(missing: str) -> None:
    weighed = weigh(BASE, IMAGE, published=20, seen=lambda surroundings: replace(surroundings, **{missing: None}))
    assert weighed.refusals == ()
    [letter] = weighed.warnings
    assert letter.why.startswith(f"{WHY}not known")
    assert spares(weighed)["decode"] == "not known to be free"
