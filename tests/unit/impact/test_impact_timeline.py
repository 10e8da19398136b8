"""The simulated change: by hand in the plain cases, and never against what the impact says, whatever the numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from world import World, change, first_plan, part

from stack.impact import Happening, Impact, Method, PartImpact, WorkloadImpact
from stack.impact.arithmetic import Standing, Strategy, exchange
from stack.impact.judge import Judged
from stack.impact.parts import add_up
from stack.impact.timeline import Counts, PartTimeline, Reading, Timeline, simulate
from stack.planned import BudgetPlan

DRAIN, START, SEEN = 90, 7200, 600
NEWER: dict[str, Any] = {"image": {"tag": "0.12.1"}}


def rolling(surge: int, unavailable: int) -> Strategy:
    return Strategy(is_recreate=False, surge=surge, unavailable=unavailable)


RECREATE = Strategy(is_recreate=True, surge=0, unavailable=0)


def all_ready(pods: int) -> Standing:
    return Standing(pods=pods, ready=pods, placed=pods)


def role(
    standing: Standing,
    strategy: Strategy,
    *,
    wanted: int,
    before: int | None = None,
    happens: Happening = Happening.RESTARTS,
) -> PartImpact:
    """A role of one Deployment to which that happens, judged and added up as the program does it."""
    asked = standing.pods if before is None else before
    done = exchange(standing, strategy, wanted=wanted, before=asked, is_back=happens is Happening.GOES_BACK)
    impact = WorkloadImpact(
        name="rel-decode",
        part="decode",
        entry=None,
        happens=happens,
        method=Method.RECREATE if strategy.is_recreate else Method.ROLLING,
        before=asked,
        after=wanted,
        new=done.new,
        kept=done.kept,
        leaving=done.leaving,
        is_template_changed=True,
    )
    judged = Judged(
        impact=impact,
        standing=standing,
        exchange=done,
        strategy=strategy,
        drain_seconds=DRAIN,
        start_seconds=START,
        seen_seconds=SEEN if standing.ready else None,
    )
    return add_up("decode", [judged], None, BudgetPlan(lines=()))


def run(found: PartImpact, reading: Reading = Reading.LONGEST) -> PartTimeline:
    timeline = simulate(Impact(release="rel", parts=(found,)), reading)
    assert timeline is not None
    [told] = timeline.parts
    return told


@st.composite
def strategies(draw: st.DrawFn) -> Strategy:
    if draw(st.booleans()):
        return RECREATE
    surge, unavailable = draw(st.integers(0, 7)), draw(st.integers(0, 6))
    return rolling(surge, unavailable or int(not surge))


@st.composite
def changes(draw: st.DrawFn) -> PartImpact:
    """A role whose Pods are exchanged: all that run, or those that an earlier change has left in between.

    That one is stopped at any moment, and then taken back, or followed by another, or left alone, perhaps with another
    strategy; and with another number of Pods, which two templates share.
    """
    pods = draw(st.integers(1, 6))
    earlier = run(role(all_ready(pods), draw(strategies()), wanted=pods))
    _, now = draw(st.sampled_from(earlier.moments))
    coming = now.waiting + now.starting + now.ready
    holding = now.holding - now.draining
    happens = draw(st.sampled_from([Happening.RESTARTS, Happening.GOES_BACK, Happening.CONTINUES]))
    kept, ready_kept = {
        Happening.RESTARTS: (0, 0),
        Happening.GOES_BACK: (now.serving, now.serving),
        Happening.CONTINUES: (coming, now.ready),
    }[happens]
    standing = Standing(pods=now.pods, kept=kept, ready=now.serve, ready_kept=ready_kept, placed=holding)
    wanted = draw(st.integers(1, 6))
    if happens is not Happening.RESTARTS:
        assume(standing.kept and standing.old)
    return role(standing, draw(strategies()), wanted=wanted, before=pods, happens=happens)


@settings(max_examples=40)
@given(changes())
def test_every_change_comes_to_its_end(found: PartImpact) -> None:
    told = run(found)
    assert not told.is_stuck
    assert told.last == Counts(ready=found.after, holding=found.after)


@settings(max_examples=40)
@given(changes())
def test_no_more_devices_are_held_than_extra_pods_says(found: PartImpact) -> None:
    told = run(found)
    [workload] = found.workloads
    assert max(counts.holding for _, counts in told.moments) <= workload.placed + found.extra_pods


@settings(max_examples=40)
@given(changes())
def test_capacity_is_never_below_what_the_impact_says(found: PartImpact) -> None:
    told = run(found)
    assert found.capacity_percent is not None
    wanted = min(found.before or 0, found.after)
    assert min(min(100, 100 * counts.serve // wanted) for _, counts in told.moments) >= found.capacity_percent


@settings(max_examples=40)
@given(changes())
def test_what_serves_nothing_for_a_time_is_an_outage_and_no_longer_than_it_says(found: PartImpact) -> None:
    told = run(found)
    assert bool(told.gaps) == (found.outage is not None)
    if found.outage is not None:
        assert max(end - begin for begin, end in told.gaps) <= found.outage.at_most_seconds


@settings(max_examples=40)
@given(changes())
def test_it_takes_no_longer_than_the_impact_says(found: PartImpact) -> None:
    assert run(found).seconds <= found.at_most_seconds


# --- by hand ----------------------------------------------------------------------------------------------------------


def simulated(impact: Impact, reading: Reading = Reading.LONGEST) -> Timeline:
    found = simulate(impact, reading)
    assert found is not None
    return found


def of(timeline: Timeline, name: str) -> PartTimeline:
    [found] = [each for each in timeline.parts if each.part == name]
    return found


def moments(told: PartTimeline) -> dict[int, tuple[int, ...]]:
    """Second -> Pods old and serving, draining, waiting, starting, new and Ready."""
    return {at: (n.serving, n.draining, n.waiting, n.starting, n.ready) for at, n in told.moments}


def test_one_more_at_a_time() -> None:
    """The next new Pod waits for the devices of the one that drains: there are no more than one Pod's spare."""
    assert moments(run(role(all_ready(2), rolling(1, 0), wanted=2))) == {
        0: (2, 0, 0, 1, 0),
        START: (1, 1, 1, 0, 1),
        START + DRAIN: (1, 0, 0, 1, 1),
        2 * START + DRAIN: (0, 1, 0, 0, 2),
        2 * START + 2 * DRAIN: (0, 0, 0, 0, 2),
    }


def test_one_fewer_at_a_time() -> None:
    assert moments(run(role(all_ready(2), rolling(0, 1), wanted=2))) == {
        0: (1, 1, 1, 0, 0),
        DRAIN: (1, 0, 0, 1, 0),
        DRAIN + START: (0, 1, 1, 0, 1),
        2 * DRAIN + START: (0, 0, 0, 1, 1),
        2 * (DRAIN + START): (0, 0, 0, 0, 2),
    }


def test_recreate_serves_nothing_until_the_first_new_one_is_ready() -> None:
    told = run(role(all_ready(3), RECREATE, wanted=3), Reading.ABOUT)
    assert moments(told) == {
        0: (0, 3, 0, 0, 0),
        DRAIN: (0, 0, 0, 3, 0),
        DRAIN + SEEN: (0, 0, 0, 0, 3),
    }
    assert told.gaps == ((0, DRAIN + SEEN),)
    assert told.now == Counts(serving=3, holding=3)


def test_a_surge_that_finds_no_devices_goes_no_further() -> None:
    short = replace(role(all_ready(2), rolling(1, 0), wanted=2), fits=0)
    timeline = simulate(Impact(release="rel", parts=(short,)), Reading.LONGEST, is_short=True)
    assert timeline is not None
    assert timeline.is_stuck
    [told] = timeline.parts
    assert told.last == Counts(serving=2, waiting=1, holding=2)
    assert told.gaps == ()


def test_without_room_for_all_of_a_surge_it_goes_on_with_what_there_is() -> None:
    short = replace(role(all_ready(2), rolling(2, 0), wanted=2), fits=1)
    timeline = simulate(Impact(release="rel", parts=(short,)), Reading.LONGEST, is_short=True)
    assert timeline is not None
    assert not timeline.is_stuck


def test_what_fits_is_handed_out_once_among_the_deployments_of_a_part() -> None:
    """Three entries come, and there are devices for two of their Pods."""
    entries = [{"role": "prefill", "node": "n0"}, {"role": "decode", "node": "n1"}]
    more = [*entries, *({"role": "decode", "node": f"n{i}"} for i in (2, 3, 4))]
    impact = change({"modelserver": {"nodePlacement": entries}}, {"modelserver": {"nodePlacement": more}})
    for fits in (0, 2, 3):
        short = tuple(replace(each, fits=fits) if each.part == "decode" else each for each in impact.parts)
        timeline = simulate(replace(impact, parts=short), Reading.LONGEST, is_short=True)
        assert timeline is not None
        last = of(timeline, "decode").last
        assert (last.serve, last.waiting) == (1 + fits, 3 - fits)


def test_a_single_replica_whose_surge_is_stuck_is_down_with_one_fewer_at_a_time() -> None:
    """Its new Pod waits for devices, and counts: so the old one may go, though the new one is not Ready."""
    standing = Standing(pods=2, kept=1, ready=1, placed=1)
    found = role(standing, rolling(0, 1), wanted=1, before=1, happens=Happening.CONTINUES)
    assert found.capacity_percent == 0
    assert found.outage is not None
    assert found.extra_pods == 0
    assert moments(run(found)) == {
        0: (0, 1, 1, 0, 0),
        DRAIN: (0, 0, 0, 1, 0),
        DRAIN + START: (0, 0, 0, 0, 1),
    }


def test_a_new_pod_that_still_starts_counts_in_the_time_that_is_left() -> None:
    found = role(
        Standing(pods=2, kept=1, ready=1, placed=2), rolling(1, 0), wanted=1, before=1, happens=Happening.CONTINUES
    )
    assert found.at_most_seconds == START + DRAIN


# --- the whole change -------------------------------------------------------------------------------------------------


def test_another_image_rolls_both_roles_at_the_same_time_and_leaves_the_endpoint_picker() -> None:
    impact = change({}, {"modelserver": NEWER})
    for reading, start in ((Reading.LONGEST, START), (Reading.ABOUT, SEEN)):
        timeline = simulated(impact, reading)
        assert [each.part for each in timeline.parts] == ["prefill", "decode", "epp"]
        assert timeline.seconds == 4 * (start + DRAIN)
        assert of(timeline, "prefill").moments == of(timeline, "decode").moments
        assert of(timeline, "epp").spans == ()
        assert not timeline.is_stuck
        assert not any(each.gaps for each in timeline.parts)
    assert part(impact, "decode").at_most_seconds == 4 * (START + DRAIN)


def test_numbers_that_a_timeline_is_made_from_stand_with_the_deployment() -> None:
    decode = part(change({}, {"modelserver": NEWER}), "decode")
    assert (decode.drain_seconds, decode.start_seconds, decode.about_start_seconds) == (DRAIN, START, SEEN)
    [workload] = decode.workloads
    assert (workload.extra_pods, workload.already, workload.placed) == (1, 0, 4)
    assert (workload.ready, workload.ready_kept) == (4, 0)


def test_devices_of_one_pod_are_told_where_they_are_known() -> None:
    plugins = {"npu": {"mode": "devicePlugin"}, "rdma": {"mode": "devicePlugin", "resourceName": "rdma/hca"}}
    one_fewer = {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}
    known = part(change({"devices": plugins, "modelserver": one_fewer}, {"modelserver": NEWER}), "decode")
    assert (known.extra_pods, known.accelerators_per_pod, known.nics_per_pod) == (0, 4, 2)
    decided_elsewhere = part(change({"modelserver": one_fewer}, {"modelserver": NEWER}), "decode")
    assert (decided_elsewhere.accelerators_per_pod, decided_elsewhere.nics_per_pod) == (None, None)


def test_a_cold_compile_cache_leaves_only_the_longest_time() -> None:
    impact = change({}, {"modelserver": {"image": {"tag": "0.13.0"}}})
    assert part(impact, "decode").about_start_seconds is None
    assert simulate(impact, Reading.ABOUT) is None
    assert simulated(impact).seconds == 4 * (START + DRAIN)


def test_all_leave_before_any_starts_when_the_topology_changes() -> None:
    aggregated = {"modelserver": {"replicas": {"prefill": 0, "decode": 0, "aggregated": 2}}}
    impact = change({}, aggregated)
    timeline = simulated(impact, Reading.LONGEST)
    begins = of(timeline, "epp").seconds  # the endpoint picker with other plugins comes first
    assert begins == part(impact, "epp").at_most_seconds > 0
    assert [(at - begins, n.draining) for at, n in of(timeline, "decode").moments if at >= begins] == [
        (0, 4),
        (DRAIN, 0),
    ]
    starting = [at - begins for at, n in of(timeline, "aggregated").moments if n.starting]
    assert starting == [DRAIN]
    assert timeline.seconds - begins == DRAIN + START


def test_roles_that_change_places_with_the_topology_are_out_for_as_long_as_the_outage_says() -> None:
    placed = {"nodePlacement": [{"role": "prefill", "node": "n1"}, {"role": "decode", "node": "n2"}]}
    impact = change({}, {"modelserver": placed})
    assert impact.outage is not None
    for reading, want in (
        (Reading.LONGEST, impact.outage.at_most_seconds),
        (Reading.ABOUT, impact.outage.about_seconds),
    ):
        timeline = simulated(impact, reading)
        for name in ("prefill", "decode"):
            [(begin, end)] = of(timeline, name).gaps
            assert end - begin == want


def test_a_role_that_is_set_to_0_has_left_before_another_grows() -> None:
    timeline = simulated(change({}, {"modelserver": {"replicas": {"prefill": 0, "decode": 6}}}))
    assert moments(of(timeline, "prefill")) == {0: (0, 4, 0, 0, 0), DRAIN: (0, 0, 0, 0, 0)}
    assert of(timeline, "prefill").gaps == ()
    assert moments(of(timeline, "decode"))[DRAIN] == (0, 0, 0, 2, 4)
    assert timeline.seconds == DRAIN + START


def test_entries_of_a_role_go_one_after_the_other_and_those_that_are_dropped_last() -> None:
    entries = [{"role": "prefill", "node": "n1"}, *({"role": "decode", "node": f"n{i}"} for i in (2, 3, 4))]
    impact = change(
        {"modelserver": {"nodePlacement": entries}}, {"modelserver": {"nodePlacement": entries[:-1]} | NEWER}
    )
    assert part(impact, "decode").method is Method.ONE_BY_ONE
    timeline = simulated(impact, Reading.ABOUT)
    told = of(timeline, "decode")
    step = DRAIN + SEEN
    assert min(counts.serve for _, counts in told.moments) == 2
    assert told.gaps == ()
    assert moments(told) == {
        0: (2, 1, 0, 0, 0),
        DRAIN: (2, 0, 0, 1, 0),
        step: (1, 1, 0, 0, 1),
        step + DRAIN: (1, 0, 0, 1, 1),
        2 * step: (0, 1, 0, 0, 2),
        2 * step + DRAIN: (0, 0, 0, 0, 2),
    }
    [(begin, end)] = of(timeline, "prefill").gaps
    assert (begin, end) == (0, step)


def test_an_entry_that_is_dropped_serves_until_the_one_that_stays_is_back() -> None:
    entries = [{"role": role, "node": f"n{i}"} for i, role in enumerate(("prefill", "decode", "decode"))]
    impact = change(
        {"modelserver": {"nodePlacement": entries}}, {"modelserver": {"nodePlacement": entries[:-1]} | NEWER}
    )
    decode = part(impact, "decode")
    assert (decode.capacity_percent, decode.outage) == (100, None)
    assert decode.at_most_seconds == DRAIN + START + DRAIN
    assert moments(of(simulated(impact), "decode")) == {
        0: (1, 1, 0, 0, 0),
        DRAIN: (1, 0, 0, 1, 0),
        DRAIN + START: (0, 1, 0, 0, 1),
        DRAIN + START + DRAIN: (0, 0, 0, 0, 1),
    }


def test_nothing_that_changes_has_no_timeline() -> None:
    assert simulate(change({}, {}), Reading.LONGEST) is None


def test_a_first_install_starts_the_endpoint_picker_first() -> None:
    world = World(first_plan())
    impact = change({}, {}, around=lambda _: world.around(), trial=lambda tried: replace(tried, live={"rel-epp": None}))
    assert impact.is_first_install
    timeline = simulated(impact)
    assert of(timeline, "decode").moments[0][1] == Counts()
    assert of(timeline, "epp").seconds < of(timeline, "decode").seconds
    assert of(timeline, "decode").gaps == ()
    assert simulate(impact, Reading.ABOUT) is None
