"""What is read around a stack, how little is asked for, and what one refusal leaves unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cluster.connect import METADATA_ONLY
from cluster.surroundings import path_of, read_surroundings
from stack.facts import Reference, Surroundings, Wanted

if TYPE_CHECKING:
    from tests.stand_in import StandIn

DRA = "/apis/resource.k8s.io/v1"
GATEWAY = Reference(api_version="gateway.networking.k8s.io/v1", kind="Gateway", name="rel", namespace="ns")
NAMESPACE = Reference(api_version="v1", kind="Namespace", name="ns")
ROUTES = "gateway.networking.k8s.io/v1"
LISTS = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "slices": f"{DRA}/resourceslices",
    "resource_claims": f"{DRA}/resourceclaims",
    "device_classes": f"{DRA}/deviceclasses",
    "storage_classes": "/apis/storage.k8s.io/v1/storageclasses",
    "quotas": "/api/v1/namespaces/ns/resourcequotas",
    "limit_ranges": "/api/v1/namespaces/ns/limitranges",
    "deployments": "/apis/apps/v1/deployments",
}
TEMPLATE = f"{DRA}/namespaces/ns/resourceclaimtemplates/npu-rdma"
VOLUME = "/api/v1/persistentvolumes/pv-1"
SECRET = "/api/v1/namespaces/ns/secrets/token"  # noqa: S105  # a path
EVERYTHING = Wanted(
    namespace="ns",
    release="rel",
    nodes=True,
    slices=True,
    resource_claims=True,
    device_classes=True,
    rivals=True,
    storage_classes=True,
    limits=True,
    claim_templates=frozenset({"npu-rdma"}),
    secrets=frozenset({"token"}),
    objects=frozenset({GATEWAY, NAMESPACE}),
    volumes=frozenset({"pv-1"}),
    served=frozenset({ROUTES}),
)


def named(name: str, namespace: str | None = None, **labels: str) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, "labels": labels}
    return {"metadata": meta if namespace is None else meta | {"namespace": namespace}}


OURS = {"app.kubernetes.io/instance": "rel"}
NEAR = Surroundings(
    volume_claims={},
    replica_sets=[],
    release_pods=[named("ours", "ns", **OURS)],
    deployments=[named("rel-decode", "ns", **OURS)],
    calls=5,
    size=100,
)


@pytest.fixture
def full(api: StandIn) -> StandIn:
    """A cluster that answers everything."""
    for field, path in LISTS.items():
        api.tell_list(path, named(f"one-of-{field}", "ns"))
    api.tell_list(LISTS["pods"], named("ours", "ns", **OURS), named("bare", "ns"), named("afar", "x", **OURS))
    api.tell_list(LISTS["deployments"])
    api.tell(VOLUME, (200, named("pv-1")))
    api.tell("/version", (200, {"gitVersion": "v1.36.3"}))
    api.tell(TEMPLATE, (200, named("npu-rdma", "ns")))
    api.tell(SECRET, (200, named("token", "ns")))
    api.tell(path_of(GATEWAY), (200, named("rel", "ns")))
    listed = [{"name": "gateways", "kind": "Gateway"}, {"name": "gateways/status", "kind": "Status"}]
    api.tell(f"/apis/{ROUTES}", (200, {"resources": listed}))
    return api


def read(wanted: Wanted = EVERYTHING, near: Surroundings = NEAR) -> Surroundings:
    return read_surroundings("test", wanted, near)


def test_everything_is_read_as_it_is(full: StandIn) -> None:
    around = read()
    for field in ("nodes", "slices", "resource_claims", "quotas", "limit_ranges"):
        assert [each["metadata"]["name"] for each in getattr(around, field)] == [f"one-of-{field}"]
    for field in ("device_classes", "storage_classes"):
        assert list(getattr(around, field)) == [f"one-of-{field}"]
    assert [each["metadata"]["name"] for each in around.pods or ()] == ["ours", "bare", "afar"]
    assert around.volumes == {"pv-1": named("pv-1")}
    assert around.claim_templates == {"npu-rdma": named("npu-rdma", "ns")}
    assert around.secrets == {"token": True}
    assert around.objects == {GATEWAY: named("rel", "ns")["metadata"], NAMESPACE: None}
    assert around.served == {ROUTES: frozenset({"Gateway"})}, "what is below an object is no kind"
    assert around.groups == {}
    assert around.server_version == "v1.36.3"
    assert around.unknown == ()
    assert around.calls == NEAR.calls + len(full.asked) == 5 + 16
    assert around.size > NEAR.size + 1000


def test_what_was_read_of_the_release_is_taken_over_and_not_read_again(full: StandIn) -> None:
    other = named("chat-decode", "far", **OURS) | {"spec": {"paused": True}}
    full.tell_list(LISTS["deployments"], named("rel-decode", "ns", **OURS), other)
    around = read()
    for field in ("volume_claims", "replica_sets", "release_pods"):
        assert getattr(around, field) is getattr(NEAR, field)
    assert around.deployments == [*(NEAR.deployments or ()), other]
    assert not [path for path, _ in full.asked if path.endswith(("/ns/pods", "/ns/replicasets", "/ns/deployments"))]


def test_nothing_is_asked_that_is_not_wanted(full: StandIn) -> None:
    around = read(Wanted(namespace="ns", release="rel"))
    assert [path for path, _ in full.asked] == ["/version"]
    assert around == replace(NEAR, server_version="v1.36.3", groups={}, calls=6, size=around.size)


def test_of_secrets_and_of_objects_by_name_only_the_metadata_is_taken(full: StandIn) -> None:
    read()
    for path, accepts in full.accepted:
        is_by_name = path in {SECRET, path_of(GATEWAY), path_of(NAMESPACE)}
        assert (accepts == METADATA_ONLY) is is_by_name, path


def test_a_collection_is_read_page_by_page_and_without_pods_that_are_over(full: StandIn) -> None:
    first = {"metadata": {"continue": "more"}, "items": [named("n1")]}
    full.tell(LISTS["nodes"], (200, first), (200, {"metadata": {}, "items": [named("n2")]}))
    assert [node["metadata"]["name"] for node in read().nodes or ()] == ["n1", "n2"]
    assert full.query_of(LISTS["nodes"]) == {"limit": "500", "continue": "more"}
    assert full.query_of(LISTS["pods"])["fieldSelector"] == "status.phase!=Succeeded,status.phase!=Failed"
    assert full.query_of(LISTS["deployments"])["labelSelector"] == "llm-d.ai/role"


@pytest.mark.parametrize("field", sorted(LISTS))
@pytest.mark.parametrize("status", [403, 500])
def test_what_is_refused_is_unknown_and_the_rest_is_known(full: StandIn, field: str, status: int) -> None:
    full.tell(LISTS[field], (status, {"kind": "Status"}))
    around = read()
    unknown = {name for name in LISTS if getattr(around, name) is None}
    assert unknown == {field} - {"deployments"}, "those of the release are known all the same"
    [reason] = around.unknown
    assert f": {status} " in reason


def test_what_could_not_be_read_of_the_release_may_be_read_among_all(full: StandIn) -> None:
    full.tell_list(LISTS["deployments"], named("rel-decode", "ns", **OURS))
    around = read(near=Surroundings())
    assert [each["metadata"]["name"] for each in around.release_pods or ()] == ["ours"]
    assert around.deployments == [named("rel-decode", "ns", **OURS)]


def test_where_only_the_namespace_may_be_read_its_pods_are(full: StandIn) -> None:
    full.tell(LISTS["pods"], (403, {"kind": "Status"}))
    full.tell_list("/api/v1/namespaces/ns/pods", named("ours", "ns", **OURS), named("bare", "ns"))
    around = read()
    assert around.pods is None
    assert [each["metadata"]["name"] for each in around.namespace_pods or ()] == ["ours", "bare"]
    assert (
        full.query_of("/api/v1/namespaces/ns/pods")["fieldSelector"] == "status.phase!=Succeeded,status.phase!=Failed"
    )
    assert read(replace(EVERYTHING, limits=False)).namespace_pods is None, "nobody looks at them"


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"scopes": ["BestEffort"]}, None),
        ({"scopes": ["PriorityClass"]}, ["high"]),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}}, ["high"]),
    ],
)
def test_priority_classes_are_read_only_where_a_quota_depends_on_them(
    full: StandIn, spec: dict[str, Any], want: list[str] | None
) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    full.tell_list(classes, named("high"))
    full.tell_list(LISTS["quotas"], named("team", "ns") | {"spec": spec})
    found = read().priority_classes
    assert (None if found is None else list(found)) == want
    assert full.times_asked(classes) == (want is not None)


def test_what_is_refused_for_one_reason_is_told_in_one_line(full: StandIn) -> None:
    for path in (LISTS["nodes"], LISTS["slices"], LISTS["storage_classes"], SECRET, path_of(GATEWAY)):
        full.tell(path, (403, {"kind": "Status"}))
    around = read()
    assert around.unknown == ("Nodes, ResourceSlices, StorageClasses and 2 more: 403 Forbidden",)
    assert around.secrets == {}
    assert GATEWAY not in around.objects


@pytest.mark.parametrize("path", [SECRET, TEMPLATE, VOLUME, path_of(GATEWAY)])
def test_what_is_not_there_is_known_not_to_be(full: StandIn, path: str) -> None:
    full.tell(path, (404, {"kind": "Status"}))
    around = read()
    by_path = {
        SECRET: around.secrets["token"],
        TEMPLATE: around.claim_templates["npu-rdma"],
        VOLUME: around.volumes["pv-1"],
    }
    assert not by_path.get(path, around.objects[GATEWAY])
    assert around.unknown == ()


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        ((404, {"kind": "Status"}), ()),
        ((200, {"versions": [{"version": "v1beta1"}, {"version": "v1alpha2"}]}), ("v1beta1", "v1alpha2")),
    ],
)
def test_of_an_api_that_is_not_served_the_other_versions_are_asked(
    full: StandIn, answer: Any, want: tuple[str, ...]
) -> None:
    full.tell(f"/apis/{ROUTES}", (404, {"kind": "Status"}))
    full.tell("/apis/gateway.networking.k8s.io", answer)
    around = read()
    assert around.served == {ROUTES: frozenset()}
    assert around.groups == {"gateway.networking.k8s.io": want}
    assert around.unknown == ()


def test_an_api_that_may_not_be_looked_up_is_not_missing(full: StandIn) -> None:
    full.tell(f"/apis/{ROUTES}", (403, {"kind": "Status"}))
    assert read().served == {}


def test_a_server_without_devices_has_none_and_that_is_no_reason_to_complain(full: StandIn) -> None:
    for field in ("slices", "resource_claims", "device_classes"):
        full.tell(LISTS[field], (404, {"kind": "Status"}))
    around = read()
    assert (around.slices, around.resource_claims, around.device_classes) == (None, None, None)
    assert around.unknown == ()


def test_the_templates_of_who_rolls_are_read_where_they_are(full: StandIn) -> None:
    rival = named("chat-decode", "far", **{"llm-d.ai/role": "decode", "app.kubernetes.io/instance": "chat"})
    claims = [{"name": "devices", "resourceClaimTemplateName": "theirs"}]
    rival["metadata"]["generation"] = 1  # which nobody has looked at yet
    rival |= {"spec": {"replicas": 2, "template": {"spec": {"containers": [], "resourceClaims": claims}}}}
    full.tell_list(LISTS["deployments"], rival)
    theirs = f"{DRA}/namespaces/far/resourceclaimtemplates/theirs"
    full.tell(theirs, (200, named("theirs", "far")))
    assert read().templates_elsewhere == {("far", "theirs"): named("theirs", "far")}
    full.tell(theirs, (403, {"kind": "Status"}))
    assert read().templates_elsewhere == {}


def test_a_server_that_is_gone_is_told_once(full: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from tests.stand_in import kubeconfig  # noqa: PLC0415  # next to its only use

    assert full.url
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "http://127.0.0.1:9")))
    around = read(near=Surroundings())
    [reason] = around.unknown
    assert reason.startswith("cluster of context test: ")
    assert replace(around, unknown=(), groups=None) == Surroundings()


def test_a_context_that_does_not_exist_is_told() -> None:
    around = read_surroundings("no-such-context", EVERYTHING, NEAR)
    assert around.deployments == NEAR.deployments
    [reason] = around.unknown
    assert reason.startswith("kubeconfig context no-such-context: ")


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        ("Gateway", "gateways"),
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("GatewayClass", "gatewayclasses"),
        ("ServiceAccount", "serviceaccounts"),
        ("VMPodScrape", "vmpodscrapes"),
    ],
)
def test_the_resource_of_a_kind(kind: str, want: str) -> None:
    assert Reference(api_version="v1", kind=kind, name="x").resource == want


def test_cluster_wide_objects_lie_in_no_namespace() -> None:
    assert path_of(NAMESPACE) == "/api/v1/namespaces/ns"
    assert path_of(GATEWAY) == "/apis/gateway.networking.k8s.io/v1/namespaces/ns/gateways/rel"


# --- quotas of objects ------------------------------------------------------------------------------------------------

BY_CONTENT = Reference(api_version="v1", kind="ConfigMap", name="rel-config-1234", namespace="ns")
MADE = replace(EVERYTHING, limits=False, made=frozenset({GATEWAY, BY_CONTENT}))
QUOTA = {"metadata": {"name": "team"}, "spec": {"hard": {"configmaps": "9"}}}
OF_PODS = {"metadata": {"name": "team"}, "spec": {"hard": {"pods": "9"}}}


@pytest.mark.parametrize(
    ("wanted", "is_there", "quota", "want"),
    [
        pytest.param(MADE, True, QUOTA, (False, False), id="nothing is made and no Pod starts"),
        pytest.param(MADE, False, QUOTA, (True, True), id="something is made, and objects are counted"),
        pytest.param(MADE, False, OF_PODS, (True, False), id="something is made, and Pods are counted"),
        pytest.param(replace(MADE, limits=True), True, QUOTA, (True, True), id="Pods start, with what they read"),
        pytest.param(replace(MADE, made=frozenset[Reference]()), False, QUOTA, (False, False), id="the guard is off"),
    ],
)
def test_quotas_and_what_they_count_are_asked_for_as_far_as_something_is_made(
    full: StandIn, wanted: Wanted, is_there: bool, quota: dict[str, Any], want: tuple[bool, bool]
) -> None:
    full.tell_list(LISTS["quotas"], quota)
    full.tell(path_of(BY_CONTENT), (200, named("rel-config-1234", "ns")))
    if not is_there:
        full.tell(path_of(GATEWAY), (404, {"kind": "Status"}))
    around = read(wanted)
    assert (around.quotas is not None, BY_CONTENT in around.objects) == want
    assert [path for path, _ in full.asked].count(LISTS["quotas"]) == want[0]
    assert around.unknown == ()
