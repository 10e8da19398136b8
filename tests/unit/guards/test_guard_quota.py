"""Quotas and LimitRanges: what a change would exceed, and which Pods the API server would not create."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from stack.guards.limit_ranges import complete, troubles_of_pod, troubles_of_volume
from stack.guards.quota import charge_of_claim, charge_of_pod, is_counted
from tests.builders import merged
from tests.devices import claim_spec, request
from tests.unit.guards.changing import BASE, IMAGE, NPU, warned, weigh
from tests.unit.impact.world import first_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from stack.facts import Surroundings
    from stack.weigh import Weighed
    from tests.unit.impact.world import World

Object = dict[str, Any]
ON: Object = {"guards": {"quota": "enforce", "devices": "off"}}
IN_TURN: Object = {"modelserver": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}}
NOTHING: Object = {}
PREFERRED, EVERYWHERE = "preferredDuringSchedulingIgnoredDuringExecution", {"namespaceSelector": NOTHING}
CLAIMED = f"{NPU}.deviceclass.resource.k8s.io/devices"


def quota(hard: Object, used: Object, **spec: Any) -> Object:
    return {
        "metadata": {"name": "team", "namespace": "ns"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used},
    }


def limit_range(kind: str = "Container", **limits: Object) -> Object:
    return {"metadata": {"name": "sizes", "namespace": "ns"}, "spec": {"limits": [{"type": kind, **limits}]}}


def in_full(pod: Object, deployments: dict[str, Object]) -> Object:
    """A Pod as the API server has it: with its ReplicaSet's name and what its containers ask for."""
    made, _ = pod["metadata"]["name"].rsplit("-", 1)
    maker, _ = made.rsplit("-", 1)
    owner = {"kind": "ReplicaSet", "name": made, "uid": "u", "controller": True}
    spec: Object = deployments[maker]["spec"]["template"]["spec"] if maker in deployments else {}
    return merged(pod, {"metadata": {"ownerReferences": [owner]}}) | {"spec": pod["spec"] | spec}


def weighed(
    change: Object,
    *quotas: Object,
    ranges: tuple[Object, ...] = (),
    base: Object = BASE,
    also: Callable[[Surroundings], Surroundings] = lambda around: around,
    meanwhile: Callable[[World], object] = lambda _: None,
) -> Weighed:
    """A change of a stack of one prefill, two decode and one endpoint picker Pod beside these quotas."""
    epp = first_plan(**base).router
    planned = {each.name: each.manifest for each in epp if each.kind == "Deployment"}

    def seen(around: Surroundings) -> Surroundings:
        deployments = {live["metadata"]["name"]: live for live in around.deployments or ()} | planned
        pods = [in_full(pod, deployments) for pod in around.release_pods or ()]
        return also(replace(around, pods=pods, release_pods=pods, quotas=list(quotas), limit_ranges=list(ranges)))

    return weigh(merged(base, ON), change, published=9, seen=seen, meanwhile=meanwhile)


def letters(found: Weighed) -> list[str]:
    return [
        *(f"refuses {letter.key}" for letter in found.refusals),
        *(f"warns {letter.key}" for letter in warned(found)),
    ]


# --- quotas -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "base", "allowed", "want"),
    [
        pytest.param(IMAGE, {}, 4, ["refuses modelserver.strategy"], id="no room for a new Pod beside the old ones"),
        pytest.param(IMAGE, {}, 5, ["warns modelserver.strategy"], id="room for one, and two roles that ask for one"),
        pytest.param(IMAGE, {}, 6, [], id="room for one of each"),
        pytest.param(IMAGE, IN_TURN, 4, [], id="an old Pod leaves first"),
        pytest.param(
            {"modelserver": {"replicas": {"decode": 3}}}, {}, 4, ["refuses modelserver.replicas"], id="a Pod too many"
        ),
        pytest.param({"modelserver": {"replicas": {"decode": 3}}}, {}, 5, [], id="a Pod more"),
        pytest.param({"modelserver": {"replicas": {"decode": 1}}}, {}, 3, [], id="fewer Pods, and still too many now"),
        pytest.param(
            {"modelserver": {"image": {"tag": "next"}, "replicas": {"decode": 1}}},
            {},
            4,
            ["warns modelserver.strategy"],
            id="a role that gets smaller makes room for the other, in time",
        ),
        pytest.param(
            {"modelserver": {"replicas": {"prefill": 0, "decode": 0, "aggregated": 3}}},
            {},
            5,
            [],
            id="all leave before others come, but for the endpoint picker",
        ),
        pytest.param(
            {"modelserver": {"replicas": {"prefill": 0, "decode": 0, "aggregated": 4}}},
            {},
            4,
            ["refuses modelserver.replicas"],
            id="all leave, and more come",
        ),
        pytest.param(
            {"router": {"epp": {"extraArgs": ["--v=9"]}}}, {}, 4, ["refuses router.epp"], id="the endpoint picker"
        ),
    ],
)
def test_pods_are_counted_while_they_are_exchanged_and_afterwards(
    change: Object, base: Object, allowed: int, want: list[str]
) -> None:
    found = weighed(change, quota({"pods": str(allowed)}, {"pods": "4"}), base=merged(BASE, base))
    assert letters(found) == want


def test_the_letter_has_both_numbers_and_the_way_out() -> None:
    [letter] = weighed(IMAGE, quota({"pods": "4"}, {"pods": "4"})).refusals
    assert letter.why == (
        "while prefill is exchanged, with a new Pod beside the old ones there would be 5 pods (4 allowed) in "
        "ResourceQuota team, and Pods beyond that are not created"
    )
    assert "maxSurge 0, maxUnavailable 1, which stops a role with one Pod" in letter.fix
    assert "kubectl -n ns describe resourcequota" in letter.fix
    assert letter.fix.endswith("`guards.quota: warn` lets it pass")


@pytest.mark.parametrize(
    ("resource", "used", "least"),
    [
        pytest.param("requests.cpu", 7, 8, id="CPU: one for each model server, four for the endpoint picker"),
        pytest.param("limits.memory", 19, 20, id="memory limits, in Gi"),
        pytest.param(CLAIMED, 3, 4, id="devices of a class, by claims"),
        pytest.param("count/resourceclaims.resource.k8s.io", 3, 4, id="claims"),
        pytest.param("count/pods", 4, 5, id="Pods as objects"),
    ],
)
def test_whatever_a_new_pod_counts_for_is_counted(resource: str, used: int, least: int) -> None:
    unit = "Gi" if "memory" in resource else ""
    base = merged(BASE, {"routing": {"proxy": {"resources": {"requests": {}, "limits": {}}}}})

    def allowing(number: int) -> Object:
        return quota({resource: f"{number}{unit}"}, {resource: f"{used}{unit}"})

    def stuck(number: int) -> bool:
        return any("while" in letter.why for letter in weighed(IMAGE, allowing(number), base=base).refusals)

    assert stuck(least - 1)
    assert not stuck(least)


def test_a_pod_that_is_larger_counts_when_the_change_is_through() -> None:
    larger: Object = {"modelserver": {"resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}}}
    base = merged(BASE, IN_TURN)
    used: Object = {"requests.cpu": "7"}
    [letter] = [
        each
        for each in weighed(larger, quota({"requests.cpu": "12"}, used), base=base).refusals
        if each.key == "modelserver.replicas"
    ]
    assert "when this change is through there would be 13 requests.cpu (12 allowed)" in letter.why
    assert not [
        each for each in weighed(larger, quota({"requests.cpu": "13"}, used), base=base).refusals if "13" in each.why
    ]


def test_pods_of_others_count_and_those_of_the_namespace_that_leave_do_not() -> None:
    full = quota({"pods": "9"}, {"pods": "9"})
    assert letters(weighed(IMAGE, full)) == ["refuses modelserver.strategy"]

    def leaving(around: Surroundings) -> Surroundings:
        gone: Object = {
            "name": "x",
            "namespace": "ns",
            "uid": "x",
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "labels": {},
        }
        others: list[Object] = [{"metadata": gone, "spec": {"containers": [{"name": "c"}]}}] * 2
        return replace(around, pods=[*(around.pods or ()), *others])

    assert letters(weighed(IMAGE, full, also=leaving)) == []


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"scopes": ["BestEffort"]}, id="of Pods that ask for nothing"),
        pytest.param({"scopes": ["Terminating"]}, id="of Pods with a deadline"),
        pytest.param(
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["batch"]}]
                }
            },
            id="of another priority",
        ),
    ],
)
def test_a_quota_of_other_pods_does_not_count(spec: Object) -> None:
    assert letters(weighed(IMAGE, quota({"pods": "1"}, {"pods": "1"}, **spec))) == []


def test_what_was_asked_for_before_is_only_warned_of() -> None:
    """The roll-out that hangs for want of quota may be taken back, or waited for."""
    wanted = first_plan(**merged(merged(BASE, ON), IMAGE))

    def stuck(world: World) -> None:
        for name in ("rel-prefill", "rel-decode"):
            world.roll(wanted, name, taken=0, given=0)

    found = weighed(IMAGE, quota({"pods": "4"}, {"pods": "4"}), meanwhile=stuck)
    assert found.refusals == ()
    assert letters(found) == ["warns modelserver.strategy"]


def test_a_quota_that_nobody_has_counted_yet_says_nothing() -> None:
    assert letters(weighed(IMAGE, quota({"pods": "1"}, {}) | {"status": {}})) == []


def test_containers_have_to_say_what_a_quota_counts() -> None:
    found = weighed(IMAGE, quota({"limits.cpu": "999"}, {"limits.cpu": "3"}))
    told = {letter.key: letter.why for letter in found.refusals}
    assert set(told) == {"routing.proxy.resources"}, "the endpoint picker does not start"
    assert told["routing.proxy.resources"] == (
        "container routing-proxy does not set limits.cpu, which ResourceQuota team counts, so no Pod would be created"
    )
    filled = weighed(
        IMAGE, quota({"limits.cpu": "999"}, {"limits.cpu": "3"}), ranges=(limit_range(default={"cpu": "64"}),)
    )
    assert filled.refusals == (), "a LimitRange says it for them"


def test_volumes_that_are_made_count() -> None:
    made: Object = {"storage": {"model": {"kind": "pvc", "size": "100Gi", "existingClaim": None}}}
    counted = quota({"requests.storage": "500Gi"}, {"requests.storage": "450Gi"})
    found = [letter for letter in weighed(made, counted).refusals if letter.key == "storage"]
    assert len(found) == 1
    assert "requests.storage (500Gi allowed) in ResourceQuota team" in found[0].why
    assert weighed({}, quota({"requests.storage": "9Ti"}, {"requests.storage": "0"})).refusals == ()


def test_what_pods_and_claims_count_for() -> None:
    limits = {"cpu": "2", "memory": "1Gi", "example.com/npu": "4"}
    pod = {"containers": [{"name": "c", "resources": {"limits": limits}}], "initContainers": []}
    assert charge_of_pod(pod) == {
        "pods": 1,
        "count/pods": 1,
        "cpu": 2000,
        "requests.cpu": 2000,
        "limits.cpu": 2000,
        "memory": 2**30,
        "requests.memory": 2**30,
        "limits.memory": 2**30,
        "requests.example.com/npu": 4,
    }
    choices = {"name": "g", "firstAvailable": [{"deviceClassName": "big", "count": 1}, {"deviceClassName": "small"}]}
    every = request("a", "any", allocationMode="All")
    counted = charge_of_claim(claim_spec(request("n", "big", 2), choices, every), {"big": "example.com/big"})
    assert {name: count for name, count in counted.items() if name.endswith("/devices")} == {
        "big.deviceclass.resource.k8s.io/devices": 3,
        "small.deviceclass.resource.k8s.io/devices": 1,
        "any.deviceclass.resource.k8s.io/devices": 32,
    }
    assert counted["requests.example.com/big"] == 3


@pytest.mark.parametrize(
    ("scope", "pod", "want"),
    [
        ({"scopeName": "NotTerminating"}, NOTHING, True),
        ({"scopeName": "NotBestEffort"}, NOTHING, False),
        (
            {"scopeName": "NotBestEffort"},
            {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            True,
        ),
        ({"scopeName": "PriorityClass", "operator": "Exists"}, {"priorityClassName": "high"}, True),
        ({"scopeName": "PriorityClass", "operator": "Exists"}, NOTHING, False),
        ({"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]}, {"priorityClassName": "high"}, False),
        ({"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]}, NOTHING, True),
        ({"scopeName": "CrossNamespacePodAffinity", "operator": "Exists"}, NOTHING, False),
        (
            {"scopeName": "CrossNamespacePodAffinity", "operator": "Exists"},
            {"affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": EVERYWHERE}]}}},
            True,
        ),
        ({"scopeName": "Unheard"}, NOTHING, False),
    ],
)
def test_a_scope_takes_in_a_pod(scope: Object, pod: Object, want: bool) -> None:
    counted = {"spec": {"scopeSelector": {"matchExpressions": [scope]}}}
    assert is_counted(counted, {"containers": [{"name": "c"}]} | pod) is want


# --- LimitRanges ------------------------------------------------------------------------------------------------------


def pod_of(*, requests: Object | None = None, limits: Object | None = None) -> Object:
    return {"containers": [{"name": "main", "resources": {"requests": requests or {}, "limits": limits or {}}}]}


@pytest.mark.parametrize(
    ("pod", "limits", "want"),
    [
        pytest.param(pod_of(), {"min": {"cpu": "1"}}, ["asks for no cpu, and 1 is the least"], id="nothing asked"),
        pytest.param(
            pod_of(requests={"cpu": "500m"}),
            {"min": {"cpu": "1"}},
            ["asks for 500m cpu, and 1 is the least"],
            id="less",
        ),
        pytest.param(pod_of(limits={"cpu": "1"}), {"min": {"cpu": "1000m"}}, [], id="the limit is asked for as well"),
        pytest.param(
            pod_of(requests={"cpu": "1"}),
            {"max": {"cpu": "4"}},
            ["has no limit of cpu, and 4 is the most"],
            id="no limit",
        ),
        pytest.param(
            pod_of(limits={"memory": "5Gi"}),
            {"max": {"memory": "4096Mi"}},
            ["is limited to 5Gi memory, and 4096Mi is the most"],
            id="more",
        ),
        pytest.param(
            pod_of(requests={"cpu": "1"}, limits={"cpu": "3"}),
            {"maxLimitRequestRatio": {"cpu": "2"}},
            ["asks for 1 cpu and is limited to 3, and its limit may be 2 times its request"],
            id="too far apart",
        ),
        pytest.param(
            pod_of(requests={"cpu": "2"}),
            {"maxLimitRequestRatio": {"cpu": "2"}},
            ["needs a limit and a request of cpu, and its limit may be 2 times its request"],
            id="no limit to compare",
        ),
        pytest.param(
            pod_of(requests={"cpu": "40"}),
            {"default": {"cpu": "1"}},
            ["gets the cpu limit 1, and asks for 40"],
            id="a limit that is filled in below the request",
        ),
        pytest.param(pod_of(limits={"cpu": "1"}), {"defaultRequest": {"cpu": "2"}}, [], id="a request that is there"),
    ],
)
def test_a_container_that_a_limit_range_does_not_let_pass(pod: Object, limits: Object, want: list[str]) -> None:
    found = list(troubles_of_pod(pod, [limit_range(**limits)]))
    assert [each.why for each in found] == want
    assert all((each.container, each.limit_range) == ("main", "sizes") for each in found)


def test_a_pod_as_a_whole_is_the_sum_of_its_containers() -> None:
    two = {"containers": [{"name": name, "resources": {"limits": {"cpu": "3"}}} for name in "ab"]}
    [found] = troubles_of_pod(two, [limit_range("Pod", max={"cpu": "5"})])
    assert (found.container, found.why) == (None, "is limited to 6000m cpu, and 5 is the most")
    assert list(troubles_of_pod(two, [limit_range("Pod", max={"cpu": "6"})])) == []


def test_what_is_missing_is_filled_in_by_the_first_that_has_it() -> None:
    first, second = limit_range(default={"cpu": "2"}), limit_range(default={"cpu": "9", "memory": "1Gi"})
    full, given = complete(pod_of(), [first, second])
    [container] = full["containers"]
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "1Gi"}
    assert [(each.kind, each.resource, each.quantity) for each in given] == [
        ("limits", "cpu", "2"),
        ("limits", "memory", "1Gi"),
    ]


@pytest.mark.parametrize(
    ("limits", "want"),
    [
        ({"max": {"storage": "1Gi"}}, ["asks for 5Gi, and 1Gi is the most"]),
        ({"min": {"storage": "9Gi"}}, ["asks for 5Gi, and 9Gi is the least"]),
        ({"min": {"storage": "5Gi"}, "max": {"storage": "5Gi"}}, []),
    ],
)
def test_a_volume_that_a_limit_range_does_not_let_pass(limits: Object, want: list[str]) -> None:
    assert [each.why for each in troubles_of_volume("5Gi", [limit_range("PersistentVolumeClaim", **limits)])] == want


def test_pods_that_would_not_be_created_are_refused_and_pods_that_are_changed_are_told() -> None:
    small = weighed(IMAGE, ranges=(limit_range(max={"memory": "512Mi"}),))
    assert "modelserver.resources" in {letter.key for letter in small.refusals}
    told = weighed(IMAGE, ranges=(limit_range(defaultRequest={"ephemeral-storage": "1Gi"}),))
    assert told.refusals == ()
    assert {letter.key for letter in warned(told)} == {"modelserver.resources", "routing.proxy.resources"}
    assert any("gets requests.ephemeral-storage 1Gi from LimitRange sizes" in letter.why for letter in warned(told))
