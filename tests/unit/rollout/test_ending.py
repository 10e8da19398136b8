"""What of an earlier change is still under way."""

from __future__ import annotations

from typing import Any

import pytest

from stack.rollout.departures import Departures
from stack.rollout.ending import Ending
from tests import live
from tests.live import deployment, pod

ANCHOR: dict[str, Any] = {"metadata": {"name": "rel-topology", "uid": "u1"}}
ANCHOR_GOES: dict[str, Any] = {"metadata": {**ANCHOR["metadata"], "deletionTimestamp": live.WHEN}}
OF_ANOTHER = deployment(metadata={"ownerReferences": [{"uid": "u0"}]})
OF_NOBODY = deployment(metadata={"ownerReferences": []})
GOES = deployment(**live.LEAVING)
PREFILL = deployment("rel-prefill")
EPP = deployment("rel-epp", metadata={"ownerReferences": []})
EPP_GOES = deployment("rel-epp", metadata={"ownerReferences": [], **live.LEAVING["metadata"]})
DRAINS = pod("p", metadata={"labels": {"app": "rel-epp"}, **live.LEAVING["metadata"]})
DEBUG: dict[str, Any] = {"metadata": {"name": "debug", "labels": {"app": "gone"}}}


@pytest.mark.parametrize(
    ("sentence", "anchor", "deployments", "pods", "want"),
    [
        ("all is as it should be", ANCHOR, [deployment()], [pod("a")], ((), ())),
        ("a Pod leaves as Pods do in a roll-out", ANCHOR, [deployment()], [pod("a", **live.LEAVING)], ((), ())),
        ("nothing is there", None, [], [], ((), ())),
        ("the anchor goes", ANCHOR_GOES, [], [], (("ConfigMap rel-topology",), ())),
        ("a Deployment goes", ANCHOR, [GOES, PREFILL], [pod("a")], (("Deployment rel-decode",), ("a",))),
        ("it was made under another anchor", ANCHOR, [OF_ANOTHER], [pod("a")], (("Deployment rel-decode",), ("a",))),
        ("its anchor is not there any more", None, [deployment()], [pod("a")], (("Deployment rel-decode",), ("a",))),
        ("it has no owner", ANCHOR, [OF_NOBODY], [pod("a")], ((), ())),
        ("its Pods are left", ANCHOR, [PREFILL], [pod("b"), pod("a", **live.LEAVING)], ((), ("a", "b"))),
        ("the endpoint picker goes", ANCHOR, [EPP_GOES], [DRAINS], (("Deployment rel-epp",), ("p",))),
        ("its Pod drains after it", ANCHOR, [deployment()], [DRAINS], ((), ("p",))),
        ("its Pod drains in a roll-out", ANCHOR, [EPP], [DRAINS], ((), ())),
        ("somebody put a Pod there by hand", ANCHOR, [], [DEBUG], ((), ())),
    ],
)
def test_what_goes_is_told(
    sentence: str,
    anchor: dict[str, Any] | None,
    deployments: list[dict[str, Any]],
    pods: list[dict[str, Any]],
    want: tuple[tuple[str, ...], tuple[str, ...]],
) -> None:
    ending = Ending.read(anchor, deployments, pods, Departures())
    assert (ending.objects, ending.pods) == want, sentence
    assert ending.is_over is (want == ((), ())), sentence


LATE = pod("late", **live.LEAVING)
IN_TIME = pod("in-time", **live.LEAVING)


@pytest.mark.parametrize(
    ("sentence", "anchor", "pods", "want_late", "want_stuck"),
    [
        ("all that is left should have been gone", None, [LATE], ["late"], True),
        ("and what goes after it", ANCHOR_GOES, [LATE], ["late"], True),
        ("another one has time left", None, [LATE, IN_TIME], ["late"], False),
        ("another one was not told yet", None, [LATE, pod("a")], ["late"], False),
        ("no Pod is left", ANCHOR_GOES, [], [], False),
    ],
)
def test_there_is_nothing_to_wait_for_when_only_pods_are_left_that_should_have_been_gone(
    sentence: str, anchor: dict[str, Any] | None, pods: list[dict[str, Any]], want_late: list[str], want_stuck: bool
) -> None:
    departures = Departures()
    departures.look(0, [LATE])
    departures.look(1000, [IN_TIME])
    ending = Ending.read(anchor, [], pods, departures)
    assert [overstay.pod for overstay in ending.overstays] == want_late, sentence
    assert ending.is_stuck is want_stuck, sentence
    assert not ending.is_over, sentence
