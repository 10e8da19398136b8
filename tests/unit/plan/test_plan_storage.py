from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from stack.facts import AnchorFacts, ClaimFacts, ClusterFacts, FactsError
from tests.builders import EMPTY_CLUSTER, container, plan, planned, pod

if TYPE_CHECKING:
    from stack.planned import StackPlan


def claims(whole: StackPlan) -> dict[str, dict[str, Any]]:
    return {volume.object.name: volume.object.manifest["spec"] for volume in whole.volumes}


def claim(name: str) -> ClaimFacts:
    return ClaimFacts(name=name, instance="rel")


def holding(*live: ClaimFacts) -> ClusterFacts:
    """A cluster with these claims."""
    return dataclasses.replace(EMPTY_CLUSTER, claims={found.name: found for found in live})


def volume(whole: StackPlan, name: str, role: str = "prefill") -> dict[str, Any]:
    [found] = [v for v in pod(whole, role)["volumes"] if v["name"] == name]
    return {key: value for key, value in found.items() if key != "name"}


def mount(whole: StackPlan, name: str, role: str = "prefill") -> dict[str, Any]:
    [found] = [m for m in container(pod(whole, role))["volumeMounts"] if m["name"] == name]
    return found


# --- claims -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "want_claims"),
    [
        pytest.param({}, ["rel-compile-cache-prefill", "rel-compile-cache-decode"], id="a cache for each role"),
        pytest.param(
            {"modelserver": {"replicas": {"prefill": 0, "decode": 1}}},
            ["rel-compile-cache-decode"],
            id="none for a role at 0",
        ),
        pytest.param(
            {"modelserver": {"replicas": {"aggregated": 1}}}, ["rel-compile-cache-aggregated"], id="aggregated"
        ),
        pytest.param(
            {
                "modelserver": {
                    "nodePlacement": [
                        {"role": "decode", "node": "n1"},
                        {"role": "decode", "node": "n2"},
                    ]
                }
            },
            ["rel-compile-cache-decode"],
            id="entries of a role share one",
        ),
        pytest.param(
            {"storage": {"model": {"kind": "pvc", "existingClaim": None}}},
            ["rel-compile-cache-prefill", "rel-compile-cache-decode", "rel-model-cache"],
            id="the model's, when the stack makes it",
        ),
        pytest.param({"storage": {"compileCache": {"kind": "emptyDir"}}}, [], id="none for a cache lost with the Pod"),
        pytest.param(
            {"storage": {"compileCache": {"kind": "existingClaim", "existingClaim": {"prefill": "a", "decode": "b"}}}},
            [],
            id="none beside the operator's",
        ),
    ],
)
def test_the_stack_makes_claims(blocks: dict[str, Any], want_claims: list[str]) -> None:
    assert list(claims(plan(**blocks))) == want_claims


def test_a_claim_has_the_charts_size_and_modes_and_the_clusters_class() -> None:
    assert claims(plan())["rel-compile-cache-prefill"] == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "200Gi"}},
    }


def test_a_claim_has_what_is_written_in_the_form_the_api_server_keeps() -> None:
    cache = {"size": "2048Gi", "accessModes": ["ReadOnlyMany", "ReadWriteMany"], "storageClass": "shared"}
    assert claims(plan(storage={"compileCache": cache}))["rel-compile-cache-decode"] == {
        "accessModes": ["ReadOnlyMany", "ReadWriteMany"],
        "resources": {"requests": {"storage": "2Ti"}},
        "storageClassName": "shared",
    }


@pytest.mark.parametrize(
    ("facts", "want_imports"),
    [
        pytest.param(
            holding(claim("rel-compile-cache-decode"), ClaimFacts(name="unrelated", is_terminating=True)),
            {"rel-compile-cache-prefill": None, "rel-compile-cache-decode": "ns/rel-compile-cache-decode"},
            id="one is there",
        ),
        pytest.param(
            holding(),
            {"rel-compile-cache-prefill": None, "rel-compile-cache-decode": None},
            id="none is there",
        ),
        pytest.param(
            ClusterFacts(claims=None),
            {"rel-compile-cache-prefill": None, "rel-compile-cache-decode": None},
            id="not known: nothing is guessed",
        ),
    ],
)
def test_a_claim_is_taken_over_when(facts: ClusterFacts, want_imports: dict[str, str | None]) -> None:
    assert {volume.object.name: volume.import_id for volume in plan(facts).volumes} == want_imports


@pytest.mark.parametrize(
    ("live", "want_value", "want_why", "want_fix"),
    [
        pytest.param(
            ClaimFacts(name="rel-compile-cache-decode", instance="rel", is_terminating=True),
            "rel-compile-cache-decode",
            "is being deleted",
            "kubectl -n ns describe pvc rel-compile-cache-decode",
            id="it is being deleted",
        ),
        pytest.param(
            ClaimFacts(name="rel-compile-cache-decode"),
            "rel-compile-cache-decode",
            "no such label",
            "`kubectl -n ns label pvc rel-compile-cache-decode app.kubernetes.io/instance=rel`",
            id="it is nobody's",
        ),
        pytest.param(
            ClaimFacts(name="rel-compile-cache-decode", instance="other"),
            "rel-compile-cache-decode",
            "`other` there",
            "`kubectl -n ns label pvc rel-compile-cache-decode app.kubernetes.io/instance=rel --overwrite`",
            id="it is another release's",
        ),
    ],
)
def test_a_claim_is_refused_when(live: ClaimFacts, want_value: str, want_why: str, want_fix: str) -> None:
    with pytest.raises(FactsError) as caught:
        plan(holding(live, claim("rel-compile-cache-prefill")))
    [problem] = caught.value.problems
    assert (problem.key, problem.value) == ("storage.compileCache", want_value)
    assert want_why in problem.why
    assert want_fix in problem.fix
    assert ("set storage.compileCache.adopt: true" in problem.fix) == (not live.is_terminating)


CACHE, MODEL = "rel-compile-cache-decode", "rel-model-cache"
ADOPTED: dict[str, Any] = {"compileCache": {"adopt": True}}
ADOPTED_MODEL: dict[str, Any] = {"model": {"kind": "pvc", "existingClaim": None, "adopt": True}}


@pytest.mark.parametrize(
    ("live", "storage"),
    [
        pytest.param(ClaimFacts(name=CACHE), ADOPTED, id="a cache that is nobody's"),
        pytest.param(ClaimFacts(name=CACHE, instance="other"), ADOPTED, id="a cache of another release"),
        pytest.param(ClaimFacts(name=MODEL), ADOPTED_MODEL, id="a model store that is nobody's"),
    ],
)
def test_a_claim_is_adopted_as_it_is(live: ClaimFacts, storage: dict[str, Any]) -> None:
    whole = plan(holding(live), storage=storage)
    [found] = [volume for volume in whole.volumes if volume.object.name == live.name]
    assert found.import_id == f"ns/{live.name}"
    assert found.object.manifest["metadata"]["labels"]["app.kubernetes.io/instance"] == "rel"
    fresh = plan(EMPTY_CLUSTER, storage=storage)
    assert found.object in [volume.object for volume in fresh.volumes], "as one that the stack makes"


@pytest.mark.parametrize(
    ("live", "storage", "want_key"),
    [
        pytest.param(
            ClaimFacts(name=CACHE, is_terminating=True), ADOPTED, "storage.compileCache", id="one that goes, though"
        ),
        pytest.param(
            ClaimFacts(name=CACHE, instance="rel", is_terminating=True), ADOPTED, "storage.compileCache", id="even ours"
        ),
        pytest.param(
            ClaimFacts(name=MODEL),
            {**ADOPTED, "model": {"kind": "pvc", "existingClaim": None}},
            "storage.model",
            id="one of the other volume",
        ),
        pytest.param(ClaimFacts(name=CACHE), ADOPTED_MODEL, "storage.compileCache", id="and the other way round"),
    ],
)
def test_adopt_does_not_take_over(live: ClaimFacts, storage: dict[str, Any], want_key: str) -> None:
    with pytest.raises(FactsError) as caught:
        plan(holding(live), storage=storage)
    assert [problem.key for problem in caught.value.problems] == [want_key]


@pytest.mark.parametrize(
    ("instance", "want_warned"),
    [
        pytest.param("other", True, id="another release may miss it"),
        pytest.param(None, False, id="nobody misses it"),
        pytest.param("rel", False, id="it is ours already"),
    ],
)
def test_who_may_miss_an_adopted_claim_is_told(instance: str | None, want_warned: bool) -> None:
    warnings = plan(holding(ClaimFacts(name=CACHE, instance=instance)), storage=ADOPTED).warnings
    about = [warning for warning in warnings if (warning.key, warning.value) == ("storage.compileCache.adopt", CACHE)]
    assert len(about) == want_warned
    assert all("release `other`" in warning.why for warning in about)


def test_everything_the_cluster_forbids_is_told_at_once() -> None:
    facts = dataclasses.replace(
        holding(ClaimFacts(name="rel-model-cache"), ClaimFacts(name="rel-compile-cache-prefill")),
        anchor=AnchorFacts(key="k", generation=1, uid="u", is_terminating=True),
    )
    with pytest.raises(FactsError) as caught:
        plan(facts, storage={"model": {"kind": "pvc", "existingClaim": None}})
    keys = [problem.key for problem in caught.value.problems]
    assert keys == ["storage.compileCache", "storage.model", "topology unknown"]
    lines = str(caught.value).splitlines()
    assert lines[0] == "What is live stands in the way:"
    assert len(lines) == 4


def test_claims_that_the_stack_does_not_make_may_be_anybodys() -> None:
    store = ClaimFacts(name="model-store", is_terminating=True)
    unused = ClaimFacts(name="rel-compile-cache-aggregated", is_terminating=True)
    assert plan(holding(store, unused)).volumes


@pytest.mark.parametrize(
    ("kind", "claims", "want_warned"),
    [
        pytest.param("pvc", None, True, id="they could not be looked up"),
        pytest.param("pvc", {}, False, id="there are none"),
        pytest.param("emptyDir", None, False, id="the stack makes none"),
    ],
)
def test_volumes_that_a_preview_may_show_wrongly_are_warned_of(
    kind: str, claims: dict[str, ClaimFacts] | None, want_warned: bool
) -> None:
    facts = dataclasses.replace(EMPTY_CLUSTER, claims=claims)
    warnings = plan(facts, storage={"compileCache": {"kind": kind}}).warnings
    about = [warning for warning in map(str, warnings) if warning.startswith("storage: the volumes of namespace ns ")]
    assert len(about) == want_warned
    assert all("may show `create` for one that is there" in warning for warning in about)


def test_what_would_replace_a_claim_is_ignored_and_its_size_and_our_annotations_are_not() -> None:
    for found in plan().volumes:
        assert {"spec.storageClassName", "spec.accessModes", "spec.selector", "spec.volumeName"} <= set(found.ignored)
        assert 'metadata.annotations["pv.kubernetes.io/bind-completed"]' in found.ignored
        assert not {"metadata.annotations", "spec.resources", "spec"} & set(found.ignored)


def test_another_namespace_is_another_claim() -> None:
    one, other = (plan(namespace=namespace).volumes[0].object.logical_name for namespace in ("ns", "elsewhere"))
    assert one != other


# --- volumes of a Pod -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("storage", "want_prefill", "want_decode"),
    [
        pytest.param(
            {},
            {"persistentVolumeClaim": {"claimName": "rel-compile-cache-prefill"}},
            {"persistentVolumeClaim": {"claimName": "rel-compile-cache-decode"}},
            id="pvc: the role's own",
        ),
        pytest.param(
            {"kind": "existingClaim", "existingClaim": {"prefill": "one", "decode": "two"}},
            {"persistentVolumeClaim": {"claimName": "one"}},
            {"persistentVolumeClaim": {"claimName": "two"}},
            id="existingClaim",
        ),
        pytest.param({"kind": "emptyDir"}, {"emptyDir": {}}, {"emptyDir": {}}, id="emptyDir without limit"),
        pytest.param(
            {"kind": "emptyDir", "sizeLimit": "1024Mi"},
            {"emptyDir": {"sizeLimit": "1Gi"}},
            {"emptyDir": {"sizeLimit": "1Gi"}},
            id="emptyDir with a limit",
        ),
    ],
)
def test_the_compile_cache_is(storage: dict[str, Any], want_prefill: Any, want_decode: Any) -> None:
    whole = plan(storage={"compileCache": storage})
    assert [volume(whole, "compile-cache", role) for role in ("prefill", "decode")] == [want_prefill, want_decode]
    assert mount(whole, "compile-cache") == {"name": "compile-cache", "mountPath": "/workspace"}


@pytest.mark.parametrize(
    ("model", "want_volume", "want_read_only"),
    [
        pytest.param({}, {"persistentVolumeClaim": {"claimName": "model-store"}}, None, id="the operator's store"),
        pytest.param(
            {"readOnly": True},
            {"persistentVolumeClaim": {"claimName": "model-store", "readOnly": True}},
            True,
            id="the operator's store, read-only in volume and mount",
        ),
        pytest.param(
            {"kind": "pvc", "existingClaim": None},
            {"persistentVolumeClaim": {"claimName": "rel-model-cache"}},
            None,
            id="the stack's",
        ),
        pytest.param({"kind": "emptyDir", "existingClaim": None}, {"emptyDir": {}}, None, id="loaded by every Pod"),
    ],
)
def test_the_model_is_on(model: dict[str, Any], want_volume: Any, want_read_only: bool | None) -> None:
    whole = plan(storage={"model": model})
    assert volume(whole, "model") == volume(whole, "model", "decode") == want_volume
    assert mount(whole, "model").get("readOnly") == want_read_only


def test_shared_memory_is_memory_of_the_recipes_size_or_the_operators() -> None:
    assert volume(plan(), "shm") == {"emptyDir": {"medium": "Memory", "sizeLimit": "20Gi"}}
    larger = plan(storage={"shm": {"sizeLimit": "30Gi"}})
    assert volume(larger, "shm") == {"emptyDir": {"medium": "Memory", "sizeLimit": "30Gi"}}
    assert mount(larger, "shm")["mountPath"] == "/dev/shm"  # noqa: S108  # the Pod's


def test_there_is_scratch_space_since_the_root_filesystem_is_read_only() -> None:
    assert volume(plan(), "tmp") == {"emptyDir": {"sizeLimit": "10Gi"}}
    assert mount(plan(), "tmp")["mountPath"] == "/tmp"  # noqa: S108  # the Pod's


def test_the_serve_configuration_is_mounted_read_only_from_a_map_of_the_plan() -> None:
    whole = plan()
    name = volume(whole, "serve-config", "decode")["configMap"]["name"]
    assert list(planned(whole, "ConfigMap", name)["data"]) == ["serve.yaml"]
    assert mount(whole, "serve-config", "decode") == {
        "name": "serve-config",
        "mountPath": "/etc/serving-stack",
        "readOnly": True,
    }


def test_offload_space_is_a_volume_of_the_pod_deleted_with_it() -> None:
    assert not [v for v in pod(plan(), "prefill")["volumes"] if v["name"] == "offload"]
    whole = plan(storage={"modelOffload": {"enabled": True, "size": "1024Gi", "storageClass": "local"}})
    spec = volume(whole, "offload")["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert spec == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Ti"}},
        "storageClassName": "local",
    }
    assert mount(whole, "offload")["mountPath"] == "/offload"
    assert "rel-model-cache" not in claims(whole)
