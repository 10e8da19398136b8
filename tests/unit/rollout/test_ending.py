"""What of an earlier change is still under way."""

from __future__ import annotations

from typing import Any

import pytest

from stack.rollout.ending import Ending
from tests import live
from tests.live import deployment, pod

ANCHOR: dict[str, Any] = {"metadata": {"name": "rel-topology", "uid": "u1"}}
ANCHOR_GOES: dict[str, Any] = {"metadata": {**ANCHOR["metadata"], "deletionTimestamp": live.WHEN}}
OF_ANOTHER = deployment(metadata={"ownerReferences": [{"uid": "u0"}]})
OF_NOBODY = deployment(metadata={"ownerReferences": []})
GOES = deployment(**live.LEAVING)
PREFILL = deployment("rel-prefill")
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
    ending = Ending.read(anchor, deployments, pods)
    assert (ending.objects, ending.pods) == want, sentence
    assert ending.is_over is (want == ((), ())), sentence
