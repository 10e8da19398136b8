"""The guard of devices: which change finds what it needs, which does not, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.builders import merged
from tests.devices import claim, devices, resource_slice
from tests.unit.guards.changing import BASE, IMAGE, NPU, cordoned, spares, tainted, warned, weigh
from tests.unit.guards.scene import claim as volume_claim
from tests.unit.impact.world import first_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from stack.facts import Surroundings
    from tests.unit.guards.changing import Blocks
    from tests.unit.impact.world import World

NEITHER_MORE_NOR_ALL: Blocks = {
    "modelserver": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}},
}
RECREATE: Blocks = {"modelserver": {"strategy": {"type": "Recreate"}}}
WHY = "devices for the Pods that this change adds: "


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
    assert weighed.refusals == ()
    assert warned(weighed) == []


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


@pytest.mark.parametrize("strategy", [NEITHER_MORE_NOR_ALL, RECREATE], ids=["one fewer", "Recreate"])
@pytest.mark.parametrize(("published", "fits"), [(4, True), (3, False)])
def test_a_role_that_grows_and_restarts_needs_devices_that_no_pod_gives_back(
    strategy: Blocks, published: int, *, fits: bool
) -> None:
    """Those of the old Pods are taken again by as many new ones."""
    weighed = weigh(
        merged(BASE, strategy), merged(IMAGE, {"modelserver": {"replicas": {"decode": 3}}}), published=published
    )
    assert (weighed.refusals == ()) is fits
    if not fits:
        [letter] = weighed.refusals
        assert letter.why.startswith("devices for when this change is through, its Pods: cannot fit")


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
    [letter] = warned(weighed)
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


# --- the end ----------------------------------------------------------------------------------------------------------

TWO_EACH: Blocks = merged(BASE, {"modelserver": {"replicas": {"prefill": 2, "decode": 2}}})
THROUGH = "devices for when this change is through, its Pods: "


@pytest.mark.parametrize("gone", [cordoned, tainted], ids=["cordoned", "tainted"])
@pytest.mark.parametrize("strategy", [{}, NEITHER_MORE_NOR_ALL, RECREATE], ids=["one more", "one fewer", "Recreate"])
def test_where_old_pods_run_new_ones_may_have_no_place(
    strategy: Blocks, gone: Callable[[Surroundings], Surroundings]
) -> None:
    """No way of exchanging them helps, so none is recommended."""
    weighed = weigh(merged(TWO_EACH, strategy), IMAGE, published=4, elsewhere={"n2": 0}, seen=gone)
    [letter] = weighed.refusals
    assert letter.key == "devices"
    assert letter.why.startswith(f"{THROUGH}cannot fit")
    assert "maxSurge" not in letter.fix
    assert "bring back nodes and devices" in letter.fix


@pytest.mark.parametrize(("elsewhere", "fits"), [(4, True), (2, False)])
def test_spares_for_one_pod_more_have_to_be_enough_for_all_in_the_end(elsewhere: int, *, fits: bool) -> None:
    weighed = weigh(TWO_EACH, IMAGE, published=4, elsewhere={"n2": elsewhere}, seen=cordoned)
    assert (weighed.refusals == ()) is fits
    assert spares(weighed)["prefill"] == "free", "which is of the Pods that come first"


def test_pods_that_stay_on_a_cordoned_node_need_no_other_place() -> None:
    """Two of decode leave and two stay where no new one may go; the new one of prefill has a place of its own."""
    before = merged(BASE, {"modelserver": {"replicas": {"prefill": 1, "decode": 4}}})
    change = {"modelserver": {"extraServeEnv": {"prefill": {"A": "1"}}, "replicas": {"decode": 2}}}
    assert weigh(before, change, published=5, elsewhere={"n2": 1}, seen=cordoned).refusals == ()
    assert weigh(before, change, published=5, elsewhere={"n2": 0}, seen=cordoned).refusals


def test_a_volume_that_is_reached_from_nodes_without_devices_only_is_refused() -> None:
    def stored(surroundings: Surroundings) -> Surroundings:
        claims, volumes = {}, {}
        for name, at in (("here", "n1"), ("there", "n2")):
            found = volume_claim(name, modes=("ReadWriteMany",))
            claims[name] = merged(found, {"spec": {"volumeName": f"of-{name}"}})
            term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [at]}]}
            affinity = {"required": {"nodeSelectorTerms": [term]}}
            volumes[f"of-{name}"] = {"metadata": {"name": f"of-{name}"}, "spec": {"nodeAffinity": affinity}}
        return replace(surroundings, volume_claims=claims, volumes=volumes)

    def model(name: str) -> Blocks:
        return {"storage": {"model": {"kind": "existingClaim", "existingClaim": name}}}

    before = merged(merged(TWO_EACH, NEITHER_MORE_NOR_ALL), model("here"))
    [letter] = weigh(before, model("there"), published=9, elsewhere={"n2": 0}, seen=stored).refusals
    assert letter.why.startswith(f"{THROUGH}cannot fit")
    assert weigh(before, model("there"), published=9, elsewhere={"n2": 4}, seen=stored).refusals == ()


def test_a_claim_template_that_was_made_anew_under_its_name_counts_as_it_is() -> None:
    before = merged(
        merged(TWO_EACH, NEITHER_MORE_NOR_ALL), {"devices": {"claimTemplate": None, "claimTemplateName": "mine"}}
    )
    request = {"name": "npu", "exactly": {"deviceClassName": NPU, "count": 4}}
    template = {"metadata": {"name": "mine"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    weighed = weigh(before, IMAGE, published=4, seen=lambda seen: replace(seen, claim_templates={"mine": template}))
    [letter] = weighed.refusals
    assert letter.why.startswith(f"{THROUGH}cannot fit")


@pytest.mark.parametrize(("prefill", "fits"), [(4, True), (5, False)])
def test_a_role_that_grows_and_restarts_has_the_devices_of_one_that_shrinks(prefill: int, *, fits: bool) -> None:
    before = merged(NEITHER_MORE_NOR_ALL, {"modelserver": {"replicas": {"prefill": 2, "decode": 4}}})
    change = {"modelserver": {"extraServeEnv": {"prefill": {"A": "1"}}, "replicas": {"prefill": prefill, "decode": 2}}}
    assert (weigh(merged(BASE, before), change, published=6).refusals == ()) is fits


def test_what_is_not_known_of_the_end_is_a_warning_also_where_nothing_comes_beside() -> None:
    bound = merged(volume_claim("model-store", modes=("ReadWriteMany",)), {"spec": {"volumeName": "unread"}})
    weighed = weigh(
        merged(TWO_EACH, NEITHER_MORE_NOR_ALL),
        IMAGE,
        published=4,
        seen=lambda seen: replace(seen, volume_claims={"model-store": bound}, volumes={}),
    )
    assert weighed.refusals == ()
    [letter] = warned(weighed)
    assert letter.why.startswith(f"{THROUGH}not known: prefill: the volume of claim model-store could not be read")


def test_taking_back_what_one_role_was_through_with_is_not_refused_for_devices() -> None:
    """Prefill restarts to the template it had, decode waits with its first new Pod."""

    def half_way(world: World) -> None:
        new = first_plan(**merged(BASE, IMAGE))
        world.roll(new, "rel-prefill", taken=1, given=1)
        world.roll(new, "rel-decode", taken=0, given=1, placed=False, ready=False)

    weighed = weigh(BASE, {}, published=3, meanwhile=half_way)
    assert [part.happens.value for part in weighed.impact.parts][:2] == ["restarts", "goes back"]
    assert weighed.refusals == ()
    [letter] = warned(weighed)
    assert letter.why.startswith(f"{WHY}cannot fit")
    other = {"modelserver": {"extraServeEnv": {"prefill": {"A": "1"}}}}
    assert weigh(BASE, other, published=3, meanwhile=half_way).refusals, "what was never there is no way back"


# --- step by step -----------------------------------------------------------------------------------------------------

TWO: Blocks = merged(BASE, {"modelserver": {"replicas": {"prefill": 0, "decode": 0, "aggregated": 2}}})
LARGER: Blocks = {
    "modelserver": {"serveArgs": {"common": {"tensor-parallel-size": 2}}},
    "devices": {"claimTemplate": {"requests": [{"name": "npu", "deviceClassName": NPU, "count": 2}]}},
}
"""Two NPUs for a Pod."""
TOGETHER: Blocks = {
    "devices": {
        "claimTemplate": {"constraints": [{"requests": ["npu"], "matchAttribute": "resource.kubernetes.io/numaNode"}]}
    }
}
"""Both devices of a Pod on one NUMA node."""


def held(surroundings: Surroundings, *numa_nodes: int, by: list[list[int]]) -> Surroundings:
    """So many NPUs on each NUMA node of n1, and which of them each Pod of the stack holds."""
    holders = [
        pod["metadata"]["name"] for pod in surroundings.release_pods or () if "epp" not in pod["metadata"]["name"]
    ]
    claims = [
        claim(f"claim-{name}", [(NPU, "n1", f"npu-{index}") for index in indices], name)
        for name, indices in zip(holders, by, strict=True)
    ]
    return replace(
        surroundings, slices=[resource_slice(NPU, devices("npu", *numa_nodes), on="n1")], resource_claims=claims
    )


def test_a_surge_that_its_second_step_would_end_is_refused() -> None:
    """Two hold one each of 4. The first that asks for two finds them; the second one finds one, whoever has left."""
    [letter] = weigh(TWO, LARGER, published=4).refusals
    assert "devices for the Pods of a step of this change: cannot fit" in letter.why
    assert "step 2 of 2 does not come to its end: with 1 old Pod gone, whichever it is" in letter.why
    assert letter.fix.startswith("Set maxSurge: 0 and maxUnavailable: 1")
    assert weigh(TWO, LARGER, published=5).refusals == ()


def test_a_pod_less_at_a_time_has_both_steps() -> None:
    weighed = weigh(merged(TWO, NEITHER_MORE_NOR_ALL), LARGER, published=4)
    assert weighed.refusals == ()
    assert warned(weighed) == []


def test_a_first_step_that_no_pod_that_leaves_makes_possible_is_refused() -> None:
    """Each lies across both NUMA nodes: in the end there is a whole one for each, and never one before."""
    before = merged(merged(TWO, NEITHER_MORE_NOR_ALL), LARGER)
    [letter] = weigh(before, TOGETHER, published=4, seen=lambda seen: held(seen, 2, 2, by=[[0, 2], [1, 3]])).refusals
    assert letter.key == "devices"
    assert "step 1 of 2 does not come to its end: with 1 old Pod gone, whichever it is" in letter.why
    weighed = weigh(before, TOGETHER, published=4, seen=lambda seen: held(seen, 2, 2, by=[[0, 1], [2, 3]]))
    assert weighed.refusals == ()
    assert warned(weighed) == []


def test_a_first_step_that_some_pods_make_possible_is_warned_of() -> None:
    """One has a NUMA node to itself, two lie across the others."""
    before = merged(merged(TWO, NEITHER_MORE_NOR_ALL), merged(LARGER, {"modelserver": {"replicas": {"aggregated": 3}}}))
    weighed = weigh(before, TOGETHER, published=6, seen=lambda seen: held(seen, 2, 2, 2, by=[[0, 2], [1, 3], [4, 5]]))
    assert weighed.refusals == ()
    [letter] = warned(weighed)
    assert "step 1 of 3 may not come to its end: with 1 old Pod gone, depending on which it is" in letter.why


def test_a_later_step_that_nothing_makes_possible_counts_more_than_one_before_that_depends() -> None:
    """Four hold halves of two NUMA nodes, and two more are free. The third needs both halves of one, the fourth all."""
    four = merged(TWO, {"modelserver": {"replicas": {"aggregated": 4}}})
    halves = [[0], [1], [4], [5]]
    [letter] = weigh(
        four, merged(LARGER, TOGETHER), published=8, seen=lambda seen: held(seen, 2, 2, 2, 2, by=halves)
    ).refusals
    assert "step 4 of 4 does not come to its end: with 3 old Pods gone, whichever they are" in letter.why
    weighed = weigh(
        merged(four, NEITHER_MORE_NOR_ALL),
        merged(LARGER, TOGETHER),
        published=8,
        seen=lambda seen: held(seen, 2, 2, 2, 2, by=halves),
    )
    assert weighed.refusals == ()
    assert warned(weighed) == []
