"""Claims that are there before the stack: taken over when the operator says so, refused when not or when they go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pulumi import automation as auto

from local.waiting import wait_until
from tests.builders import ROOT
from tests.e2e.bench import is_ready, without_traceback

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("small")]

CACHE, MODEL, STORE = "rel-compile-cache-decode", "rel-model-cache", "my-store"
INSTANCE = "app.kubernetes.io/instance"
FINALIZER = "example.com/still-read"
HELD_SECONDS = 60


def begin(bench: Bench) -> None:
    """Stack dev with one Pod of each role."""
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.change(modelserver={"replicas": {"prefill": 1, "decode": 1}})


def add_claim(bench: Bench, name: str, *, size: str, labels: dict[str, str] | None = None, **metadata: Any) -> str:
    """A claim of somebody else's; its UID."""
    made = bench.plane.api.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": bench.namespace, "labels": labels or {}, **metadata},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "kwok-volume",
                "resources": {"requests": {"storage": size}},
            },
        }
    )
    return made["metadata"]["uid"]


def path_of(bench: Bench, name: str) -> str:
    return f"/api/v1/namespaces/{bench.namespace}/persistentvolumeclaims/{name}"


def refusals(bench: Bench) -> list[str]:
    """What preview and update say; both must refuse."""
    with pytest.raises(auto.CommandError) as caught:
        bench.preview()
    said = [str(caught.value), bench.refuse()]
    assert all(map(without_traceback, said))
    assert bench.pods() == [], "nothing was begun"
    return said


def in_the_state(bench: Bench) -> set[str]:
    """Names of the claims that the engine holds."""
    resources = bench.export_state()["deployment"]["resources"]
    claims = [r for r in resources if r["type"] == "kubernetes:core/v1:PersistentVolumeClaim"]
    return {claim["inputs"]["metadata"]["name"] for claim in claims}


def test_claims_of_others_are_refused_until_the_operator_says_adopt(bench_of: Callable[[str], Bench]) -> None:
    bench = bench_of("small")
    begin(bench)
    theirs = {"team": "search"}
    uids = {
        CACHE: add_claim(bench, CACHE, size="10Gi", labels={**theirs, INSTANCE: "other"}),
        MODEL: add_claim(bench, MODEL, size="15Gi", labels=theirs),
    }
    for said in refusals(bench):
        assert f"storage.compileCache = {CACHE}: " in said
        assert "set storage.compileCache.adopt: true" in said
        assert f"storage.model = {MODEL}: " in said
        assert f"kubectl -n {bench.namespace} label pvc {MODEL} {INSTANCE}=rel" in said

    bench.change(storage={"compileCache": {"adopt": True}, "model": {"adopt": True}})
    assert bench.preview()["import"] == 2
    bench.up()
    assert all(is_ready(pod) for pod in bench.pods())
    claims = bench.volume_claims()
    assert {name: claims[name]["metadata"]["uid"] for name in uids} == uids
    for name in uids:
        labels = claims[name]["metadata"]["labels"]
        assert (labels[INSTANCE], labels["app.kubernetes.io/managed-by"]) == ("rel", "pulumi")
        assert labels["team"] == "search", "what others wrote there is theirs"
    assert claims[MODEL]["spec"]["resources"]["requests"]["storage"] == "20Gi", "grown to what the stack asks for"
    assert bench.preview() == {}

    bench.change(storage={"compileCache": {"adopt": False}, "model": {"adopt": False}})
    assert bench.preview() == {}, "they are ours now"
    bench.destroy()
    assert {name: bench.volume_uids()[name] for name in uids} == uids


def test_a_claim_that_goes_is_refused_whatever_adopt_says_until_it_is_gone(bench_of: Callable[[str], Bench]) -> None:
    bench = bench_of("small")
    begin(bench)
    going = add_claim(bench, CACHE, size="10Gi", finalizers=[FINALIZER])
    bench.plane.api.delete(path_of(bench, CACHE))
    bench.change(storage={"compileCache": {"adopt": True}})
    for said in refusals(bench):
        assert f"storage.compileCache = {CACHE}: this claim is being deleted" in said
        assert f"kubectl -n {bench.namespace} describe pvc {CACHE}" in said

    bench.plane.api.request(
        "PATCH",
        path_of(bench, CACHE),
        {"metadata": {"finalizers": None}},
        content_type="application/merge-patch+json",
    )
    wait_until(lambda: CACHE not in bench.volume_claims(), timeout=HELD_SECONDS, what=f"{CACHE} to go")
    bench.up()
    assert all(is_ready(pod) for pod in bench.pods())
    assert bench.volume_uids()[CACHE] != going
    assert bench.preview() == {}


def test_a_claim_of_the_operators_is_only_referenced(bench_of: Callable[[str], Bench]) -> None:
    bench = bench_of("small")
    begin(bench)
    add_claim(bench, STORE, size="20Gi")
    as_it_was = bench.volume_claims()[STORE]["metadata"]
    bench.change(
        storage={
            "compileCache": {"kind": "existingClaim", "existingClaim": {"prefill": STORE, "decode": STORE}},
            "model": {"kind": "existingClaim", "existingClaim": STORE},
        }
    )
    bench.up()
    assert all(is_ready(pod) for pod in bench.pods())
    assert in_the_state(bench) == set()
    bench.destroy()
    metadata = bench.volume_claims()[STORE]["metadata"]
    assert metadata["uid"] == as_it_was["uid"]
    assert "deletionTimestamp" not in metadata
    assert not any(key.startswith(("pulumi.com/", "app.kubernetes.io/")) for key in _marks(metadata))


def _marks(metadata: dict[str, Any]) -> list[str]:
    return [*metadata.get("labels", {}), *metadata.get("annotations", {})]
