"""How Kubernetes exchanges Pods: worked out by hand from its rules, for each strategy, number and percentage."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stack.impact.arithmetic import Exchange, Standing, Strategy, exchange, percent, share

RECREATE = Strategy(is_recreate=True, surge=0, unavailable=0)


def rolling(surge: int, unavailable: int) -> Strategy:
    return Strategy(is_recreate=False, surge=surge, unavailable=unavailable)


def all_ready(pods: int, kept: int = 0) -> Standing:
    return Standing(pods=pods, kept=kept, ready=pods, ready_kept=kept, placed=pods)


def spec(**numbers: Any) -> dict[str, Any]:
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": numbers}}


@pytest.mark.parametrize(
    ("given_spec", "replicas", "want"),
    [
        pytest.param(spec(maxSurge=1, maxUnavailable=0), 4, rolling(1, 0), id="whole numbers"),
        pytest.param(spec(maxSurge="25%", maxUnavailable="25%"), 4, rolling(1, 1), id="a quarter of 4"),
        pytest.param(spec(maxSurge="25%", maxUnavailable="25%"), 5, rolling(2, 1), id="of 5, up and down"),
        pytest.param(spec(maxSurge="25%", maxUnavailable="25%"), 1, rolling(1, 0), id="of 1, up and down"),
        pytest.param(spec(maxSurge="100%", maxUnavailable="100%"), 3, rolling(3, 3), id="all of 3"),
        pytest.param(spec(maxSurge="200%", maxUnavailable=0), 3, rolling(6, 0), id="twice as many"),
        pytest.param(spec(maxSurge=0, maxUnavailable="20%"), 4, rolling(0, 1), id="none and none becomes one fewer"),
        pytest.param(spec(maxSurge="0%", maxUnavailable="10%"), 9, rolling(0, 1), id="also from percentages"),
        pytest.param(
            spec(maxSurge="29%", maxUnavailable="29%"), 100, rolling(29, 29), id="no error of binary fractions"
        ),
        pytest.param({"strategy": {"type": "RollingUpdate"}}, 8, rolling(2, 2), id="Kubernetes' defaults"),
        pytest.param({}, 4, rolling(1, 1), id="no strategy at all"),
        pytest.param({"strategy": {"type": "Recreate"}}, 4, RECREATE, id="Recreate"),
    ],
)
def test_a_strategy_is_read_as_whole_pods(given_spec: dict[str, Any], replicas: int, want: Strategy) -> None:
    assert Strategy.read(given_spec, replicas) == want


@pytest.mark.parametrize(
    ("standing", "strategy", "wanted", "want"),
    [
        pytest.param(
            all_ready(4),
            rolling(1, 0),
            4,
            Exchange(new=4, kept=0, leaving=4, extra=1, least_ready=4, steps=4),
            id="one more at a time: all serve, and one Pod's devices must be spare",
        ),
        pytest.param(
            all_ready(4),
            rolling(0, 1),
            4,
            Exchange(new=4, kept=0, leaving=4, extra=0, least_ready=3, steps=4),
            id="one fewer at a time: no devices, three of four serve",
        ),
        pytest.param(
            all_ready(4),
            rolling(1, 1),
            4,
            Exchange(new=4, kept=0, leaving=4, extra=1, least_ready=3, steps=2),
            id="one more and one fewer: in two steps",
        ),
        pytest.param(
            all_ready(5),
            rolling(2, 0),
            5,
            Exchange(new=5, kept=0, leaving=5, extra=2, least_ready=5, steps=3),
            id="two more at a time: the last step is half a one",
        ),
        pytest.param(
            all_ready(3),
            rolling(3, 0),
            3,
            Exchange(new=3, kept=0, leaving=3, extra=3, least_ready=3, steps=1),
            id="all at once with as many more",
        ),
        pytest.param(
            all_ready(3),
            rolling(9, 0),
            3,
            Exchange(new=3, kept=0, leaving=3, extra=3, least_ready=3, steps=1),
            id="never more new ones than are wanted",
        ),
        pytest.param(
            all_ready(3),
            rolling(1, 3),
            3,
            Exchange(new=3, kept=0, leaving=3, extra=1, least_ready=0, steps=1),
            id="all may be gone: none serves",
        ),
        pytest.param(
            all_ready(1),
            rolling(1, 0),
            1,
            Exchange(new=1, kept=0, leaving=1, extra=1, least_ready=1, steps=1),
            id="a single Pod, one more: it serves on",
        ),
        pytest.param(
            all_ready(1),
            rolling(0, 1),
            1,
            Exchange(new=1, kept=0, leaving=1, extra=0, least_ready=0, steps=1),
            id="a single Pod, one fewer: an outage",
        ),
        pytest.param(
            all_ready(1),
            rolling(1, 1),
            1,
            Exchange(new=1, kept=0, leaving=1, extra=1, least_ready=0, steps=1),
            id="a single Pod, whatever the surge says: it is deleted at the start",
        ),
        pytest.param(
            all_ready(4),
            RECREATE,
            4,
            Exchange(new=4, kept=0, leaving=4, extra=0, least_ready=0, steps=1),
            id="Recreate: none serves, and its own devices do",
        ),
        pytest.param(
            all_ready(4, kept=4),
            rolling(1, 0),
            6,
            Exchange(new=2, kept=4, leaving=0, extra=2, least_ready=4, steps=1),
            id="two more",
        ),
        pytest.param(
            all_ready(4, kept=4),
            rolling(1, 0),
            3,
            Exchange(new=0, kept=3, leaving=1, extra=0, least_ready=3, steps=1),
            id="one fewer",
        ),
        pytest.param(
            all_ready(4, kept=4),
            rolling(1, 0),
            4,
            Exchange(new=0, kept=4, leaving=0, extra=0, least_ready=4, steps=0),
            id="nothing",
        ),
        pytest.param(
            all_ready(4),
            rolling(1, 0),
            6,
            Exchange(new=6, kept=0, leaving=4, extra=3, least_ready=4, steps=6),
            id="another template and two more: devices for both",
        ),
        pytest.param(
            all_ready(4),
            rolling(0, 1),
            6,
            Exchange(new=6, kept=0, leaving=4, extra=2, least_ready=4, steps=6),
            id="another template and two more, one fewer at a time: the new ones come first",
        ),
        pytest.param(
            all_ready(4),
            rolling(1, 0),
            2,
            Exchange(new=2, kept=0, leaving=4, extra=0, least_ready=2, steps=2),
            id="another template and two fewer: those that leave make room",
        ),
        pytest.param(
            all_ready(4),
            RECREATE,
            6,
            Exchange(new=6, kept=0, leaving=4, extra=2, least_ready=0, steps=1),
            id="Recreate and two more",
        ),
        pytest.param(
            Standing(pods=5, kept=4, ready=4, ready_kept=4, placed=4),
            rolling(1, 0),
            4,
            Exchange(new=0, kept=4, leaving=1, extra=0, least_ready=4, steps=1),
            id="going back, the one more found no device: it goes, nothing is needed",
        ),
        pytest.param(
            Standing(pods=4, kept=3, ready=3, ready_kept=3, placed=4),
            rolling(0, 1),
            4,
            Exchange(new=1, kept=3, leaving=1, extra=0, least_ready=3, steps=1),
            id="going back, the first new one crashed: it gives its devices back",
        ),
        pytest.param(
            Standing(pods=4, kept=2, ready=4, ready_kept=2, placed=4),
            rolling(1, 0),
            4,
            Exchange(new=2, kept=2, leaving=2, extra=1, least_ready=4, steps=2),
            id="going back half-way, with one more at a time",
        ),
        pytest.param(
            Standing(pods=4, kept=2, ready=4, ready_kept=2, placed=4),
            RECREATE,
            4,
            Exchange(new=2, kept=2, leaving=2, extra=0, least_ready=2, steps=1),
            id="going back half-way with Recreate: those of the old template serve on",
        ),
        pytest.param(
            Standing(pods=5, kept=0, ready=4, ready_kept=0, placed=4),
            rolling(1, 0),
            4,
            Exchange(new=4, kept=0, leaving=5, extra=1, least_ready=4, steps=4),
            id="another change while one is stuck without a device: still one is needed",
        ),
        pytest.param(
            Standing(pods=4, kept=0, ready=2, ready_kept=0, placed=4),
            rolling(0, 1),
            4,
            Exchange(new=4, kept=0, leaving=4, extra=0, least_ready=2, steps=4),
            id="two of four serve: Pods that do not are taken first",
        ),
        pytest.param(
            Standing(),
            rolling(1, 0),
            4,
            Exchange(new=4, kept=0, leaving=0, extra=4, least_ready=0, steps=1),
            id="nothing there yet",
        ),
    ],
)
def test_pods_are_exchanged(standing: Standing, strategy: Strategy, wanted: int, want: Exchange) -> None:
    assert exchange(standing, strategy, wanted=wanted) == want


@pytest.mark.parametrize(
    ("standing", "strategy", "numbers", "is_back", "want"),
    [
        pytest.param(
            Standing(pods=3, kept=2, ready=2, ready_kept=2, placed=3),
            rolling(0, 1),
            (3, 2),
            True,
            Exchange(new=1, kept=1, leaving=2, extra=0, least_ready=1, steps=1),
            id="back from a crashed one with one fewer: the larger template loses one that serves, and makes it anew",
        ),
        pytest.param(
            Standing(pods=2, kept=1, ready=1, ready_kept=1, placed=2),
            rolling(0, 1),
            (2, 1),
            True,
            Exchange(new=1, kept=0, leaving=2, extra=0, least_ready=0, steps=1),
            id="as many of both: the older template loses the only Pod that serves",
        ),
        pytest.param(
            Standing(pods=2, kept=1, ready=1, ready_kept=0, placed=2),
            rolling(0, 1),
            (2, 1),
            False,
            Exchange(new=0, kept=1, leaving=1, extra=0, least_ready=0, steps=1),
            id="as many of both, going on: the older template is the other one, and the new one starts",
        ),
        pytest.param(
            Standing(pods=4, kept=3, ready=3, ready_kept=3, placed=3),
            rolling(1, 0),
            (3, 2),
            True,
            Exchange(new=0, kept=2, leaving=2, extra=0, least_ready=2, steps=1),
            id="back from one without devices: the larger template loses what is too much",
        ),
        pytest.param(
            Standing(pods=3, kept=2, ready=2, ready_kept=2, placed=3),
            rolling(0, 1),
            (3, 6),
            True,
            Exchange(new=4, kept=2, leaving=1, extra=3, least_ready=2, steps=4),
            id="back from a crashed one with twice as many: both templates grow, to 4 and 2",
        ),
        pytest.param(
            Standing(pods=4, kept=2, ready=4, ready_kept=2, placed=4),
            RECREATE,
            (4, 2),
            True,
            Exchange(new=0, kept=2, leaving=2, extra=0, least_ready=2, steps=1),
            id="Recreate shares nothing",
        ),
    ],
)
def test_two_templates_share_another_number_by_size_before_any_is_exchanged(
    standing: Standing, strategy: Strategy, numbers: tuple[int, int], want: Exchange, *, is_back: bool
) -> None:
    before, wanted = numbers
    assert exchange(standing, strategy, wanted=wanted, before=before, is_back=is_back) == want


@pytest.mark.parametrize(
    ("sizes", "strategy", "numbers", "want"),
    [
        pytest.param((5, 0), rolling(1, 0), (4, 6), (6, 0), id="one template alone gets the number"),
        pytest.param((4, 0), rolling(1, 0), (4, 2), (2, 0), id="or as few"),
        pytest.param((2, 2), rolling(0, 1), (4, 6), (3, 3), id="half of it each"),
        pytest.param((3, 1), rolling(0, 1), (4, 6), (5, 1), id="4.5 of 6 are rounded up, and no more are left"),
        pytest.param((1, 4), rolling(1, 0), (4, 9), (2, 8), id="with the surge: 2 and 8 of 10"),
        pytest.param((1, 4), rolling(1, 0), (4, 1), (0, 2), id="0.4 and 1.6 of 2"),
        pytest.param((1, 1), rolling(0, 1), (2, 1), (0, 1), id="a half each: the older one loses it"),
        pytest.param((2, 1), rolling(2, 0), (3, 2), (3, 1), id="room for the surge goes to the larger one, too"),
    ],
)
def test_a_changed_number_is_shared(
    sizes: tuple[int, int], strategy: Strategy, numbers: tuple[int, int], want: tuple[int, int]
) -> None:
    before, wanted = numbers
    assert share(*sizes, strategy, wanted=wanted, before=before) == want


@st.composite
def standings(draw: st.DrawFn) -> Standing:
    pods = draw(st.integers(0, 12))
    kept = draw(st.integers(0, pods))
    ready_kept = draw(st.integers(0, kept))
    ready = ready_kept + draw(st.integers(0, pods - kept))
    return Standing(pods=pods, kept=kept, ready=ready, ready_kept=ready_kept, placed=draw(st.integers(ready, pods)))


STRATEGIES = st.just(RECREATE) | st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(any).map(lambda n: rolling(*n))


@example(
    standing=Standing(pods=9, kept=4, ready=4, ready_kept=4, placed=4),
    strategy=rolling(4, 0),
    wanted=6,
    before=8,
    is_back=False,
)
@given(
    standing=standings(),
    strategy=STRATEGIES,
    wanted=st.integers(1, 12),
    before=st.integers(1, 12),
    is_back=st.booleans(),
)
def test_pods_that_come_stay_and_go_add_up(
    standing: Standing, strategy: Strategy, wanted: int, before: int, *, is_back: bool
) -> None:
    done = exchange(standing, strategy, wanted=wanted, before=before, is_back=is_back)
    assert done.new + done.kept == wanted
    assert done.kept + done.leaving == standing.pods
    # Sharing a number anew can take Pods of the wanted template away and make as many of the old one.
    shifted = standing.kept - done.kept
    assert 0 <= done.extra <= done.new + standing.waiting + shifted + max(0, wanted + strategy.surge - standing.pods)
    assert 0 <= done.least_ready <= min(standing.ready, wanted)
    assert bool(done.steps) == bool(done.new or done.leaving)


def simulated(pods: int, wanted: int, surge: int, unavailable: int) -> tuple[int, int]:
    """Most Pods and fewest Ready ones of the deployment controller's loop, when a new Pod starts after all else.

    A changed number of replicas reaches the only ReplicaSet there is first, as `scale` does.
    """
    old, old_ready, new, new_ready = wanted, min(pods, wanted), 0, 0
    most, fewest = max(pods, old), old_ready
    while old or new_ready < wanted:
        if (more := min(wanted + surge - old - new, wanted - new)) > 0:
            new += more
        elif (fewer := min(old, old + new - (wanted - unavailable) - (new - new_ready))) > 0 and (
            unready := min(fewer, old - old_ready)
        ):
            old -= unready
        elif (fewer := min(old, old_ready + new_ready - (wanted - unavailable))) > 0:
            old -= fewer
            old_ready -= fewer
        elif new_ready < new:
            new_ready += 1
        elif old_ready < old:
            old_ready += 1
        else:
            raise AssertionError("it stands still")
        most, fewest = max(most, old + new), min(fewest, old_ready + new_ready)
    return most, fewest


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 9), st.integers(0, 9))
def test_what_is_foreseen_of_a_rolling_update_is_the_worst_that_the_controllers_loop_does(
    pods: int, wanted: int, surge: int, unavailable: int
) -> None:
    if surge == unavailable == 0:
        return  # the API server refuses it
    done = exchange(all_ready(pods), rolling(surge, unavailable), wanted=wanted)
    most, fewest = simulated(pods, wanted, surge, unavailable)
    assert done.extra == max(0, most - pods)
    assert done.least_ready == fewest


@pytest.mark.parametrize(
    ("part", "whole", "want"),
    [(4, 4, 100), (3, 4, 75), (2, 3, 66), (0, 3, 0), (5, 4, 100), (0, 0, None)],
)
def test_a_share_is_rounded_down_and_of_nothing_there_is_none(part: int, whole: int, want: int | None) -> None:
    assert percent(part, whole) == want
