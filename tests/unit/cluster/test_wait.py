"""The waits of an update, asked of an API server whose answers change from look to look, on a clock of the test's."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from cluster.wait import WaitError, Waits, until_change_has_ended
from stack.planned import RollOutPlan
from tests import live
from tests.builders import EMPTY_CLUSTER, merged, plan
from tests.live import pod, running, waiting, with_claim, without_node

if TYPE_CHECKING:
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
DECODE = RollOutPlan(
    name="rel-decode",
    part="decode",
    selector={"app.kubernetes.io/instance": "rel", "app.kubernetes.io/component": "decode"},
    pods=2,
    ready=2,
    awaits_leave=True,
    is_owned=True,
    timeout_seconds=1000,
    patience_seconds=30,
)
EPP = dataclasses.replace(
    DECODE, name="rel-epp", part="epp", selector={"epp": "rel"}, pods=1, ready=1, awaits_leave=False, is_owned=False
)


@dataclass
class Clock:
    """Goes on only when somebody sleeps."""

    now: float = 1000.0

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def waits(said: list[str], seconds: int = 1000, clock: Clock | None = None) -> Waits:
    """All deadlines at so many seconds; one between two looks."""
    clock = clock or Clock()
    topology = dataclasses.replace(PLAN.modelserver.topology, leave_seconds=seconds)
    planned = dataclasses.replace(
        PLAN,
        modelserver=dataclasses.replace(PLAN.modelserver, topology=topology),
        roll_outs={of.name: dataclasses.replace(of, timeout_seconds=seconds) for of in (DECODE, EPP)},
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
    said: list[str] = []
    waits(said).until_devices_are_free()
    assert said == [
        "waiting for devices: old-1, old-2 of the earlier topology still there",
        "waiting for devices: old-1 of the earlier topology still there",
    ]
    assert api.query_of(PODS)["labelSelector"] == f"app.kubernetes.io/instance=rel,{TOPOLOGY},{TOPOLOGY}!={KEY}"
    assert api.times_asked(DEPLOYMENTS) == 0


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_is_over_holds_no_devices(api: StandIn, phase: str) -> None:
    api.tell(PODS, ok(pod("evicted", phase=phase)))
    waits([]).until_devices_are_free()


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
        waits([], 7).until_devices_are_free()
    assert str(caught.value) == (
        "old-0, old-1, old-2 and 2 more of the earlier topology did not leave within 7 s. "
        "Look at `kubectl -n ns describe pod old-0`, then run `pulumi up` again."
    ), sentence


def test_pods_of_a_deployment_that_nobody_takes_down_tell_of_a_lost_state(api: StandIn) -> None:
    api.tell(PODS, ok(pod("old-0")))
    api.tell(DEPLOYMENTS, ok(of_topology("before")))
    with pytest.raises(
        WaitError, match=r"Deployment rel-decode is not going to leave: .* state .*then change it"
    ) as caught:
        waits([], 7).until_devices_are_free()
    assert "Put the configuration that runs back and run `pulumi up`" in str(caught.value)


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
    assert up.query_of(PODS)["labelSelector"] == f"app.kubernetes.io/instance=rel,{TOPOLOGY}"


def test_an_earlier_change_is_awaited_to_its_end(up: StandIn) -> None:
    up.tell(ANCHOR, anchor(**LEAVING), anchor(**LEAVING), NOT_THERE)
    up.tell(DEPLOYMENTS, ok(live.deployment(**live.LEAVING)), ok())
    up.tell(PODS, ok(*TWO), ok(merged(TWO[0], live.LEAVING)), ok())
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
        waits([], 0).until_devices_are_free()


@pytest.mark.parametrize("status", REFUSALS)
def test_a_refusal_ends_a_wait_at_once(up: StandIn, status: int) -> None:
    up.tell(PODS, (status, {"kind": "Status"}), ok())
    with pytest.raises(WaitError, match=f"can't be asked: {status} "):
        waits([]).until_devices_are_free()
    assert up.times_asked(PODS) == 1


def test_a_kubeconfig_that_cannot_be_used_ends_a_wait_with_what_to_mend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "half-written").write_text("clusters: [")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "half-written"))
    with pytest.raises(WaitError, match=r"no YAML.*Mend the kubeconfig"):
        waits([]).until_rolled_out("rel-decode")
