"""Quotas and LimitRanges: what a change would exceed, and which Pods the API server would not create."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from stack.facts import Reference, TrialFacts
from stack.guards import references
from stack.guards.limit_ranges import complete, troubles_of_pod, troubles_of_volume
from stack.guards.quota import charge_of_claim, charge_of_object, charge_of_pod, counts_objects, guard_quota, is_counted
from stack.impact import foresee
from stack.plan import plan_stack
from tests.builders import accepted, merged
from tests.devices import claim_spec, device_class, request
from tests.unit.guards.changing import BASE, IMAGE, NPU, warned, weigh
from tests.unit.guards.scene import storage_class
from tests.unit.impact.world import World, first_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stack.facts import Surroundings
    from stack.weigh import Weighed

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


def claims_of(pods: Sequence[Object], templates: Mapping[str, Object]) -> list[Object]:
    """The claims that were made for Pods, as their templates were then."""
    return [
        {
            "metadata": {
                "name": f"{pod['metadata']['name']}-{entry['name']}",
                "namespace": "ns",
                "ownerReferences": [{"kind": "Pod", "uid": pod["metadata"]["uid"], "controller": True}],
            },
            "spec": templates[entry["resourceClaimTemplateName"]]["spec"]["spec"],
        }
        for pod in pods
        for entry in pod["spec"].get("resourceClaims", ())
    ]


def weighed(
    change: Object,
    *quotas: Object,
    ranges: tuple[Object, ...] = (),
    base: Object = BASE,
    also: Callable[[Surroundings], Surroundings] = lambda around: around,
    meanwhile: Callable[[World], object] = lambda _: None,
) -> Weighed:
    """A change of a stack of one prefill, two decode and one endpoint picker Pod beside these quotas."""
    ran = first_plan(**base)
    planned = {each.name: each.manifest for each in ran.router if each.kind == "Deployment"}
    templates = {each.name: each.manifest for each in ran.claims}

    def seen(around: Surroundings) -> Surroundings:
        deployments = {live["metadata"]["name"]: live for live in around.deployments or ()} | planned
        pods = [in_full(pod, deployments) for pod in around.release_pods or ()]
        return also(
            replace(
                around,
                pods=pods,
                release_pods=pods,
                resource_claims=claims_of(pods, templates),
                quotas=list(quotas),
                limit_ranges=list(ranges),
            )
        )

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


def part_way(*, taken: int, given: int) -> Callable[[World], None]:
    """A roll-out that prefill has behind it and decode so far: Pods taken from the old template, given to the new."""
    wanted = first_plan(**merged(merged(BASE, ON), IMAGE))

    def roll(world: World) -> None:
        world.roll(wanted, "rel-prefill", taken=1, given=1)
        world.roll(wanted, "rel-decode", taken=taken, given=given, ready=False)

    return roll


@pytest.mark.parametrize(
    ("meanwhile", "want"),
    [
        pytest.param(part_way(taken=1, given=1), "warns", id="decode is half through"),
        pytest.param(part_way(taken=0, given=0), "warns", id="no decode Pod was ever made"),
        pytest.param(part_way(taken=2, given=2), "refuses", id="it came to its end, so going back is a change as any"),
    ],
)
def test_a_role_that_was_through_is_taken_back_with_the_other(meanwhile: Callable[[World], None], want: str) -> None:
    found = weighed({}, quota({"pods": "4"}, {"pods": "4"}), meanwhile=meanwhile)
    assert letters(found) == [f"{want} modelserver.strategy"]


def test_another_image_is_no_way_back_for_a_role_that_was_through() -> None:
    """Decode takes back, prefill goes on to what it never had."""
    third: Object = {"modelserver": {"extraServeArgs": {"prefill": ["--seed=7"]}}}
    found = weighed(third, quota({"pods": "4"}, {"pods": "4"}), meanwhile=part_way(taken=1, given=1))
    assert letters(found) == ["refuses modelserver.strategy"]


def test_what_is_taken_back_is_not_told_to_allow_an_outage() -> None:
    """What may stop is asked for a role that restarts; this one keeps the strategy that it has."""
    two: Object = {"modelserver": {"strategy": {"type": "auto"}, "replicas": {"prefill": 2, "decode": 2}}}
    base = merged(BASE, two)

    def half(world: World) -> None:
        world.roll(first_plan(**merged(merged(base, ON), IMAGE)), "rel-prefill", taken=1, given=1)
        for name in ("rel-prefill", "rel-decode"):
            numbers = {"maxSurge": 1, "maxUnavailable": 0}
            world.deployments[name]["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": numbers}

    [letter] = warned(weighed({}, quota({"pods": "5"}, {"pods": "5"}), base=base, meanwhile=half))
    assert letter.key == "modelserver.strategy"
    assert letter.fix.startswith("Let an old Pod leave first (type: RollingUpdate, maxSurge 0, maxUnavailable 1, until")
    assert "allowOutage" not in letter.fix


# --- what is not known ------------------------------------------------------------------------------------------------


def test_a_quota_that_nobody_has_counted_yet_says_nothing() -> None:
    assert letters(weighed(IMAGE, quota({"pods": "1"}, {}) | {"status": {}})) == []


def test_what_is_allowed_without_what_is_used_is_not_judged() -> None:
    found = weighed(IMAGE, quota({"pods": "1", "count/pods": "99"}, {"count/pods": "4"}))
    assert found.refusals == ()
    [letter] = warned(found)
    assert letter.key == "ResourceQuota team"
    assert letter.why == "not known whether there is room for pods: its status does not say how much is used"


@pytest.mark.parametrize(
    ("base", "want"),
    [pytest.param(IN_TURN, [], id="in turn"), pytest.param({}, ["refuses modelserver.strategy"], id="one more")],
)
def test_pods_of_the_namespace_will_do_where_those_of_all_may_not_be_read(base: Object, want: list[str]) -> None:
    def here_only(around: Surroundings) -> Surroundings:
        return replace(around, pods=None, namespace_pods=around.pods)

    full = quota({"pods": "4"}, {"pods": "4"})
    assert letters(weighed(IMAGE, full, base=merged(BASE, base), also=here_only)) == want


def test_pods_that_could_not_be_read_are_not_counted_as_none() -> None:
    def unread(around: Surroundings) -> Surroundings:
        return replace(around, pods=None, release_pods=None)

    full = quota({"pods": "4"}, {"pods": "4"})
    found = weighed(IMAGE, full, base=merged(BASE, IN_TURN), also=unread)
    assert letters(found) == ["warns ResourceQuota team"]
    assert "Pods of the namespace could not be read" in warned(found)[0].why


OTHER_DEVICES: Object = {
    "devices": {
        "claimTemplate": {
            "requests": [{"name": "npu", "deviceClassName": NPU, "count": 1, "selectors": ["device.driver == 'x'"]}]
        }
    }
}


@pytest.mark.parametrize("resource", [CLAIMED, "count/resourceclaims.resource.k8s.io"])
@pytest.mark.parametrize(
    ("base", "want"),
    [pytest.param(IN_TURN, [], id="in turn"), pytest.param({}, ["refuses modelserver.strategy"], id="one more")],
)
def test_live_pods_count_for_the_claims_that_they_have(resource: str, base: Object, want: list[str]) -> None:
    """The planned template has another name, and those that are there are not planned any more."""
    found = weighed(OTHER_DEVICES, quota({resource: "3"}, {resource: "3"}), base=merged(BASE, base))
    assert letters(found) == want


@pytest.mark.parametrize("seen", [None, []])
def test_claims_of_live_pods_that_are_not_found_are_not_judged(seen: list[Object] | None) -> None:
    def without(around: Surroundings) -> Surroundings:
        return replace(around, resource_claims=seen)

    counted = quota({CLAIMED: "3", "pods": "4"}, {CLAIMED: "3", "pods": "4"})
    found = weighed(OTHER_DEVICES, counted, base=merged(BASE, IN_TURN), also=without)
    assert letters(found) == ["warns ResourceQuota team"]
    assert warned(found)[0].why == (
        f"not known whether there is room for {CLAIMED}: claims of Pods that are there were not found"
    )
    beside = weighed(OTHER_DEVICES, counted, also=without)
    assert "refuses modelserver.strategy" in letters(beside), "Pods are counted all the same"


def test_claims_that_the_scheduler_makes_count_by_their_pods_already() -> None:
    """Extended resources of a class: Kubernetes 1.36 takes off the claim what the Pod counts for."""
    server: Object = {"resources": {"requests": {"example.com/npu": "1"}, "limits": {"example.com/npu": "1"}}}
    base = merged(BASE, {"modelserver": server})

    def scheduled(around: Surroundings) -> Surroundings:
        made = [
            {
                "metadata": {
                    "name": f"{pod['metadata']['name']}-extended",
                    "namespace": "ns",
                    "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
                    "ownerReferences": [{"kind": "Pod", "uid": pod["metadata"]["uid"], "controller": True}],
                },
                "spec": claim_spec(request("r", "big")),
            }
            for pod in around.pods or ()
            if "epp" not in pod["metadata"]["name"]
        ]
        classes = {**(around.device_classes or {}), "big": device_class("big", resource="example.com/npu")}
        return replace(around, resource_claims=[*(around.resource_claims or ()), *made], device_classes=classes)

    resource = "requests.example.com/npu"
    room_for_one = quota({resource: "4"}, {resource: "3"})
    assert letters(weighed(IMAGE, room_for_one, base=base, also=scheduled)) == ["warns modelserver.strategy"]


def standard(**over: Any) -> Object:
    return {"standard": {"metadata": {"name": "standard"}, "value": 5, "globalDefault": True, **over}}


HIGHER: Object = {"metadata": {"name": "higher"}, "value": 9, "globalDefault": True}


def with_priority(name: str | None, **around: Any) -> Callable[[Surroundings], Surroundings]:
    """Live Pods with a PriorityClass, and what else is seen."""

    def seen(found: Surroundings) -> Surroundings:
        given = {} if name is None else {"priorityClassName": name}
        pods = [merged(pod, {"spec": given}) for pod in found.pods or ()]
        return replace(found, pods=pods, release_pods=pods, **around)

    return seen


@pytest.mark.parametrize(
    ("scope", "also", "want"),
    [
        pytest.param("In", with_priority("standard", priority_classes=standard()), ["refuses"], id="it is the default"),
        pytest.param("In", with_priority("standard"), ["refuses"], id="live Pods got it"),
        pytest.param("In", with_priority(None, priority_classes=standard()), ["refuses"], id="it became the default"),
        pytest.param("In", with_priority(None, priority_classes=standard(globalDefault=False)), [], id="no default"),
        pytest.param("In", with_priority(None), [], id="live Pods got none"),
        pytest.param(
            "In", with_priority("standard", replica_sets=None), ["warns"], id="not known, and so it may count"
        ),
        pytest.param("DoesNotExist", with_priority(None), ["refuses"], id="for those without, which live Pods are"),
        pytest.param("DoesNotExist", with_priority("standard"), [], id="for those without, and live Pods got one"),
        pytest.param("DoesNotExist", with_priority(None, priority_classes=standard()), [], id="for those without"),
        pytest.param(
            "In",
            with_priority(None, priority_classes={"higher": HIGHER, **standard()}),
            ["refuses"],
            id="of two defaults the lower",
        ),
    ],
)
def test_pods_that_name_no_priority_class_have_the_default_one(
    scope: str, also: Callable[[Surroundings], Surroundings], want: list[str]
) -> None:
    expression: Object = {"scopeName": "PriorityClass", "operator": scope}
    if scope == "In":
        expression["values"] = ["standard"]
    counted = quota({"pods": "4"}, {"pods": "4"}, scopeSelector={"matchExpressions": [expression]})
    found = letters(weighed({"modelserver": {"replicas": {"decode": 5}}}, counted, also=also))
    assert found == [f"{word} modelserver.replicas" for word in want]


def test_a_priority_class_that_is_named_stays() -> None:
    own: Object = {
        "modelserver": {"podOverrides": {role: {"priorityClassName": "high"} for role in ("prefill", "decode")}}
    }
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    counted = quota({"pods": "3"}, {"pods": "3"}, scopeSelector={"matchExpressions": [expression]})
    more: Object = {"modelserver": {"replicas": {"decode": 3}}}
    found = weighed(more, counted, base=merged(BASE, own), also=with_priority("high", priority_classes=standard()))
    assert letters(found) == ["refuses modelserver.replicas"]


def test_what_limit_ranges_may_fill_in_is_not_taken_for_missing() -> None:
    def unread(around: Surroundings) -> Surroundings:
        return replace(around, limit_ranges=None)

    found = weighed(IMAGE, quota({"limits.cpu": "999"}, {"limits.cpu": "3"}), also=unread)
    assert found.refusals == ()
    told = {letter.key: letter.why for letter in warned(found)}
    assert "unless a LimitRange fills it in" in told["routing.proxy.resources"]


def test_whether_a_pod_asks_for_nothing_is_not_known_without_limit_ranges() -> None:
    empty: Object = {"resources": {"requests": {}, "limits": {}}}
    base = BASE | {"modelserver": BASE["modelserver"] | empty, "routing": {"proxy": empty}}
    best_effort = quota({"pods": "2"}, {"pods": "0"}, scopes=["BestEffort"])
    assert letters(weighed(IMAGE, best_effort, base=base)) == ["refuses modelserver.replicas"]
    unread = weighed(IMAGE, best_effort, base=base, also=lambda around: replace(around, limit_ranges=None))
    assert letters(unread) == ["warns modelserver.replicas"]
    assert "what LimitRanges fill in, and so whether it counts these Pods, is not known" in warned(unread)[0].why


def test_what_needs_no_foresight_is_said_without_it() -> None:
    """The API server was not asked what it would make of the Deployments, so nobody knows what happens to Pods."""
    blocks = merged(BASE, ON)
    taken, world = accepted(**blocks), World.running(first_plan(**blocks))
    plan = plan_stack(taken, world.facts())
    hard: Object = {"requests.storage": "100Gi", "limits.cpu": "99", "pods": "1"}
    around = replace(
        world.around(),
        volume_claims={},
        quotas=[quota(hard, {"requests.storage": "0", "limits.cpu": "3", "pods": "4"})],
        limit_ranges=[],
    )
    trial = TrialFacts(unknown="may not patch")
    impact = foresee(taken.config, plan, around, trial)
    found = [finding.problem.key for finding in guard_quota(taken.config, plan, impact, around, trial)]
    assert sorted(set(found)) == ["router.epp.resources", "routing.proxy.resources", "storage"]


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


FAST = {"fast": storage_class("fast", is_default=True), "slow": storage_class("slow")}


@pytest.mark.parametrize(
    ("classes", "of", "want"),
    [
        pytest.param(FAST, "fast", ["refuses storage"], id="of the default class"),
        pytest.param(FAST, "slow", [], id="of another"),
        pytest.param(None, "slow", ["warns ResourceQuota team"], id="which is the default is not known"),
    ],
)
def test_volumes_that_name_no_class_count_for_the_default_one(
    classes: dict[str, Object] | None, of: str, want: list[str]
) -> None:
    resource = f"{of}.storageclass.storage.k8s.io/requests.storage"
    counted = quota({resource: "100Gi"}, {resource: "0"})
    assert letters(weighed({}, counted, also=lambda around: replace(around, storage_classes=classes))) == want


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


# --- volumes that come and go with Pods -------------------------------------------------------------------------------

OFFLOAD: Object = {"storage": {"modelOffload": {"enabled": True, "size": "100Gi", "storageClass": "fast"}}}
FAST_STORAGE = "fast.storageclass.storage.k8s.io/requests.storage"


def with_own_volumes(around: Surroundings) -> Surroundings:
    """Every model server has its volume."""
    claims = {
        f"{pod['metadata']['name']}-{volume['name']}": {"spec": volume["ephemeral"]["volumeClaimTemplate"]["spec"]}
        for pod in around.release_pods or ()
        for volume in pod["spec"].get("volumes", ())
        if "ephemeral" in volume
    }
    assert len(claims) == 3
    return replace(around, volume_claims={**(around.volume_claims or {}), **claims}, storage_classes=FAST)


@pytest.mark.parametrize("resource", ["requests.storage", FAST_STORAGE, "persistentvolumeclaims"])
@pytest.mark.parametrize(("more", "want"), [(0, "refuses"), (1, "warns"), (2, "")])
def test_a_new_pods_own_volume_counts_beside_those_of_the_old_ones(resource: str, more: int, want: str) -> None:
    size, unit = (1, "") if "claims" in resource else (100, "Gi")
    counted = quota({resource: f"{(3 + more) * size}{unit}"}, {resource: f"{3 * size}{unit}"})
    base = merged(BASE, OFFLOAD)
    ran = first_plan(**merged(base, ON))
    kept = {each.object.name: {"spec": each.object.manifest["spec"]} for each in ran.volumes}

    def seen(around: Surroundings) -> Surroundings:
        around = with_own_volumes(around)
        return replace(around, volume_claims={**(around.volume_claims or {}), **kept})

    found = letters(weighed(IMAGE, counted, base=base, also=seen))
    assert [each for each in found if "quota" in each or "strategy" in each] == (
        [f"{want} modelserver.strategy"] if want else []
    )


# --- other objects ----------------------------------------------------------------------------------------------------


def looked_up(change: Object, *, missing: set[str], unknown: set[str] | None = None) -> Callable[..., Surroundings]:
    """Every object of the plan is there but those of some kinds."""

    def seen(around: Surroundings) -> Surroundings:
        taken = accepted(**merged(merged(BASE, ON), change))
        planned = references.made(plan_stack(taken, World.running(first_plan(**BASE)).facts()))
        objects = {
            reference: None if reference.kind in missing else {"name": reference.name}
            for reference in planned
            if reference.kind not in (unknown or set())
        }
        return replace(around, objects=objects)

    return seen


def of_kind(kind: str, *, group: str = "", **spec: Any) -> Mapping[str, int]:
    reference = Reference(api_version=f"{group}/v1" if group else "v1", kind=kind, name="x", namespace="ns")
    return charge_of_object(reference, {"spec": spec})


PORTS = [{"port": 80}, {"port": 81}]


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (of_kind("HTTPRoute", group="gateway.networking.k8s.io"), {"count/httproutes.gateway.networking.k8s.io": 1}),
        (of_kind("ConfigMap"), {"count/configmaps": 1, "configmaps": 1}),
        (of_kind("ServiceAccount"), {"count/serviceaccounts": 1}),
        (of_kind("Service", ports=PORTS), {"count/services": 1, "services": 1}),
        (
            of_kind("Service", ports=PORTS, type="NodePort"),
            {"count/services": 1, "services": 1, "services.nodeports": 2},
        ),
        (
            of_kind("Service", ports=PORTS, type="LoadBalancer"),
            {"count/services": 1, "services": 1, "services.nodeports": 2, "services.loadbalancers": 1},
        ),
        (
            of_kind("Service", ports=PORTS, type="LoadBalancer", allocateLoadBalancerNodePorts=False),
            {"count/services": 1, "services": 1, "services.loadbalancers": 1},
        ),
        (of_kind("Service", group="serving.knative.dev"), {"count/services.serving.knative.dev": 1}),
    ],
)
def test_what_an_object_counts_for(found: Mapping[str, int], want: dict[str, int]) -> None:
    assert found == want


@pytest.mark.parametrize(
    ("resource", "want"),
    [
        ("count/httproutes.gateway.networking.k8s.io", True),
        ("services.nodeports", True),
        ("configmaps", True),
        ("count/pods", False),
        ("count/persistentvolumeclaims", False),
        ("requests.cpu", False),
        ("fast.storageclass.storage.k8s.io/persistentvolumeclaims", False),
    ],
)
def test_who_counts_objects(resource: str, want: bool) -> None:
    assert counts_objects(quota({resource: "1"}, {})) is want


@pytest.mark.parametrize(
    ("resource", "missing", "used", "allowed", "want"),
    [
        pytest.param("count/deployments.apps", {"Deployment"}, 0, 2, True, id="Deployments that are new"),
        pytest.param("count/deployments.apps", {"Deployment"}, 0, 3, False, id="and room for them"),
        pytest.param("count/deployments.apps", set[str](), 9, 3, False, id="none is new, and too many are there"),
        pytest.param("services", {"Service"}, 5, 5, True, id="a Service, by its old name"),
        pytest.param("count/httproutes.gateway.networking.k8s.io", {"HTTPRoute"}, 1, 1, True, id="of a group"),
        pytest.param("count/httproutes.gateway.networking.k8s.io", {"Service"}, 1, 1, False, id="of another"),
    ],
)
def test_what_is_made_anew_counts_beside_what_is_there(
    resource: str, missing: set[str], used: int, allowed: int, want: bool
) -> None:
    counted = quota({resource: str(allowed)}, {resource: str(used)})
    found = weighed({}, counted, also=looked_up({}, missing=missing))
    assert letters(found) == ["refuses ResourceQuota team"] * want
    for letter in found.refusals:
        assert f"{resource} ({allowed} allowed)" in letter.why
        assert f"kubectl -n ns get {resource.removeprefix('count/')}" in letter.fix


def test_objects_of_which_it_is_not_known_whether_they_are_there_are_not_judged() -> None:
    counted = quota({"configmaps": "4"}, {"configmaps": "4"})
    [letter] = warned(weighed({}, counted, also=looked_up({}, missing=set(), unknown={"ConfigMap"})))
    assert letter.why.startswith("not known whether there is room for configmaps: ")
    [letter] = warned(weighed({}, quota({"services": "4"}, {}), also=looked_up({}, missing={"Service"})))
    assert letter.why.endswith("its status does not say how much is used")
    room = quota({"configmaps": "99"}, {"configmaps": "4"})
    assert letters(weighed({}, room, also=looked_up({}, missing=set(), unknown={"ConfigMap"}))) == []


TO_AGGREGATED: Object = {"modelserver": {"replicas": {"prefill": 0, "decode": 0, "aggregated": 1}}}
WITHOUT_PREFILL: Object = {"modelserver": {"replicas": {"prefill": 0, "decode": 3}}}


@pytest.mark.parametrize(
    ("change", "allowed", "want"),
    [
        pytest.param(TO_AGGREGATED, 2, [], id="both roles go before the aggregated one is made"),
        pytest.param(TO_AGGREGATED, 1, ["refuses ResourceQuota team"], id="the endpoint picker stays"),
    ],
)
def test_deployments_that_go_first_make_room(change: Object, allowed: int, want: list[str]) -> None:
    def seen(around: Surroundings) -> Surroundings:
        around = looked_up(change, missing=set())(around)
        return replace(
            around,
            objects={r: None if r.name == "rel-aggregated" else found for r, found in around.objects.items()},
        )

    counted = quota({"count/deployments.apps": str(allowed)}, {"count/deployments.apps": "3"})
    assert letters(weighed(change, counted, also=seen)) == want


@pytest.mark.parametrize(
    ("change", "allowed", "want"),
    [
        pytest.param(IMAGE, 4, True, id="two new templates, and room for one"),
        pytest.param(IMAGE, 5, False, id="and for two"),
        pytest.param({"modelserver": {"replicas": {"decode": 3}}}, 3, False, id="more Pods of the same template"),
        pytest.param(TO_AGGREGATED, 3, False, id="those of both roles go first, and the endpoint picker's is new, too"),
        pytest.param(TO_AGGREGATED, 2, True, id="and the endpoint picker's old one stays"),
    ],
)
def test_a_template_that_is_new_makes_a_replica_set(change: Object, allowed: int, want: bool) -> None:
    counted = quota({"count/replicasets.apps": str(allowed)}, {"count/replicasets.apps": "3"})
    assert letters(weighed(change, counted)) == ["refuses ResourceQuota team"] * want


def test_going_back_needs_no_new_replica_set() -> None:
    counted = quota({"count/replicasets.apps": "5"}, {"count/replicasets.apps": "5"})
    found = weighed({}, counted, meanwhile=part_way(taken=1, given=1))
    assert letters(found) == []


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(IMAGE, ["refuses modelserver.replicas"], id="new Pods would not be created"),
        pytest.param({"modelserver": {"replicas": {"decode": 1}}}, [], id="fewer Pods, and none is new"),
        pytest.param({}, [], id="nothing starts"),
    ],
)
def test_a_quota_that_was_lowered_below_what_is_there_takes_no_new_pod(change: Object, want: list[str]) -> None:
    """Also not one in exchange: the old one goes, and with the new one it would be too many again."""
    assert letters(weighed(change, quota({"pods": "2"}, {"pods": "4"}), base=merged(BASE, IN_TURN))) == want


def test_what_no_pod_starts_for_is_not_said() -> None:
    told = quota({"limits.cpu": "999", "services": "9"}, {"limits.cpu": "3", "services": "1"})
    assert letters(weighed({}, told, also=looked_up({}, missing={"Service"}))) == []


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
