"""The waits around a roll-out, asked of an API server whose answers change from look to look."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from cluster.wait import WaitError, Waits
from tests.builders import EMPTY_CLUSTER, plan

if TYPE_CHECKING:
    from stack.planned import StackPlan
    from tests.stand_in import StandIn

PODS = "/api/v1/namespaces/ns/pods"
DEPLOYMENT = "/apis/apps/v1/namespaces/ns/deployments/rel-decode"
ANCHOR = "/api/v1/namespaces/ns/configmaps/rel-topology"
LEAVING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
PLAN = plan(EMPTY_CLUSTER, modelserver={"replicas": {"prefill": 1, "decode": 2}})
LONG_ENOUGH = 20
"""Seconds, for waits that end by themselves; a test that needs them is lost."""


def with_clock(planned: StackPlan, seconds: int, *, dropped: tuple[str, ...] = ()) -> StackPlan:
    """The plan with all deadlines at so many seconds."""
    servers = planned.modelserver
    workloads = tuple(dataclasses.replace(w, timeout_seconds=seconds) for w in servers.workloads)
    topology = dataclasses.replace(servers.topology, leave_seconds=seconds, dropped=dropped)
    return dataclasses.replace(
        planned, modelserver=dataclasses.replace(servers, workloads=workloads, topology=topology)
    )


def waits(said: list[str], seconds: int = LONG_ENOUGH, *, dropped: tuple[str, ...] = ()) -> Waits:
    planned = with_clock(PLAN, seconds, dropped=dropped)
    return Waits(context="test", plan=planned, report=said.append, poll_seconds=0.001)


def ok(*items: Any) -> tuple[int, Any]:
    return 200, {"metadata": {}, "items": list(items)}


def pod(name: str, phase: str = "Running", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"phase": phase, **status}}


def deployment(*, owner: str | None = "u1", meta: dict[str, Any] | None = None, **status: Any) -> tuple[int, Any]:
    """Complete, and made under the anchor, unless told otherwise."""
    metadata: dict[str, Any] = {"generation": 1, **(meta or {})}
    if owner is not None:
        metadata["ownerReferences"] = [{"kind": "ConfigMap", "uid": owner}]
    complete = {"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 2}
    return 200, {"metadata": metadata, "spec": {"replicas": 2}, "status": {**complete, **status}}


def anchor(**meta: Any) -> tuple[int, Any]:
    return 200, {"metadata": {"name": "rel-topology", "uid": "u1", **meta}, "data": {"key": "k"}}


NOT_THERE: tuple[int, Any] = (404, {"kind": "Status"})
TWO = (pod("a"), pod("b"))
REFUSALS = [400, 401, 403, 404, 410]
PASSING = [429, 500, 502, 503, 504]
NO_ROOM: dict[str, Any] = {
    "conditions": [{"type": "PodScheduled", "reason": "Unschedulable", "message": "cannot allocate all claims"}]
}
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
    key = PLAN.modelserver.topology.key
    label = "serving-stack.dev/topology"
    assert api.query_of(PODS)["labelSelector"] == f"app.kubernetes.io/instance=rel,{label},{label}!={key}"


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_is_over_holds_no_devices(api: StandIn, phase: str) -> None:
    api.tell(PODS, ok(pod("evicted", phase)))
    waits([]).until_devices_are_free()


def test_pods_that_stay_are_named_when_time_is_out(api: StandIn) -> None:
    api.tell(PODS, ok(*(pod(f"old-{i}") for i in range(5))))
    with pytest.raises(
        WaitError, match=r"old-0, old-1, old-2 and 2 more .* did not leave within 0 s.*describe pod old-0"
    ):
        waits([], 0).until_devices_are_free()


# --- roll-outs --------------------------------------------------------------------------------------------------------


@pytest.fixture
def running(api: StandIn) -> StandIn:
    """A stack that is rolled out."""
    api.tell(ANCHOR, anchor())
    api.tell(DEPLOYMENT, deployment())
    api.tell(PODS, ok(*TWO))
    return api


def test_a_roll_out_is_awaited_to_its_end_and_each_step_said_once(running: StandIn) -> None:
    half = deployment(updatedReplicas=1, availableReplicas=2)
    running.tell(DEPLOYMENT, half, half, half, deployment())
    running.tell(PODS, ok(pod("old"), pod("a")), ok(pod("old"), pod("a")), ok(pod("old"), pod("a")), ok(*TWO))
    said: list[str] = []
    waits(said).until_rolled_out("rel-decode")
    assert said == ["rel-decode: 1 of 2 Pods updated, 2 available, 1 to leave"]
    selector = "app.kubernetes.io/instance=rel,app.kubernetes.io/component=decode"
    assert running.query_of(PODS)["labelSelector"] == selector


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_what_an_evicted_pod_left_behind_is_not_waited_for(running: StandIn, phase: str) -> None:
    running.tell(PODS, ok(*TWO, pod("evicted", phase, **NO_ROOM)))
    said: list[str] = []
    waits(said).until_rolled_out("rel-decode")
    assert said == []


@pytest.mark.parametrize(
    ("live", "owner", "why"),
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
    running: StandIn, live: tuple[int, Any], owner: tuple[int, Any], why: str
) -> None:
    running.tell(DEPLOYMENT, live)
    running.tell(ANCHOR, owner)
    with pytest.raises(WaitError, match=f"^rel-decode {why}.*Run `pulumi up` again"):
        waits([]).until_rolled_out("rel-decode")


def test_a_deployment_that_is_deleted_during_the_wait_ends_it(running: StandIn) -> None:
    running.tell(DEPLOYMENT, deployment(availableReplicas=1), deployment(meta=LEAVING))
    with pytest.raises(WaitError, match="is being deleted"):
        waits([]).until_rolled_out("rel-decode")


def test_without_an_anchor_there_is_no_owner_to_compare(running: StandIn) -> None:
    running.tell(ANCHOR, NOT_THERE)
    waits([]).until_rolled_out("rel-decode")


def test_the_anchor_is_read_once(running: StandIn) -> None:
    running.tell(DEPLOYMENT, deployment(availableReplicas=0), deployment(availableReplicas=1), deployment())
    waits([]).until_rolled_out("rel-decode")
    assert (running.times_asked(ANCHOR), running.times_asked(DEPLOYMENT)) == (1, 3)


def test_what_kubernetes_said_of_the_roll_out_before_is_not_believed_at_once(running: StandIn) -> None:
    stale = deployment(updatedReplicas=0, **GAVE_UP)
    running.tell(DEPLOYMENT, stale, deployment(availableReplicas=1), stale, deployment())
    waits([]).until_rolled_out("rel-decode")


def test_kubernetes_giving_up_ends_the_wait_long_before_time_is_out(running: StandIn) -> None:
    running.tell(DEPLOYMENT, deployment(availableReplicas=1, **GAVE_UP))
    with pytest.raises(WaitError, match="rel-decode did not roll out: deadline exceeded; 2 of 2 Pods updated, 1 avail"):
        waits([]).until_rolled_out("rel-decode")
    assert running.times_asked(DEPLOYMENT) == 2


def test_a_complete_roll_out_is_complete_whatever_was_said_of_it(running: StandIn) -> None:
    running.tell(DEPLOYMENT, deployment(**GAVE_UP))
    waits([]).until_rolled_out("rel-decode")


def test_a_roll_out_that_takes_too_long_is_told_with_what_is_missing(running: StandIn) -> None:
    running.tell(PODS, ok(pod("a"), pod("b", "Pending", **NO_ROOM)))
    running.tell(DEPLOYMENT, deployment(availableReplicas=1))
    with pytest.raises(WaitError) as caught:
        waits([], 0).until_rolled_out("rel-decode")
    assert str(caught.value).startswith(
        "rel-decode did not roll out: out of time; 2 of 2 Pods updated, 1 available; "
        "b: unschedulable: cannot allocate all claims. Mend"
    )


@pytest.mark.parametrize(
    ("status", "dropped", "want_said"),
    [
        pytest.param(NO_ROOM, ("rel-prefill",), True, id="no room, while a role that is dropped still runs"),
        pytest.param(NO_ROOM, (), False, id="no room, and nothing is dropped"),
        pytest.param({}, ("rel-prefill",), False, id="room enough"),
    ],
)
def test_a_wait_for_devices_of_what_this_update_drops_says_so(
    running: StandIn, status: dict[str, Any], dropped: tuple[str, ...], want_said: bool
) -> None:
    running.tell(PODS, ok(pod("a"), pod("b", "Pending", **status)))
    running.tell(DEPLOYMENT, deployment(availableReplicas=1), deployment(availableReplicas=1), deployment())
    said: list[str] = []
    waits(said, dropped=dropped).until_rolled_out("rel-decode")
    assert ("rel-prefill goes only at the very end and may hold the devices till then" in said[0]) is want_said
    running.tell(DEPLOYMENT, deployment(availableReplicas=1))
    with pytest.raises(WaitError) as caught:
        waits([], 0, dropped=dropped).until_rolled_out("rel-decode")
    assert ("set that role to 0 in a `pulumi up` of its own first" in str(caught.value)) is want_said


# --- an API server in trouble -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", PASSING)
@pytest.mark.parametrize(
    ("path", "good"), [(ANCHOR, anchor()), (DEPLOYMENT, deployment()), (PODS, ok(*TWO))], ids=["anchor", "one", "list"]
)
def test_a_passing_trouble_does_not_end_a_wait(running: StandIn, path: str, good: tuple[int, Any], status: int) -> None:
    busy = (status, {"kind": "Status"})
    running.tell(path, busy, busy, busy, busy, good)
    said: list[str] = []
    waits(said).until_rolled_out("rel-decode")
    [line] = said
    assert line.startswith("the cluster can't be asked just now: ")
    assert str(status) in line


@pytest.mark.parametrize("status", PASSING)
def test_trouble_that_does_not_pass_ends_it_when_time_is_out(running: StandIn, status: int) -> None:
    running.tell(PODS, (status, {"kind": "Status"}))
    with pytest.raises(WaitError, match=f"can't be asked: .*{status}.*Run `pulumi up` again"):
        waits([], 0).until_devices_are_free()


@pytest.mark.parametrize("status", REFUSALS)
def test_a_refusal_ends_a_wait_at_once(running: StandIn, status: int) -> None:
    running.tell(PODS, (status, {"kind": "Status"}), ok())
    with pytest.raises(WaitError, match=f"can't be asked: {status} "):
        waits([]).until_devices_are_free()
    assert running.times_asked(PODS) == 1


def test_a_kubeconfig_that_cannot_be_used_ends_a_wait_with_what_to_mend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "half-written").write_text("clusters: [")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "half-written"))
    with pytest.raises(WaitError, match=r"no YAML.*Mend the kubeconfig"):
        waits([]).until_rolled_out("rel-decode")
