from __future__ import annotations

from typing import Any

import pytest

from stack.spares.demand import Demand, read_demand
from stack.spares.fit import Outcome, Verdict, judge
from stack.spares.supply import Supply, read_supply
from tests import devices as make

Object = dict[str, Any]
NPU, NIC = "npu.x", "nic.x"
CLASSES = {
    "npu": make.device_class("npu", f'device.driver == "{NPU}"'),
    "nic": make.device_class("nic", f'device.driver == "{NIC}"'),
}
CLAIM = make.claim_spec(make.request("npu", "npu", 4), make.request("nic", "nic", 2), together=make.NUMA)


def slices(*nodes: str, npus: tuple[int, ...] = (4, 4), nics: tuple[int, ...] = (2, 2), **values: Any) -> list[Object]:
    return [
        make.resource_slice(driver, make.devices(prefix, *counts, **values), on=name)
        for name in nodes
        for driver, prefix, counts in ((NPU, "npu", npus), (NIC, "nic", nics))
    ]


def supply(**over: Any) -> Supply:
    found: Object = {"nodes": [make.node("a")], "pods": [], "slices": slices("a"), "classes": CLASSES, "claims": []}
    asked: Object = found | {"server_version": "v1.36.3"} | over
    return read_supply(**asked)


def demand(spec: Object | None = CLAIM, name: str = "decode", **template: Any) -> Demand:
    return read_demand(name, make.pod_template("t", **template), {"t": spec})


def held(*devices: str, by: str = "old", node: str = "a") -> Object:
    """A claim on devices such as npu-0."""
    found = [(NPU if device.startswith("npu") else NIC, node, device) for device in devices]
    return make.claim(f"claim-{by}", found, by)


FIRST_HALF = ("npu-0", "npu-1", "npu-2", "npu-3", "nic-0", "nic-1")
EXACTLY_ONE = {"claims": [held(*FIRST_HALF)]}


def marked(prefix: str, count: int, **fields: Any) -> list[Object]:
    """Devices with other fields than attributes."""
    return [device | fields for device in make.devices(prefix, count)]


def outcome(verdict: Verdict) -> str:
    return verdict.outcome.name


PLAIN: dict[str, tuple[Object, int, str]] = {
    "two sets of devices are free for two Pods": ({}, 2, "ANY_ORDER"),
    "a third Pod finds none": ({}, 3, "CANNOT"),
    "what another Pod holds is taken": (EXACTLY_ONE, 2, "CANNOT"),
    "devices spread over two NUMA nodes are no set": ({"claims": [held("npu-0", "npu-4")]}, 1, "CANNOT"),
    "admin access takes nothing": (
        {"claims": [make.claim("c", [(NPU, "a", "npu-0")], "x", adminAccess=True)]},
        2,
        "ANY_ORDER",
    ),
    "an older generation does not count": (
        {"slices": [*slices("a"), make.resource_slice(NPU, [], on="a", pool={"generation": 2})]},
        1,
        "CANNOT",
    ),
    "a pool with a slice missing is not known": (
        {"slices": [*slices("a"), make.resource_slice(NPU, [], on="a", suffix="b")]},
        1,
        "UNKNOWN",
    ),
    "a device name that comes twice makes its pool unknown": (
        {"slices": [make.resource_slice(NPU, make.devices("npu", 4) * 2, on="a"), *slices("a", npus=())]},
        1,
        "UNKNOWN",
    ),
    "devices with a taint are not there": (
        {"slices": slices("a", taints=[{"key": "sick", "effect": "NoExecute"}])},
        1,
        "CANNOT",
    ),
    "a taint without effect hinders nobody": (
        {"slices": slices("a", taints=[{"key": "sick", "effect": "None"}])},
        2,
        "ANY_ORDER",
    ),
    "a cordoned node is not there": ({"nodes": [make.node("a", spec={"unschedulable": True})]}, 1, "CANNOT"),
    "a tainted node is not there": (
        {"nodes": [make.node("a", spec={"taints": [{"key": "x", "effect": "NoSchedule"}]})]},
        1,
        "CANNOT",
    ),
    "no CPU is left": ({"pods": [make.pod("other", on="a", cpu="63500m")]}, 1, "CANNOT"),
    "CPU is left for one": ({"pods": [make.pod("other", on="a", cpu="62500m")]}, 2, "CANNOT"),
    "a node that is full of Pods": (
        {"nodes": [make.node("a", pods="1")], "pods": [make.pod("o", on="a")]},
        1,
        "CANNOT",
    ),
    "Pods that are over take nothing": (
        {"pods": [make.pod("done", on="a", cpu="64") | {"status": {"phase": "Succeeded"}}]},
        2,
        "ANY_ORDER",
    ),
    "there is no such class": ({"classes": {"npu": CLASSES["npu"]}}, 1, "CANNOT"),
    "no slices could be read": ({"slices": None}, 1, "UNKNOWN"),
    "no nodes could be read": ({"nodes": None}, 1, "UNKNOWN"),
    "claims could not be read": ({"claims": None}, 1, "UNKNOWN"),
    "claims could not be read, but even without any it does not fit": ({"claims": None}, 3, "CANNOT"),
    "classes could not be read": ({"classes": None}, 1, "UNKNOWN"),
    "Pods could not be read": ({"pods": None}, 1, "UNKNOWN"),
    "there is nothing": ({"nodes": [], "slices": []}, 1, "CANNOT"),
    "what leaves is coming": (
        {"claims": [held(*FIRST_HALF)], "pods": [make.pod("old", on="a", deletionTimestamp="2026-01-01T00:00:00Z")]},
        2,
        "SOME_ORDER",
    ),
    "an allocation that nobody reserved is about to be given back": (
        {"claims": [make.claim("c", [(NPU, "a", "npu-0")])]},
        2,
        "SOME_ORDER",
    ),
    "somebody else waits for devices": (
        {"pods": [make.pod("w", spec={"resourceClaims": [{"name": "x"}]})]},
        2,
        "SOME_ORDER",
    ),
    "somebody without devices waits": ({"pods": [make.pod("w")]}, 2, "ANY_ORDER"),
    "somebody waits who may take the CPU": ({"pods": [make.pod("w", cpu="63")]}, 2, "SOME_ORDER"),
    "parts of a device are not modelled": (
        {
            "slices": [
                *slices("a", npus=()),
                make.resource_slice(NPU, marked("npu", 4, consumesCounters=[{}]), on="a"),
            ]
        },
        1,
        "UNKNOWN",
    ),
    "a device for many is not modelled, nor that it is too few": (
        {
            "slices": [
                *slices("a", npus=()),
                make.resource_slice(NPU, marked("npu", 1, allowMultipleAllocations=True), on="a"),
            ]
        },
        1,
        "UNKNOWN",
    ),
    "a device that must be made ready first is not modelled": (
        {
            "slices": [
                *slices("a", nics=()),
                make.resource_slice(NIC, marked("nic", 2, bindingConditions=["x"]), on="a"),
            ]
        },
        1,
        "UNKNOWN",
    ),
}


@pytest.mark.parametrize(("over", "pods", "want"), PLAIN.values(), ids=PLAIN.keys())
def test_a_role_of_four_npus_and_two_nics_on_one_numa_node(over: Object, pods: int, want: str) -> None:
    verdict = judge(supply(**over), [(demand(), pods)])
    assert outcome(verdict) == want, str(verdict)


def of(*requests: Object, **over: Any) -> Object:
    return make.claim_spec(*requests, **over)


NPU_1 = make.request("npu", "npu", 1)
SPECS: dict[str, tuple[Object | None, str]] = {
    "nothing at all": (of(), "ANY_ORDER"),
    "all devices": (of(make.request("npu", "npu", 1, allocationMode="All")), "UNKNOWN"),
    "all of a class that nobody has": (of(make.request("none", "none", 1, allocationMode="All")), "CANNOT"),
    "the first that is there": (
        of({"name": "r", "firstAvailable": [{"name": "x", "deviceClassName": "npu"}]}),
        "UNKNOWN",
    ),
    "admin access": (of(make.request("npu", "npu", 99, adminAccess=True)), "UNKNOWN"),
    "a share of a device": (of(make.request("npu", "npu", 1, capacity={"requests": {"memory": "1Gi"}})), "UNKNOWN"),
    "different ones": (of(NPU_1, constraints=[{"distinctAttribute": make.NUMA}]), "UNKNOWN"),
    "more than a claim may have": (of(make.request("npu", "npu", 33)), "CANNOT"),
    "an attribute that no device has": (of(NPU_1, together="npu.x/gone"), "CANNOT"),
    "a selector that fails for every device": (
        of(make.request("npu", "npu", 1, 'device.attributes["npu.x"].gone == 1')),
        "CANNOT",
    ),
    "a selector that the library does not know": (
        of(make.request("npu", "npu", 1, 'device.attributes["a"].?b.hasValue()')),
        "UNKNOWN",
    ),
    "the same, for more than there are": (
        of(make.request("npu", "npu", 9, 'device.attributes["a"].?b.hasValue()')),
        "CANNOT",
    ),
    "a template that is not there": (None, "CANNOT"),
}


@pytest.mark.parametrize(("spec", "want"), SPECS.values(), ids=SPECS.keys())
def test_a_claim_asks_for(spec: Object | None, want: str) -> None:
    verdict = judge(supply(), [(demand(spec), 1)])
    assert outcome(verdict) == want, str(verdict)


TEMPLATES: dict[str, tuple[Object, str]] = {
    "a node selector for it": ({"nodeSelector": {"kubernetes.io/hostname": "a"}}, "ANY_ORDER"),
    "a node selector for another": ({"nodeSelector": {"kubernetes.io/hostname": "b"}}, "CANNOT"),
    "a Pod of a size that no node has": ({"cpu": "65"}, "CANNOT"),
    "an extended resource that is counted nowhere": ({"extended": {"x.y/npu": "1"}}, "CANNOT"),
    "Pods that keep each other away": (
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "h"}]}}},
        "UNKNOWN",
    ),
    "a spread that must hold": ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, "UNKNOWN"),
    "a spread that should hold": (
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
        "ANY_ORDER",
    ),
    "another scheduler": ({"schedulerName": "mine"}, "UNKNOWN"),
    "a runtime class": ({"runtimeClassName": "r"}, "UNKNOWN"),
    "a claim that others share": ({"resourceClaims": [{"name": "x", "resourceClaimName": "shared"}]}, "UNKNOWN"),
    "a node affinity that does not match": (
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]
                    }
                }
            }
        },
        "CANNOT",
    ),
}


@pytest.mark.parametrize(("template", "want"), TEMPLATES.values(), ids=TEMPLATES.keys())
def test_a_pod_with(template: Object, want: str) -> None:
    verdict = judge(supply(), [(demand(**template), 1)])
    assert outcome(verdict) == want, str(verdict)


def test_a_mode_switch_has_what_its_own_pods_free() -> None:
    found = supply(claims=[held(*FIRST_HALF)], pods=[make.pod("old", on="a", cpu="63")])
    assert outcome(judge(found, [(demand(), 2)])) == "CANNOT"
    assert outcome(judge(found, [(demand(), 2)], freed=frozenset({"uid-old"}))) == "ANY_ORDER"


def test_it_matters_who_comes_first_when_a_loose_demand_can_break_up_a_numa_node() -> None:
    whole, loose = (
        demand(of(make.request("n", "npu", 4), together=make.NUMA), "whole"),
        demand(of(make.request("n", "npu", 2)), "loose"),
    )
    one_numa_node = supply(slices=slices("a", npus=(4, 3)))
    verdict = judge(one_numa_node, [(whole, 1), (loose, 1)])
    assert verdict.outcome is Outcome.SOME_ORDER
    assert "whole" in verdict.reasons[0]
    assert outcome(judge(supply(slices=slices("a", npus=(4, 4, 4))), [(whole, 1), (loose, 1)])) == "ANY_ORDER"


def test_an_extended_resource_is_claimed_where_a_class_provides_it_and_no_plugin_counts_it() -> None:
    classes = CLASSES | {"npu": make.device_class("npu", f'device.driver == "{NPU}"', resource="x.y/npu")}
    asked = read_demand("decode", make.pod_template(extended={"x.y/npu": "5"}), {})
    by_class = supply(classes=classes)
    assert [outcome(judge(by_class, [(asked, pods)])) for pods in (1, 2)] == ["ANY_ORDER", "CANNOT"]
    node = make.node("a")
    node["status"]["allocatable"]["x.y/npu"] = "10"
    by_plugin = supply(classes=classes, nodes=[node], slices=[])
    assert [outcome(judge(by_plugin, [(asked, pods)])) for pods in (2, 3)] == ["ANY_ORDER", "CANNOT"]
    older = supply(classes=classes, server_version="v1.35.1")
    assert [outcome(judge(older, [(asked, pods)])) for pods in (1, 2)] == ["UNKNOWN", "CANNOT"]


def test_devices_in_reach_of_several_nodes_are_given_away_once() -> None:
    shared = make.resource_slice(NPU, make.devices("npu", 2), allNodes=True)
    two = supply(nodes=[make.node("a"), make.node("b")], slices=[shared])
    asked = demand(of(NPU_1))
    assert [outcome(judge(two, [(asked, pods)])) for pods in (2, 3)] == ["ANY_ORDER", "CANNOT"]


def test_a_device_that_several_nodes_reach_counts_where_one_of_them_alone_will_do() -> None:
    shared = make.resource_slice(NPU, make.devices("npu", 2), allNodes=True)
    two = supply(nodes=[make.node("a"), make.node("b")], slices=[shared])
    asked = demand(of(NPU_1), nodeSelector={"kubernetes.io/hostname": "a"})
    assert [outcome(judge(two, [(asked, pods)])) for pods in (2, 3)] == ["ANY_ORDER", "CANNOT"]


def test_what_was_asked_before_of_a_stock_changes_no_answer() -> None:
    pods = [make.pod("old", on="a", cpu="60"), make.pod("gone", on="a", deletionTimestamp="2026-01-01T00:00:00Z")]
    read: Object = {"pods": pods, "claims": [held(*FIRST_HALF), held("npu-6", by="gone")]}
    asked = [demand(cpu=cpu) for cpu in ("2", "8")]
    questions = [(each, number, gone) for each in asked for number in (1, 2, 3) for gone in ((), ("uid-old",))]
    one = supply(**read)
    together = [str(judge(one, [(each, number)], freed=frozenset(gone))) for each, number, gone in questions]
    apart = [str(judge(supply(**read), [(each, number)], freed=frozenset(gone))) for each, number, gone in questions]
    assert together == apart
    assert {text.partition(":")[0] for text in together} == {"fits in any order", "fits in some order", "cannot fit"}


def test_a_pod_of_lower_priority_may_have_to_yield_when_amounts_are_short() -> None:
    weak = supply(pods=[make.pod("weak", on="a", cpu="64", spec={"priority": -10})])
    assert outcome(judge(weak, [(demand(), 1)])) == "SOME_ORDER"
    equal = supply(pods=[make.pod("equal", on="a", cpu="64")])
    assert outcome(judge(equal, [(demand(), 1)])) == "CANNOT"


def test_a_verdict_says_what_is_needed_what_is_free_and_where() -> None:
    verdict = judge(supply(claims=[held("npu-0", "npu-1")]), [(demand(), 2)])
    [share] = verdict.shares
    assert (share.wanted, share.fits, dict(share.needs)) == (2, 1, {"npu": 4, "nic": 2})
    assert dict(share.free) == {"npu": 6, "nic": 4}
    assert "6 npu free on a" in str(verdict)
    assert "decode needs room for 2 Pods, and there is room for 1" in str(verdict)


def test_a_numa_node_that_meets_several_pcie_roots_is_one_all_the_same() -> None:
    """Two constrained attributes cross: devices that share either must stay tied, in whatever order they are met."""
    roots = ["a", "b", "a", "b", "a", "b"]
    held = [make.device(f"npu-{n}", numa=n // 3, root=root) for n, root in enumerate(roots)]
    found = supply(slices=[make.resource_slice(NPU, held, on="a")])
    by_numa = demand(of(make.request("n", "npu", 3), together=make.NUMA), "by NUMA node")
    by_root = demand(of(make.request("n", "npu", 3), together=f"{NPU}/root"), "by root")
    assert [outcome(judge(found, [(asked, 1)])) for asked in (by_numa, by_root)] == ["ANY_ORDER", "ANY_ORDER"]
    verdict = judge(found, [(by_numa, 1), (by_root, 1)])
    assert (outcome(verdict), [share.fits for share in verdict.shares]) == ("CANNOT", [1, 1])


def test_nothing_wanted_always_fits() -> None:
    assert outcome(judge(supply(nodes=None), [(demand(), 0)])) == "ANY_ORDER"


def test_a_search_that_is_too_large_is_not_known() -> None:
    many = slices("a", npus=tuple([2] * 16), nics=())
    wanted = [
        (demand(of(make.request("x", "npu", 6)), "loose"), 6),
        (demand(of(make.request("x", "npu", 2), together=make.NUMA), "pairs"), 6),
    ]
    assert outcome(judge(supply(slices=many), wanted)) in {"UNKNOWN", "CANNOT"}
