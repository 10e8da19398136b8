"""What has to be there before the stack: each thing that is missing or too old is told once, with its key."""

from __future__ import annotations

from typing import Any

import pytest

from stack.guards import references
from tests.unit.guards.scene import GOING, NIC, NPU, TEMPLATE, claim, reference, scene, storage_class

MANAGED: dict[str, Any] = {
    "npu": {"count": 4},
    "claimTemplate": {
        "requests": [
            {"name": "npu", "deviceClassName": NPU, "count": 4},
            {"name": "nic", "deviceClassName": NIC, "count": 2},
        ]
    },
}
GATEWAY = "gateway.networking.k8s.io"
POOL = "inference.networking.k8s.io"


def test_nothing_is_missed_where_everything_is_there() -> None:
    assert scene().findings() == ()
    assert scene(devices=MANAGED).findings() == ()


# --- the API ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "blocks", "want_of"),
    [
        (f"{GATEWAY}/v1", {}, ("gateway.enabled", "true")),
        (f"{POOL}/v1", {}, ("router.inferencePool.create", "true")),
        ("networking.istio.io/v1", {}, ("gateway.className", "istio")),
        ("resource.k8s.io/v1", {}, ("devices", "")),
        (
            "monitoring.coreos.com/v1",
            {"monitoring": {"enabled": True, "provider": "prometheus-operator"}},
            ("monitoring.provider", "prometheus-operator"),
        ),
        (
            "admissionregistration.k8s.io/v1",
            {"rollout": {"protectTopology": True}},
            ("rollout.protectTopology", "true"),
        ),
    ],
)
@pytest.mark.parametrize(
    "has",
    [
        pytest.param((False, (), "is not there"), id="no such group"),
        pytest.param((False, ("v1beta1", "v1alpha2"), "is there only as v1beta1, v1alpha2"), id="other versions"),
        pytest.param((True, (), "is there without it"), id="other kinds"),
    ],
)
def test_an_api_that_is_missing_or_another(
    version: str, blocks: dict[str, Any], want_of: tuple[str, str], has: tuple[bool, tuple[str, ...], str]
) -> None:
    served, groups, want = has
    whole = scene(**blocks)
    of_group = {version.rpartition("/")[0]: groups}
    kinds = frozenset({"SomethingElse"} if served else ())
    found = whole.but(served={**whole.around.served, version: kinds}, groups=of_group).only()
    assert found.is_refusal
    assert (found.problem.key, found.problem.value) == want_of
    assert f"group {version.rpartition('/')[0]} {want}" in found.problem.why


def test_kinds_are_told_by_name() -> None:
    whole = scene()
    found = whole.but(served={**whole.around.served, f"{GATEWAY}/v1": frozenset({"Gateway"})}).only()
    assert found.problem.why.startswith(f"HTTPRoute of {GATEWAY}/v1 is needed, and")
    assert "Or set gateway.enabled: false" in found.problem.fix


def test_without_its_api_nothing_else_of_devices_is_missed() -> None:
    whole = scene()
    bare = whole.but(
        served={**whole.around.served, "resource.k8s.io/v1": frozenset()},
        device_classes={},
        claim_templates={"npu-rdma": None},
    )
    assert bare.letters() == ["refuses devices"]


@pytest.mark.parametrize(
    ("kind", "annotations", "is_refused"),
    [
        ("httproutes", {f"{GATEWAY}/bundle-version": "v1.1.0"}, True),
        ("httproutes", {f"{GATEWAY}/bundle-version": "v1.1.0", f"{GATEWAY}/channel": "experimental"}, False),
        ("httproutes", {f"{GATEWAY}/bundle-version": "v1.2.0"}, False),
        ("httproutes", {f"{GATEWAY}/bundle-version": "main"}, False),
        ("httproutes", {}, False),
        ("inferencepools", {f"{POOL}/bundle-version": "v1.3.1"}, True),
        ("inferencepools", {f"{POOL}/bundle-version": "v1.4.0"}, False),
        ("inferencepools", {f"{POOL}/bundle-version": "v1.10.0"}, False),
    ],
)
def test_a_crd_from_before_a_field_that_is_used(kind: str, annotations: dict[str, str], is_refused: bool) -> None:
    which = references.ROUTES if kind == "httproutes" else references.POOLS
    whole = scene()
    found = whole.but(objects={**whole.around.objects, which: {"annotations": annotations}})
    key = "gateway.enabled" if kind == "httproutes" else "router.inferencePool.create"
    assert found.letters() == [f"refuses {key}"] * is_refused


@pytest.mark.parametrize(
    ("version", "is_refused"),
    [("v1.29.9", True), ("v1.30.0", False), ("v1.34.2-eks-1", False), ("v2.0.0", False), ("?", False), (None, False)],
)
def test_a_server_that_drops_fields(version: str | None, is_refused: bool) -> None:
    found = scene().but(server_version=version)
    assert found.letters() == ["refuses kubernetes:context"] * is_refused


# --- objects ----------------------------------------------------------------------------------------------------------


def test_without_the_namespace_nothing_in_it_is_missed() -> None:
    found = scene().without("Namespace").but(secrets={"llm-d-hf-token": False}, claim_templates={"npu-rdma": None})
    assert found.letters() == ["refuses namespace"]
    assert "kubectl create namespace ns" in found.only().problem.fix


def test_a_namespace_that_goes() -> None:
    assert "is being deleted" in scene().with_metadata("Namespace", **GOING).only().problem.why


@pytest.mark.parametrize(
    ("kind", "server", "want_key"),
    [
        ("ServiceAccount", {"serviceAccountName": "theirs"}, "modelserver.serviceAccountName"),
        (
            "PriorityClass",
            {"podOverrides": {"decode": {"priorityClassName": "high"}}},
            "modelserver.podOverrides.decode.priorityClassName",
        ),
        (
            "RuntimeClass",
            {"podOverrides": {"prefill": {"runtimeClassName": "kata"}}},
            "modelserver.podOverrides.prefill.runtimeClassName",
        ),
    ],
)
def test_an_object_without_which_no_pod_is_taken(kind: str, server: dict[str, Any], want_key: str) -> None:
    whole = scene(modelserver=server)
    named = next(each for each in references.objects(whole.config, whole.plan) if each.kind == kind)
    found = whole.but(objects={**whole.around.objects, named: None}).only()
    assert found.is_refusal
    assert found.problem.key == want_key
    assert f"there is no {kind} of this name" in found.problem.why
    assert found.idle == "warn"


def test_a_priority_class_of_kubernetes_itself_is_not_missed() -> None:
    server = {"podOverrides": {"decode": {"priorityClassName": "system-node-critical"}}}
    assert scene(modelserver=server).without("PriorityClass").findings() == ()


def test_a_gateway_class_may_come_later() -> None:
    whole = scene().without("GatewayClass")
    assert whole.letters() == ["warns gateway.className"]
    bare = whole.but(served={**whole.around.served, f"{GATEWAY}/v1": frozenset()})
    assert bare.letters() == ["refuses gateway.enabled"], "without the API there is no class of it either"


@pytest.mark.parametrize(
    ("blocks", "secret", "want_key", "want_workloads"),
    [
        pytest.param(
            {},
            "llm-d-hf-token",
            "modelserver.hfTokenSecret.name",
            {"rel-prefill", "rel-decode"},
            id="the token",
        ),
        pytest.param(
            {"imagePullSecrets": ["one", "two"]},
            "two",
            "imagePullSecrets[1]",
            {"rel-prefill", "rel-decode", "rel-epp"},
            id="the second pull Secret",
        ),
        pytest.param(
            {"modelserver": {"serveEnv": {"KEY": {"secretKeyRef": {"name": "s", "key": "k"}}}}},
            "s",
            "modelserver.serveEnv.KEY.secretKeyRef.name",
            {"rel-prefill", "rel-decode"},
            id="a variable of all roles",
        ),
        pytest.param(
            {"modelserver": {"extraServeEnv": {"decode": {"KEY": {"secretKeyRef": {"name": "s", "key": "k"}}}}}},
            "s",
            "modelserver.extraServeEnv.decode.KEY.secretKeyRef.name",
            {"rel-decode"},
            id="a variable of one role",
        ),
        pytest.param(
            {"router": {"epp": {"env": {"KEY": {"secretKeyRef": {"name": "s", "key": "k"}}}}}},
            "s",
            "router.epp.env.KEY.secretKeyRef.name",
            {"rel-epp"},
            id="a variable of the endpoint picker",
        ),
    ],
)
def test_a_secret_that_is_missing(blocks: dict[str, Any], secret: str, want_key: str, want_workloads: set[str]) -> None:
    whole = scene(**blocks)
    assert whole.around.secrets[secret]
    found = whole.but(secrets={**whole.around.secrets, secret: False}).only()
    assert found.is_refusal
    assert (found.problem.key, found.problem.value) == (want_key, secret)
    assert want_workloads <= found.workloads
    assert f"kubectl -n ns create secret {'docker-registry' if 'Pull' in want_key else 'generic'} {secret}" in str(
        found.problem
    )


def test_a_secret_with_two_keys_is_told_once_with_both() -> None:
    whole = scene(
        modelserver={"hfTokenSecret": {"name": "same", "key": "ONE"}},
        router={"epp": {"hfTokenSecret": {"name": "same", "key": "OTHER"}}},
    )
    found = whole.but(secrets={"same": False}).only()
    assert "(also named by router.epp.hfTokenSecret.name)" in found.problem.why
    assert "create secret generic same --from-file=ONE=... --from-file=OTHER=...`" in found.problem.fix


def test_a_secret_that_may_not_be_looked_up_is_not_missing() -> None:
    assert scene().but(secrets={}).findings() == ()


# --- storage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("storage", "want_key"),
    [
        ({"compileCache": {"storageClass": "fast"}}, "storage.compileCache.storageClass"),
        ({"model": {"kind": "pvc", "existingClaim": None, "storageClass": "fast"}}, "storage.model.storageClass"),
        ({"modelOffload": {"enabled": True, "storageClass": "fast"}}, "storage.modelOffload.storageClass"),
    ],
)
def test_a_storage_class_that_is_missing(storage: dict[str, Any], want_key: str) -> None:
    whole = scene(storage=storage)
    found = whole.only()
    assert found.is_refusal
    assert (found.problem.key, found.problem.value) == (want_key, "fast")
    assert "Set it to one of those there are (standard)" in found.problem.fix
    assert whole.but(storage_classes=None).findings() == ()


def test_no_default_class_is_refused_where_no_claim_is_there() -> None:
    bare = scene().but(storage_classes={"standard": storage_class("standard")})
    assert bare.letters() == ["refuses storage.compileCache.storageClass"]
    beta = {"storageclass.beta.kubernetes.io/is-default-class": "true"}
    of_old = storage_class("standard", metadata={"name": "standard", "annotations": beta})
    assert bare.but(storage_classes={"standard": of_old}).findings() == (), "Kubernetes still takes it for the default"
    there = {name: claim(name, size="200Gi") for name in ("rel-compile-cache-prefill", "rel-compile-cache-decode")}
    assert bare.but(volume_claims=bare.around.volume_claims | there).findings() == ()  # pyright: ignore[reportOperatorIssue]


# --- devices ----------------------------------------------------------------------------------------------------------


def test_a_claim_template_that_is_missing() -> None:
    found = scene().but(claim_templates={"npu-rdma": None}).only()
    assert found.is_refusal
    assert (found.problem.key, found.problem.value) == ("devices.claimTemplateName", "npu-rdma")
    assert found.workloads == {"rel-prefill", "rel-decode"}


def test_a_class_that_the_operators_template_names_is_missing() -> None:
    whole = scene()
    found = whole.but(device_classes={NPU: {"spec": {}}}).only()
    assert (found.problem.key, found.problem.value) == ("devices.claimTemplateName", NIC)
    assert "ResourceClaimTemplate npu-rdma asks for it" in found.problem.why
    assert f"one of those there are ({NPU})" in found.problem.fix


def test_a_class_in_an_alternative_counts() -> None:
    either = {"name": "any", "firstAvailable": [{"name": "a", "deviceClassName": NPU}, {"deviceClassName": "other"}]}
    template = {**TEMPLATE, "spec": {"spec": {"devices": {"requests": [either]}}}}
    found = scene().but(claim_templates={"npu-rdma": template}).only()
    assert found.problem.value == "other"


def test_a_class_of_the_stacks_own_template_is_missing() -> None:
    found = scene(devices=MANAGED).but(device_classes={NPU: {"spec": {}}}).only()
    assert (found.problem.key, found.problem.value) == ("devices.claimTemplate.requests[1].deviceClassName", NIC)


def test_what_is_not_known_is_missed_by_nobody() -> None:
    assert scene().but(device_classes=None, claim_templates={}, served={}, objects={}).findings() == ()


def test_the_namespace_is_looked_up_by_name() -> None:
    assert reference(scene(), "Namespace").name == "ns"
