"""Nodes that are named, and whether there is room: nothing is refused that might fit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devices import node
from tests.unit.guards.scene import GOING, Scene, asking, pod, scene

HOSTNAME = "kubernetes.io/hostname"
PLACED: list[dict[str, str]] = [{"role": "prefill", "node": "npu-0"}, {"role": "decode", "node": "npu-1"}]
TAINT = {"key": "gone", "effect": "NoSchedule"}
ONE_EACH: dict[str, Any] = {"replicas": {"prefill": 1, "decode": 1}}
"""The recipe's model server asks for 40 CPU and 460Gi, the endpoint picker for 4 and 8Gi."""


def nodes(*amounts: str, **over: Any) -> list[dict[str, Any]]:
    """`npu-0`, `npu-1`, ... with so many CPUs."""
    return [node(f"npu-{index}", cpu=cpu, memory="2000Gi", **over) for index, cpu in enumerate(amounts)]


def with_nodes(*live: dict[str, Any], pods: list[dict[str, Any]] | None = None, **server: Any) -> Scene:
    return scene(modelserver=server or ONE_EACH).but(nodes=list(live), pods=pods or [])


# --- named nodes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("live", "want_why", "want_fix"),
    [
        (node("npu-11", cpu="128", memory="2000Gi"), "there is no such node", "Did you mean npu-11?"),
        (node("npu-1", labels={HOSTNAME: "other"}), f"has the label {HOSTNAME}=other", "kubectl label node npu-1"),
        (node("npu-1", spec={"unschedulable": True}), "is cordoned", "`kubectl uncordon npu-1`"),
        (node("npu-1", spec={"taints": [TAINT]}), "has the taint gone", "podOverrides.<role>.tolerations"),
        (node("npu-1", cpu="32", memory="2000Gi"), "asks for 40 CPU, and this node has 32 CPU in all", "larger node"),
        (node("npu-1", cpu="64", memory="256Gi"), "asks for 460Gi memory, and this node has 256Gi", "larger node"),
    ],
)
def test_a_named_node_that_cannot_take_its_pod(live: dict[str, Any], want_why: str, want_fix: str) -> None:
    found = with_nodes(*nodes("128"), live, nodePlacement=PLACED).only()
    assert found.is_refusal
    assert (found.problem.key, found.problem.value) == ("modelserver.nodePlacement[1].node", "npu-1")
    assert want_why in found.problem.why
    assert want_fix in found.problem.fix
    assert (found.workloads, found.idle) == ({"rel-decode-1"}, "warn"), "a Pod that runs there stays"


def test_a_named_node_that_the_pod_tolerates_is_fine() -> None:
    tolerations = {"decode": {"tolerations": [{"key": "gone", "operator": "Exists"}]}}
    live = [*nodes("128"), node("npu-1", cpu="128", memory="2000Gi", spec={"taints": [TAINT]})]
    assert with_nodes(*live, nodePlacement=PLACED, podOverrides=tolerations).findings() == ()


def test_entries_of_one_node_are_counted_together() -> None:
    same = [{"role": role, "node": "npu-0"} for role in ("prefill", "decode")]
    assert with_nodes(*nodes("80", "4"), nodePlacement=same).findings() == ()
    found = with_nodes(*nodes("79", "4"), nodePlacement=same).only()
    assert "entries [0], [1] ask for 80 CPU there together" in found.problem.why
    assert "79 CPU are free of 79 CPU" in found.problem.why
    assert found.workloads == {"rel-prefill-0", "rel-decode-1"}


# --- room anywhere ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpus", "want"),
    [
        pytest.param(("44", "40"), None, id="exactly what is asked"),
        pytest.param(("84",), None, id="all on one node"),
        pytest.param(("39", "39", "39"), "modelserver.replicas.prefill", id="no node is large enough"),
        pytest.param(("60", "23"), "modelserver.replicas", id="each fits, together they ask for more"),
        pytest.param((), "modelserver.replicas.prefill", id="no node at all"),
    ],
)
def test_pods_that_find_no_room(cpus: tuple[str, ...], want: str | None) -> None:
    found = [each.problem.key for each in with_nodes(*nodes(*cpus)).findings()]
    assert (want in found) == (want is not None)
    assert bool(found) == (want is not None)


def test_the_letter_says_where_there_is_room_and_why_not_elsewhere() -> None:
    live = [
        *nodes("40", "10"),
        node("npu-2", cpu="128", memory="2000Gi", spec={"taints": [TAINT]}),
        node("npu-3", cpu="128", memory="2000Gi", spec={"unschedulable": True}),
        node("npu-4", cpu="128", memory="2000Gi", spec={"unschedulable": True}),
    ]
    found = with_nodes(*live, replicas={"prefill": 0, "decode": 2}).only()
    assert (found.problem.key, found.problem.value) == ("modelserver.replicas.decode", "2")
    assert found.problem.why == (
        "each Pod asks for 40 CPU and 460Gi memory, and beside the Pods of others there is room on npu-0 for 1 only; "
        "2 nodes are cordoned, 1 node has the taint gone"
    )
    assert found.workloads == {"rel-decode"}


@pytest.mark.parametrize(
    ("taken", "is_refused"),
    [
        pytest.param(pod("p", "rel-decode", on="npu-0", **asking(cpu="40")), False, id="by the stack itself"),
        pytest.param(pod("p", "other", on="npu-0", namespace="far", **asking(cpu="40")), True, id="by somebody else"),
        pytest.param(
            pod("p", "rel-decode", on="npu-0", namespace="far", **asking(cpu="40")), True, id="by one of that name afar"
        ),
        pytest.param(
            pod("p", "other", on="npu-0", metadata=GOING, **asking(cpu="40")), False, id="by a Pod that leaves"
        ),
        pytest.param(pod("p", "other", **asking(cpu="40")), False, id="by a Pod that is nowhere yet"),
        pytest.param(pod("p", "other", on="npu-0", **asking(cpu="4")), False, id="no more than is left"),
        pytest.param(
            pod("p", "other", on="npu-0", spec={"priority": -10} | asking(cpu="40")["spec"]),
            False,
            id="by a Pod that gives way",
        ),
    ],
)
def test_room_that_is_taken(taken: dict[str, Any], is_refused: bool) -> None:
    found = with_nodes(*nodes("88"), pods=[taken])
    assert bool(found.findings()) == is_refused


def test_too_many_pods_on_a_node_is_no_room_either() -> None:
    found = with_nodes(*nodes("128", pods="2")).only()
    assert "ask for 3 Pods" in found.problem.why
    assert "2 Pods are free" in found.problem.why


def test_a_pod_on_a_node_that_takes_no_new_one_stays() -> None:
    """Scaling up must not be refused for the Pods that run already."""
    cordoned = node("npu-1", cpu="128", memory="2000Gi", spec={"unschedulable": True})
    there = pod("p", "rel-decode", on="npu-1", **asking(cpu="40"))
    two: dict[str, Any] = {"replicas": {"prefill": 0, "decode": 2}}
    assert with_nodes(*nodes("44"), cordoned, **two).letters() == ["refuses modelserver.replicas.decode"]
    assert with_nodes(*nodes("44"), cordoned, pods=[there], **two).findings() == ()


def test_a_pod_with_a_scheduler_of_its_own_is_left_to_that() -> None:
    own = {role: {"schedulerName": "volcano"} for role in ("prefill", "decode")}
    assert with_nodes(*nodes("4"), **ONE_EACH, podOverrides=own).findings() == ()


def test_nodes_that_are_not_known_are_judged_by_nobody() -> None:
    assert scene(modelserver={"nodePlacement": PLACED}).but(nodes=None).findings() == ()
    assert with_nodes(*nodes("128", "128"), nodePlacement=PLACED).but(pods=None).findings() == ()
