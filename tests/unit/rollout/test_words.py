"""How a roll-out reads."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from stack.planned import RollOutPlan
from stack.rollout.ending import Ending
from stack.rollout.patience import Case, Patience
from stack.rollout.pods import Kind, Trouble
from stack.rollout.progress import RollOut
from stack.rollout.words import ending, join, out_of_patience, out_of_time, progress, progress_to_compare
from tests import live
from tests.live import deployment, pod, running, waiting, without_node

PLAN = RollOutPlan(
    name="rel-decode",
    part="decode",
    selector={"app": "rel-decode"},
    pods=2,
    ready=2,
    awaits_leave=True,
    is_owned=True,
    timeout_seconds=1000,
    patience_seconds=300,
)
EPP = dataclasses.replace(PLAN, name="rel-epp", part="epp")


def read(*pods: dict[str, Any], **over: Any) -> RollOut:
    return RollOut.read(PLAN, deployment(**over), pods, newest="new")


def line(*pods: dict[str, Any], excuses: dict[str, str] | None = None, **over: Any) -> str:
    state = read(*pods, **over)
    return progress(state, Patience(300).look(0, state, excuses or {}))


def test_at_most_three_names_are_told() -> None:
    assert join(["a"]) == "a"
    assert join(["a", "b", "c"]) == "a, b, c"
    assert join(iter("abcde")) == "a, b, c and 2 more"


@pytest.mark.parametrize(
    ("sentence", "said", "want"),
    [
        (
            "nothing was looked at yet",
            line(pod("x", "old"), status={"observedGeneration": 0, "updatedReplicas": 0, "availableReplicas": 1}),
            "0 of 2 Pods updated, 1 available (x); Kubernetes has not looked at the change yet",
        ),
        (
            "the first new one starts",
            line(pod("x", "old"), running("a"), status={"updatedReplicas": 1, "availableReplicas": 1}),
            "1 of 2 Pods updated (a), 1 available (x); waiting: a; to be replaced: x",
        ),
        (
            "an old one leaves",
            line(pod("a"), pod("b"), pod("x", "old", **live.LEAVING)),
            "2 of 2 Pods updated (a, b), 2 available (a, b); leaving: x",
        ),
        (
            "one crashes, and two find no node for the same reason",
            line(
                waiting("a", "CrashLoopBackOff"), without_node("b"), without_node("c"), status={"availableReplicas": 0}
            ),
            (
                "2 of 2 Pods updated (a, b, c), 0 available; waiting: a, b, c; "
                "a: modelserver CrashLoopBackOff: no message; b, c: unschedulable: cannot allocate all claims"
            ),
        ),
        (
            "one waits for another's devices",
            line(without_node("a"), excuses={"a": "theirs/x"}, status={"availableReplicas": 0}),
            (
                "2 of 2 Pods updated (a), 0 available; waiting: a; "
                "a: unschedulable: cannot allocate all claims (waits for devices of theirs/x, which is leaving)"
            ),
        ),
        (
            "no Pod can be made",
            line(status={"conditions": [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]}),
            "2 of 2 Pods updated, 2 available; no Pod can be made: exceeded quota",
        ),
    ],
)
def test_progress_is_one_line_with_what_is_updated_available_waiting_leaving_and_stuck(
    sentence: str, said: str, want: str
) -> None:
    assert said == want, sentence


def to_compare(*pods: dict[str, Any]) -> str:
    state = read(*pods)
    return progress_to_compare(state, Patience(300).look(0, state, {}))


def test_a_counter_in_what_kubernetes_says_is_no_news_and_anything_else_is() -> None:
    first = to_compare(without_node("pod-1", "0/3 nodes are available: 3 cannot allocate all claims"))
    assert first == to_compare(without_node("pod-1", "0/12 nodes are available: 12 cannot allocate all claims"))
    assert first != to_compare(without_node("pod-1", "0/3 nodes are available: 3 Insufficient cpu"))
    assert first != to_compare(without_node("pod-2", "0/3 nodes are available: 3 cannot allocate all claims"))


CASE = Case(
    pod="rel-decode-x",
    trouble=Trouble(kind=Kind.IMAGE, reason="ImagePullBackOff", message="denied", container="modelserver"),
    seconds=301.4,
)


def letter(plan: RollOutPlan = PLAN, case: Case = CASE) -> str:
    return out_of_patience(plan, read(running("rel-decode-x"), pod("old", "old")), case, namespace="ns")


def test_who_is_out_of_patience_says_role_pod_reason_for_how_long_what_to_do_and_the_way_back() -> None:
    assert letter() == (
        "role decode: Deployment rel-decode did not roll out: Pod rel-decode-x has been without its image for 301 s "
        "(modelserver ImagePullBackOff: denied); 2 of 2 Pods updated (rel-decode-x), 2 available (old); "
        "waiting: rel-decode-x; to be replaced: old. Mend modelserver.image (or routing.proxy.image), or "
        "imagePullSecrets, or make the registry reachable, see `kubectl -n ns describe pod rel-decode-x`. Then run "
        "`pulumi up` again; rollout.patienceSeconds (now 300) gives it longer. To go back, put the previous "
        "configuration back and run `pulumi up`: Pods that were never replaced are not restarted by that."
    )


@pytest.mark.parametrize(
    ("kind", "want_role", "want_epp"),
    [
        (Kind.UNSCHEDULABLE, "maxSurge 0", "router.epp.resources"),
        (Kind.IMAGE, "modelserver.image", "router.epp.image"),
        (Kind.CONFIGURATION, "Secret or ConfigMap", "Secret or ConfigMap"),
        (Kind.CRASHING, "logs p -c modelserver --previous", "logs p -c modelserver --previous"),
        (Kind.ENDED, "its node", "its node"),
        (Kind.REFUSED, "quota", "quota"),
    ],
)
def test_each_kind_of_trouble_has_its_remedy(kind: Kind, want_role: str, want_epp: str) -> None:
    case = dataclasses.replace(CASE, pod="p", trouble=dataclasses.replace(CASE.trouble, kind=kind))
    assert want_role in letter(case=case)
    assert want_epp in letter(EPP, case)
    assert letter(EPP, case).startswith("endpoint picker: Deployment rel-epp did not roll out: Pod p has been ")


def test_pods_that_cannot_be_made_are_told_of_the_deployment() -> None:
    refused = Trouble(kind=Kind.REFUSED, reason="no Pod can be made", message="exceeded quota")
    said = letter(case=Case(pod=None, trouble=refused, seconds=300))
    assert "its Pods have been refused for 300 s (no Pod can be made: exceeded quota)" in said
    assert "describe deployment rel-decode" in said


@pytest.mark.parametrize(
    ("gave_up", "want"),
    [(None, "it is not complete after 1000 s"), ("deadline exceeded", "deadline exceeded")],
    ids=["out of time", "given up"],
)
def test_a_roll_out_that_does_not_end_says_why_and_how_far_it_is_and_the_way_back(
    gave_up: str | None, want: str
) -> None:
    said = out_of_time(PLAN, read(running("a")), (CASE,), gave_up=gave_up, namespace="ns")
    assert said.startswith(f"role decode: Deployment rel-decode did not roll out: {want}; 2 of 2 Pods updated (a), ")
    assert "rel-decode-x: modelserver ImagePullBackOff: denied" in said
    assert "kubectl -n ns get pods -l 'app=rel-decode'" in said
    assert said.endswith("Pods that were never replaced are not restarted by that.")


def test_what_goes_is_told_in_one_line() -> None:
    objects = ("ConfigMap rel-topology", "Deployment rel-decode")
    assert ending(Ending(objects=objects, pods=("a",))) == (
        "an earlier change is still under way: waiting for ConfigMap rel-topology, Deployment rel-decode, Pod a to go"
    )
    assert ending(Ending(objects=(), pods=("a", "b", "c", "d"))).endswith("waiting for Pods a, b, c and 1 more to go")
