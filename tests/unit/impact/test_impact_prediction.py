"""What compares an impact with what happened finds every number that is another, and what it did not see."""

from __future__ import annotations

import copy
from dataclasses import replace
from queue import Queue
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from world import World, change, first_plan, part, stored

from stack.impact import Happening, Method
from tests.builders import merged
from tests.e2e.prediction import Happened, beginnings, disagreements, excesses
from tests.e2e.witness import Witness, witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stack.impact import Impact
    from tests.e2e.bench import Bench

Object = dict[str, Any]
Event = tuple[str, Object]
TWO: dict[str, Any] = {"modelserver": {"replicas": {"prefill": 1, "decode": 2}}}
NEWER: dict[str, Any] = {"modelserver": {"extraServeArgs": {"decode": ["--seed=1"]}}}
"""Only decode reads it."""


def roll_out(step: Callable[[Object], list[Event]]) -> tuple[Witness, dict[str, Object], dict[str, Object]]:
    """Both decode Pods are exchanged, each in a step: what was seen, one thing a second, and before and after it."""
    world = World.running(first_plan(**TWO))
    before, after = world.deployments, copy.deepcopy(world.deployments)
    [planned] = [w.object for w in first_plan(**merged(TWO, NEWER)).modelserver.workloads if w.role == "decode"]
    after["rel-decode"]["spec"]["template"] = stored(planned.manifest)["spec"]["template"]
    seen = Witness()
    for pod in world.pods:
        seen.note("ADDED", pod)
    seen.there = len(seen.events)
    for pod in world.pods:
        if pod["metadata"]["name"].startswith("rel-decode-"):
            for what, how in step(pod):
                seen.note(what, how)
    seen.times = [float(index - seen.there) for index in range(1, len(seen.events) + 1)]
    return seen, before, after


def seen_of_a_roll_out(*, first: str = "ADDED") -> Happened:
    """One more at a time; or the first old one goes before anything comes."""
    if first == "ADDED":
        return Happened.read(*roll_out(lambda pod: [*coming(pod), *going(pod)]))
    return Happened.read(*roll_out(lambda pod: [*going(pod), *coming(pod)]))


def coming(old: Object) -> list[Event]:
    """A Pod of another template in the place of an old one."""
    new = copy.deepcopy(old)
    meta, stamp = new["metadata"], old["metadata"]["labels"]["pod-template-hash"]
    meta |= {"uid": f"{meta['uid']}-new", "name": meta["name"].replace(stamp, "other")}
    meta["labels"]["pod-template-hash"] = "other"
    starting = merged(new, {"status": {"conditions": []}})
    return [("ADDED", starting), ("MODIFIED", new)]


def going(old: Object) -> list[Event]:
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


# --- Pods of one step come and go in either order ---------------------------------------------------------------------

IN_TURN: dict[str, Any] = merged(
    TWO, {"modelserver": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}}
)


def in_turn(old: Object, *, order: str) -> list[Event]:
    """One Pod leaves for a new one: each word of the order is a thing that happens."""
    (_, starting), ready = coming(old)
    told, gone = going(old)
    made = merged(starting, {"spec": {"nodeName": None}})
    events = {
        "told": told,
        "gone": gone,
        "made": ("ADDED", made),
        "bound": ("MODIFIED", starting),
        "ready": ready,
    }
    return [events[word] for word in order.split()]


@pytest.mark.parametrize(
    "order",
    [
        "told gone made bound ready",
        "told made gone bound ready",
        "made told gone bound ready",
        "made bound told gone ready",
    ],
)
def test_two_replica_sets_may_act_in_either_order(order: str) -> None:
    """The new Pod's and the old Pod's hear of a step at the same time."""
    seen = Happened.read(*roll_out(lambda pod: in_turn(pod, order=order)))
    assert disagreements(change(IN_TURN, NEWER), seen) == []
    assert excesses(change(IN_TURN, NEWER), seen) == []


def test_a_pod_that_is_ready_before_another_is_told_is_one_more() -> None:
    """That is no matter of order: it had devices beside it until then."""
    seen = Happened.read(*roll_out(lambda pod: in_turn(pod, order="made bound ready told gone")))
    assert "decode: 0 extra Pods, seen 1" in disagreements(change(IN_TURN, NEWER), seen)
    assert "decode: 0 extra Pods, seen 1" in excesses(change(IN_TURN, NEWER), seen)


def test_of_two_new_pods_the_first_may_be_ready_before_the_other_has_a_node() -> None:
    """Both are made at once all the same, which takes the devices of two."""
    both = merged(TWO, {"modelserver": {"strategy": {"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}}}})
    found = change(both, NEWER)
    assert [part.extra_pods for part in found.parts if part.part == "decode"] == [2]
    witness, before, after = roll_out(lambda pod: [*coming(pod), *going(pod)])
    [added, ready, told, gone, *others] = witness.events[witness.there :]
    waiting, *rest = others
    del witness.events[witness.there :]
    for what, pod in (added, nowhere(waiting), ready, told, gone, *rest):
        witness.note(what, pod)
    seen = Happened.read(witness, before, after)
    assert (seen.group({"rel-decode"}).extra, seen.group({"rel-decode"}).made) == (1, 2)
    assert disagreements(found, seen) == []


def nowhere(event: Event) -> Event:
    """Its Pod has no node yet."""
    what, pod = event
    return what, pod | {"spec": {key: value for key, value in pod["spec"].items() if key != "nodeName"}}


def test_a_pod_that_finds_no_node_holds_no_devices() -> None:
    seen = Happened.read(*roll_out(lambda pod: in_turn(pod, order="made")))
    assert seen.group({"rel-decode"}).extra == 0
    assert excesses(change(IN_TURN, NEWER), seen) == []


# --- where it is not known when the run looked ------------------------------------------------------------------------


def test_it_may_have_looked_while_it_ran_and_at_no_other_time() -> None:
    seen, _, _ = roll_out(lambda pod: [*coming(pod), *going(pod)])
    assert list(beginnings(seen, 0, 0.5)) == [0]
    assert list(beginnings(seen, 2.5, 4.5)) == [2, 3, 4]
    assert list(beginnings(seen, 100, 200)) == [8], "after the last that happened"


def test_what_is_right_only_when_all_has_happened_is_one() -> None:
    """Else whoever says that all stays would always be right in the end."""
    seen, _, after = roll_out(lambda pod: [*coming(pod), *going(pod)])
    stays = change(TWO, {})

    def wrong(began: float, looked: float) -> list[list[str]]:
        # The template is written already: what made it was killed.
        begins = beginnings(seen, began, looked)
        return [disagreements(stays, Happened.read(seen, after, after, begin=begin)) for begin in begins]

    assert all(wrong(0, 3.5)), "a Pod went after it had looked"
    assert not all(wrong(8.5, 9)), "and here all had gone before"


# --- what the witness does not see ------------------------------------------------------------------------------------


class Server:
    """In place of an API server: lists what is there, and then tells of what is put, an error among it."""

    def __init__(self, *there: Object) -> None:
        self.there = list(there)
        self.said: Queue[Event | Exception] = Queue()
        self.plane, self.namespace = SimpleNamespace(api=self), "ns"

    def request(self, _: str, path: str) -> Object:
        assert path == "/api/v1/namespaces/ns/pods"
        return {"items": self.there, "metadata": {"resourceVersion": "1"}}

    def _stream(self, *_: object) -> Iterator[Event]:
        while True:
            said = self.said.get(timeout=10)
            if isinstance(said, Exception):
                raise said
            yield said

    def create(self, pod: Object) -> None:
        self.say("ADDED", pod)

    def say(self, what: str, pod: Object) -> None:
        self.said.put((what, merged(pod, {"metadata": {"resourceVersion": "2"}})))

    def delete(self, path: str, *, grace_seconds: int) -> None:
        assert path.endswith("/pods/seen")
        assert grace_seconds == 0


def test_a_witness_has_seen_all_that_happened_when_it_ends() -> None:
    old, *_ = World.running(first_plan(**TWO)).pods
    server = Server(old)
    with witness(cast("Bench", server)) as seen:
        for what, pod in (*coming(old), *going(old)):
            server.say(what, pod)
    assert seen.there == 1
    assert [what for what, _ in seen.events] == ["ADDED", "ADDED", "MODIFIED", "MODIFIED", "DELETED"]


def test_a_watch_that_breaks_off_is_told_with_its_reason() -> None:
    """Else what came afterwards would count as not having happened."""
    server = Server()
    with pytest.raises(AssertionError, match="broke off") as told, witness(cast("Bench", server)):
        server.said.put(ConnectionResetError("the server went away"))
    assert isinstance(told.value.__cause__, ConnectionResetError)


def test_a_watch_that_cannot_begin_lets_nobody_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    monkeypatch.setattr(server, "request", refuse)
    with pytest.raises(AssertionError, match="broke off") as told, witness(cast("Bench", server)):
        pytest.fail("nothing is begun unseen")
    assert isinstance(told.value.__cause__, ConnectionRefusedError)


def refuse(*_: object) -> Object:
    raise ConnectionRefusedError


def keep_silent(_: Object) -> None:
    """The mark never comes."""


def test_an_end_that_is_not_seen_in_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    monkeypatch.setattr("tests.e2e.witness.END_SECONDS", 0.1)
    monkeypatch.setattr(server, "create", keep_silent)
    with pytest.raises(AssertionError, match=r"was not seen in 0\.1 s"), witness(cast("Bench", server)):
        pass
    server.say("ADDED", {"metadata": {"name": "seen"}})
