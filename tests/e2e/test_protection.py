"""The topology anchor under `rollout.protectTopology`: an accident is refused, and the stack does all it did before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from local.api import ApiError
from local.waiting import wait_until
from tests.builders import ROOT
from tests.e2e.bench import is_ready

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.api import Object
    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("small")]

FORBIDDEN = 403
IN_FORCE_SECONDS = 60
GONE_SECONDS = 120
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


def begin(bench: Bench) -> None:
    """Stack dev with one Pod of each role and a protected anchor."""
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.change(modelserver={"replicas": {"prefill": 1, "decode": 1}}, rollout={"protectTopology": True})


def anchor(bench: Bench) -> str:
    return f"/api/v1/namespaces/{bench.namespace}/configmaps/rel-topology"


def uids(bench: Bench) -> set[str]:
    """Of the role Pods, which must all be Ready."""
    assert all(is_ready(pod) for pod in bench.pods())
    return {pod["metadata"]["uid"] for pod in bench.pods()}


def policies(bench: Bench) -> list[Object | None]:
    name = f"rel.{bench.namespace}.topology"
    return [bench.plane.api.find(f"{collection}/{name}") for collection in (POLICIES, BINDINGS)]


def is_in_force(bench: Bench) -> bool:
    """The API server takes a moment to know of a new policy."""
    try:
        bench.plane.api.request("DELETE", anchor(bench), query={"dryRun": "All"})
    except ApiError as error:
        return error.status == FORBIDDEN
    return False


def await_protection(bench: Bench) -> None:
    wait_until(lambda: is_in_force(bench), timeout=IN_FORCE_SECONDS, what="the policy to be in force")


def refusal(act: Callable[[], object]) -> str:
    """What the API server says against it."""
    with pytest.raises(ApiError) as caught:
        act()
    assert caught.value.status == FORBIDDEN
    return str(caught.value)


def patch(bench: Bench, change: Object) -> Object:
    return bench.plane.api.request("PATCH", anchor(bench), change, content_type="application/merge-patch+json")


def test_an_accident_is_refused_and_updates_and_destroy_are_not(bench_of: Callable[[str], Bench]) -> None:
    bench = bench_of("small")
    api = bench.plane.api
    begin(bench)
    bench.up()
    first = uids(bench)
    await_protection(bench)

    collection = anchor(bench).rpartition("/")[0]
    for delete in (
        lambda: api.request("DELETE", anchor(bench)),
        lambda: api.delete(anchor(bench), propagation="Background"),
        lambda: api.delete(anchor(bench), propagation="Orphan"),
        lambda: api.request("DELETE", collection, query={"labelSelector": "app.kubernetes.io/component=topology"}),
    ):
        said = refusal(delete)
        assert "owns every model server of release rel" in said
        assert f"kubectl -n {bench.namespace} delete configmap rel-topology --cascade=foreground" in said
    said = refusal(lambda: patch(bench, {"data": {"key": "another"}}))
    assert "Change the stack file and run `pulumi up`" in said
    patch(bench, {"metadata": {"labels": {"team": "search"}}})
    assert uids(bench) == first
    assert bench.preview() == {}

    entries = [{"role": "prefill", "node": "npu-0"}, {"role": "decode", "node": "npu-1"}]
    bench.change(modelserver={"replicas": {"prefill": 0, "decode": 0}, "nodePlacement": entries})
    bench.up()
    assert not uids(bench) & first, "a mode switch replaces the anchor, and with it every Pod"
    assert bench.preview() == {}

    await_protection(bench)
    bench.destroy()
    assert bench.pods() == []
    assert api.find(anchor(bench)) is None
    assert policies(bench) == [None, None], "nothing is left in the cluster"


def test_protection_comes_and_goes_without_touching_a_pod(bench_of: Callable[[str], Bench]) -> None:
    bench = bench_of("small")
    begin(bench)
    bench.change(rollout={"protectTopology": False})
    bench.up()
    first = uids(bench)
    assert policies(bench) == [None, None]

    bench.change(rollout={"protectTopology": True})
    assert bench.preview() == {"create": 2}
    bench.up()
    await_protection(bench)
    assert uids(bench) == first

    bench.change(rollout={"protectTopology": False})
    assert bench.preview() == {"delete": 2}
    bench.up()
    assert policies(bench) == [None, None]
    wait_until(lambda: not is_in_force(bench), timeout=IN_FORCE_SECONDS, what="the policy to be out of force")
    assert uids(bench) == first


def test_a_namespace_can_go_with_a_protected_anchor_in_it(bench_of: Callable[[str], Bench]) -> None:
    bench = bench_of("small")
    api = bench.plane.api
    begin(bench)
    bench.up()
    await_protection(bench)
    namespace = f"/api/v1/namespaces/{bench.namespace}"
    api.delete(namespace)
    wait_until(lambda: api.find(namespace) is None, timeout=GONE_SECONDS, what=f"namespace {bench.namespace} to go")
    for collection in (BINDINGS, POLICIES):
        api.delete(f"{collection}/rel.{bench.namespace}.topology")
