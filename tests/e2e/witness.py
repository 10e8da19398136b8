"""Watches Pods while something happens to them, and keeps what it saw in the order in which it happened."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from local.api import Object
from tests.e2e.bench import is_ready

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.e2e.bench import Bench

LONGEST = 3600
"""Seconds; longer than any test may take."""
BEGIN_SECONDS, END_SECONDS = 60, 60
MARK = "seen"


@dataclass
class Witness:
    """What happened to the Pods of a stack.

    Attributes:
        events: (ADDED, MODIFIED or DELETED, the Pod as it was then), oldest first. Pods that were there come first.
        times: when each was seen, in seconds of a clock that begins anywhere.
        there: how many Pods were there.
    """

    events: list[tuple[str, Object]] = field(default_factory=list[tuple[str, Object]])
    times: list[float] = field(default_factory=list[float])
    there: int = 0

    def note(self, what: str, pod: Object) -> None:
        """One more event."""
        self.events.append((what, pod))
        self.times.append(time.monotonic())

    def until(self, moment: float) -> int:
        """How many things had happened by a time of that clock, what was there left aside."""
        return sum(time <= moment for time in self.times[self.there :])

    def first(self, is_it: Callable[[str, Object], bool]) -> int:
        """Position of the first event that is one; past the end if there is none."""
        return next((i for i, (what, pod) in enumerate(self.events) if is_it(what, pod)), len(self.events))

    def last(self, is_it: Callable[[str, Object], bool]) -> int:
        """Position of the last event that is one; -1 if there is none."""
        found = [i for i, (what, pod) in enumerate(self.events) if is_it(what, pod)]
        return found[-1] if found else -1

    def fewest_ready(self, part: str) -> int:
        """Fewest Pods of a role, or of `epp`, that were Ready at a time, once those that were there had been seen."""
        ready: dict[str, bool] = {}
        fewest: list[int] = []
        for what, pod in self.events:
            if part_of(pod) == part:
                ready[pod["metadata"]["name"]] = what != "DELETED" and is_ready(pod)
                if what != "ADDED":
                    fewest.append(sum(ready.values()))
        return min(fewest, default=sum(ready.values()))


def part_of(pod: Object) -> str:
    """Role, or `epp`."""
    return pod["metadata"]["labels"]["app.kubernetes.io/component"]


def uid(pod: Object) -> str:
    return pod["metadata"]["uid"]


@contextmanager
def witness(bench: Bench) -> Generator[Witness]:
    """Watch from before the block to its end: everything up to then has been seen when it is left.

    Raises:
        AssertionError: the watch ended before that, or did not begin; what broke it is the cause.
    """
    watch = _Watch(bench)
    watch.begin()
    try:
        yield watch.seen
    finally:
        watch.end()


class _Watch(threading.Thread):
    """Lists the Pods and watches them until the Pod that marks the end comes."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(daemon=True)
        self.seen = Witness()
        self._api, self._namespace = bench.plane.api, bench.namespace
        self._path = f"/api/v1/namespaces/{bench.namespace}/pods"
        self._has_begun, self._is_over = threading.Event(), threading.Event()
        self._failure: Exception | None = None

    def begin(self) -> None:
        """Come back when what is there has been seen."""
        self.start()
        assert self._has_begun.wait(BEGIN_SECONDS), f"no list of Pods came in {BEGIN_SECONDS} s"
        self._check()

    def end(self) -> None:
        """Come back when all that happened up to now has been seen."""
        try:
            # A watch is in order, so what comes before this Pod has been seen when it is.
            self._api.create(_mark(self._namespace))
            assert self._is_over.wait(END_SECONDS), f"what happened up to now was not seen in {END_SECONDS} s"
        finally:
            self._api.delete(f"{self._path}/{MARK}", grace_seconds=0)
        self.join(END_SECONDS)
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise AssertionError("the watch of Pods broke off, so what came then was not seen") from self._failure

    def run(self) -> None:
        """Whatever ends it, nobody is left waiting for it."""
        try:
            self._watch()
        except Exception as error:  # noqa: BLE001  # told to whoever waits
            self._failure = error
        finally:
            self._has_begun.set()
            self._is_over.set()

    def _watch(self) -> None:
        deadline = time.monotonic() + LONGEST
        listed = self._api.request("GET", self._path)
        for pod in listed["items"]:
            self._note("ADDED", pod)
        self.seen.there = len(self.seen.events)
        self._has_begun.set()
        version = str(listed["metadata"]["resourceVersion"])
        while (left := deadline - time.monotonic()) > 0:
            # Not `watch`, which does not say where what is there ends.
            stream = self._api._stream  # pyright: ignore[reportPrivateUsage]
            for what, pod in stream(self._path, version, left, {}):
                version = str(pod["metadata"]["resourceVersion"])
                if pod["metadata"]["name"] != MARK:
                    self._note(what, pod)
                elif what == "ADDED":
                    return
        raise TimeoutError(f"nobody ended it in {LONGEST} s")

    def _note(self, what: str, pod: Object) -> None:
        if "app.kubernetes.io/component" in pod["metadata"].get("labels", {}):
            self.seen.note(what, pod)


def _mark(namespace: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": MARK, "namespace": namespace},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "none", "image": "none"}]},
    }
