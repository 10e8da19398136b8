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
LEAVING: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
INSTANCE, COMPONENT = "app.kubernetes.io/instance", "app.kubernetes.io/component"


def deployment(name: str, *, replicas: int = 1, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {COMPONENT: "decode"}} | meta, "spec": {"replicas": replicas}}


def pod(topology: str, phase: str = "Running") -> dict[str, Any]:
    return {"metadata": {"name": "p", "labels": {"serving-stack.dev/topology": topology}}, "status": {"phase": phase}}


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
        deployment("rel-decode", replicas=4, ownerReferences=[{"uid": "u1"}]),
        deployment(
            "rel-decode-1",
            labels={COMPONENT: "decode", "serving-stack.dev/entry": "1"},
            annotations={"serving-stack.dev/node": "n1"},
            **LEAVING,
        ),
    )
    api.tell_list(PODS, pod("k3"), pod("k3"), pod("k2", "Pending"), pod("k1", "Failed"), pod("k0", "Succeeded"))
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
        "rel-decode": WorkloadFacts(name="rel-decode", role="decode", replicas=4, owner_uid="u1"),
        "rel-decode-1": WorkloadFacts(name="rel-decode-1", role="decode", entry=1, node="n1", is_terminating=True),
    }
    assert facts.live_topologies == {"k3", "k2"}, "a Pod that is over holds nothing"
    assert facts.unknown == ()


def test_only_objects_of_the_release_are_asked_for_and_every_claim(full: StandIn) -> None:
    read()
    assert full.query_of(WORKLOADS)["labelSelector"] == "app.kubernetes.io/instance=rel,llm-d.ai/role"
    assert full.query_of(PODS)["labelSelector"] == "app.kubernetes.io/instance=rel,serving-stack.dev/topology"
    assert "labelSelector" not in full.query_of(CLAIMS), "one without our label has to be found too"


def test_an_empty_namespace_is_known_to_be_empty(api: StandIn) -> None:
    for path in (CLAIMS, WORKLOADS, PODS):
        api.tell_list(path)
    facts = read()
    assert (facts.claims, facts.anchor_is_known, facts.anchor) == ({}, True, None)
    assert (facts.workloads, facts.live_topologies, facts.unknown) == ({}, frozenset(), ())


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
