"""What is foreseen in each situation: stuck roll-outs, another topology, facts that are missing, a first install."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest
from world import BEGAN, Blocks, World, accepted, change, first_plan, keys, part, pod, restarted

from stack import labels
from stack.facts import AnchorFacts, Surroundings, TrialFacts
from stack.impact import Happening, Impact, Method, Start, foresee
from stack.impact.timeline import Reading, simulate
from stack.plan import plan_stack
from stack.report import from_text, make_report, to_text
from tests.builders import EMPTY_CLUSTER, merged

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET, GRACE = 7200, 90
"""Start-up budget of the reference recipe, and the grace period of every role in the world, in seconds."""
SEEN = 600
"""Every Pod of the world took ten minutes to become Ready."""
NEWER: Blocks = {"modelserver": {"image": {"tag": "0.12.1"}}}
ONE_FEWER: Blocks = {"modelserver": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}}
RECREATE: Blocks = {"modelserver": {"strategy": {"type": "Recreate"}}}
SINGLE: Blocks = {"modelserver": {"replicas": {"prefill": 1, "decode": 1}}}
PLUGINS: Blocks = {
    "devices": {"npu": {"mode": "devicePlugin"}, "rdma": {"mode": "devicePlugin", "resourceName": "rdma/hca"}}
}
MORE_ARGUMENTS: Blocks = {"modelserver": {"extraServeArgs": {"decode": ["--chat-template=/models/x.jinja"]}}}
"""None that anything is compiled by."""
PLACED: Blocks = {
    "modelserver": {
        "nodePlacement": [
            {"role": "prefill", "node": "n1"},
            {"role": "decode", "node": "n1"},
            {"role": "decode", "node": "n2"},
            {"role": "decode", "node": "n3"},
        ]
    }
}


def both(*blocks: Blocks) -> Blocks:
    found: Blocks = {}
    for each in blocks:
        found = merged(found, each)
    return found


# --- an ordinary change -----------------------------------------------------------------------------------------------


def test_a_new_image_restarts_both_roles_for_one_reason() -> None:
    found = change({}, NEWER)
    assert restarted(found) == {"prefill", "decode"}
    for name in ("prefill", "decode"):
        role = part(found, name)
        assert (role.before, role.after, role.new, role.kept, role.leaving) == (4, 4, 4, 0, 4)
        assert (role.method, role.max_surge, role.max_unavailable) == (Method.ROLLING, 1, 0)
        assert role.extra_pods == 1
        assert role.capacity_percent == 100
        assert role.at_most_seconds == 4 * (BUDGET + GRACE)
        assert role.outage is None
        assert keys(role.keys) == ["modelserver.image.tag: 0.12.0 -> 0.12.1"]
        assert role.is_restart_certain
    assert part(found, "epp").happens is Happening.STAYS
    assert found.outage is None
    assert found.topology == ()
    assert found.accelerator == "NPU"


def test_devices_of_the_pods_that_come_first_are_counted() -> None:
    """4 NPUs and, in this configuration, 2 NICs of a device plugin each."""
    role = part(change(PLUGINS, NEWER), "decode")
    assert (role.extra_pods, role.accelerators, role.nics) == (1, 4, 2)


def test_devices_that_a_template_of_the_operators_decides_are_not_guessed() -> None:
    role = part(change({}, NEWER), "decode")
    assert (role.accelerators, role.nics) == (None, None)


def test_a_roll_out_that_adds_no_pod_needs_no_devices_even_by_a_template_of_the_operators() -> None:
    role = part(change(ONE_FEWER, NEWER), "decode")
    assert (role.extra_pods, role.accelerators, role.nics) == (0, 0, 0)
    assert role.capacity_percent == 75
    assert role.outage is None


@pytest.mark.parametrize(
    ("numbers", "want"),
    [
        pytest.param({"maxSurge": "25%", "maxUnavailable": "25%"}, (1, 1, 75, 2), id="a quarter of 4"),
        pytest.param({"maxSurge": "30%", "maxUnavailable": "30%"}, (2, 1, 75, 2), id="3 of 10: up and down"),
        pytest.param({"maxSurge": "100%", "maxUnavailable": 0}, (4, 0, 100, 1), id="as many again"),
        pytest.param({"maxSurge": 0, "maxUnavailable": "20%"}, (0, 1, 75, 4), id="less than one, so one"),
    ],
)
def test_percentages_are_told_as_pods(numbers: dict[str, Any], want: tuple[int, int, int, int]) -> None:
    role = part(change({}, both(NEWER, {"modelserver": {"strategy": {"rollingUpdate": numbers}}})), "decode")
    steps, rest = divmod(role.at_most_seconds, BUDGET + GRACE)
    assert rest == 0
    assert (role.max_surge, role.max_unavailable, role.capacity_percent, steps) == want


def test_the_strategy_that_is_written_together_with_a_change_is_the_one_that_counts() -> None:
    role = part(change({}, both(NEWER, RECREATE)), "prefill")
    assert (role.method, role.capacity_percent, role.extra_pods) == (Method.RECREATE, 0, 0)


def test_recreate_is_an_outage_of_a_drain_and_a_start() -> None:
    found = change({}, both(NEWER, RECREATE))
    assert found.outage is not None
    assert found.outage.at_most_seconds == GRACE + BUDGET
    assert found.outage.about_seconds == GRACE + SEEN
    assert found.outage.start is Start.WARM
    assert "Recreate" in found.outage.why
    assert part(found, "prefill").outage == found.outage
    prefill = part(found, "prefill")
    assert (prefill.extra_pods, prefill.freed) == (0, ()), "what the old Pods give back, the new ones take"


def test_recreate_waits_for_pods_that_leave_already_and_counts_on_their_devices() -> None:
    def one_leaves(world: World) -> None:
        [gone] = [each for each in world.pods if each["metadata"]["name"] == f"rel-decode-{hash_of('rel-decode')}-0"]
        gone["metadata"]["deletionTimestamp"] = BEGAN

    decode = part(change({}, both(NEWER, RECREATE), meanwhile=one_leaves), "decode")
    assert (decode.new, decode.leaving, decode.extra_pods) == (4, 3, 1)
    assert decode.freed == (f"uid-rel-decode-{hash_of('rel-decode')}-0",)


def test_recreate_with_more_pods_needs_devices_for_those_that_are_more() -> None:
    more = both(NEWER, RECREATE, {"modelserver": {"replicas": {"decode": 5}}})
    decode = part(change({}, more), "decode")
    assert (decode.method, decode.new, decode.leaving, decode.extra_pods) == (Method.RECREATE, 5, 4, 1)
    assert decode.freed == ()


def hash_of(name: str, **blocks: Any) -> str:
    world = World.running(first_plan(**blocks))
    [found] = [each for each in world.replica_sets if each["metadata"]["name"].startswith(f"{name}-")]
    return found["metadata"]["labels"]["pod-template-hash"]


@pytest.mark.parametrize(
    ("numbers", "want_percent", "want_outage"),
    [
        pytest.param({"maxSurge": 1, "maxUnavailable": 0}, 100, False, id="one more: none"),
        pytest.param({"maxSurge": 0, "maxUnavailable": 1}, 0, True, id="one fewer: it"),
        pytest.param({"maxSurge": 1, "maxUnavailable": 1}, 0, True, id="whatever the surge says"),
        pytest.param({"maxSurge": "25%", "maxUnavailable": "25%"}, 100, False, id="percentages, up to 1 and down to 0"),
    ],
)
def test_a_single_replica(numbers: dict[str, Any], want_percent: int, *, want_outage: bool) -> None:
    found = change(SINGLE, both(NEWER, {"modelserver": {"strategy": {"rollingUpdate": numbers}}}))
    role = part(found, "decode")
    assert role.capacity_percent == want_percent
    assert (role.outage is not None) == (found.outage is not None) == want_outage
    if role.outage is not None:
        assert role.outage.at_most_seconds == GRACE + BUDGET
        assert "maxUnavailable" in role.outage.why


def test_a_role_that_serves_nothing_anyway_has_no_outage_by_this_change() -> None:
    def broken(world: World) -> None:
        for each in world.pods:
            each["status"]["conditions"][0]["status"] = "False"
        for each in world.replica_sets:
            each["status"]["readyReplicas"] = 0

    found = change({}, both(NEWER, RECREATE), meanwhile=broken)
    assert found.outage is None
    assert part(found, "decode").capacity_percent == 0


def test_the_start_that_was_seen_is_the_quickest_of_its_pods() -> None:
    """One that became Ready anew later says nothing of its start."""

    def one_was_away(world: World) -> None:
        world.pods[0]["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-05T00:00:00Z"

    found = change({}, both(NEWER, RECREATE), meanwhile=one_was_away)
    assert found.outage is not None
    assert found.outage.about_seconds == GRACE + SEEN


def waited(world: World) -> None:
    """A day for devices, and ten minutes from then on."""
    for each in world.pods:
        each["metadata"]["creationTimestamp"] = "2025-12-31T00:00:00Z"


def was_away(world: World) -> None:
    """Not Ready for a while, days after it had started."""
    for each in world.pods:
        each["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-04T00:00:00Z"


def started_anew(world: World) -> None:
    for each in world.pods:
        each["status"]["containerStatuses"] = [{"name": "modelserver", "restartCount": 1}]


def sidecar_started_anew(world: World) -> None:
    for each in world.pods:
        each["status"]["initContainerStatuses"] = [{"name": "routing-proxy", "restartCount": 2}]


def never_started_anew(world: World) -> None:
    for each in world.pods:
        each["status"]["containerStatuses"] = [{"name": "modelserver", "restartCount": 0}]


@pytest.mark.parametrize(
    ("meanwhile", "want"),
    [
        pytest.param(waited, SEEN, id="what it waited for devices is not part of it"),
        pytest.param(never_started_anew, SEEN, id="once"),
        pytest.param(was_away, None, id="longer than a start may take: it was Ready before"),
        pytest.param(started_anew, None, id="a container started anew: Ready tells of that"),
        pytest.param(sidecar_started_anew, None, id="also one beside it"),
    ],
)
def test_what_is_no_start_is_not_told_as_one(meanwhile: Callable[[World], object], want: int | None) -> None:
    for after in (both(NEWER, RECREATE), PLACED):
        found = change({}, after, meanwhile=meanwhile)
        assert found.outage is not None
        assert found.outage.about_seconds == (None if want is None else GRACE + want)
        assert part(found, "decode").about_start_seconds == want
        assert part(found, "decode").workloads[0].about_start_seconds in {want, None}


def test_a_start_that_would_not_be_allowed_any_more_says_nothing_of_new_ones() -> None:
    """Ten minutes were seen, and the new probe gives five."""
    shorter: Blocks = {"modelserver": {"probes": {"startup": {"periodSeconds": 5, "failureThreshold": 60}}}}
    found = change({}, both(NEWER, RECREATE, shorter))
    assert found.outage is not None
    assert found.outage.about_seconds is None
    assert found.outage.at_most_seconds - GRACE < SEEN


# --- how long Pods may take to leave ----------------------------------------------------------------------------------


def give_time(seconds: int, *names: str) -> Callable[[World], object]:
    """Pods, all or those of some Deployments, were made when the grace period was another."""

    def of(world: World) -> None:
        for each in world.pods:
            if not names or each["metadata"]["name"].startswith(names):
                each["spec"]["terminationGracePeriodSeconds"] = seconds

    return of


def all_leave(world: World) -> None:
    """Of the roles."""
    for each in world.pods:
        if not each["metadata"]["name"].startswith("rel-epp-"):
            each["metadata"]["deletionTimestamp"] = BEGAN


def test_pods_have_the_time_to_leave_that_they_were_given_themselves() -> None:
    """The Deployment's present template may be of a change that never came to an end."""
    found = change({}, both(NEWER, RECREATE), meanwhile=give_time(600))
    assert part(found, "decode").drain_seconds == 600
    assert part(found, "decode").at_most_seconds == 600 + BUDGET
    assert found.outage is not None
    assert found.outage.at_most_seconds == 600 + BUDGET


def test_only_the_time_of_those_that_leave_counts() -> None:
    def half_way(world: World) -> None:
        stuck("rel-decode", taken=1, given=1, before=ONE_FEWER, ready=False)(world)
        for each in world.pods[-1:]:
            each["spec"]["terminationGracePeriodSeconds"] = 30

    assert part(change(ONE_FEWER, {}, meanwhile=half_way), "decode").drain_seconds == 30


def test_what_a_pod_was_told_when_it_was_told_to_go_counts_for_it() -> None:
    def told(world: World) -> None:
        all_leave(world)
        for each in world.pods:
            each["metadata"]["deletionGracePeriodSeconds"] = 20

    decode = part(change({}, both(NEWER, RECREATE), meanwhile=told), "decode")
    assert (decode.leaving, decode.at_most_seconds) == (0, 20 + BUDGET)


def test_without_pods_their_replica_sets_tell_what_time_they_have() -> None:
    def longer(world: World) -> None:
        for each in world.replica_sets:
            each["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 600

    found = change(
        {},
        NEWER,
        meanwhile=longer,
        around=lambda around: dataclasses.replace(around, release_pods=None, pods=None),
    )
    assert part(found, "decode").drain_seconds == 600


@pytest.mark.parametrize(
    ("after", "name", "want"),
    [
        pytest.param(both(NEWER, RECREATE), "decode", GRACE + BUDGET, id="Recreate"),
        pytest.param(PLACED, "decode", GRACE + BUDGET, id="another topology"),
        pytest.param({"modelserver": {"replicas": {"decode": 0}}}, "decode", GRACE, id="a role at 0"),
    ],
)
def test_pods_that_leave_already_are_waited_for(after: Blocks, name: str, want: int) -> None:
    found = change({}, after, meanwhile=all_leave)
    assert part(found, name).leaving == 0
    assert part(found, name).at_most_seconds == want
    timeline = simulate(found, Reading.LONGEST)
    assert timeline is not None
    [told] = [each for each in timeline.parts if each.part == name]
    assert told.now.draining == 4
    assert told.seconds == want


def test_in_another_topology_every_role_waits_for_the_slowest() -> None:
    found = change({}, PLACED, meanwhile=give_time(600, "rel-prefill"))
    assert {part(found, name).at_most_seconds for name in ("prefill", "decode")} == {600 + BUDGET}
    assert part(found, "decode").outage is not None
    assert part(found, "decode").outage == part(found, "prefill").outage == found.outage


# --- paused -----------------------------------------------------------------------------------------------------------


def pause(world: World) -> None:
    for live in world.deployments.values():
        live["spec"]["paused"] = True


def keep_paused(trial: TrialFacts) -> TrialFacts:
    """What `kubectl rollout pause` wrote is nobody else's, so the API server keeps it."""
    results = copy.deepcopy(dict(trial.results))
    for each in results.values():
        each["spec"]["paused"] = True
    return dataclasses.replace(trial, results=results)


@pytest.mark.parametrize("after", [NEWER, both(NEWER, RECREATE)], ids=["rolling", "Recreate"])
def test_a_paused_deployment_exchanges_nothing_until_somebody_ends_that(after: Blocks) -> None:
    found = change({}, after, meanwhile=pause, trial=keep_paused)
    for name in ("prefill", "decode"):
        role = part(found, name)
        assert (role.happens, role.capacity_percent, role.extra_pods) == (Happening.UNKNOWN, None, 0)
        assert role.reason is not None
        assert f"`kubectl -n ns rollout resume deployment/rel-{name}`" in role.reason
        assert keys(role.keys)[0] == "modelserver.image.tag: 0.12.0 -> 0.12.1", "what waits for it"
    assert any("rel-decode is paused" in why for why in found.unknown)


def test_without_a_dry_run_the_live_deployment_tells_that_it_is_paused() -> None:
    role = part(change({}, NEWER, meanwhile=pause, trial=lambda _: UNTRIED), "decode")
    assert role.happens is Happening.UNKNOWN
    assert "paused" in (role.reason or "")


def test_a_paused_endpoint_picker_is_not_exchanged_either() -> None:
    found = change({}, {"router": {"epp": {"drainSeconds": 600}}}, meanwhile=pause, trial=keep_paused)
    assert part(found, "epp").happens is Happening.UNKNOWN
    assert found.outage is None


def test_a_roll_out_that_is_paused_half_way_does_not_go_on() -> None:
    def half_way(world: World) -> None:
        roll_all(world, taken=1, given=2)
        pause(world)

    for after in (NEWER, {}):
        found = change({}, after, meanwhile=half_way, trial=keep_paused)
        assert part(found, "decode").happens is Happening.UNKNOWN


def test_a_paused_deployment_is_scaled_and_stays_and_goes_like_any_other() -> None:
    for after, want in (
        ({}, Happening.STAYS),
        ({"modelserver": {"replicas": {"decode": 5}}}, Happening.SCALES_UP),
        ({"modelserver": {"replicas": {"decode": 3}}}, Happening.SCALES_DOWN),
        ({"modelserver": {"replicas": {"decode": 0}}}, Happening.DELETED),
        (PLACED, Happening.RESTARTS),
    ):
        assert part(change({}, after, meanwhile=pause, trial=keep_paused), "decode").happens is want


def test_pods_that_are_missing_come_to_a_paused_deployment_too() -> None:
    def one_less(world: World) -> None:
        world.take("rel-decode", 1)
        pause(world)

    role = part(change({}, {}, meanwhile=one_less, trial=keep_paused), "decode")
    assert (role.happens, role.method, role.new) == (Happening.CONTINUES, Method.START, 1)


# --- scaling ----------------------------------------------------------------------------------------------------------


def test_more_pods_need_devices_and_touch_no_other() -> None:
    found = change(PLUGINS, {"modelserver": {"replicas": {"decode": 6}}})
    role = part(found, "decode")
    assert (role.happens, role.method) == (Happening.SCALES_UP, Method.START)
    assert (role.before, role.after, role.new, role.kept, role.leaving) == (4, 6, 2, 4, 0)
    assert (role.extra_pods, role.accelerators, role.nics) == (2, 8, 4)
    assert (role.capacity_percent, role.at_most_seconds) == (100, BUDGET)
    assert keys(role.keys) == ["modelserver.replicas.decode: 4 -> 6"]
    assert role.cache is not None
    assert role.cache.start is Start.WARM
    assert not found.restarts


def test_fewer_pods_leave() -> None:
    role = part(change({}, {"modelserver": {"replicas": {"decode": 3}}}), "decode")
    assert (role.happens, role.method) == (Happening.SCALES_DOWN, Method.LEAVE)
    assert (role.new, role.kept, role.leaving, role.extra_pods) == (0, 3, 1, 0)
    assert (role.capacity_percent, role.at_most_seconds, role.outage, role.cache) == (100, GRACE, None, None)


def test_more_pods_of_another_template_need_devices_for_both_reasons() -> None:
    """Two more, and one more while they are exchanged."""
    role = part(change({}, both(NEWER, {"modelserver": {"replicas": {"decode": 6}}})), "decode")
    assert (role.happens, role.before, role.after, role.new, role.leaving) == (Happening.RESTARTS, 4, 6, 6, 4)
    assert role.extra_pods == 3
    assert keys(role.keys) == ["modelserver.image.tag: 0.12.0 -> 0.12.1", "modelserver.replicas.decode: 4 -> 6"]


def test_a_role_at_0_gives_its_devices_back_before_others_grow() -> None:
    found = change({}, {"modelserver": {"replicas": {"prefill": 0, "decode": 6}}})
    gone, more = part(found, "prefill"), part(found, "decode")
    assert (gone.happens, gone.after, gone.leaving, gone.capacity_percent) == (Happening.DELETED, 0, 4, 0)
    assert len(gone.freed) == 4
    assert found.freed == gone.freed
    assert (more.happens, more.extra_pods) == (Happening.SCALES_UP, 2)
    assert keys(gone.keys) == ["modelserver.replicas.prefill: 4 -> 0"]


def test_a_number_that_somebody_else_set_is_what_counts_before() -> None:
    def scaled_by_hand(world: World) -> None:
        live = world.deployments["rel-decode"]
        live["spec"]["replicas"] = 6
        template = live["spec"]["template"]
        world.pods += [pod(live, template, index) for index in (4, 5)]

    role = part(change({}, {}, meanwhile=scaled_by_hand), "decode")
    assert (role.happens, role.before, role.after, role.leaving) == (Happening.SCALES_DOWN, 6, 4, 2)
    assert keys(role.keys) == ["modelserver.replicas.decode: 6 -> 4"]


def test_pods_that_leave_already_are_no_pods_of_the_role_any_more() -> None:
    def one_leaves(world: World) -> None:
        gone = pod(world.deployments["rel-decode"], world.deployments["rel-decode"]["spec"]["template"], 9)
        gone["metadata"]["deletionTimestamp"] = BEGAN
        world.pods.append(gone)

    assert change({}, {}, meanwhile=one_leaves).changes_nothing
    assert part(change({}, NEWER, meanwhile=one_leaves), "decode").leaving == 4


# --- after a roll-out that did not end --------------------------------------------------------------------------------


def stuck(name: str, *, taken: int, given: int, before: Blocks, **how: bool) -> Callable[[World], object]:
    """A roll-out to NEWER that has come so far."""
    newer = plan_stack(accepted(**merged(before, NEWER)), EMPTY_CLUSTER)
    return lambda world: world.roll(newer, name, taken=taken, given=given, **how)


def test_going_back_restarts_nothing_that_was_never_replaced_and_needs_no_device() -> None:
    """The one more found no device: all four of the old template still serve."""
    found = change({}, {}, meanwhile=stuck("rel-decode", taken=0, given=1, before={}, ready=False, placed=False))
    role = part(found, "decode")
    assert role.happens is Happening.GOES_BACK
    assert role.is_going_back
    assert (role.new, role.kept, role.leaving, role.extra_pods) == (0, 4, 1, 0)
    assert (role.capacity_percent, role.outage) == (100, None)
    assert not role.restarts
    assert not found.restarts
    assert keys(role.keys) == ["modelserver.image.tag: 0.12.1 -> 0.12.0"]


def test_going_back_exchanges_only_what_was_exchanged() -> None:
    found = change(
        ONE_FEWER, {}, meanwhile=stuck("rel-decode", taken=1, given=1, before=ONE_FEWER, ready=False, placed=True)
    )
    role = part(found, "decode")
    assert (role.happens, role.new, role.kept, role.leaving, role.extra_pods) == (Happening.GOES_BACK, 1, 3, 1, 0)
    assert role.capacity_percent == 75
    assert role.restarts
    assert restarted(found) == set(), "not all of its Pods are new"


def test_going_back_half_way() -> None:
    found = change({}, {}, meanwhile=stuck("rel-decode", taken=2, given=2, before={}))
    role = part(found, "decode")
    assert (role.happens, role.new, role.kept, role.leaving, role.extra_pods) == (Happening.GOES_BACK, 2, 2, 2, 1)


def test_going_back_is_warm_whatever_was_tried_meanwhile() -> None:
    """Pods of the template that is gone back to run still, with what they compiled."""
    other = first_plan(modelserver={"image": {"tag": "0.13.0"}})
    role = part(change({}, {}, meanwhile=lambda world: world.roll(other, "rel-decode", taken=2, given=2)), "decode")
    assert role.happens is Happening.GOES_BACK
    assert role.cache is not None
    assert role.cache.start is Start.WARM


def test_going_back_to_another_number_exchanges_also_what_the_controller_takes_from_the_old_template() -> None:
    """Both templates share the 2 by size: 2 of 3 Pods become 1.3, so that a Pod that serves goes and comes anew."""
    three = both(ONE_FEWER, {"modelserver": {"replicas": {"decode": 3}}})
    found = change(
        three,
        {"modelserver": {"replicas": {"decode": 2}}},
        meanwhile=stuck("rel-decode", taken=1, given=1, before=three, ready=False, placed=True),
    )
    role = part(found, "decode")
    assert (role.happens, role.new, role.kept, role.leaving) == (Happening.GOES_BACK, 1, 1, 2)
    assert (role.capacity_percent, role.outage) == (50, None)
    assert "rel-decode" in found.starting, "so the cluster is read for it"


def test_going_back_to_another_number_may_be_an_outage() -> None:
    two = both(ONE_FEWER, {"modelserver": {"replicas": {"decode": 2}}})
    found = change(
        two,
        {"modelserver": {"replicas": {"decode": 1}}},
        meanwhile=stuck("rel-decode", taken=1, given=1, before=two, ready=False, placed=True),
    )
    role = part(found, "decode")
    assert (role.happens, role.new, role.kept, role.capacity_percent) == (Happening.GOES_BACK, 1, 0, 0)
    assert role.outage is not None
    timeline = simulate(found, Reading.LONGEST)
    assert timeline is not None
    [told] = [each for each in timeline.parts if each.part == "decode"]
    assert told.gaps


def test_another_change_after_one_that_is_stuck_restarts_them_all() -> None:
    third: Blocks = {"modelserver": {"image": {"tag": "0.12.2"}}}
    found = change({}, third, meanwhile=stuck("rel-decode", taken=0, given=1, before={}, ready=False, placed=False))
    role = part(found, "decode")
    assert (role.happens, role.new, role.kept, role.leaving, role.extra_pods) == (Happening.RESTARTS, 4, 0, 5, 1)
    assert keys(role.keys) == ["modelserver.image.tag: 0.12.1 -> 0.12.2"], "from what was applied last"


def test_a_roll_out_that_goes_on_is_told_though_this_change_asks_for_nothing() -> None:
    found = change({}, NEWER, meanwhile=lambda world: roll_all(world, taken=1, given=2))
    role = part(found, "decode")
    assert (role.happens, role.new, role.kept, role.leaving) == (Happening.CONTINUES, 2, 2, 3)
    assert keys(role.keys) == ["modelserver.image.tag: 0.12.0 -> 0.12.1"], "from what its old Pods were made from"
    assert role.reason is not None
    assert not found.changes_nothing
    assert not found.restarts, "the engine has nothing to do"


def roll_all(world: World, *, taken: int, given: int) -> None:
    newer = plan_stack(accepted(**NEWER), EMPTY_CLUSTER)
    for name in ("rel-prefill", "rel-decode"):
        world.roll(newer, name, taken=taken, given=given)


def test_a_roll_out_that_hangs_goes_on_with_the_strategy_that_is_written_now() -> None:
    """The way out of a roll-out without spare devices: the same image, one fewer at a time."""
    found = change(
        {},
        both(NEWER, ONE_FEWER),
        meanwhile=stuck("rel-decode", taken=0, given=1, before={}, ready=False, placed=False),
    )
    role = part(found, "decode")
    assert (role.happens, role.method, role.max_surge, role.max_unavailable) == (
        Happening.CONTINUES,
        Method.ROLLING,
        0,
        1,
    )
    assert (role.extra_pods, role.capacity_percent) == (0, 75)
    assert part(found, "prefill").happens is Happening.RESTARTS


@pytest.mark.parametrize(
    "after",
    [{}, {"modelserver": {"replicas": {"decode": 3}}}],
    ids=["the same number", "fewer, but more than there are"],
)
def test_pods_that_are_missing_of_the_wanted_template_may_still_come(after: Blocks) -> None:
    """As where a quota let only some be made: nothing is another, and there will be more Pods as soon as it may be."""
    role = part(change({}, after, meanwhile=lambda world: world.take("rel-decode", 2)), "decode")
    pods = after.get("modelserver", {}).get("replicas", {}).get("decode", 4)
    assert (role.happens, role.method, role.before, role.after) == (Happening.CONTINUES, Method.START, 4, pods)
    assert (role.new, role.kept, role.leaving, role.extra_pods) == (pods - 2, 2, 0, pods - 2)
    assert (role.capacity_percent, role.outage, role.restarts) == (100 * 2 // pods, None, False)
    assert role.cache is not None
    assert role.cache.start is Start.WARM


def test_an_endpoint_picker_that_is_missing_leaves_no_gap_by_starting() -> None:
    several: Blocks = {"router": {"epp": {"replicas": 2}}}
    picker = part(change(several, {}, meanwhile=lambda world: world.take("rel-epp", 1)), "epp")
    assert (picker.happens, picker.method, picker.new, picker.leaving) == (Happening.CONTINUES, Method.START, 1, 0)
    assert (picker.capacity_percent, picker.outage, picker.notes) == (100, None, ())


@pytest.mark.parametrize(
    ("key", "value", "after", "want"),
    [
        pytest.param("modelserver.image.tag", 5, NEWER, Start.UNKNOWN, id="a tag that is a number"),
        pytest.param("modelserver.image.tag", ["0.12"], NEWER, Start.UNKNOWN, id="a tag that is a list"),
        pytest.param("modelserver.extraServeArgs.decode", 5, MORE_ARGUMENTS, Start.UNKNOWN, id="arguments, a number"),
        pytest.param(
            "modelserver.extraServeArgs.decode",
            [{"a": 1}, 2, None],
            MORE_ARGUMENTS,
            Start.UNKNOWN,
            id="arguments, no texts",
        ),
        pytest.param("recipe", {"a": 1}, NEWER, Start.COLD, id="a recipe that is a map"),
    ],
)
def test_a_record_that_somebody_wrote_by_hand_makes_the_cache_doubtful_and_nothing_fail(
    key: str, value: object, after: Blocks, want: Start
) -> None:
    def by_hand(world: World) -> None:
        for live in world.deployments.values():
            record = json.loads(live["metadata"]["annotations"][labels.APPLIED])
            live["metadata"]["annotations"][labels.APPLIED] = json.dumps({**record, key: value})

    role = part(change({}, after, meanwhile=by_hand), "decode")
    assert role.happens is Happening.RESTARTS
    assert role.cache is not None
    assert role.cache.start is want


# --- what was applied is not known, or does not tell it ---------------------------------------------------------------


def forget(world: World) -> None:
    for live in (*world.deployments.values(), *world.replica_sets):
        live["metadata"]["annotations"].pop(labels.APPLIED)


def test_a_stack_without_records_is_judged_by_its_templates() -> None:
    found = change({}, NEWER, meanwhile=forget)
    role = part(found, "decode")
    assert restarted(found) == {"prefill", "decode"}
    assert role.keys == ()
    assert role.reason == "it is not known what was applied before"
    assert role.paths == ("spec.containers[modelserver].image", "spec.initContainers[rdma-discovery].image")
    assert role.cache is not None
    assert role.cache.start is Start.UNKNOWN


def test_a_stack_without_records_gets_them_without_a_restart() -> None:
    assert change({}, {}, meanwhile=forget).changes_nothing


def other_image_by_hand(world: World) -> None:
    world.deployments["rel-decode"]["spec"]["template"]["spec"]["containers"][0]["image"] = "mirror.example/x:1"


def test_what_somebody_changed_in_the_live_deployment_is_told_by_where_it_differs() -> None:
    def by_hand(world: World) -> None:
        other_image_by_hand(world)
        world.take("rel-decode", 4)
        world.give("rel-decode", world.deployments["rel-decode"]["spec"]["template"], 4)

    role = part(change({}, {}, meanwhile=by_hand), "decode")
    assert (role.happens, role.new, role.leaving) == (Happening.RESTARTS, 4, 4)
    assert role.keys == ()
    assert role.paths == ("spec.containers[modelserver].image",)
    assert role.reason is not None
    assert "no key" in role.reason


def test_what_somebody_changed_and_no_pod_has_yet_restarts_nothing() -> None:
    """The deployment controller has not looked at it, or could make no Pod of it: a quota, a policy."""
    found = change({}, {}, meanwhile=other_image_by_hand)
    assert found.changes_nothing
    assert part(found, "decode").workloads[0].is_template_changed, "the engine writes the Deployment all the same"


def test_what_others_own_in_a_template_restarts_nothing() -> None:
    """`kubectl rollout restart` writes an annotation that the API server's answer keeps."""

    def restarted_by_hand(world: World) -> None:
        for live in world.deployments.values():
            live["spec"]["template"]["metadata"].setdefault("annotations", {})["kubectl/restartedAt"] = BEGAN

    def kept(trial: TrialFacts) -> TrialFacts:
        results = copy.deepcopy(dict(trial.results))
        for each in results.values():
            each["spec"]["template"]["metadata"].setdefault("annotations", {})["kubectl/restartedAt"] = BEGAN
        return dataclasses.replace(trial, results=results)

    def rolled(world: World) -> None:
        world.replica_sets.clear()
        world.pods.clear()
        restarted_by_hand(world)
        for name, live in world.deployments.items():
            world.give(name, live["spec"]["template"], live["spec"]["replicas"])

    assert change({}, {}, meanwhile=rolled, trial=kept).changes_nothing


# --- what is not known ------------------------------------------------------------------------------------------------

UNTRIED = TrialFacts(unknown="403 Forbidden")


def test_without_a_dry_run_the_keys_tell_of_a_restart() -> None:
    found = change({}, NEWER, trial=lambda _: UNTRIED)
    role = part(found, "decode")
    assert role.happens is Happening.RESTARTS
    assert not role.is_restart_certain
    assert keys(role.keys) == ["modelserver.image.tag: 0.12.0 -> 0.12.1"]
    assert any("could not be asked" in note for note in role.notes)
    assert (role.new, role.leaving, role.extra_pods) == (4, 4, 1)


def test_without_a_dry_run_keys_that_did_not_change_are_no_promise() -> None:
    found = change({}, {}, trial=lambda _: UNTRIED)
    assert {each.happens for each in found.parts} == {Happening.UNKNOWN}
    assert not found.changes_nothing
    assert all("403 Forbidden" in why for why in found.unknown)
    assert {each.capacity_percent for each in found.parts} == {None}


def test_without_dry_run_and_records_nothing_is_known() -> None:
    found = change({}, NEWER, meanwhile=forget, trial=lambda _: UNTRIED)
    assert {each.happens for each in found.parts} == {Happening.UNKNOWN}


def test_a_workload_that_nobody_tried_is_not_known() -> None:
    def without_decode(trial: TrialFacts) -> TrialFacts:
        return dataclasses.replace(trial, results={n: r for n, r in trial.results.items() if n != "rel-decode"})

    found = change({}, {}, trial=without_decode)
    assert part(found, "decode").happens is Happening.UNKNOWN
    assert part(found, "prefill").happens is Happening.STAYS
    assert len(found.unknown) == 1


@pytest.mark.parametrize("answer", [{}, {"kind": "Deployment"}, {"spec": {}}], ids=str)
def test_an_answer_without_a_template_says_nothing(answer: dict[str, Any]) -> None:
    def odd(trial: TrialFacts) -> TrialFacts:
        return dataclasses.replace(trial, results={**trial.results, "rel-decode": answer})

    assert part(change({}, {}, trial=odd), "decode").happens is Happening.UNKNOWN


def test_without_deployments_nothing_is_known() -> None:
    found = change({}, NEWER, around=lambda around: dataclasses.replace(around, deployments=None))
    assert {each.part: each.happens for each in found.parts} == dict.fromkeys(
        ("prefill", "decode", "epp"), Happening.UNKNOWN
    )
    assert found.unknown == ("the Deployments that run could not be read",)
    assert not found.is_first_install


def test_a_topology_that_is_not_known_is_not_guessed_at() -> None:
    anchor = AnchorFacts(key="k", generation=1, uid="u", is_terminating=True)
    plan = plan_stack(accepted(), dataclasses.replace(EMPTY_CLUSTER, anchor=anchor))
    found = foresee(accepted().config, plan, Surroundings(deployments=[]), TrialFacts())
    assert {each.happens for each in found.parts} == {Happening.UNKNOWN}
    assert "still under way" in found.unknown[0]


def test_without_pods_replica_sets_are_counted_and_that_is_said() -> None:
    found = change(
        {},
        {},
        meanwhile=stuck("rel-decode", taken=0, given=1, before={}, ready=False, placed=False),
        around=lambda around: dataclasses.replace(around, release_pods=None, pods=None),
    )
    role = part(found, "decode")
    assert (role.happens, role.new, role.kept, role.leaving) == (Happening.GOES_BACK, 0, 4, 1)
    assert role.notes == ("its Pods could not be read, so numbers of Pods may be others",)


def test_pods_of_all_namespaces_do_where_those_of_the_release_were_not_asked_for() -> None:
    found = change(
        {}, NEWER, around=lambda around: dataclasses.replace(around, release_pods=None, pods=around.release_pods)
    )
    assert part(found, "decode").notes == ()
    assert part(found, "decode").leaving == 4


def test_without_replica_sets_a_restart_is_foreseen_of_every_pod() -> None:
    """Which of them are of the wanted template can't be told."""
    found = change(
        {},
        {},
        meanwhile=stuck("rel-decode", taken=0, given=1, before={}, ready=False, placed=False),
        around=lambda around: dataclasses.replace(around, replica_sets=None),
    )
    role = part(found, "decode")
    assert (role.happens, role.new, role.leaving) == (Happening.RESTARTS, 4, 5)
    assert role.notes == ("its ReplicaSets could not be read, so numbers of Pods may be others",)


def test_without_replica_sets_and_pods_the_deployment_itself_tells_that_nothing_changes() -> None:
    found = change(
        {}, {}, around=lambda around: dataclasses.replace(around, replica_sets=None, release_pods=None, pods=None)
    )
    assert found.changes_nothing


def blind(around: Surroundings) -> Surroundings:
    return dataclasses.replace(around, replica_sets=None, release_pods=None, pods=None)


def no_status(world: World) -> None:
    """The deployment controller has not looked at it, or may not."""
    for live in world.deployments.values():
        live["status"] = {}


@pytest.mark.parametrize("after", [{}, NEWER, both(NEWER, RECREATE)], ids=["nothing", "image", "Recreate"])
def test_where_nothing_tells_how_many_pods_serve_nothing_is_promised(after: Blocks) -> None:
    role = part(change({}, after, meanwhile=no_status, around=blind), "decode")
    assert (role.happens, role.capacity_percent, role.outage) == (Happening.UNKNOWN, None, None)
    assert role.reason is not None
    assert "status" in role.reason


def test_where_nothing_tells_how_many_pods_serve_another_topology_is_an_outage_all_the_same() -> None:
    found = change({}, PLACED, meanwhile=no_status, around=blind)
    assert found.outage is not None
    assert part(found, "decode").leaving == 4
    assert "its ReplicaSets and its Pods and its status" in part(found, "decode").notes[0]


def test_pods_alone_tell_that_a_role_which_goes_served() -> None:
    """Which template each is of is nothing to that."""
    found = change(
        {}, PLACED, meanwhile=no_status, around=lambda around: dataclasses.replace(around, replica_sets=None)
    )
    assert found.outage is not None
    assert part(found, "decode").leaving == 4


def test_deployments_pods_and_replica_sets_of_others_are_nothing_to_this_release() -> None:
    def with_others(around: Surroundings) -> Surroundings:
        other = copy.deepcopy(around)
        everything: list[dict[str, Any]] = []
        for namespace, release in (("elsewhere", "rel"), ("ns", "other")):
            for live in (*(other.deployments or ()), *(other.release_pods or ())):
                one = copy.deepcopy(live)
                one["metadata"] |= {"namespace": namespace, "uid": f"{live['metadata']['uid']}-{namespace}-{release}"}
                one["metadata"]["labels"][labels.INSTANCE] = release
                if "template" in one["spec"]:
                    one["metadata"]["name"] = f"{release}-extra"
                everything.append(one)
        return dataclasses.replace(
            around,
            deployments=[*(around.deployments or ()), *(e for e in everything if "template" in e["spec"])],
            release_pods=[*(around.release_pods or ()), *(e for e in everything if "template" not in e["spec"])],
        )

    assert change({}, {}, around=with_others).changes_nothing


# --- a first install --------------------------------------------------------------------------------------------------


def install(around: Surroundings | None = None, trial: TrialFacts | None = None, **blocks: Any) -> Impact:
    wanted = accepted(**blocks)
    plan = plan_stack(wanted, EMPTY_CLUSTER)
    return foresee(
        wanted.config,
        plan,
        around or Surroundings(deployments=[], replica_sets=[], release_pods=[], volume_claims={}),
        trial or TrialFacts(live={"rel-epp": None}),
    )


def test_a_first_install_starts_everything_and_restarts_nothing() -> None:
    found = install()
    assert found.is_first_install
    assert {each.part: (each.happens, each.before, each.after) for each in found.parts} == {
        "prefill": (Happening.CREATED, 0, 4),
        "decode": (Happening.CREATED, 0, 4),
        "epp": (Happening.CREATED, 0, 1),
    }
    assert not found.restarts
    assert found.outage is None
    assert all(each.keys == () for each in found.parts), "no key is to blame"
    assert {part(found, name).extra_pods for name in ("prefill", "decode")} == {4}


@pytest.mark.parametrize(
    ("claims", "want"),
    [
        pytest.param({}, Start.COLD, id="the compile cache is new"),
        pytest.param({"rel-compile-cache-decode": {}}, Start.UNKNOWN, id="it is there from an earlier install"),
        pytest.param(None, Start.UNKNOWN, id="it is not known whether it is there"),
    ],
)
def test_a_new_role_compiles_first_unless_its_cache_is_filled(claims: dict[str, Any] | None, want: Start) -> None:
    role = part(install(Surroundings(deployments=[], volume_claims=claims)), "decode")
    assert role.cache is not None
    assert role.cache.start is want


def test_an_endpoint_picker_that_nobody_looked_at_is_not_known() -> None:
    found = install(trial=TrialFacts(unknown="401 Unauthorized"))
    assert not found.is_first_install
    assert part(found, "epp").happens is Happening.UNKNOWN
    assert found.unknown == ("epp: 401 Unauthorized",)


def test_a_role_that_comes_beside_others_can_tell_why() -> None:
    found = change({"modelserver": {"replicas": {"prefill": 0}}}, {"modelserver": {"replicas": {"prefill": 2}}})
    role = part(found, "prefill")
    assert (role.happens, role.method, role.extra_pods) == (Happening.CREATED, Method.START, 2)
    assert role.capacity_percent is None
    assert keys(role.keys) == ["modelserver.replicas.prefill: 0 -> 2"]
    assert not found.is_first_install


# --- another topology -------------------------------------------------------------------------------------------------


def test_a_mode_switch_takes_everything_down_first() -> None:
    found = change({}, PLACED)
    assert keys(found.topology) == ["modelserver (mode): replicas -> nodePlacement"]
    assert restarted(found) == {"prefill", "decode"}
    decode = part(found, "decode")
    assert (decode.method, decode.before, decode.after, decode.new, decode.leaving) == (Method.ALL_DOWN, 4, 3, 3, 4)
    assert (decode.extra_pods, len(decode.freed), decode.capacity_percent) == (3, 4, 0)
    assert len(found.freed) == 8, "the devices of all Pods of both roles are free by then"
    assert found.outage is not None
    assert found.outage.at_most_seconds == GRACE + BUDGET == decode.at_most_seconds
    assert found.outage.about_seconds == GRACE + SEEN
    assert found.outage.start is Start.WARM
    assert part(found, "epp").happens is Happening.STAYS


def test_a_mode_switch_with_another_image_says_that_too() -> None:
    found = change({}, both(PLACED, {"modelserver": {"image": {"tag": "0.13.0"}}}))
    assert keys(part(found, "decode").keys) == ["modelserver.image.tag: 0.12.0 -> 0.13.0"]
    assert found.outage is not None
    assert (found.outage.start, found.outage.about_seconds) == (Start.COLD, None)


def test_pods_that_leave_already_hold_their_devices_until_the_switch() -> None:
    def one_leaves(world: World) -> None:
        world.pods[0]["metadata"]["deletionTimestamp"] = BEGAN

    assert len(change({}, PLACED, meanwhile=one_leaves).freed) == 8


def test_aggregated_serves_again_when_its_pods_have_started() -> None:
    found = change({}, {"modelserver": {"replicas": {"aggregated": 2}}})
    assert keys(found.topology) == ["modelserver (roles): prefill and decode -> aggregated"]
    assert {each.part: each.happens for each in found.parts} == {
        "prefill": Happening.DELETED,
        "decode": Happening.DELETED,
        "aggregated": Happening.CREATED,
        "epp": Happening.RESTARTS,
    }
    assert found.outage is not None, "though no part of it is there before and afterwards"
    assert found.outage.at_most_seconds == GRACE + BUDGET
    assert part(found, "aggregated").extra_pods == 2
    assert keys(part(found, "epp").keys) == ["modelserver (roles): prefill and decode -> aggregated"]


def test_another_model_is_the_reason_of_a_change_of_the_topology() -> None:
    found = change({}, {"modelserver": {"model": "other/model"}})
    assert keys(found.topology) == ["modelserver.model: MiniMaxAI/MiniMax-M2.7 -> other/model"]
    assert part(found, "decode").keys == ()
    assert found.outage is not None
    assert found.outage.start is Start.COLD


def test_a_reorder_is_told_entry_by_entry() -> None:
    entries = PLACED["modelserver"]["nodePlacement"]
    found = change(PLACED, {"modelserver": {"nodePlacement": [entries[1], entries[0], *entries[2:]]}})
    assert keys(found.topology) == [
        "modelserver.nodePlacement[0]: prefill on n1 -> decode on n1",
        "modelserver.nodePlacement[1]: decode on n1 -> prefill on n1",
    ]
    assert found.outage is not None


def test_a_switch_of_a_stack_that_does_not_serve_is_no_outage() -> None:
    def broken(world: World) -> None:
        for each in world.pods:
            each["status"]["conditions"][0]["status"] = "False"

    assert change({}, PLACED, meanwhile=broken).outage is None


# --- entries of nodePlacement -----------------------------------------------------------------------------------------


def test_entries_of_a_role_are_exchanged_one_after_the_other() -> None:
    found = change(PLACED, NEWER)
    decode = part(found, "decode")
    assert (decode.happens, decode.method) == (Happening.RESTARTS, Method.ONE_BY_ONE)
    assert (decode.new, decode.leaving, decode.extra_pods, decode.max_surge) == (3, 3, 0, None)
    assert decode.capacity_percent == 66, "two of three"
    assert decode.at_most_seconds == 3 * (GRACE + BUDGET)
    assert decode.outage is None
    assert decode.freed == (), "one entry's new Pod comes before another's old one goes"
    assert keys(decode.keys) == ["modelserver.image.tag: 0.12.0 -> 0.12.1"], "once for all entries"
    assert [each.name for each in decode.workloads] == ["rel-decode-1", "rel-decode-2", "rel-decode-3"]


def test_the_only_entry_of_a_role_is_an_outage() -> None:
    found = change(PLACED, NEWER)
    prefill = part(found, "prefill")
    assert (prefill.method, prefill.capacity_percent) == (Method.RECREATE, 0)
    assert prefill.outage is not None
    assert found.outage == prefill.outage
    assert prefill.outage.about_seconds == GRACE + SEEN
    assert "entry" in prefill.outage.why


def test_an_entry_that_does_not_serve_is_waited_for_by_nobody() -> None:
    """Its node is gone, for instance: the other two are exchanged one after the other."""

    def one_is_away(world: World) -> None:
        for each in world.pods:
            if each["metadata"]["name"].startswith("rel-decode-2-"):
                each["status"]["conditions"][0]["status"] = "False"
        for each in world.replica_sets:
            if each["metadata"]["name"].startswith("rel-decode-2-"):
                each["status"]["readyReplicas"] = 0

    decode = part(change(PLACED, NEWER, meanwhile=one_is_away), "decode")
    assert decode.capacity_percent == 33, "one of three serves while the other one of the two is away"


def test_an_entry_that_is_dropped_gives_its_devices_back_last() -> None:
    found = change(PLACED, {"modelserver": {"nodePlacement": PLACED["modelserver"]["nodePlacement"][:3]}})
    decode = part(found, "decode")
    assert (decode.happens, decode.before, decode.after, decode.leaving) == (Happening.SCALES_DOWN, 3, 2, 1)
    assert decode.freed == ()
    assert decode.capacity_percent == 100
    assert keys(decode.keys) == ["modelserver.nodePlacement[3]: decode on n3 -> not set"]


def test_an_entry_that_is_added_needs_devices_and_touches_no_other() -> None:
    entries = [*PLACED["modelserver"]["nodePlacement"], {"role": "decode", "node": "n4"}]
    found = change(PLACED, {"modelserver": {"nodePlacement": entries}})
    decode = part(found, "decode")
    assert (decode.happens, decode.new, decode.kept, decode.extra_pods) == (Happening.SCALES_UP, 1, 3, 1)
    assert keys(decode.keys) == ["modelserver.nodePlacement[4]: not set -> decode on n4"]
    assert decode.at_most_seconds == BUDGET
    assert decode.cache is not None
    assert decode.cache.start is Start.WARM


def test_an_entry_that_is_added_together_with_a_new_image() -> None:
    entries = [*PLACED["modelserver"]["nodePlacement"], {"role": "decode", "node": "n4"}]
    decode = part(change(PLACED, both(NEWER, {"modelserver": {"nodePlacement": entries}})), "decode")
    assert (decode.happens, decode.method, decode.new, decode.leaving) == (
        Happening.RESTARTS,
        Method.ONE_BY_ONE,
        4,
        3,
    )
    assert decode.extra_pods == 1


# --- endpoint picker --------------------------------------------------------------------------------------------------


def test_one_endpoint_picker_restarts_without_a_gap() -> None:
    found = change({}, {"router": {"epp": {"drainSeconds": 600}}})
    assert restarted(found) == {"epp"}
    epp = part(found, "epp")
    assert (epp.method, epp.capacity_percent, epp.outage) == (Method.ROLLING, 100, None)
    assert (epp.accelerators, epp.nics, epp.cache) == (0, 0, None)
    assert epp.notes == ("the new one is Ready before the old one leaves",)
    assert keys(epp.keys) == ["router.epp.drainSeconds: 60 -> 600"]
    assert {part(found, name).happens for name in ("prefill", "decode")} == {Happening.STAYS}
    assert found.outage is None


@pytest.mark.parametrize(
    ("mode", "want_note", "want_outage"),
    [
        pytest.param("FailOpen", "go to any Pod", False, id="open"),
        pytest.param("FailClose", "are refused", True, id="closed"),
    ],
)
def test_several_endpoint_pickers_leave_a_gap(mode: str, want_note: str, *, want_outage: bool) -> None:
    before = {"router": {"epp": {"replicas": 2}, "inferencePool": {"failureMode": mode}}}
    found = change(before, {"router": {"epp": {"drainSeconds": 600}}})
    epp = part(found, "epp")
    assert (epp.method, epp.capacity_percent) == (Method.RECREATE, 0)
    assert want_note in epp.notes[0]
    assert (epp.outage is not None) == want_outage
    assert found.outage == epp.outage


def test_more_of_several_endpoint_pickers_are_only_more() -> None:
    epp = part(change({"router": {"epp": {"replicas": 2}}}, {"router": {"epp": {"replicas": 3}}}), "epp")
    assert (epp.happens, epp.before, epp.after) == (Happening.SCALES_UP, 2, 3)
    assert keys(epp.keys) == ["router.epp.replicas: 2 -> 3"]


def test_the_second_endpoint_picker_restarts_the_first() -> None:
    """Each has to know that there are several."""
    epp = part(change({}, {"router": {"epp": {"replicas": 2}}}), "epp")
    assert (epp.happens, epp.before, epp.after) == (Happening.RESTARTS, 1, 2)
    assert keys(epp.keys) == ["router.epp.replicas: 1 -> 2"]


@pytest.mark.parametrize(
    ("before", "over", "want_note", "want_outage"),
    [
        pytest.param({}, {}, "go to any Pod", False, id="an open pool, which goes last"),
        pytest.param(
            {"router": {"inferencePool": {"failureMode": "FailClose"}}},
            {},
            "are refused",
            True,
            id="a closed pool, which goes last",
        ),
        pytest.param(
            {"router": {"inferencePool": {"failureMode": "FailClose"}}},
            {"gateway": {"backend": {"name": "envoy", "port": 80}}},
            "your proxy decides",
            False,
            id="a closed pool, to which no route leads any more",
        ),
    ],
)
def test_without_a_pool_the_endpoint_picker_is_made_anew(
    before: Blocks, over: Blocks, want_note: str, *, want_outage: bool
) -> None:
    found = change(before, {"router": {"inferencePool": {"create": False}}, **over})
    epp = part(found, "epp")
    assert (epp.method, epp.capacity_percent) == (Method.REPLACE, 0)
    assert want_note in epp.notes[0]
    assert (epp.outage is not None) == want_outage
    assert "router.inferencePool.create: true -> false" in keys(epp.keys)
    assert restarted(found) == {"epp"}


def test_where_there_was_no_pool_and_is_none_the_proxy_decides() -> None:
    """Several, so that all leave first."""
    before = {"router": {"epp": {"replicas": 2}, "inferencePool": {"create": False, "failureMode": "FailClose"}}}
    epp = part(change(before, {"router": {"epp": {"drainSeconds": 600}}}), "epp")
    assert (epp.method, epp.outage) == (Method.RECREATE, None)
    assert "your proxy decides" in epp.notes[0]


# --- all of it --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "after", [{}, NEWER, PLACED, both(NEWER, RECREATE)], ids=["nothing", "image", "mode", "recreate"]
)
def test_what_is_foreseen_can_be_written_as_json(after: Blocks) -> None:
    found = change({}, after)
    written = make_report(stack="s", release="rel", namespace="ns", context="c", impact=found)
    assert from_text(to_text(written)).impact == found


def test_the_same_world_gives_the_same_forecast_in_whatever_order_it_is_seen() -> None:
    def shuffled(around: Surroundings) -> Surroundings:
        return dataclasses.replace(
            around,
            deployments=list(around.deployments or ())[::-1],
            replica_sets=list(around.replica_sets or ())[::-1],
            release_pods=list(around.release_pods or ())[::-1],
        )

    def without_order(found: Impact) -> Impact:
        parts = (dataclasses.replace(each, freed=tuple(sorted(each.freed))) for each in found.parts)
        return dataclasses.replace(found, parts=tuple(parts))

    for before, after in (({}, NEWER), ({}, PLACED), (PLACED, NEWER)):
        assert without_order(change(before, after, around=shuffled)) == without_order(change(before, after))
