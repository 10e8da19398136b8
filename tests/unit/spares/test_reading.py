"""What is read from live objects and templates."""

from __future__ import annotations

from typing import Any

import pytest

from stack.spares.demand import Constraint, needs, read_demand
from stack.spares.pods import pod_requests, selects, tolerates, why_not
from stack.spares.supply import read_supply
from tests import devices as make

Object = dict[str, Any]


def container(cpu: str | None = None, *, limit: str | None = None, **over: Any) -> Object:
    resources = {**({"requests": {"cpu": cpu}} if cpu else {}), **({"limits": {"cpu": limit}} if limit else {})}
    return {"name": "c", "resources": resources, **over}


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"containers": [container("1"), container("500m")]}, 1500, id="containers add up"),
        pytest.param({"containers": [container(limit="2")]}, 2000, id="a limit alone is a request"),
        pytest.param({"containers": [container("1", limit="2")]}, 1000, id="a request counts before a limit"),
        pytest.param(
            {"containers": [container("1")], "initContainers": [container("3")]}, 3000, id="the largest start"
        ),
        pytest.param(
            {"containers": [container("1")], "initContainers": [container("1", **SIDECAR), container("3")]},
            4000,
            id="a start beside a sidecar",
        ),
        pytest.param(
            {"containers": [container("3")], "initContainers": [container("2"), container("1", **SIDECAR)]},
            4000,
            id="a sidecar runs beside the containers",
        ),
        pytest.param({"containers": [container("1")], "overhead": {"cpu": "250m"}}, 1250, id="overhead"),
        pytest.param(
            {"containers": [container("1")], "resources": {"requests": {"cpu": "5"}}},
            5000,
            id="the Pod's own resources",
        ),
        pytest.param({"containers": [container("0.1001")]}, 101, id="finer amounts are rounded up"),
        pytest.param({"containers": [container()]}, None, id="nothing"),
    ],
)
def test_what_a_pod_requests(spec: Object, want: int | None) -> None:
    assert pod_requests(spec).get("cpu") == want


@pytest.mark.parametrize(
    ("operator", "values", "want"),
    [
        ("In", ["4"], True),
        ("In", ["5"], False),
        ("NotIn", ["5"], True),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("Gt", ["3"], True),
        ("Lt", ["4"], False),
        ("Gt", ["x"], False),
        ("Other", [], False),
    ],
)
def test_a_term_of_a_node_selector(operator: str, values: list[str], want: bool) -> None:
    term = {"matchExpressions": [{"key": "size", "operator": operator, "values": values}]}
    assert selects({"nodeSelectorTerms": [term]}, "a", {"size": "4"}) is want


def test_a_node_selector_without_a_term_that_says_something_matches_nothing() -> None:
    assert not selects({"nodeSelectorTerms": [{}]}, "a", {})
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    assert [selects({"nodeSelectorTerms": [{}, by_name]}, name, {}) for name in "ab"] == [True, False]


@pytest.mark.parametrize(
    ("toleration", "want"),
    [
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "k", "value": "w"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "k", "operator": "Unheard"}, False),
    ],
)
def test_a_toleration(toleration: Object, want: bool) -> None:
    assert tolerates([toleration], {"key": "k", "value": "v", "effect": "NoSchedule"}) is want


def test_a_cordon_can_be_tolerated() -> None:
    node = make.node("a", spec={"unschedulable": True})
    assert why_not({}, node) == "is cordoned"
    assert why_not({"tolerations": [{"operator": "Exists"}]}, node) is None


def test_of_several_classes_for_a_resource_the_youngest_counts_and_then_the_first_by_name() -> None:
    classes = {
        "old": make.device_class("old", resource="x/y", created="2026-01-01T00:00:00Z"),
        "b": make.device_class("b", resource="x/y", created="2026-02-01T00:00:00Z"),
        "a": make.device_class("a", resource="x/y", created="2026-02-01T00:00:00Z"),
    }
    supply = read_supply(nodes=[], pods=[], slices=[], classes=classes, claims=[])
    assert supply.class_of["x/y"] == "a"
    assert supply.class_of["deviceclass.resource.kubernetes.io/old"] == "old"


def test_a_name_in_full_counts_before_one_without_domain() -> None:
    device = {"name": "d", "attributes": {"npu.x/n": {"int": 2}, "n": {"int": 1}}}
    found = read_supply(
        nodes=[make.node("a")], pods=[], slices=[make.resource_slice("npu.x", [device], on="a")], classes={}, claims=[]
    )
    assert found.local["a"][0].view.attributes == {"npu.x/n": ("int", 2)}


def test_a_share_of_a_device_holds_nothing() -> None:
    shared = make.claim("c", [("npu.x", "a", "d")], "p", shareID="1")
    assert read_supply(nodes=[], pods=[], slices=[], classes={}, claims=[shared]).held == {}


def test_each_list_that_could_not_be_read_is_named() -> None:
    found = read_supply(nodes=None, pods=None, slices=None, classes=None, claims=None)
    assert found.unknown == ("nodes", "pods", "slices", "classes", "claims")


def test_a_constraint_without_requests_is_for_all_of_its_claim() -> None:
    spec = make.claim_spec(make.request("x", "npu", 4), make.request("y", "nic", 2), together=make.NUMA)
    demand = read_demand("decode", make.pod_template("t"), {"t": spec})
    assert demand.claims[0].constraints == (Constraint(requests=frozenset({0, 1}), attribute=make.NUMA),)
    assert needs(demand) == {"npu": 4, "nic": 2}


def test_a_short_init_container_claims_only_what_later_containers_do_not_hold() -> None:
    def asks(count: int, **over: Any) -> Object:
        return {"name": "c", "resources": {"requests": {"x/y": str(count)}}, **over}

    spec = {"initContainers": [asks(1, **SIDECAR), asks(4)], "containers": [asks(2)]}
    demand = read_demand("decode", {"spec": spec}, {})
    # 1 for the sidecar, 2 for the container, and 2 more for the init container, which cannot use the sidecar's.
    assert (demand.extended["x/y"], demand.amounts["x/y"]) == (5, 5)
