"""Every workload is tried without effect; what is said of an object is told from what is said of the one who asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cluster.trial import try_workloads
from stack.facts import TrialFacts
from stack.planned import ObjectPlan
from tests.builders import plan
from tests.stand_in import kubeconfig

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stand_in import StandIn

PREFILL, DECODE = (f"/apis/apps/v1/namespaces/ns/deployments/rel-{role}" for role in ("prefill", "decode"))
EPP = "/apis/apps/v1/namespaces/ns/deployments/rel-epp"
ANSWER: dict[str, Any] = {"kind": "Deployment", "spec": {"revisionHistoryLimit": 10}}
TAKEN: tuple[int, Any] = (200, ANSWER)
TAKEN_PREFILL, TAKEN_DECODE = {"rel-prefill": ANSWER}, {"rel-decode": ANSWER}
NO_WARNING: dict[str, tuple[str, ...]] = {"rel-prefill": (), "rel-decode": ()}


def says(status: int, message: str) -> tuple[int, Any]:
    return status, {"kind": "Status", "message": message}


def tried(*, owner: dict[str, Any] | None = None) -> TrialFacts:
    return try_workloads("test", [workload.object for workload in plan().modelserver.workloads], owner=owner)


def test_every_workload_is_tried_as_planned(api: StandIn) -> None:
    """Before there is an anchor nothing can be owned by it: its uid is not known."""
    api.tell(PREFILL, TAKEN)
    api.tell(DECODE, TAKEN)
    assert tried() == TrialFacts(warned=NO_WARNING, results=TAKEN_PREFILL | TAKEN_DECODE)
    manifests = [workload.object.manifest for workload in plan().modelserver.workloads]
    assert [(sent.path, sent.body) for sent in api.sent] == [(PREFILL, manifests[0]), (DECODE, manifests[1])]
    assert "ownerReferences" not in str(api.sent)


def test_every_workload_is_tried_with_the_owner_that_it_will_have(api: StandIn) -> None:
    """Where only those may set an owner who may change it, the API server says so now and not after the take-down."""
    api.tell(PREFILL, TAKEN)
    api.tell(DECODE, TAKEN)
    before = [dict(workload.object.manifest["metadata"]) for workload in plan().modelserver.workloads]
    tried(owner=plan().modelserver.topology.owner_reference("u1"))
    want = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "rel-topology",
        "uid": "u1",
        "blockOwnerDeletion": True,
    }
    assert [sent.body["metadata"] for sent in api.sent] == [{**meta, "ownerReferences": [want]} for meta in before]
    specs = [workload.object.manifest["spec"] for workload in plan().modelserver.workloads]
    assert [sent.body["spec"] for sent in api.sent] == specs, "nothing else is another"
    assert [workload.object.manifest["metadata"] for workload in plan().modelserver.workloads] == before, (
        "the plan itself is left alone"
    )


def test_an_owner_that_may_not_be_set_stops_everything(api: StandIn) -> None:
    """In these words, by the admission plugin OwnerReferencesPermissionEnforcement."""
    message = (
        'deployments.apps "rel-prefill" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a '
        "resource you can't set finalizers on: , <nil>"
    )
    api.tell(PREFILL, says(403, message))
    api.tell(DECODE, TAKEN)
    found = tried(owner=plan().modelserver.topology.owner_reference("u1"))
    assert found.refused == {"rel-prefill": message}


def test_what_the_api_server_warns_of_is_kept_for_each_workload(api: StandIn) -> None:
    api.tell(PREFILL, TAKEN)
    api.tell(DECODE, TAKEN)
    api.tell_headers(DECODE, ("Warning", '299 - "one"'), ("Warning", '299 - "two"'))
    assert tried().warned == {"rel-prefill": (), "rel-decode": ("one", "two")}


def test_warnings_of_the_others_are_kept_when_one_would_not_be_taken(api: StandIn) -> None:
    api.tell(PREFILL, TAKEN)
    api.tell_headers(PREFILL, ("Warning", '299 - "one"'))
    api.tell(DECODE, says(422, "two"))
    assert tried() == TrialFacts(refused={"rel-decode": "two"}, warned={"rel-prefill": ("one",)}, results=TAKEN_PREFILL)


def test_it_is_tried_by_force_and_as_the_one_who_applies_it_later(api: StandIn) -> None:
    """Else fields of an earlier install would be in conflict, which they are not for the engine."""
    api.tell(PREFILL, TAKEN)
    api.tell(DECODE, TAKEN)
    tried()
    assert [query for _, query in api.asked] == [
        {"dryRun": "All", "force": "true", "fieldManager": "serving-stack"}
    ] * 2


def test_the_field_manager_is_the_one_that_the_object_names(api: StandIn) -> None:
    api.tell(PREFILL, TAKEN)
    meta = {
        "name": "rel-prefill",
        "namespace": "ns",
        "annotations": {"pulumi.com/patchFieldManager": "somebody"},
    }
    try_workloads(
        "test", [ObjectPlan(logical_name="prefill", manifest={"kind": "Deployment", "metadata": meta})], owner=None
    )
    assert api.query_of(PREFILL)["fieldManager"] == "somebody"


@pytest.mark.parametrize(
    ("status", "message"),
    [
        pytest.param(422, 'Deployment.apps "rel-prefill" is invalid: spec.replicas: must be >= 0', id="it is invalid"),
        pytest.param(400, "failed to create typed patch object: expected map, got list", id="it has another schema"),
        pytest.param(
            403, 'admission webhook "policy.example.com" denied the request: no root', id="a webhook denies it"
        ),
        pytest.param(
            403,
            'deployments.apps "rel-prefill" is forbidden: ValidatingAdmissionPolicy "p" denied request: no latest tag',
            id="a policy denies it",
        ),
        pytest.param(
            403, 'deployments.apps "rel-prefill" is forbidden: exceeded quota: count', id="a quota is exceeded"
        ),
        pytest.param(413, "Request entity too large: limit is 3145728", id="it is too large"),
    ],
)
def test_it_would_not_be_taken_when(api: StandIn, status: int, message: str) -> None:
    api.tell(PREFILL, says(status, message))
    api.tell(DECODE, TAKEN)
    assert tried() == TrialFacts(refused={"rel-prefill": message}, warned={"rel-decode": ()}, results=TAKEN_DECODE)


NO_RIGHT = (
    'deployments.apps "rel-prefill" is forbidden: User "me" cannot patch resource "deployments" in API group "apps" in '
    'the namespace "ns"'
)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        pytest.param(403, NO_RIGHT, id="nobody may ask that"),
        pytest.param(
            400, 'admission webhook "w.example.com" does not support dry run', id="a webhook might have effects"
        ),
        pytest.param(401, "Unauthorized", id="the token has expired"),
        pytest.param(404, 'namespaces "ns" not found', id="the namespace is not there"),
        pytest.param(408, "Timeout: request did not complete within the allotted timeout", id="it takes too long"),
        pytest.param(409, "Operation cannot be fulfilled: the object has been modified", id="somebody else writes"),
        pytest.param(429, "too many requests, please try again later", id="too many ask"),
        pytest.param(500, 'failed calling webhook "w": connect: connection refused', id="a webhook does not answer"),
        pytest.param(503, "the server is currently unable to handle the request", id="it is starting"),
        pytest.param(504, "Timeout: request did not complete", id="it takes much too long"),
    ],
)
def test_it_is_not_known_whether_it_would_be_taken_when(api: StandIn, status: int, message: str) -> None:
    api.tell(PREFILL, says(status, message))
    api.tell(DECODE, says(422, "is never asked for"))
    assert tried() == TrialFacts(unknown=message)
    assert api.times_asked(DECODE) == 0, "it would answer the same, or be one answer too late"


def test_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "http://127.0.0.1:1")))
    found = tried()
    assert found.refused == {}
    assert "refused" in str(found.unknown)


def test_there_is_no_such_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "http://127.0.0.1:1", context="another")))
    assert "kubeconfig context test" in str(tried().unknown)


def test_each_that_would_not_be_taken_is_told(api: StandIn) -> None:
    api.tell(PREFILL, says(422, "one"))
    api.tell(DECODE, says(403, "denied: two"))
    assert tried() == TrialFacts(refused={"rel-prefill": "one", "rel-decode": "denied: two"})


def test_one_that_would_not_be_taken_is_enough_to_know(api: StandIn) -> None:
    api.tell(PREFILL, says(422, "one"))
    api.tell(DECODE, says(503, "later"))
    assert tried() == TrialFacts(refused={"rel-prefill": "one"})


# --- what the anchor does not own -------------------------------------------------------------------------------------

OTHER_SELECTOR = (
    'Deployment.apps "rel-epp" is invalid: spec.selector: Invalid value: {"matchLabels":{"llm-d-router-gateway":'
    '"rel-epp"}}: field is immutable'
)
"""In these words, by the API server's validation."""


def tried_with_the_epp(api: StandIn, answer: tuple[int, Any], *, live: tuple[int, Any] = TAKEN) -> TrialFacts:
    """Roles would be taken; the endpoint picker's Deployment is read, then tried."""
    api.tell(PREFILL, TAKEN)
    api.tell(DECODE, TAKEN)
    api.tell(EPP, live, answer)
    whole = plan()
    return try_workloads(
        "test",
        [workload.object for workload in whole.modelserver.workloads],
        owner=whole.modelserver.topology.owner_reference("u1"),
        others=[each for each in whole.router if each.kind == "Deployment"],
    )


def test_others_are_tried_without_an_owner_and_read_as_they_are(api: StandIn) -> None:
    live = {"kind": "Deployment", "spec": {"replicas": 3}}
    found = tried_with_the_epp(api, TAKEN, live=(200, live))
    assert found.live == {"rel-epp": live}
    assert found.results == {**TAKEN_PREFILL, **TAKEN_DECODE, "rel-epp": ANSWER}
    [*_, last] = api.sent
    assert (last.method, last.path) == ("PATCH", EPP)
    assert "ownerReferences" not in last.body["metadata"]


def test_others_that_are_not_there_are_known_not_to_be(api: StandIn) -> None:
    found = tried_with_the_epp(api, TAKEN, live=says(404, "not found"))
    assert found.live == {"rel-epp": None}
    assert "rel-epp" in found.results


def test_another_selector_of_the_endpoint_picker_is_no_refusal(api: StandIn) -> None:
    """The engine deletes its Deployment and makes it anew."""
    found = tried_with_the_epp(api, says(422, OTHER_SELECTOR))
    assert found.refused == {}
    assert "rel-epp" not in found.results
    assert found.unknown is None


def test_another_selector_of_a_role_is_a_refusal(api: StandIn) -> None:
    """A Deployment of that name which the stack did not make."""
    message = OTHER_SELECTOR.replace("rel-epp", "rel-prefill")
    api.tell(PREFILL, says(422, message))
    api.tell(DECODE, TAKEN)
    assert tried().refused == {"rel-prefill": message}


def test_an_endpoint_picker_that_would_not_be_taken_is_refused_before_anything_is_touched(api: StandIn) -> None:
    found = tried_with_the_epp(api, says(403, 'admission webhook "policy" denied the request: no'))
    assert found.refused == {"rel-epp": 'admission webhook "policy" denied the request: no'}


@pytest.mark.parametrize("status", [403, 503])
def test_not_to_know_of_others_leaves_what_is_known_of_the_roles(api: StandIn, status: int) -> None:
    found = tried_with_the_epp(api, says(status, NO_RIGHT))
    assert found.unknown is None
    assert found.results == TAKEN_PREFILL | TAKEN_DECODE
    assert found.refused == {}
