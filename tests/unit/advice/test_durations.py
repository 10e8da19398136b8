"""N from durations: what is cut, what buckets allow, and the smallest that is enough."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.durations import Buckets, Choice, Clamp, Durations, Interval, Measured, choose
from stack.errors import UnusableError

VLLM = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
LENGTHS = st.lists(st.floats(0, 10_000, allow_nan=False), min_size=1, max_size=60).filter(
    lambda given: sum(given) > 1e-3
)
EDGES = st.lists(st.floats(0.1, 5_000), min_size=1, max_size=12, unique=True).map(sorted)
SECONDS = st.floats(0, 12_000)
CLOSE = 1e-6


def plain_cut(durations: list[float], seconds: float) -> float:
    """By the definition, summed exactly."""
    return math.fsum(max(d - seconds, 0) for d in durations) / math.fsum(durations)


def bucketed(durations: list[float], edges: list[float] | tuple[float, ...]) -> Buckets:
    counted = {float(edge): float(sum(d <= edge for d in durations)) for edge in edges}
    return Buckets(counted | {math.inf: float(len(durations))}, math.fsum(durations))


# --- one by one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "want"), [(0, 1.0), (10, 0.7), (20, 0.5), (30, 0.4), (70, 0.0), (9_999, 0.0)])
def test_cut_is_the_share_of_all_time_that_lies_beyond(seconds: float, want: float) -> None:
    cut = Durations([70, 10, 20]).cut(seconds)
    assert cut.is_exact
    assert cut.high == pytest.approx(want)


@given(LENGTHS, SECONDS)
def test_sorted_sums_say_the_same_as_the_definition(durations: list[float], seconds: float) -> None:
    assert Durations(durations).cut(seconds).high == pytest.approx(plain_cut(durations, seconds), abs=1e-9)


@given(LENGTHS, SECONDS, SECONDS)
def test_cut_never_rises_with_n(durations: list[float], one: float, other: float) -> None:
    measured = Durations(durations)
    assert measured.cut(max(one, other)).high <= measured.cut(min(one, other)).high + 1e-12


@pytest.mark.parametrize(("share", "want"), [(0.0, 1), (0.5, 2), (0.51, 3), (0.99, 4), (1.0, 4)])
def test_a_quantile_is_a_duration_within_which_that_share_ended(share: float, want: float) -> None:
    assert Durations([4, 2, 1, 3]).quantile(share) == Interval(low=want, high=want)


@pytest.mark.parametrize(
    ("durations", "want"),
    [
        ([], "hold no durations"),
        ([1.0, -2.0], "negative"),
        ([1.0, math.nan], "no duration"),
        ([math.inf], "no duration"),
        ([0.0, 0.0], "nothing to cut"),
    ],
)
def test_what_is_no_sample_is_refused_in_a_letter(durations: list[float], want: str) -> None:
    with pytest.raises(UnusableError, match=want) as caught:
        Durations(durations, key="sample.csv")
    assert caught.value.problem.key == "sample.csv"


# --- N ----------------------------------------------------------------------------------------------------------------


def test_one_long_request_among_many_short_ones_asks_for_most_of_its_length() -> None:
    # 99 of 10 s and one of 700 s: 1690 s in all, so 16.9 s may be cut, and 690 s leave 10 s.
    choice = choose(Durations([10.0] * 99 + [700.0]))
    assert (choice.seconds, choice.wanted, choice.clamp) == (690, 690, None)
    assert choice.cut.high == pytest.approx(10 / 1690)


def test_the_upper_limit_binds_where_more_would_be_needed_and_what_is_cut_is_said() -> None:
    choice = choose(Durations([10.0] * 99 + [2000.0]))
    assert (choice.seconds, choice.wanted, choice.clamp) == (900, 1980, Clamp.MOST)
    assert choice.cut.high == pytest.approx(1100 / 2990)


def test_a_limit_that_is_met_exactly_does_not_bind() -> None:
    # 99 of 10 s and one of 900: at 870 s 30 of 1890 s are cut, at 900 s none.
    assert choose(Durations([10.0] * 99 + [900.0])).clamp is None
    assert choose(Durations([30.0])).seconds == 60
    assert choose(Durations([60.0])).clamp is None


def test_the_lower_limit_binds_where_requests_are_short() -> None:
    choice = choose(Durations([1.0] * 50))
    assert (choice.seconds, choice.wanted, choice.clamp) == (60, 30, Clamp.LEAST)


def test_a_cut_that_is_met_exactly_is_enough() -> None:
    # 30 s, 9 times, and 60 s, once: beyond 30 s lie 30 of 330 s, which is a cut of 1/11.
    assert choose(Durations([30.0] * 9 + [60.0]), least=0, most_cut=1 / 11).seconds == 30


@given(LENGTHS, st.sampled_from([1, 7, 30]), st.floats(0, 0.5))
def test_n_is_the_smallest_multiple_that_is_enough(durations: list[float], step: int, most_cut: float) -> None:
    choice = choose(Durations(durations), step=step, least=0, most=10**6, most_cut=most_cut)
    assert choice.seconds % step == 0
    assert plain_cut(durations, choice.seconds) <= most_cut + 1e-9
    if choice.seconds:
        assert plain_cut(durations, choice.seconds - step) > most_cut - 1e-9


@given(LENGTHS, st.integers(1, 300), st.integers(0, 2000))
def test_n_stays_between_its_limits_and_says_which_one_binds(durations: list[float], least: int, more: int) -> None:
    choice = choose(Durations(durations), least=least, most=least + more)
    assert least <= choice.seconds <= least + more
    assert choice.wanted is not None
    want = Clamp.LEAST if choice.wanted < least else Clamp.MOST if choice.wanted > least + more else None
    assert choice.clamp is want
    assert want is not None or choice.seconds == choice.wanted


@given(LENGTHS, st.floats(0, 0.3), st.floats(0, 0.3))
def test_whoever_allows_less_cut_never_gets_a_smaller_n(durations: list[float], one: float, other: float) -> None:
    measured = Durations(durations)
    strict, loose = (choose(measured, most_cut=cut) for cut in (min(one, other), max(one, other)))
    assert strict.seconds >= loose.seconds


@pytest.mark.parametrize(("step", "least", "most", "most_cut"), [(0, 1, 2, 0.1), (1, 3, 2, 0.1), (1, 1, 2, 1.0)])
def test_limits_that_make_no_sense_are_a_mistake_of_the_caller(
    step: int, least: int, most: int, most_cut: float
) -> None:
    with pytest.raises(ValueError, match="needed"):
        choose(Durations([1.0]), step=step, least=least, most=most, most_cut=most_cut)


# --- buckets ----------------------------------------------------------------------------------------------------------


@given(LENGTHS, EDGES, SECONDS)
def test_what_buckets_allow_holds_what_is_cut(durations: list[float], edges: list[float], seconds: float) -> None:
    cut = bucketed(durations, edges).cut(seconds)
    assert cut.low - CLOSE <= plain_cut(durations, seconds) <= cut.high + CLOSE


@given(LENGTHS, EDGES, SECONDS)
def test_the_sum_makes_the_interval_no_wider_than_edges_alone(
    durations: list[float], edges: list[float], seconds: float
) -> None:
    cut = bucketed(durations, edges).cut(seconds)
    lower = [max((edge for edge in edges if edge < d), default=0.0) for d in durations]
    upper = [min((edge for edge in edges if edge >= d), default=math.inf) for d in durations]
    total = math.fsum(durations)
    assert cut.low >= math.fsum(max(edge - seconds, 0) for edge in lower) / total - CLOSE
    assert cut.high <= min(math.fsum(max(edge - seconds, 0) for edge in upper) / total, 1.0) + CLOSE


@given(LENGTHS, EDGES, SECONDS, SECONDS)
def test_neither_end_of_the_interval_rises_with_n(
    durations: list[float], edges: list[float], one: float, other: float
) -> None:
    measured = bucketed(durations, edges)
    low, high = measured.cut(min(one, other)), measured.cut(max(one, other))
    assert high.low <= low.low + CLOSE
    assert high.high <= low.high + CLOSE


def test_both_ends_of_the_interval_can_really_be_so() -> None:
    # Two requests between 0 and 100 s, 100 s in all. At N = 60: both of 50 s, nothing is cut; 0 and 100 s, 40 of 100.
    cut = Buckets({100.0: 2.0, math.inf: 2.0}, 100.0).cut(60)
    assert cut == Interval(low=0.0, high=pytest.approx(0.4))  # pyright: ignore[reportArgumentType]  # stands for a number


def test_where_n_is_an_edge_and_all_lie_beyond_it_the_sum_says_exactly_what_is_cut() -> None:
    # Two requests between 100 and 200 s, 250 s in all: whatever each took, 50 s lie beyond 100.
    cut = Buckets({100.0: 0.0, 200.0: 2.0, math.inf: 2.0}, 250.0).cut(100)
    assert cut.low == pytest.approx(50 / 250)
    assert cut.high == pytest.approx(50 / 250)


def test_the_last_bucket_has_no_end_but_the_sum_bounds_it() -> None:
    # One request beyond 10 s and one up to 10 s, 100 s in all: it took 90 to 100 s.
    cut = Buckets({10.0: 1.0, math.inf: 2.0}, 100.0).cut(50)
    assert (cut.low, cut.high) == (pytest.approx(0.40), pytest.approx(0.50))


@given(LENGTHS)
def test_the_safe_end_never_chooses_less_than_the_durations_themselves_would(durations: list[float]) -> None:
    exact, safe = choose(Durations(durations)), choose(bucketed(durations, VLLM))
    assert safe.seconds >= exact.seconds
    assert safe.wanted is None or exact.wanted is None or safe.wanted >= exact.wanted
    assert safe.wanted_low is None or exact.wanted is None or safe.wanted_low <= exact.wanted


@pytest.mark.parametrize("seed", range(5))
def test_of_ordinary_traffic_buckets_give_an_interval_with_n_in_it(seed: int) -> None:
    drawn = np.random.default_rng(seed).lognormal(3, 1, 5_000).tolist()
    exact, counted = choose(Durations(drawn)), choose(bucketed(drawn, VLLM))
    assert counted.wanted_low is not None
    assert counted.wanted is not None
    assert exact.wanted is not None
    assert counted.wanted_low <= exact.wanted <= counted.wanted


def test_a_rounding_of_a_count_is_no_request() -> None:
    # 990 requests up to 60 s and ten up to 120 s, 20,000 s in all: 600 s of them lie at 60 s at least, so up to all of
    # the rest may lie with the ten. At 90 s half of their 600 s may be beyond, 1.5 %; at 120 s nothing is.
    counted = {60.0: 990.0, 120.0: 1000.0, 240.0: 1000.0, 7680.0: 1000.0, math.inf: 1000.0000000000002}
    measured = Buckets(counted, 20_000.0)
    assert choose(measured).seconds == 120
    assert measured.longest == Interval(low=60.0, high=120.0)
    # One request among a hundred million is one.
    assert Buckets({60.0: 1e8, math.inf: 1e8 + 1}, 1e9).longest.low == 60.0


def test_quantiles_of_buckets_are_the_edges_around_them() -> None:
    measured = Buckets({1.0: 50.0, 2.0: 99.0, 4.0: 100.0, math.inf: 100.0}, 120.0)
    assert measured.quantile(0.5) == Interval(low=0.0, high=1.0)
    assert measured.quantile(0.99) == Interval(low=1.0, high=2.0)
    assert measured.longest == Interval(low=2.0, high=4.0)


def test_requests_beyond_the_last_edge_leave_the_longest_open() -> None:
    measured: Measured = Buckets({10.0: 1.0, math.inf: 2.0}, 100.0)
    choice: Choice = choose(measured, most=90)
    assert math.isinf(measured.longest.high)
    assert choice.clamp is Clamp.MOST


@pytest.mark.parametrize(
    ("cumulative", "total", "want"),
    [
        ({}, 1.0, "no bucket"),
        ({1.0: 1.0}, 1.0, r"no bucket \+Inf"),
        ({1.0: math.nan, math.inf: 1.0}, 1.0, "no count"),
        ({1.0: 1.0, math.inf: 1.0}, math.nan, "no count"),
        ({1.0: 0.0, math.inf: 0.0}, 0.0, "no request"),
        ({1.0: 5.0, 2.0: 3.0, math.inf: 5.0}, 5.0, "fewer requests"),
        ({1.0: 0.0, 2.0: 10.0, math.inf: 10.0}, 5.0, "outside of what its buckets allow"),
        ({1.0: 0.0, 2.0: 10.0, math.inf: 10.0}, 30.0, "outside of what its buckets allow"),
    ],
)
def test_a_histogram_that_cannot_be_is_refused_in_a_letter(
    cumulative: dict[float, float], total: float, want: str
) -> None:
    with pytest.raises(UnusableError, match=want):
        Buckets(cumulative, total)


def test_a_little_disagreement_is_prometheus_extrapolating_and_is_taken() -> None:
    measured = Buckets({1.0: 100.4, 2.0: 100.0, math.inf: 100.2}, 60.0)
    assert measured.count == pytest.approx(100.4)
