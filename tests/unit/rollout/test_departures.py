"""For how long a leaving Pod may still be there."""

from __future__ import annotations

from typing import Any

import pytest

from stack.rollout.departures import MARGIN_SECONDS, Departures
from tests import live
from tests.builders import merged
from tests.live import pod

ON_A_NODE: dict[str, Any] = {"spec": {"nodeName": "n1"}}


def leaving(grace: int | None = 100, **over: Any) -> dict[str, Any]:
    going = pod("old", "old", **merged(merged(live.LEAVING, ON_A_NODE), over))
    if grace is None:
        del going["metadata"]["deletionGracePeriodSeconds"]
        return going
    return merged(going, {"metadata": {"deletionGracePeriodSeconds": grace}})


def overstays(*timed: tuple[float, dict[str, Any]]) -> bool:
    departures = Departures()
    for now, seen in timed:
        departures.look(now, [seen])
    return departures.overstay(timed[-1][1]) is not None


OWN_GRACE: dict[str, Any] = {"spec": {"terminationGracePeriodSeconds": 300}}


@pytest.mark.parametrize(
    ("sentence", "timed", "want"),
    [
        ("it has just been seen, whenever it was told", [(5000, leaving())], False),
        ("its grace period is not over", [(0, leaving()), (99, leaving())], False),
        ("nor is the margin", [(0, leaving()), (100 + MARGIN_SECONDS - 1, leaving())], False),
        ("both are", [(0, leaving()), (100 + MARGIN_SECONDS, leaving())], True),
        ("it was told again, to be quicker", [(0, leaving()), (70, leaving(10))], True),
        ("it was not told before", [(0, pod("old")), (100, leaving()), (170, leaving())], False),
        ("it was told to go at once, and a finalizer holds it", [(0, leaving(0)), (60, leaving(0))], True),
        ("only its own period is known", [(0, leaving(None, **OWN_GRACE)), (359, leaving(None, **OWN_GRACE))], False),
        ("and over", [(0, leaving(None, **OWN_GRACE)), (360, leaving(None, **OWN_GRACE))], True),
        ("no period is known", [(0, leaving(None)), (90, leaving(None))], True),
        ("it stays", [(0, pod("old")), (9000, pod("old"))], False),
        ("it is over", [(0, leaving(phase="Failed")), (9000, leaving(phase="Failed"))], False),
        (
            "it is a namesake of one that left",
            [(0, leaving()), (9000, leaving(metadata={"uid": "another"}))],
            False,
        ),
    ],
)
def test_a_leaving_pod_should_have_been_gone_when(
    sentence: str, timed: list[tuple[float, dict[str, Any]]], want: bool
) -> None:
    assert overstays(*timed) is want, sentence


def test_time_in_which_nobody_answers_is_not_counted() -> None:
    departures = Departures()
    departures.look(0, [leaving()])
    departures.blink(1000)
    departures.look(1010, [leaving()])
    assert departures.overstay(leaving()) is None
    departures.look(1160, [leaving()])
    assert departures.overstay(leaving()) is not None


def test_a_pod_that_is_not_listed_at_every_look_is_counted_since_the_first() -> None:
    departures = Departures()
    departures.look(0, [leaving()])
    departures.look(80, [])
    departures.look(160, [])
    assert departures.overstay(leaving()) is not None


@pytest.mark.parametrize(
    ("seen", "want"),
    [
        (leaving(), "stays terminating: on node n1 for 200 s or more, and had 100 s to leave"),
        (
            leaving(spec={"nodeName": None}),
            "stays terminating: without a node for 200 s or more, and had 100 s to leave",
        ),
    ],
    ids=["on a node", "on none"],
)
def test_it_is_told_with_its_node_and_for_how_long(seen: dict[str, Any], want: str) -> None:
    departures = Departures()
    departures.look(0, [seen])
    departures.look(200, [seen])
    overstay = departures.overstay(seen)
    assert overstay is not None
    assert str(overstay.trouble) == want
