"""How a roll-out reads."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from stack.rollout.departures import Overstay
from stack.rollout.ending import Ending
from stack.rollout.patience import Case, Patience
from stack.rollout.pods import Kind, Trouble
from stack.rollout.progress import RollOut
from stack.rollout.words import (
    ending,
    halted,
    join,
    leave,
    out_of_patience,
    out_of_time,
    progress,
    progress_to_compare,
    stuck,
)
from tests import live
from tests.live import deployment, pod, running, waiting, without_node

if TYPE_CHECKING:
    from stack.planned import RollOutPlan

PLAN = live.roll_out()
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
        (Kind.TERMINATING, "delete pod p --force", "delete pod p --force"),
        (Kind.REFUSED, "quota", "quota"),
    ],
)
def test_each_kind_of_trouble_has_its_remedy(kind: Kind, want_role: str, want_epp: str) -> None:
    case = dataclasses.replace(CASE, pod="p", trouble=dataclasses.replace(CASE.trouble, kind=kind))
    assert want_role in letter(case=case)
    assert want_epp in letter(EPP, case)
    assert letter(EPP, case).startswith("endpoint picker: Deployment rel-epp did not roll out: Pod p has been ")


OVERSTAY = Overstay(namespace="ns", pod="old", node="n1", grace=900, seconds=1261.3)


def test_who_does_not_leave_is_told_with_its_node_and_how_to_be_rid_of_it_and_no_way_back_since_there_is_none() -> None:
    case = Case(pod="old", trouble=OVERSTAY.trouble, seconds=300)
    said = out_of_patience(PLAN, read(pod("a"), pod("b"), pod("old", "old", **live.LEAVING)), case, namespace="ns")
    assert said == (
        "role decode: Deployment rel-decode did not roll out: Pod old has been overdue in leaving for 300 s (stays "
        "terminating: on node n1 for 1261 s or more, and had 900 s to leave); 2 of 2 Pods updated (a, b), 2 available "
        "(a, b); leaving: old. Look at its node (`kubectl describe node n1`), and mend it; if that node is gone, "
        "delete the Node object (`kubectl delete node n1`), or `kubectl -n ns delete pod old --force "
        "--grace-period=0`. Then run `pulumi up` again; rollout.patienceSeconds (now 300) gives it longer."
    )


def test_a_pod_of_another_namespace_is_told_with_the_command_for_that() -> None:
    case = Case(pod="theirs/old", trouble=OVERSTAY.trouble, seconds=300)
    assert "`kubectl -n theirs delete pod old --force --grace-period=0`" in letter(case=case)


def test_without_a_node_there_is_none_to_look_at() -> None:
    assert leave("ns", "old", None) == (
        "Look at `kubectl -n ns describe pod old`; if nothing of it is left, "
        "`kubectl -n ns delete pod old --force --grace-period=0`."
    )


def test_what_else_is_stuck_stands_beside_who_is_out_of_patience() -> None:
    other = Case(pod="theirs/old", trouble=OVERSTAY.trouble, seconds=10)
    said = out_of_patience(PLAN, read(running("rel-decode-x")), CASE, namespace="ns", others=[other])
    assert "; theirs/old: stays terminating: on node n1 for 1261 s or more, and had 900 s to leave. " in said


def test_for_how_long_a_pod_has_not_left_is_no_news() -> None:
    later = dataclasses.replace(OVERSTAY, seconds=2000)
    first, second = (
        progress_to_compare(read(), [Case(pod="old", trouble=of.trouble, seconds=0)]) for of in (OVERSTAY, later)
    )
    assert first == second


def test_a_crash_that_seems_to_be_overcome_is_told_as_such() -> None:
    trouble = dataclasses.replace(CASE.trouble, kind=Kind.CRASHING, reason="CrashLoopBackOff")
    case = dataclasses.replace(CASE, trouble=trouble)
    runs_on = dataclasses.replace(case, is_held=True)
    words = "CrashLoopBackOff: denied (since then it has been running for longer than before)"
    assert words in progress(read(), [runs_on])
    assert words not in progress(read(), [case])
    assert progress_to_compare(read(), [runs_on]) != progress_to_compare(read(), [case])


def test_a_paused_roll_out_is_told_with_the_command_that_resumes_it() -> None:
    state = read(pod("a"), pod("old", "old"), spec={"paused": True}, status={"updatedReplicas": 1})
    assert halted(PLAN, state, namespace="ns") == (
        "role decode: Deployment rel-decode did not roll out: it is paused (`kubectl rollout pause`), and no update "
        "ends that; 1 of 2 Pods updated (a), 2 available (a, old); to be replaced: old. Run `kubectl -n ns rollout "
        "resume deployment/rel-decode`, then `pulumi up` again."
    )


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


def test_pods_that_should_have_been_gone_are_told_with_what_to_do_about_them() -> None:
    state = Ending(objects=("ConfigMap rel-topology",), pods=("old",), overstays=(OVERSTAY,))
    assert ending(state) == (
        "an earlier change is still under way: waiting for ConfigMap rel-topology, Pod old to go. Pod old stays "
        "terminating on node n1, and had 900 s to leave. Look at its node (`kubectl describe node n1`), and mend it; "
        "if that node is gone, delete the Node object (`kubectl delete node n1`), or `kubectl -n ns delete pod old "
        "--force --grace-period=0`."
    )
    assert stuck(state) == f"{ending(state)} Then run `pulumi up` again."
    many = dataclasses.replace(state, overstays=tuple(dataclasses.replace(OVERSTAY, pod=f"p{i}") for i in range(9)))
    assert ending(many).count("stays terminating") == 3, "it stays readable"


def test_a_scaled_role_says_that_it_is_not_at_its_floor() -> None:
    plan = dataclasses.replace(PLAN, floor=3)
    state = RollOut.read(plan, deployment(), [pod("a"), pod("b")], newest="new")
    assert "its scaler has not asked for 3 yet" in progress(state, ())
    assert "its scaler has not asked for 3 yet" in out_of_time(plan, state, (), gave_up=None, namespace="ns")
