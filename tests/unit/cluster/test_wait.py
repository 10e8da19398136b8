"""The waits of an update, asked of an API server whose answers change from look to look, on a clock of the test's."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from cluster.wait import WaitError, Waits, until_change_has_ended
from stack import labels
from tests import live
from tests.builders import EMPTY_CLUSTER, merged, plan
from tests.live import pod, running, waiting, with_claim, without_node

if TYPE_CHECKING:
    from stack.planned import RollOutPlan
    from tests.stand_in import StandIn

PODS = "/api/v1/namespaces/ns/pods"
ALL_PODS = "/api/v1/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims"
DEPLOYMENTS = "/apis/apps/v1/namespaces/ns/deployments"
DEPLOYMENT = f"{DEPLOYMENTS}/rel-decode"
REPLICA_SETS = "/apis/apps/v1/namespaces/ns/replicasets"
ANCHOR = "/api/v1/namespaces/ns/configmaps/rel-topology"
LEAVING = live.LEAVING["metadata"]
PLAN = plan(EMPTY_CLUSTER, modelserver={"replicas": {"prefill": 1, "decode": 2}})
KEY = PLAN.modelserver.topology.key
TOPOLOGY = "serving-stack.dev/topology"
DECODE = live.roll_out(
    selector={"app.kubernetes.io/instance": "rel", "app.kubernetes.io/component": "decode"}, patience_seconds=30
)
EPP = live.roll_out_of_epp(selector={"epp": "rel"}, patience_seconds=30)


@dataclass
class Clock:
    """Goes on only when somebody sleeps."""

    now: float = 1000.0

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def waits(said: list[str], seconds: int = 1000, clock: Clock | None = None, decode: RollOutPlan = DECODE) -> Waits:
    """All deadlines at so many seconds; one between two looks."""
    clock = clock or Clock()
    topology = dataclasses.replace(PLAN.modelserver.topology, leave_seconds=seconds)
    planned = dataclasses.replace(
        PLAN,
        modelserver=dataclasses.replace(PLAN.modelserver, topology=topology),
        roll_outs={of.name: dataclasses.replace(of, timeout_seconds=seconds) for of in (decode, EPP)},
    )
    return Waits(context="test", plan=planned, report=said.append, clock=clock.read, sleep=clock.sleep)


def ok(*items: Any) -> tuple[int, Any]:
    return 200, {"metadata": {}, "items": list(items)}


def deployment(*, owner: str | None = "u1", meta: dict[str, Any] | None = None, **status: Any) -> tuple[int, Any]:
    """Complete, and made under the anchor, unless told otherwise."""
    owners = [] if owner is None else [{"kind": "ConfigMap", "uid": owner}]
    return 200, live.deployment(metadata={"ownerReferences": owners, **(meta or {})}, status=status)


def anchor(**meta: Any) -> tuple[int, Any]:
    return 200, {"metadata": {"name": "rel-topology", "uid": "u1", **meta}, "data": {"key": "k"}}


NOT_THERE: tuple[int, Any] = (404, {"kind": "Status"})
BUSY: tuple[int, Any] = (503, {"kind": "Status"})
FORBIDDEN: tuple[int, Any] = (403, {"kind": "Status"})
TWO = (pod("a"), pod("b"))
OLD = pod("old", "old")
REFUSALS = [400, 401, 403, 404, 410]
PASSING = [429, 500, 502, 503, 504]
GAVE_UP: dict[str, Any] = {"conditions": [{"type": "Progressing", "status": "False", "message": "deadline exceeded"}]}


# --- devices ----------------------------------------------------------------------------------------------------------


def test_devices_are_free_when_no_pod_of_another_topology_is_left(api: StandIn) -> None:
    api.tell(PODS, ok(pod("old-2"), pod("old-1")), ok(pod("old-1")), ok())
    api.tell(ANCHOR, anchor())
    said: list[str] = []
    waits(said).until_may_be_made("u1")
    assert said == [
        "waiting for devices: old-1, old-2 of the earlier topology still there",
        "waiting for devices: old-1 of the earlier topology still there",
    ]
    assert api.query_of(PODS)["labelSelector"] == f"app.kubernetes.io/instance=rel,{TOPOLOGY},{TOPOLOGY}!={KEY}"
    assert api.times_asked(DEPLOYMENTS) == 0


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_is_over_holds_no_devices(api: StandIn, phase: str) -> None:
    api.tell(PODS, ok(pod("evicted", phase=phase)))
    api.tell(ANCHOR, anchor())
    waits([]).until_may_be_made("u1")


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (NOT_THERE, "was deleted"),
        (anchor(deletionTimestamp="2026-01-01T00:00:00Z"), "was deleted"),
        (anchor(uid="u2"), "was made anew"),
    ],
)
def test_nothing_is_made_for_an_anchor_that_went_since_the_engine_looked(
    api: StandIn, found: tuple[int, Any], why: str
) -> None:
    """Garbage collection would delete it at once, and the provider wait for it all the same."""
    api.tell(PODS, ok())
    api.tell(ANCHOR, found)
    with pytest.raises(WaitError) as caught:
        waits([]).until_may_be_made("u1")
    assert str(caught.value) == (
        f"the topology anchor rel-topology {why} while this update began. Run `pulumi up` again."
    )


def test_a_busy_api_server_is_asked_for_the_anchor_again(api: StandIn) -> None:
    api.tell(PODS, ok())
    api.tell(ANCHOR, BUSY, BUSY, anchor())
    waits([]).until_may_be_made("u1")
    assert api.times_asked(ANCHOR) > 1


def of_topology(key: str, **over: Any) -> dict[str, Any]:
    return live.deployment(**merged({"spec": {"template": {"metadata": {"labels": {TOPOLOGY: key}}}}}, over))


@pytest.mark.parametrize(
    ("sentence", "deployments"),
    [
        ("it goes", ok(of_topology("before", **live.LEAVING))),
        ("it is gone", ok()),
        ("it is a new one under the same name", ok(of_topology(KEY))),
        ("it is another's", ok(of_topology("before", spec={"selector": {"matchLabels": {"app": "other"}}}))),
        ("it can't be told", FORBIDDEN),
    ],
)
def test_pods_that_stay_are_named_when_time_is_out(api: StandIn, sentence: str, deployments: tuple[int, Any]) -> None:
    api.tell(PODS, ok(*(pod(f"old-{i}") for i in range(5))))
    api.tell(DEPLOYMENTS, deployments)
    with pytest.raises(WaitError) as caught:
        waits([], 7).until_may_be_made("u1")
    assert str(caught.value) == (
        "old-0, old-1, old-2 and 2 more of the earlier topology did not leave within 7 s. "
        "Look at `kubectl -n ns describe pod old-0`. Then run `pulumi up` again."
    ), sentence


def test_pods_of_a_deployment_that_nobody_takes_down_tell_of_a_lost_state(api: StandIn) -> None:
    api.tell(PODS, ok(pod("old-0")))
    api.tell(DEPLOYMENTS, ok(of_topology("before")))
    with pytest.raises(
        WaitError, match=r"Deployment rel-decode is not going to leave: .* state .*then change it"
    ) as caught:
        waits([], 7).until_may_be_made("u1")
    assert "Put the configuration that runs back and run `pulumi up`" in str(caught.value)


def test_a_pod_that_does_not_leave_is_told_with_how_to_be_rid_of_it(api: StandIn) -> None:
    api.tell(PODS, ok(pod("old-0"), merged(pod("old-1", spec={"nodeName": "n1"}), live.LEAVING)))
    api.tell(DEPLOYMENTS, ok())
    with pytest.raises(WaitError, match=r"delete node n1.*-n ns delete pod old-1 --force --grace-period=0`\. Then run"):
        waits([], 7).until_may_be_made("u1")


# --- roll-outs --------------------------------------------------------------------------------------------------------


@pytest.fixture
def up(api: StandIn) -> StandIn:
    """A stack that is rolled out."""
    api.tell(ANCHOR, anchor())
    api.tell(DEPLOYMENT, deployment())
    api.tell(PODS, ok(*TWO))
    return api


def test_what_is_rolled_out_takes_three_questions(up: StandIn) -> None:
    said: list[str] = []
    waits(said).until_rolled_out("rel-decode")
    assert said == []
    assert [path for path, _ in up.asked] == [ANCHOR, DEPLOYMENT, PODS]
    assert up.query_of(PODS)["labelSelector"] == ("app.kubernetes.io/instance=rel,app.kubernetes.io/component=decode")


def test_a_roll_out_is_awaited_to_its_end_and_each_step_said_once(up: StandIn) -> None:
    half = deployment(updatedReplicas=1, availableReplicas=2)
    up.tell(DEPLOYMENT, half, half, half, deployment(), deployment())
    up.tell(PODS, *[ok(OLD, pod("a"))] * 3, ok(*TWO, merged(OLD, live.LEAVING)), ok(*TWO))
    up.tell(REPLICA_SETS, ok(live.replica_set("new", 2), live.replica_set("old", 1)))
    said: list[str] = []
    waits(said).until_rolled_out("rel-decode")
    assert said == [
        "rel-decode: 1 of 2 Pods updated (a), 2 available (a, old); to be replaced: old",
        "rel-decode: 2 of 2 Pods updated (a, b), 2 available (a, b); leaving: old",
    ]
    assert up.times_asked(REPLICA_SETS) == 1, "the newest template of one version of the Deployment stays what it is"


def test_replica_sets_are_asked_again_when_the_deployment_has_changed(up: StandIn) -> None:
    first, second = {"generation": 1}, {"generation": 2}
    up.tell(
        DEPLOYMENT,
        deployment(meta=first, updatedReplicas=1),
        deployment(meta=second, observedGeneration=1, updatedReplicas=1),
        deployment(meta=second, observedGeneration=2, updatedReplicas=1),
        deployment(meta=second, observedGeneration=2),
    )
    up.tell(PODS, *[ok(pod("a"), OLD)] * 3, ok(*TWO))
    up.tell(REPLICA_SETS, ok(live.replica_set("new", 2)))
    waits([]).until_rolled_out("rel-decode")
    assert up.times_asked(REPLICA_SETS) == 2


def test_without_the_right_to_list_replica_sets_the_roll_out_is_still_awaited(up: StandIn) -> None:
    up.tell(DEPLOYMENT, deployment(updatedReplicas=1), deployment())
    young = pod("a", metadata={"creationTimestamp": "2026-01-02T00:00:00Z"})
    up.tell(PODS, ok(OLD, young), ok(*TWO))
    up.tell(REPLICA_SETS, FORBIDDEN)
    said: list[str] = []
    waits(said).until_rolled_out("rel-decode")
    assert said == ["rel-decode: 1 of 2 Pods updated (a), 2 available (a, old); to be replaced: old"]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_what_an_evicted_pod_left_behind_is_not_waited_for(up: StandIn, phase: str) -> None:
    up.tell(PODS, ok(*TWO, pod("evicted", phase=phase, ready=False)))
    said: list[str] = []
    waits(said).until_rolled_out("rel-decode")
    assert said == []


@pytest.mark.parametrize(
    ("found", "owner", "why"),
    [
        pytest.param(deployment(meta=LEAVING), anchor(), "is being deleted", id="it goes"),
        pytest.param(deployment(meta=LEAVING), NOT_THERE, "is being deleted", id="it goes, and there is no anchor"),
        pytest.param(deployment(owner="u0"), anchor(), "belongs to an earlier topology", id="its owner is gone"),
        pytest.param(deployment(owner=None), anchor(), "belongs to an earlier topology", id="it has no owner"),
        pytest.param(
            deployment(), anchor(**LEAVING), "is being deleted, as its topology anchor is", id="the anchor goes"
        ),
        pytest.param(NOT_THERE, anchor(), "is not there any more", id="it is gone"),
    ],
)
def test_a_deployment_never_counts_as_rolled_out_when(
    up: StandIn, found: tuple[int, Any], owner: tuple[int, Any], why: str
) -> None:
    up.tell(DEPLOYMENT, found)
    up.tell(ANCHOR, owner)
    with pytest.raises(WaitError, match=f"^rel-decode {why}.*Run `pulumi up` again"):
        waits([]).until_rolled_out("rel-decode")


def test_a_deployment_that_is_deleted_during_the_wait_ends_it(up: StandIn) -> None:
    up.tell(DEPLOYMENT, deployment(availableReplicas=1), deployment(meta=LEAVING))
    with pytest.raises(WaitError, match="is being deleted"):
        waits([]).until_rolled_out("rel-decode")


def test_without_an_anchor_there_is_no_owner_to_compare(up: StandIn) -> None:
    up.tell(ANCHOR, NOT_THERE)
    waits([]).until_rolled_out("rel-decode")


def test_the_anchor_is_read_once(up: StandIn) -> None:
    up.tell(DEPLOYMENT, deployment(availableReplicas=0), deployment(availableReplicas=1), deployment())
    waits([]).until_rolled_out("rel-decode")
    assert (up.times_asked(ANCHOR), up.times_asked(DEPLOYMENT)) == (1, 3)


def test_an_epp_needs_no_anchor_and_does_not_wait_for_the_old_one_to_drain(api: StandIn) -> None:
    api.tell(f"{DEPLOYMENTS}/rel-epp", (200, live.deployment("rel-epp", replicas=1, metadata={"ownerReferences": []})))
    api.tell(PODS, ok(running("a"), merged(OLD, live.LEAVING)), ok(pod("a"), merged(OLD, live.LEAVING)))
    said: list[str] = []
    waits(said).until_rolled_out("rel-epp")
    assert said == ["rel-epp: 1 of 1 Pods updated (a), 1 available; waiting: a; leaving: old"]
    assert api.times_asked(ANCHOR) == 0


def test_what_kubernetes_said_of_the_roll_out_before_is_not_believed_at_once(up: StandIn) -> None:
    stale = deployment(updatedReplicas=0, **GAVE_UP)
    up.tell(DEPLOYMENT, stale, deployment(availableReplicas=1), stale, deployment())
    up.tell(REPLICA_SETS, ok())
    waits([]).until_rolled_out("rel-decode")


def test_kubernetes_giving_up_ends_the_wait_long_before_time_is_out(up: StandIn) -> None:
    up.tell(DEPLOYMENT, deployment(availableReplicas=1, **GAVE_UP))
    with pytest.raises(
        WaitError, match="Deployment rel-decode did not roll out: deadline exceeded; 2 of 2 Pods updated"
    ):
        waits([]).until_rolled_out("rel-decode")
    assert up.times_asked(DEPLOYMENT) == 2


def test_a_complete_roll_out_is_complete_whatever_was_said_of_it(up: StandIn) -> None:
    up.tell(DEPLOYMENT, deployment(**GAVE_UP))
    waits([]).until_rolled_out("rel-decode")


def test_a_roll_out_that_takes_too_long_is_told_with_what_is_missing(up: StandIn) -> None:
    up.tell(PODS, ok(pod("a"), running("b")))
    up.tell(DEPLOYMENT, deployment(availableReplicas=1))
    clock = Clock()
    with pytest.raises(WaitError) as caught:
        waits([], 90, clock).until_rolled_out("rel-decode")
    assert "it is not complete after 90 s; 2 of 2 Pods updated (a, b), 1 available (a); waiting: b." in str(
        caught.value
    )
    assert clock.now == 1090


# --- paused -----------------------------------------------------------------------------------------------------------


def paused(**status: Any) -> tuple[int, Any]:
    return 200, merged(deployment(**status)[1], {"spec": {"paused": True}})


def test_a_roll_out_that_somebody_paused_ends_at_once_with_the_command_that_resumes_it(up: StandIn) -> None:
    up.tell(DEPLOYMENT, paused(updatedReplicas=0))
    up.tell(REPLICA_SETS, ok(live.replica_set("new", 1)))
    clock = Clock()
    with pytest.raises(
        WaitError, match=r"it is paused.* Run `kubectl -n ns rollout resume deployment/rel-decode`, then"
    ):
        waits([], clock=clock).until_rolled_out("rel-decode")
    assert clock.now == 1001


def test_what_was_paused_after_it_rolled_out_is_complete(up: StandIn) -> None:
    up.tell(DEPLOYMENT, paused())
    said: list[str] = []
    waits(said).until_rolled_out("rel-decode")
    assert said == []


def test_a_paused_deployment_that_grows_is_awaited(up: StandIn) -> None:
    more: tuple[int, Any] = (200, merged(paused()[1], {"spec": {"replicas": 3}}))
    grown = merged(live.deployment(replicas=3), {"spec": {"paused": True}})
    up.tell(DEPLOYMENT, more, more, more, (200, grown))
    up.tell(PODS, ok(*TWO), ok(*TWO, running("c")), ok(*TWO, running("c")), ok(*TWO, pod("c")))
    up.tell(REPLICA_SETS, ok(live.replica_set("new", 1)))
    waits([]).until_rolled_out("rel-decode")


# --- patience ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stuck", "want"),
    [
        (without_node("b", "0/2 nodes"), "Pod b has been unschedulable for 30 s (unschedulable: 0/2 nodes)"),
        (
            waiting("b", "ErrImagePull", "denied"),
            "Pod b has been without its image for 30 s (modelserver ErrImagePull: denied)",
        ),
        (
            waiting("b", "CrashLoopBackOff"),
            "Pod b has been crashing for 30 s (modelserver CrashLoopBackOff: no message)",
        ),
    ],
    ids=["no node", "no image", "crash loop"],
)
def test_a_pod_that_is_stuck_for_longer_than_patience_allows_ends_the_wait(
    up: StandIn, stuck: dict[str, Any], want: str
) -> None:
    up.tell(DEPLOYMENT, deployment(availableReplicas=1))
    up.tell(PODS, ok(pod("a"), stuck))
    clock = Clock()
    said: list[str] = []
    with pytest.raises(WaitError) as caught:
        waits(said, clock=clock).until_rolled_out("rel-decode")
    assert str(caught.value).startswith(f"role decode: Deployment rel-decode did not roll out: {want}")
    assert clock.now == 1030
    assert len(said) == 1, "it is told at once, and once"


def test_a_scaler_that_does_nothing_is_waited_for_as_long_as_patience_allows(up: StandIn) -> None:
    """And not for as long as a whole roll-out to the ceiling may take."""
    decode = dataclasses.replace(DECODE, floor=4, scaler="scaledobject rel-decode")
    up.tell(DEPLOYMENT, deployment())
    up.tell(PODS, ok(*TWO))
    clock = Clock()
    said: list[str] = []
    with pytest.raises(WaitError) as caught:
        waits(said, 57_600, clock, decode).until_rolled_out("rel-decode")
    assert clock.now == 1030
    assert "its Pods have been fewer than the floor of their scaler for 30 s" in str(caught.value)
    assert "Look at `kubectl -n ns describe scaledobject rel-decode`" in str(caught.value)
    assert len(said) == 1
    assert said[0].count("scaler") == 1


def test_a_scaler_that_acts_in_time_is_not_blamed(up: StandIn) -> None:
    """Nor one whose first Pod takes long to be Ready."""
    decode = dataclasses.replace(DECODE, floor=2, scaler="scaledobject rel-decode")
    loading = 200, live.deployment(replicas=1, status={"availableReplicas": 0})
    ready = 200, live.deployment(replicas=1)
    up.tell(DEPLOYMENT, *[loading] * 60, *[ready] * 20, deployment())
    up.tell(PODS, *[ok(running("a"))] * 60, *[ok(pod("a"))] * 20, ok(*TWO))
    waits([], decode=decode).until_rolled_out("rel-decode")


def test_a_counter_in_the_reason_is_not_told_again(up: StandIn) -> None:
    up.tell(DEPLOYMENT, *[deployment(availableReplicas=1)] * 3, deployment())
    up.tell(PODS, *[ok(pod("a"), without_node("b", f"0/{nodes} nodes")) for nodes in (9, 10, 11)], ok(*TWO))
    said: list[str] = []
    waits(said).until_rolled_out("rel-decode")
    assert len(said) == 1


def test_a_stuck_pod_of_before_the_change_is_not_judged(up: StandIn) -> None:
    up.tell(DEPLOYMENT, *[deployment(updatedReplicas=1)] * 60, deployment())
    up.tell(PODS, *[ok(running("a"), waiting("x", "CrashLoopBackOff", template="old"))] * 60, ok(*TWO))
    up.tell(REPLICA_SETS, ok(live.replica_set("new", 2), live.replica_set("old", 1)))
    waits([]).until_rolled_out("rel-decode")


def test_no_pod_is_judged_until_kubernetes_has_looked_at_the_change(up: StandIn) -> None:
    up.tell(DEPLOYMENT, *[deployment(observedGeneration=0)] * 60, deployment())
    up.tell(PODS, *[ok(pod("a"), waiting("x", "CrashLoopBackOff"))] * 60, ok(*TWO))
    waits([]).until_rolled_out("rel-decode")
    assert up.times_asked(REPLICA_SETS) == 0


def test_time_in_which_nobody_answers_is_not_counted(up: StandIn) -> None:
    up.tell(DEPLOYMENT, deployment(availableReplicas=1))
    up.tell(PODS, ok(pod("a"), without_node("b")), *[BUSY] * 100, ok(pod("a"), without_node("b")))
    clock = Clock()
    with pytest.raises(WaitError, match="unschedulable for 30 s"):
        waits([], clock=clock).until_rolled_out("rel-decode")
    assert clock.now > 1030


# --- devices of those that leave --------------------------------------------------------------------------------------

WAITS = with_claim(without_node("b"), "b-devices")
GOES = with_claim(merged(OLD, {**live.LEAVING, "spec": {"nodeName": "n"}}), "old-devices")
GOES["metadata"] = {**GOES["metadata"], **LEAVING}
THEIRS = merged(GOES, {"metadata": {"namespace": "theirs"}})
ASKED = live.resource_claim("b-devices", "npu")
HELD = live.resource_claim("old-devices", "npu", holder="old")


@pytest.fixture
def full(up: StandIn) -> StandIn:
    """Pod b waits for a device, which another one that leaves holds for longer than patience lasts; then b is Ready."""
    up.tell(DEPLOYMENT, *[deployment(availableReplicas=1)] * 40, deployment())
    up.tell(PODS, *[ok(pod("a"), WAITS, GOES)] * 80, ok(*TWO))
    up.tell(CLAIMS, ok(ASKED, HELD))
    return up


def test_a_pod_is_not_stuck_while_a_leaving_one_holds_its_device(full: StandIn) -> None:
    said: list[str] = []
    waits(said).until_rolled_out("rel-decode")
    assert said == [
        (
            "rel-decode: 2 of 2 Pods updated (a, b), 1 available (a); waiting: b; leaving: old; "
            "b: unschedulable: cannot allocate all claims (waits for devices of old, which is leaving)"
        )
    ]
    assert full.times_asked(ALL_PODS) == 0, "one in the namespace is enough"


def test_a_leaving_pod_of_another_namespace_counts_as_well(full: StandIn) -> None:
    full.tell(PODS, *[ok(pod("a"), WAITS)] * 80, ok(*TWO))
    full.tell(ALL_PODS, ok(THEIRS))
    full.tell("/apis/resource.k8s.io/v1/namespaces/theirs/resourceclaims", ok(HELD))
    said: list[str] = []
    waits(said).until_rolled_out("rel-decode")
    assert "(waits for devices of theirs/old, which is leaving)" in said[0]
    assert full.query_of(ALL_PODS)["fieldSelector"].startswith("metadata.namespace!=ns,")


@pytest.mark.parametrize("status", REFUSALS)
def test_without_the_right_to_look_elsewhere_only_the_namespace_counts(full: StandIn, status: int) -> None:
    full.tell(PODS, ok(pod("a"), WAITS))
    full.tell(ALL_PODS, (status, {"kind": "Status"}))
    with pytest.raises(WaitError, match="Pod b has been unschedulable for 30 s"):
        waits([]).until_rolled_out("rel-decode")
    assert full.times_asked(ALL_PODS) == 1


def test_without_the_right_to_read_claims_a_leaving_pod_with_claims_is_waited_for(full: StandIn) -> None:
    full.tell(CLAIMS, FORBIDDEN)
    said: list[str] = []
    waits(said).until_rolled_out("rel-decode")
    assert "waits for devices of old" in said[0]


def test_where_there_are_no_claims_at_all_nobody_holds_one(full: StandIn) -> None:
    full.tell(CLAIMS, NOT_THERE)
    full.tell(ALL_PODS, ok())
    with pytest.raises(WaitError, match="Pod b has been unschedulable for 30 s"):
        waits([]).until_rolled_out("rel-decode")


def test_the_clock_goes_on_when_the_leaving_pod_has_left(up: StandIn) -> None:
    up.tell(DEPLOYMENT, deployment(availableReplicas=1))
    up.tell(PODS, *[ok(pod("a"), WAITS, GOES)] * 100, ok(pod("a"), WAITS))
    up.tell(CLAIMS, ok(ASKED, HELD))
    up.tell(ALL_PODS, ok())
    clock = Clock()
    with pytest.raises(WaitError, match="Pod b has been unschedulable for 30 s"):
        waits([], clock=clock).until_rolled_out("rel-decode")
    assert clock.now == 1080, "50 looks of two lists each, and 30 s after that"


def test_nobody_is_asked_who_leaves_while_no_pod_waits_for_a_device(up: StandIn) -> None:
    up.tell(DEPLOYMENT, deployment(availableReplicas=1), deployment())
    up.tell(PODS, ok(pod("a"), without_node("b")), ok(*TWO))
    waits([]).until_rolled_out("rel-decode")
    assert (up.times_asked(PODS), up.times_asked(ALL_PODS), up.times_asked(CLAIMS)) == (2, 0, 0)


def test_a_large_cluster_is_not_looked_through_at_every_look(up: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    answer = up.answer

    def slow(path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path == ALL_PODS:
            clock.now += 0.5
        return answer(path, query)

    monkeypatch.setattr(up, "answer", slow)
    up.tell(DEPLOYMENT, deployment(availableReplicas=1))
    up.tell(PODS, ok(pod("a"), WAITS))
    up.tell(CLAIMS, ok(ASKED))
    up.tell(ALL_PODS, ok())
    with pytest.raises(WaitError, match="unschedulable"):
        waits([], clock=clock).until_rolled_out("rel-decode")
    assert up.times_asked(ALL_PODS) == 6, "every five seconds for thirty"


# --- a deadline that excuses nobody -----------------------------------------------------------------------------------

BEHIND = deployment(availableReplicas=1, **GAVE_UP)


def test_kubernetes_is_not_believed_to_give_up_while_a_pod_is_excused_nor_while_that_one_starts(up: StandIn) -> None:
    up.tell(DEPLOYMENT, *[BEHIND] * 100, deployment())
    up.tell(PODS, *[ok(pod("a"), WAITS, GOES)] * 100, *[ok(pod("a"), running("b"))] * 50, ok(*TWO))
    up.tell(CLAIMS, ok(ASKED, HELD))
    waits([]).until_rolled_out("rel-decode")
    assert up.times_asked(DEPLOYMENT) == 101


def test_it_is_believed_again_when_another_pod_became_ready_since(up: StandIn) -> None:
    up.tell(DEPLOYMENT, BEHIND)
    up.tell(PODS, *[ok(running("a"), WAITS, GOES)] * 20, ok(pod("a"), running("b")))
    up.tell(CLAIMS, ok(ASKED, HELD))
    with pytest.raises(WaitError, match="deadline exceeded"):
        waits([]).until_rolled_out("rel-decode")
    assert up.times_asked(DEPLOYMENT) == 12, "ten looks of two lists each, and two without excuse"


def test_a_roll_out_that_is_excused_to_the_end_is_out_of_time_and_not_given_up(up: StandIn) -> None:
    up.tell(DEPLOYMENT, BEHIND)
    up.tell(PODS, ok(pod("a"), WAITS, GOES))
    up.tell(CLAIMS, ok(ASKED, HELD))
    with pytest.raises(WaitError, match="it is not complete after 90 s"):
        waits([], 90).until_rolled_out("rel-decode")


# --- dead nodes -------------------------------------------------------------------------------------------------------

GRACE, MARGIN = 20, 60
SOON: dict[str, Any] = {"metadata": {"deletionGracePeriodSeconds": GRACE}}
GOES_SOON = merged(GOES, SOON)
GOES_FROM_N: dict[str, Any] = {**merged(live.LEAVING, SOON), "spec": {"nodeName": "n"}}
FORCE = r"`kubectl -n ns delete pod old --force --grace-period=0`"


def test_a_pod_of_a_dead_node_ends_the_wait_although_all_new_ones_are_ready(up: StandIn) -> None:
    up.tell(PODS, ok(*TWO, merged(OLD, GOES_FROM_N)))
    clock = Clock()
    said: list[str] = []
    with pytest.raises(WaitError, match=f"Pod old has been overdue in leaving for 30 s .*on node n for .*{FORCE}"):
        waits(said, 28_800, clock).until_rolled_out("rel-decode")
    assert clock.now == 1000 + GRACE + MARGIN + 30
    assert len(said) == 2, "that it leaves, and that it does not"


def test_time_in_which_nobody_answers_is_none_that_a_pod_had_to_leave(up: StandIn) -> None:
    gone = merged(OLD, GOES_FROM_N)
    up.tell(PODS, ok(*TWO, gone), *[BUSY] * 100, *[ok(*TWO, gone)] * (GRACE + MARGIN - 1), ok(*TWO))
    said: list[str] = []
    waits(said).until_rolled_out("rel-decode")
    assert not any("stays terminating" in line for line in said)


def test_it_is_complete_when_such_a_pod_is_gone_after_all(up: StandIn) -> None:
    up.tell(PODS, *[ok(*TWO, merged(OLD, GOES_FROM_N))] * (GRACE + MARGIN + 20), ok(*TWO))
    waits([], 28_800).until_rolled_out("rel-decode")


def test_it_excuses_nobody(up: StandIn) -> None:
    up.tell(DEPLOYMENT, deployment(availableReplicas=1))
    up.tell(PODS, ok(pod("a"), WAITS, GOES_SOON))
    up.tell(CLAIMS, ok(ASKED, HELD))
    up.tell(ALL_PODS, ok())
    clock = Clock()
    with pytest.raises(WaitError, match=r"Pod old has been overdue .*; b: unschedulable: cannot allocate all claims"):
        waits([], 28_800, clock).until_rolled_out("rel-decode")
    assert clock.now == 1000 + GRACE + MARGIN + 30


def test_another_that_leaves_in_time_still_does(up: StandIn) -> None:
    other = with_claim(pod("other", "old", **GOES_FROM_N), "others-devices")
    others_claim = live.resource_claim("others-devices", "npu", holder="other")
    first = ok(pod("a"), WAITS, GOES_SOON)
    looks = GRACE + MARGIN - 10
    up.tell(DEPLOYMENT, *[deployment(availableReplicas=1)] * (looks + 45), deployment())
    # Two lists a look. When the first should have been gone, another one has begun to leave.
    up.tell(
        PODS,
        *[first] * 2 * looks,
        *[ok(pod("a"), WAITS, GOES_SOON, other)] * 2 * 35,
        *[ok(pod("a"), running("b"))] * 9,
        ok(*TWO),
    )
    up.tell(CLAIMS, ok(ASKED, HELD, others_claim))
    up.tell(ALL_PODS, ok())
    said: list[str] = []
    waits(said, 28_800).until_rolled_out("rel-decode")
    assert any("waits for devices of other" in line for line in said)


def test_one_of_another_namespace_is_named_with_the_command_for_that(up: StandIn) -> None:
    up.tell(DEPLOYMENT, deployment(availableReplicas=1))
    up.tell(PODS, ok(pod("a"), WAITS))
    up.tell(CLAIMS, ok(ASKED))
    up.tell(ALL_PODS, ok(merged(THEIRS, SOON)))
    up.tell("/apis/resource.k8s.io/v1/namespaces/theirs/resourceclaims", ok(HELD))
    clock = Clock()
    with pytest.raises(WaitError, match=r"Pod theirs/old has been overdue .*-n theirs delete pod old --force"):
        waits([], 28_800, clock).until_rolled_out("rel-decode")
    assert clock.now == 1000 + GRACE + MARGIN + 30


def test_an_endpoint_picker_does_not_wait_for_one_on_a_dead_node_unless_it_is_recreated(api: StandIn) -> None:
    meta: dict[str, Any] = {"ownerReferences": []}
    api.tell(f"{DEPLOYMENTS}/rel-epp", (200, live.deployment("rel-epp", replicas=1, metadata=meta)))
    gone = merged(OLD, GOES_FROM_N)
    api.tell(PODS, *[ok(running("a"), gone)] * 200, ok(pod("a"), gone))
    waits([], 28_800).until_rolled_out("rel-epp")
    none = {"updatedReplicas": 0, "availableReplicas": 0}
    api.tell(f"{DEPLOYMENTS}/rel-epp", (200, live.deployment("rel-epp", replicas=1, metadata=meta, status=none)))
    api.tell(PODS, ok(gone))
    api.tell(REPLICA_SETS, ok(live.replica_set("old", 1, owner="uid-rel-epp")))
    with pytest.raises(WaitError, match=f"endpoint picker: .*Pod old has been overdue in leaving for 30 s.*{FORCE}"):
        waits([], 28_800).until_rolled_out("rel-epp")


# --- crashes ----------------------------------------------------------------------------------------------------------


def test_one_early_crash_does_not_end_a_start_that_goes_well(up: StandIn) -> None:
    up.tell(DEPLOYMENT, *[deployment(availableReplicas=1)] * 100, deployment())
    crashes, loads = waiting("b", "CrashLoopBackOff"), live.again("b", 5)
    up.tell(PODS, *[ok(pod("a"), crashes)] * 10, *[ok(pod("a"), loads)] * 90, ok(*TWO))
    said: list[str] = []
    waits(said, 7200).until_rolled_out("rel-decode")
    assert [("running for longer than before" in line) for line in said] == [False, True]


# --- an earlier change ------------------------------------------------------------------------------------------------


def wait_for_the_end(said: list[str], clock: Clock, seconds: float = 60) -> None:
    until_change_has_ended(
        "test", namespace="ns", release="rel", report=said.append, seconds=seconds, clock=clock.read, sleep=clock.sleep
    )


def test_where_nothing_goes_there_is_nothing_to_wait_for(up: StandIn) -> None:
    up.tell(DEPLOYMENTS, ok(live.deployment()))
    said: list[str] = []
    clock = Clock()
    wait_for_the_end(said, clock)
    assert (said, clock.now) == ([], 1000)
    assert up.query_of(DEPLOYMENTS)["labelSelector"] == "app.kubernetes.io/instance=rel,llm-d.ai/role"
    assert up.query_of(PODS)["labelSelector"] == "app.kubernetes.io/instance=rel"


def of_role(name: str, **over: Any) -> dict[str, Any]:
    return pod(name, **merged({"metadata": {"labels": {TOPOLOGY: "k"}}}, over))


def of_epp(name: str, mode: str = labels.EPP_WITH_POOL, **over: Any) -> dict[str, Any]:
    return pod(name, **merged({"metadata": {"labels": {"app": "rel-epp", mode: "rel-epp"}}}, over))


EPP_DEPLOYMENT = f"{DEPLOYMENTS}/rel-epp"
OTHERS: dict[str, Any] = {"metadata": {"labels": {labels.EPP_WITH_POOL: "other-epp"}}}
EPP_STAYS = live.deployment("rel-epp", metadata={"ownerReferences": []})
EPP_GOES = merged(EPP_STAYS, live.LEAVING)


@pytest.mark.parametrize("mode", [labels.EPP_WITH_POOL, labels.EPP_WITHOUT_POOL])
def test_an_endpoint_picker_that_goes_is_awaited_until_its_last_pod_has_drained(up: StandIn, mode: str) -> None:
    up.tell(DEPLOYMENTS, ok())
    up.tell(EPP_DEPLOYMENT, (200, EPP_GOES), NOT_THERE)
    drains = of_epp("e", mode, **live.LEAVING)
    up.tell(PODS, *[ok(of_epp("e", mode))], *[ok(drains)] * 90, ok())
    said: list[str] = []
    clock = Clock()
    wait_for_the_end(said, clock, seconds=600)
    assert [line.removeprefix("an earlier change is still under way: waiting for ") for line in said] == [
        "Deployment rel-epp, Pod e to go",
        "Pod e to go",
    ]
    assert clock.now == 1091


@pytest.mark.parametrize(
    ("sentence", "epp", "pods"),
    [
        ("it serves", (200, EPP_STAYS), ok(of_epp("e"))),
        ("an old one drains in a roll-out", (200, EPP_STAYS), ok(of_epp("e"), of_epp("old", **live.LEAVING))),
        ("there is none", NOT_THERE, ok()),
        ("a Pod that leaves is of neither part", (200, EPP_STAYS), ok(pod("x", **live.LEAVING))),
        ("a Pod that leaves is another picker's", (200, EPP_STAYS), ok(pod("x", **merged(live.LEAVING, OTHERS)))),
    ],
)
def test_an_endpoint_picker_is_not_awaited_when(
    up: StandIn, sentence: str, epp: tuple[int, Any], pods: tuple[int, Any]
) -> None:
    up.tell(DEPLOYMENTS, ok(live.deployment()))
    up.tell(EPP_DEPLOYMENT, epp)
    up.tell(PODS, pods)
    said: list[str] = []
    wait_for_the_end(said, Clock())
    assert said == [], sentence


@pytest.mark.parametrize("what", [of_role("old", **GOES_FROM_N), of_epp("old", **GOES_FROM_N)], ids=["role", "epp"])
def test_an_earlier_change_that_waits_for_a_dead_node_only_is_left_to_whoever_can_tell_what_is_gone(
    up: StandIn, what: dict[str, Any]
) -> None:
    up.tell(ANCHOR, anchor(**LEAVING))
    up.tell(DEPLOYMENTS, ok())
    up.tell(PODS, ok(what))
    said: list[str] = []
    clock = Clock()
    wait_for_the_end(said, clock, seconds=28_800)
    assert clock.now == 1000 + GRACE + MARGIN
    assert len(said) == 2
    assert re.search(f"Pod old stays terminating on node n, .*{FORCE}. Then run `pulumi up` again", said[1])


def test_nor_is_it_in_an_earlier_change(up: StandIn) -> None:
    up.tell(DEPLOYMENTS, ok())
    up.tell(ANCHOR, NOT_THERE)
    gone = of_role("old", **GOES_FROM_N)
    up.tell(PODS, ok(gone), *[BUSY] * 100, *[ok(gone)] * (GRACE + MARGIN - 1), ok())
    said: list[str] = []
    wait_for_the_end(said, Clock(), seconds=28_800)
    assert not any("stays terminating" in line for line in said)


def test_others_are_awaited_beside_it_and_it_is_told(up: StandIn) -> None:
    up.tell(DEPLOYMENTS, ok())
    up.tell(ANCHOR, NOT_THERE)
    dead, slow = of_role("old", **GOES_FROM_N), of_role("slow", **GOES_FROM_N)
    up.tell(PODS, *[ok(dead)] * 70, *[ok(dead, slow)] * 50, ok())
    said: list[str] = []
    clock = Clock()
    wait_for_the_end(said, clock, seconds=28_800)
    assert clock.now == 1000 + 120
    assert [line.count("stays terminating") for line in said] == [0, 0, 1]


def test_an_earlier_change_is_awaited_to_its_end(up: StandIn) -> None:
    up.tell(ANCHOR, anchor(**LEAVING), anchor(**LEAVING), NOT_THERE)
    up.tell(DEPLOYMENTS, ok(live.deployment(**live.LEAVING)), ok())
    up.tell(PODS, ok(of_role("a"), of_role("b")), ok(of_role("a", **live.LEAVING)), ok())
    said: list[str] = []
    clock = Clock()
    wait_for_the_end(said, clock)
    assert [line.removeprefix("an earlier change is still under way: waiting for ") for line in said] == [
        "ConfigMap rel-topology, Deployment rel-decode, Pods a, b to go",
        "ConfigMap rel-topology, Pod a to go",
    ]
    assert clock.now == 1002


def test_an_earlier_change_that_does_not_end_is_left_to_the_facts(up: StandIn) -> None:
    up.tell(ANCHOR, anchor(**LEAVING))
    up.tell(DEPLOYMENTS, ok())
    clock = Clock()
    wait_for_the_end([], clock, seconds=60)
    assert clock.now == 1060


def test_an_earlier_change_that_cannot_be_seen_is_told_and_left_to_the_facts(up: StandIn) -> None:
    up.tell(DEPLOYMENTS, FORBIDDEN)
    said: list[str] = []
    wait_for_the_end(said, Clock())
    assert [line.split(":")[0] for line in said] == ["the cluster can't be asked"]


# --- an API server in trouble -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", PASSING)
@pytest.mark.parametrize(
    ("path", "good"), [(ANCHOR, anchor()), (DEPLOYMENT, deployment()), (PODS, ok(*TWO))], ids=["anchor", "one", "list"]
)
def test_a_passing_trouble_does_not_end_a_wait(up: StandIn, path: str, good: tuple[int, Any], status: int) -> None:
    busy = (status, {"kind": "Status"})
    up.tell(path, busy, busy, busy, busy, good)
    said: list[str] = []
    waits(said).until_rolled_out("rel-decode")
    [line] = said
    assert line.startswith("the cluster can't be asked just now: ")
    assert str(status) in line


@pytest.mark.parametrize("status", PASSING)
def test_trouble_that_does_not_pass_ends_it_when_time_is_out(up: StandIn, status: int) -> None:
    up.tell(PODS, (status, {"kind": "Status"}))
    with pytest.raises(WaitError, match=f"can't be asked: .*{status}.*Run `pulumi up` again"):
        waits([], 0).until_may_be_made("u1")


@pytest.mark.parametrize("status", REFUSALS)
def test_a_refusal_ends_a_wait_at_once(up: StandIn, status: int) -> None:
    up.tell(PODS, (status, {"kind": "Status"}), ok())
    with pytest.raises(WaitError, match=f"can't be asked: {status} "):
        waits([]).until_may_be_made("u1")
    assert up.times_asked(PODS) == 1


def test_a_kubeconfig_that_cannot_be_used_ends_a_wait_with_what_to_mend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "half-written").write_text("clusters: [")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "half-written"))
    with pytest.raises(WaitError, match=r"no YAML.*Mend the kubeconfig"):
        waits([]).until_rolled_out("rel-decode")
