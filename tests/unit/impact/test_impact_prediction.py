"""What compares an impact with what happened finds every number that is another."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from world import World, change, first_plan, part, stored

from stack.impact import Happening, Method
from tests.builders import merged
from tests.e2e.prediction import Happened, disagreements, excesses
from tests.e2e.witness import Witness

if TYPE_CHECKING:
    from stack.impact import Impact

TWO: dict[str, Any] = {"modelserver": {"replicas": {"prefill": 1, "decode": 2}}}
NEWER: dict[str, Any] = {"modelserver": {"extraServeArgs": {"decode": ["--seed=1"]}}}
"""Only decode reads it."""


def seen_of_a_roll_out(*, first: str = "ADDED") -> Happened:
    """Both decode Pods are exchanged, one more at a time; or the first old one goes before anything comes."""
    world = World.running(first_plan(**TWO))
    before, after = world.deployments, copy.deepcopy(world.deployments)
    [planned] = [w.object for w in first_plan(**merged(TWO, NEWER)).modelserver.workloads if w.role == "decode"]
    after["rel-decode"]["spec"]["template"] = stored(planned.manifest)["spec"]["template"]
    seen = Witness()
    for pod in world.pods:
        seen.note("ADDED", pod)
    seen.there = len(seen.events)
    old = [pod for pod in world.pods if pod["metadata"]["name"].startswith("rel-decode-")]
    for pod in old:
        steps = [*coming(pod), *going(pod)] if first == "ADDED" else [*going(pod), *coming(pod)]
        for what, how in steps:
            seen.note(what, how)
    return Happened.read(seen, before, after)


def coming(old: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """A Pod of another template in the place of an old one."""
    new = copy.deepcopy(old)
    meta, stamp = new["metadata"], old["metadata"]["labels"]["pod-template-hash"]
    meta |= {"uid": f"{meta['uid']}-new", "name": meta["name"].replace(stamp, "other")}
    meta["labels"]["pod-template-hash"] = "other"
    starting = merged(new, {"status": {"conditions": []}})
    return [("ADDED", starting), ("MODIFIED", new)]


def going(old: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    told = merged(old, {"metadata": {"deletionTimestamp": "2026-01-02T00:00:00Z"}})
    return [("MODIFIED", told), ("DELETED", told)]


def with_decode(found: Impact, **other: Any) -> Impact:
    """Something else is foreseen of decode."""
    parts = tuple(replace(each, **other) if each.part == "decode" else each for each in found.parts)
    return replace(found, parts=parts)


def test_what_happened_as_foreseen_is_no_disagreement() -> None:
    found = change(TWO, NEWER)
    assert disagreements(found, seen_of_a_roll_out()) == []
    assert excesses(found, seen_of_a_roll_out()) == []


@pytest.mark.parametrize(
    "other",
    [
        {"before": 3},
        {"after": 1},
        {"new": 1},
        {"kept": 1},
        {"leaving": 1},
        {"extra_pods": 0},
        {"extra_pods": 2},
        {"capacity_percent": 50},
        {"happens": Happening.STAYS},
        {"at_most_seconds": -2},
    ],
    ids=str,
)
def test_another_number_of_a_part_is_one(other: dict[str, Any]) -> None:
    assert disagreements(with_decode(change(TWO, NEWER), **other), seen_of_a_roll_out()) != []


@pytest.mark.parametrize(
    "other",
    [{"new": 1}, {"leaving": 0}, {"ready": 1}, {"happens": Happening.CONTINUES}, {"method": Method.RECREATE}],
    ids=str,
)
def test_another_number_of_a_deployment_is_one(other: dict[str, Any]) -> None:
    found = change(TWO, NEWER)
    [of] = part(found, "decode").workloads
    assert disagreements(with_decode(found, workloads=(replace(of, **other),)), seen_of_a_roll_out()) != []


def test_pods_that_go_before_others_come_are_one() -> None:
    """Though no number of Pods is another in the end."""
    seen = seen_of_a_roll_out(first="DELETED")
    found = change(TWO, NEWER)
    assert any("capacity 100 %, seen 1 of 2 Ready" in each for each in disagreements(found, seen))
    assert any("capacity 100 %" in each for each in excesses(found, seen)), "nor may it be so in a change that fails"


def test_devices_that_are_not_given_back_before_are_one() -> None:
    found = change(TWO, NEWER)
    old = next(iter(life for life in seen_of_a_roll_out().lives.values() if life.part == "decode" and not life.since))
    assert any(
        "gives back before" in each
        for each in disagreements(with_decode(found, freed=(old.uid,)), seen_of_a_roll_out())
    )


def test_a_part_that_nobody_spoke_of_is_one() -> None:
    found = change(TWO, NEWER)
    silent = replace(found, parts=tuple(each for each in found.parts if each.part != "decode"))
    assert disagreements(silent, seen_of_a_roll_out()) == ["decode is not foreseen"]
