"""Evictions through the real API, as `kubectl drain` asks for them: one Pod of a role at a time, and never for good."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from local.api import ApiError
from local.waiting import wait_until
from tests.builders import ROOT
from tests.e2e.bench import is_ready

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("small")]
TOO_MANY = 429
SOON = 60
FAILURE = "local.serving-stack.dev/failure"


@pytest.fixture(scope="module")
def live(module_bench_of: Callable[[str], Bench]) -> Bench:
    """One prefill Pod and two decode Pods, in a plane with room for the new one of each."""
    bench = module_bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    slow = {"annotations": {"local.serving-stack.dev/startup-delay": "2s"}}  # or the next one is there at once
    bench.change(
        modelserver={"replicas": {"prefill": 1, "decode": 2}, "podOverrides": {"prefill": slow, "decode": slow}}
    )
    bench.up()
    return bench


def evict(bench: Bench, pod: dict[str, Any]) -> int:
    """Ask as a node drain does: 201, or 429 if the budget does not allow it now."""
    name = pod["metadata"]["name"]
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": bench.namespace},
    }
    try:
        bench.plane.api.request("POST", f"{bench.path('v1/pods')}/{name}/eviction", eviction)
    except ApiError as error:
        if error.status != TOO_MANY or "disruption budget" not in str(error):
            raise
        return TOO_MANY
    return 201


def allowed(bench: Bench, role: str) -> int:
    """How many Pods may be evicted, as the controller has counted them at last."""
    budget = bench.plane.api.get(f"{bench.path('policy/v1/poddisruptionbudgets')}/rel-{role}")
    return budget.get("status", {}).get("disruptionsAllowed", 0)


def until_whole(bench: Bench, role: str, pods: int) -> list[dict[str, Any]]:
    """Wait until a role has all its Pods again and the controller knows it; those Pods."""

    def found() -> list[dict[str, Any]]:
        there = bench.pods(f"app.kubernetes.io/component={role}")
        return there if len(there) == pods and all(map(is_ready, there)) and allowed(bench, role) == 1 else []

    return wait_until(found, timeout=SOON, what=f"{role} to be whole")


def uid(pod: dict[str, Any]) -> str:
    return pod["metadata"]["uid"]


def test_a_node_drain_takes_one_pod_of_a_role_after_another(live: Bench) -> None:
    first, second = until_whole(live, "decode", 2)
    assert evict(live, first) == 201
    assert evict(live, second) == TOO_MANY, "the first has no successor yet"
    now = until_whole(live, "decode", 2)
    assert uid(first) not in map(uid, now)
    assert uid(second) in map(uid, now), "it went on serving"
    assert evict(live, second) == 201, "and its turn comes"
    assert uid(second) not in map(uid, until_whole(live, "decode", 2))


def test_roles_have_budgets_of_their_own(live: Bench) -> None:
    decode, prefill = until_whole(live, "decode", 2)[0], until_whole(live, "prefill", 1)[0]
    assert evict(live, decode) == 201
    assert evict(live, prefill) == 201
    until_whole(live, "decode", 2)
    until_whole(live, "prefill", 1)


def test_the_only_pod_of_a_role_never_holds_its_node(live: Bench) -> None:
    [only] = until_whole(live, "prefill", 1)
    assert evict(live, only) == 201
    [now] = until_whole(live, "prefill", 1)
    assert uid(now) != uid(only)


def test_a_pod_that_is_not_ready_may_go_though_the_budget_is_used_up(live: Bench) -> None:
    """Broken after its start: it counts as missing, and its node must still be drained, and no other be blocked."""
    broken, good = until_whole(live, "decode", 2)
    path = f"{live.path('v1/pods')}/{broken['metadata']['name']}"
    live.plane.api.patch(path, {"metadata": {"annotations": {FAILURE: "CrashLoopBackOff"}}})
    wait_until(
        lambda: not is_ready(live.plane.api.get(path)) and allowed(live, "decode") == 0,
        timeout=SOON,
        what="the Pod to break",
    )
    assert live.plane.api.get(path)["status"]["phase"] == "Running"
    assert evict(live, good) == TOO_MANY
    assert evict(live, broken) == 201
    assert uid(good) in map(uid, until_whole(live, "decode", 2))


def test_a_budget_changes_no_pod_and_goes_with_its_role(live: Bench) -> None:
    before = live.parts()
    live.change(disruptionBudget={"unhealthyPodEvictionPolicy": "IfHealthyBudget"})
    live.up()
    assert live.preview() == {}
    assert live.parts() == before
    live.change(disruptionBudget={"enabled": False})
    live.up()
    assert live.plane.api.list(live.path("policy/v1/poddisruptionbudgets")) == []
    assert live.parts() == before


def test_the_command_evicts_one_pod_and_says_how_it_left(live: Bench) -> None:
    """Nothing runs in these Pods, so there is no log to read; what the API server tells is real."""
    live.change(disruptionBudget={"enabled": True, "unhealthyPodEvictionPolicy": "AlwaysAllow"})
    live.up()
    before = set(map(uid, until_whole(live, "decode", 2)))
    arguments = [str(live.stack_file), "--drain", "--yes", "--kubeconfig", str(live.plane.kubeconfig), "-f", "json"]
    result = CliRunner().invoke(app, ["verify", *arguments])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    outcomes = {check["name"]: check["outcome"] for check in found["checks"]}
    assert (outcomes["grace period"], outcomes["time"]) == ("good", "good")
    assert outcomes["hook"] == "not known"
    assert found["seconds"] < found["graceSeconds"]
    assert len(before & set(map(uid, until_whole(live, "decode", 2)))) == 1
