"""What is read from an API server before planning, and what one refusal leaves unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cluster.facts import read_facts
from stack.facts import AnchorFacts, ClaimFacts, WorkloadFacts

if TYPE_CHECKING:
    from stack.facts import ClusterFacts
    from tests.stand_in import StandIn

CLAIMS = "/api/v1/namespaces/ns/persistentvolumeclaims"
ANCHOR = "/api/v1/namespaces/ns/configmaps/rel-topology"
WORKLOADS = "/apis/apps/v1/namespaces/ns/deployments"
PODS = "/api/v1/namespaces/ns/pods"
REPLICA_SETS = "/apis/apps/v1/namespaces/ns/replicasets"
LEAVING: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
INSTANCE, COMPONENT = "app.kubernetes.io/instance", "app.kubernetes.io/component"
ENTRY, TOPOLOGY = "serving-stack.dev/entry", "serving-stack.dev/topology"


def role_labels(role: str = "decode", entry: int | None = None) -> dict[str, str]:
    """What a role's workloads and Pods have; the value of the first is the role's, or both at once."""
    labels = {"llm-d.ai/role": role, COMPONENT: role}
    return labels if entry is None else labels | {ENTRY: str(entry)}


def deployment(name: str, *, replicas: int = 1, status: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": role_labels()} | meta,
        "spec": {"replicas": replicas},
        "status": status or {},
    }


def epp(name: str = "rel-epp", **meta: Any) -> dict[str, Any]:
    return deployment(name, labels={COMPONENT: "epp"}, **meta)


def pod(
    topology: str = "k3", phase: str = "Running", *, role: str = "decode", entry: int | None = None, node: str = ""
) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "labels": role_labels(role, entry) | {TOPOLOGY: topology}},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase},
    }


@pytest.fixture
def full(api: StandIn) -> StandIn:
    """A cluster in which a stack runs."""
    api.tell_list(
        CLAIMS,
        {"metadata": {"name": "ours", "labels": {INSTANCE: "rel"}}},
        {"metadata": {"name": "leaving", "labels": {"app": "x"}, **LEAVING}},
        {"metadata": {"name": "bare"}},
    )
    anchor = {"name": "rel-topology", "uid": "u1", "annotations": {"serving-stack.dev/generation": "3"}}
    api.tell(ANCHOR, (200, {"metadata": anchor, "data": {"key": "k3"}}))
    api.tell_list(
        WORKLOADS,
        deployment("rel-decode", replicas=4, status={"availableReplicas": 3}, ownerReferences=[{"uid": "u1"}]),
        deployment(
            "rel-decode-1",
            labels=role_labels(entry=1),
            annotations={"serving-stack.dev/node": "n1"},
            **LEAVING,
        ),
        epp(),
    )
    api.tell_list(
        PODS,
        pod("k3", node="n7"),
        pod("k3"),
        pod("k2", "Pending", entry=1),
        pod("k1", "Failed"),
        pod("k0", "Succeeded"),
        {"metadata": {"name": "rel-epp-1", "labels": {COMPONENT: "epp"}}, "spec": {"nodeName": "n7"}, "status": {}},
    )
    api.tell_list(REPLICA_SETS, {"metadata": {"name": "rel-decode-abc"}})
    return api


def read() -> ClusterFacts:
    return read_facts("test", namespace="ns", release="rel")


@pytest.mark.usefixtures("full")
def test_everything_is_read_as_it_is() -> None:
    facts = read()
    assert facts.claims == {
        "ours": ClaimFacts(name="ours", instance="rel"),
        "leaving": ClaimFacts(name="leaving", is_terminating=True),
        "bare": ClaimFacts(name="bare"),
    }
    assert facts.anchor_is_known
    assert facts.anchor == AnchorFacts(key="k3", generation=3, uid="u1")
    assert facts.workloads == {
        "rel-decode": WorkloadFacts(
            name="rel-decode", role="decode", replicas=4, available=3, is_placed=True, owner_uid="u1"
        ),
        "rel-decode-1": WorkloadFacts(
            name="rel-decode-1", role="decode", entry=1, node="n1", available=0, is_placed=False, is_terminating=True
        ),
    }, "the endpoint picker is none of them"
    assert not facts.router_leaves
    assert facts.live_topologies == {"k3", "k2"}, "a Pod that is over holds nothing"
    assert facts.unknown == ()


def test_only_objects_of_the_release_are_asked_for_and_every_claim(full: StandIn) -> None:
    read()
    for path in (WORKLOADS, PODS, REPLICA_SETS):
        assert full.query_of(path)["labelSelector"] == "app.kubernetes.io/instance=rel"
        assert full.times_asked(path) == 1, "those of the roles and of the endpoint picker are of one list"
    assert "labelSelector" not in full.query_of(CLAIMS), "one without our label has to be found too"


@pytest.mark.usefixtures("full")
def test_what_was_read_is_handed_on_so_that_nobody_reads_it_again() -> None:
    near = read().near
    assert {live["metadata"]["name"] for live in near.deployments or ()} == {"rel-decode", "rel-decode-1"}
    assert [live["metadata"]["name"] for live in near.release_pods or ()] == ["p", "p", "p", "rel-epp-1"]
    assert [live["metadata"]["name"] for live in near.replica_sets or ()] == ["rel-decode-abc"]
    assert set(near.volume_claims or ()) == {"ours", "leaving", "bare"}
    assert near.calls == 5
    assert near.size > 1000


def test_an_empty_namespace_is_known_to_be_empty(api: StandIn) -> None:
    for path in (CLAIMS, WORKLOADS, PODS, REPLICA_SETS):
        api.tell_list(path)
    facts = read()
    assert (facts.claims, facts.anchor_is_known, facts.anchor) == ({}, True, None)
    assert (facts.workloads, facts.live_topologies, facts.unknown) == ({}, frozenset(), ())


@pytest.mark.parametrize(
    ("deployments", "want"),
    [
        pytest.param([epp(**LEAVING)], True, id="it is being deleted"),
        pytest.param([epp()], False, id="it stays"),
        pytest.param([], False, id="it is gone, so that it goes no more"),
        pytest.param([epp(), deployment("rel-decode", **LEAVING)], False, id="a model server leaves, which is another"),
        pytest.param([epp("of-theirs", **LEAVING)], False, id="another Deployment with the release's label"),
    ],
)
def test_the_endpoint_picker_leaves_when(full: StandIn, deployments: list[dict[str, Any]], want: bool) -> None:
    full.tell_list(WORKLOADS, *deployments)
    assert read().router_leaves is want


def test_where_no_deployment_may_be_read_none_is_taken_to_leave(full: StandIn) -> None:
    full.tell(WORKLOADS, (403, {"kind": "Status"}))
    assert not read().router_leaves


@pytest.mark.parametrize(
    ("entry", "pods", "want"),
    [
        pytest.param(1, [pod(entry=1, node="n1")], True, id="its Pod has a node"),
        pytest.param(1, [pod(entry=1)], False, id="its Pod has none"),
        pytest.param(1, [], False, id="it has no Pod"),
        pytest.param(1, [pod(entry=1), pod(entry=1, node="n1")], True, id="one of its Pods has a node"),
        pytest.param(1, [pod("k2", entry=1, node="n1")], True, id="a Pod of an earlier topology still has its node"),
        pytest.param(1, [pod(entry=1, node="n1", phase="Pending")], True, id="its Pod has a node and is starting"),
        pytest.param(1, [pod(entry=1, node="n1", phase="Failed")], False, id="its Pod had a node and is over"),
        pytest.param(1, [pod(entry=11, node="n1")], False, id="the Pod of another entry has"),
        pytest.param(1, [pod(node="n1")], False, id="the Pod of a role without entries has"),
        pytest.param(1, [pod(role="prefill", entry=1, node="n1")], False, id="the Pod of another role has"),
        pytest.param(None, [pod(node="n1")], True, id="without entries: a Pod of the role has"),
        pytest.param(None, [pod(entry=1, node="n1")], False, id="without entries: the Pod of an entry has"),
    ],
)
def test_a_workload_is_placed_when(full: StandIn, entry: int | None, pods: list[dict[str, Any]], want: bool) -> None:
    full.tell_list(WORKLOADS, deployment("rel-decode-1", labels=role_labels(entry=entry)))
    full.tell_list(PODS, *pods)
    found = read().workloads
    assert found is not None
    assert found["rel-decode-1"].is_placed is want


def test_a_workload_whose_pods_may_not_be_read_is_placed(full: StandIn) -> None:
    """It may hold a device, and to take that for free would be the dearer mistake."""
    full.tell(PODS, (403, {"kind": "Status"}))
    found = read().workloads
    assert found is not None
    assert {name: live.is_placed for name, live in found.items()} == {"rel-decode": True, "rel-decode-1": True}


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param({"replicas": 4, "availableReplicas": 4}, 4, id="all serve"),
        pytest.param({"replicas": 4, "readyReplicas": 2, "availableReplicas": 1}, 1, id="one serves long enough"),
        pytest.param({"replicas": 4, "unavailableReplicas": 4}, 0, id="none serves, which Kubernetes leaves out"),
        pytest.param(None, 0, id="nothing is said yet"),
    ],
)
def test_pods_that_serve_are_counted(full: StandIn, status: dict[str, Any] | None, want: int) -> None:
    live = deployment("rel-decode", replicas=4, status=status)
    if status is None:
        del live["status"]
    full.tell_list(WORKLOADS, live)
    found = read().workloads
    assert found is not None
    assert found["rel-decode"].available == want


@pytest.mark.parametrize(
    ("meta", "data", "want"),
    [
        pytest.param({}, {"key": "k"}, AnchorFacts(key="k", generation=1, uid="u"), id="without annotations"),
        pytest.param(
            {"annotations": {"serving-stack.dev/generation": "many"}},
            {"key": "k"},
            AnchorFacts(key="k", generation=1, uid="u"),
            id="a generation that is no number",
        ),
        pytest.param(
            LEAVING, {"key": "k"}, AnchorFacts(key="k", generation=1, uid="u", is_terminating=True), id="goes"
        ),
        pytest.param({}, None, AnchorFacts(key="", generation=1, uid="u"), id="emptied by hand"),
    ],
)
def test_an_anchor(full: StandIn, meta: dict[str, Any], data: dict[str, str] | None, want: AnchorFacts) -> None:
    live = {"metadata": {"name": "rel-topology", "uid": "u", **meta}} | ({} if data is None else {"data": data})
    full.tell(ANCHOR, (200, live))
    assert read().anchor == want


@pytest.mark.parametrize("status", [403, 500, 503])
@pytest.mark.parametrize(
    ("path", "what", "want_unknown"),
    [
        pytest.param(CLAIMS, "PersistentVolumeClaims", {"claims"}, id="claims"),
        pytest.param(ANCHOR, "topology anchor", {"anchor"}, id="anchor"),
        pytest.param(WORKLOADS, "role workloads", {"workloads"}, id="workloads"),
        pytest.param(PODS, "Pods", {"live_topologies"}, id="Pods"),
        pytest.param(REPLICA_SETS, "ReplicaSets", set[str](), id="ReplicaSets"),
    ],
)
def test_what_is_refused_is_unknown_and_the_rest_is_known(
    full: StandIn, path: str, what: str, want_unknown: set[str], status: int
) -> None:
    full.tell(path, (status, {"kind": "Status"}))
    facts = read()
    parts = {name: getattr(facts, name) for name in ("claims", "anchor", "workloads", "live_topologies")}
    assert {name for name, value in parts.items() if value is None} == want_unknown
    assert facts.anchor_is_known is ("anchor" not in want_unknown)
    [reason] = facts.unknown
    assert reason.startswith(f"{what}: {status} ")
