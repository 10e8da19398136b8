"""Floor and occupancy from what a role was asked for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.advice import (
    OCCUPANCY,
    History,
    Pace,
    backlog_by_occupancy,
    choose_floor,
    choose_target,
    depths,
    history,
    replay,
)
from stack.errors import UnusableError

if TYPE_CHECKING:
    from collections.abc import Sequence

STEP = 60.0
HOUR = 60
"""Steps."""
DEMANDS = st.lists(st.integers(0, 40), min_size=1, max_size=120)
PACES = st.builds(
    Pace,
    slots=st.integers(1, 8),
    occupancy=st.sampled_from([0.3, 0.6, 1.0]),
    start=st.sampled_from([0.0, 60.0, 600.0, 7200.0]),
    up=st.sampled_from([30.0, 180.0]),
    down=st.sampled_from([30.0, 300.0]),
    window=st.sampled_from([0.0, 300.0]),
)
PACE = Pace(slots=4, occupancy=0.5, start=600)


def asked(demand: list[int], pods: int = 1) -> History:
    """A history in which that many ran, minute by minute."""
    return History(
        step=STEP,
        times=np.arange(len(demand), dtype=np.float64) * STEP,
        running=np.array(demand, dtype=np.float64),
        waiting=np.zeros(len(demand)),
        pods=np.full(len(demand), float(pods)),
    )


def seen(points: Sequence[tuple[float, float]], pods: int = 2) -> History:
    """A history of (running, waiting) of all Pods together."""
    running, waiting = zip(*points, strict=True)
    return History(
        step=STEP,
        times=np.arange(len(points), dtype=np.float64) * STEP,
        running=np.array(running, dtype=np.float64),
        waiting=np.array(waiting, dtype=np.float64),
        pods=np.full(len(points), float(pods)),
    )


# --- samples of Pods --------------------------------------------------------------------------------------------------


def test_pods_are_added_up_at_each_time_and_times_without_data_left_out() -> None:
    past = history([0, 60, 60, 240], ["a", "a", "b", "b"], [1, 2, 3, 4], [0, 0, 5, 1], step=60, key="k")
    assert past.times.tolist() == [0, 60, 240]
    assert past.running.tolist() == [1, 5, 4]
    assert past.waiting.tolist() == [0, 5, 1]
    assert past.pods.tolist() == [1, 2, 1]
    assert past.days == pytest.approx(300 / 86_400)
    assert past.covered == pytest.approx(3 / 5)


def test_of_a_pod_that_is_seen_twice_in_a_step_the_mean_counts() -> None:
    past = history([0, 30, 10], ["a", "a", "b"], [2, 4, 10], [0, 2, 0], step=60, key="k")
    assert (past.running.tolist(), past.waiting.tolist(), past.pods.tolist()) == ([13], [1], [2])


@given(st.permutations(range(6)))
def test_the_order_of_samples_changes_nothing(order: list[int]) -> None:
    rows = [(0, "a", 1, 0), (0, "b", 2, 1), (60, "a", 3, 0), (60, "b", 4, 0), (120, "c", 5, 2), (130, "c", 7, 0)]
    sorted_, mixed = (
        history(*zip(*given_rows, strict=True), step=60, key="k") for given_rows in (rows, [rows[at] for at in order])
    )
    assert [row.tolist() for row in (sorted_.times, sorted_.running, sorted_.waiting, sorted_.pods)] == [
        row.tolist() for row in (mixed.times, mixed.running, mixed.waiting, mixed.pods)
    ]


@pytest.mark.parametrize(
    ("running", "want"),
    [([], "no samples"), ([-1.0], "negative"), ([math.nan], "no number"), ([math.inf], "no number")],
)
def test_samples_that_are_none_are_refused_in_a_letter(running: list[float], want: str) -> None:
    times = [0.0] * len(running)
    with pytest.raises(UnusableError, match=want):
        history(times, ["a"] * len(running), running, times, step=60, key="k")


# --- occupancy --------------------------------------------------------------------------------------------------------


def test_occupancy_is_that_of_all_pods_together_by_what_waits_for_each() -> None:
    found = depths(seen([(4, 0), (8, 0), (12, 0), (16, 2), (16, 40)]), slots=8)
    assert [depth.times for depth in found] == [3, 1, 0, 0, 0, 0, 1]
    assert found[0].middle == pytest.approx(0.5)
    assert found[1].low == found[1].high == pytest.approx(1.0)
    assert found[2].middle is None
    assert math.isinf(found[-1].up_to)


def test_without_a_backlog_the_usual_occupancy_stays_and_is_said_to() -> None:
    target = choose_target(seen([(4, 0)] * 100), slots=8)
    assert (target.occupancy, target.begins, target.fits) == (OCCUPANCY, None, True)
    assert "no real backlog" in target.because


def test_a_few_times_with_a_backlog_prove_nothing() -> None:
    target = choose_target(seen([(4, 0)] * 100 + [(4, 20)] * 5), slots=8)
    assert target.occupancy == OCCUPANCY
    assert "5 times only" in target.because


def test_one_request_that_just_arrived_is_no_backlog() -> None:
    assert choose_target(seen([(4, 2)] * 100), slots=8).begins is None  # one for each of two Pods


def test_a_backlog_is_two_requests_a_pod_or_a_tenth_of_its_slots() -> None:
    assert choose_target(seen([(8, 4)] * 100), slots=8).begins == pytest.approx(0.5)
    assert choose_target(seen([(8, 4)] * 100), slots=30).begins is None
    assert choose_target(seen([(8, 6)] * 100), slots=30).begins is not None


def test_it_begins_where_it_does_at_first_and_not_where_it_mostly_is() -> None:
    # A backlog at a quarter of the slots now and then, at all of them mostly.
    target = choose_target(seen([(4, 20)] * 30 + [(16, 20)] * 70), slots=8)
    assert (target.begins, target.fits) == (pytest.approx(0.25), False)


def test_a_backlog_that_begins_at_full_slots_leaves_the_usual_occupancy() -> None:
    target = choose_target(seen([(8, 0)] * 100 + [(16, 20)] * 50), slots=8)
    assert (target.occupancy, target.begins) == (OCCUPANCY, pytest.approx(1.0))


def test_a_backlog_that_begins_early_lowers_the_occupancy_to_a_twentieth_below_it() -> None:
    # 2 Pods of 8 slots: 7 running are 0.4375 of them.
    target = choose_target(seen([(3, 0)] * 100 + [(7, 20)] * 50), slots=8)
    assert (target.occupancy, target.fits) == (0.4, True)


def test_where_requests_wait_beside_free_slots_occupancy_is_no_signal() -> None:
    target = choose_target(seen([(1, 0)] * 100 + [(2, 20)] * 50), slots=8)
    assert not target.fits
    assert "is not a slot" in target.because


@given(st.lists(st.tuples(st.integers(0, 16), st.integers(0, 60)), min_size=1, max_size=80), st.integers(8, 64))
def test_the_target_is_never_more_than_the_usual_and_never_nothing(points: list[tuple[int, int]], slots: int) -> None:
    target = choose_target(seen([(float(r), float(w)) for r, w in points]), slots)
    assert 0 < target.occupancy <= OCCUPANCY
    assert target.begins is None or target.occupancy <= max(target.begins, 0.05) + 1e-9


def test_the_picture_shows_what_waited_on_average_at_each_occupancy() -> None:
    assert backlog_by_occupancy(seen([(8, 0), (8, 4), (16, 10)]), slots=8) == ((0.525, 1.0), (1.025, 5.0))


# --- floor ------------------------------------------------------------------------------------------------------------


def test_a_spike_that_is_over_before_a_pod_has_started_raises_the_floor_only_by_what_it_is_worth() -> None:
    # A day of 2 requests at once, and 5 minutes of 40: 36 of them wait, 180 request minutes of 3,070.
    day = [2] * (24 * HOUR)
    day[600:605] = [40] * 5
    played = replay(asked(day), 1, PACE)
    assert played.wait == pytest.approx(36 * 5 / (2 * (24 * HOUR - 5) + 40 * 5))
    assert (played.queued, played.longest) == (300, 300)
    assert choose_floor(asked(day), PACE, most_wait=0.1).chosen.floor == 1
    strict = choose_floor(asked(day), PACE, most_wait=0.0)
    assert strict.chosen.floor == strict.by_peak == 10
    assert strict.chosen.wait == 0


def test_what_lasts_longer_than_a_cold_start_is_the_scalers_and_not_the_floors() -> None:
    # Seven requests at once need four Pods at half of four slots; the scaler has them some minutes after a cold start.
    played = replay(asked([2] * 60 + [7] * 600), 1, PACE)
    assert played.most == 4
    assert played.longest < 20 * STEP
    assert played.wait < 0.02


def test_pods_come_no_faster_than_the_pace_allows_and_as_fast() -> None:
    # Half of one slot is aimed at, so full Pods always ask for twice as many; half an hour has room for ten or eleven.
    quick = Pace(slots=1, occupancy=0.5, start=0, up=180)
    assert 10 <= replay(asked([0] + [100] * 30), 1, quick).most <= 12


def test_as_many_come_in_a_long_step_as_the_pace_allows() -> None:
    quick = Pace(slots=1, occupancy=0.1, start=0, up=20)  # three a minute
    assert replay(asked([0, 9, 9]), 1, quick).most == 7


def test_a_difference_within_the_tolerance_moves_nothing() -> None:
    aims_at_20 = Pace(slots=40, occupancy=0.5, start=0)
    assert replay(asked([20] + [21] * 60), 1, aims_at_20).most == 1
    assert replay(asked([20] + [24] * 60), 1, aims_at_20).most == 2


def test_a_dip_shorter_than_the_window_takes_no_pod() -> None:
    steady = Pace(slots=4, occupancy=0.5, start=0, up=60, down=60, window=600)
    dip = [16] * 60 + [0] * 9 + [16] * 60
    assert replay(asked(dip), 1, steady).mean == pytest.approx(8, abs=0.01)
    assert replay(asked([16] * 60 + [0] * 60), 1, steady).mean < 7


def test_the_scaler_never_goes_below_the_floor_nor_loses_pods_that_start() -> None:
    played = replay(asked([0] * 300), 3, PACE)
    assert (played.most, played.mean, played.wait) == (3, 3, 0)


@given(DEMANDS, PACES, st.sampled_from([0.0, 0.01, 0.2]))
def test_the_floor_keeps_what_it_promises(demand: list[int], pace: Pace, most_wait: float) -> None:
    floor = choose_floor(asked(demand), pace, most_wait=most_wait)
    assert floor.chosen.wait <= most_wait + 1e-12
    assert 1 <= floor.chosen.floor <= floor.by_peak
    assert floor.below is None or floor.below.wait > most_wait


@given(DEMANDS, PACES, st.integers(0, 4))
def test_with_slots_for_all_that_was_ever_asked_for_nothing_waits(demand: list[int], pace: Pace, more: int) -> None:
    floor = max(math.ceil(max(demand) / pace.slots), 1) + more
    played = replay(asked(demand), floor, pace)
    assert (played.wait, played.queued, played.longest) == (0, 0, 0)


def test_more_pods_can_mean_more_waiting_since_full_ones_ask_sooner() -> None:
    # Seven Pods are 1.19 times as full as they should be, and ask for more; eight are within the tolerance, and do not.
    eager = Pace(slots=4, occupancy=0.6, start=0, up=30, window=0)
    seven, eight = (replay(asked([0, 20, 33]), floor, eager) for floor in (7, 8))
    assert seven.wait == 0
    assert eight.wait > 0


def test_nothing_that_was_asked_for_needs_one_pod() -> None:
    floor = choose_floor(asked([0] * 100), PACE)
    assert (floor.chosen.floor, floor.by_peak, floor.below) == (1, 1, None)
