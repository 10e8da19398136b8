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

LONGEST = 900
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
    """Watch from before the block to its end: everything up to then has been seen when it is left."""
    seen = Witness()
    begun, over = threading.Event(), threading.Event()
    path = f"/api/v1/namespaces/{bench.namespace}/pods"

    def note(what: str, pod: Object) -> None:
        if "app.kubernetes.io/component" in pod["metadata"].get("labels", {}):
            seen.note(what, pod)

    def watch() -> None:
        api, deadline = bench.plane.api, time.monotonic() + LONGEST
        listed = api.request("GET", path)
        for pod in listed["items"]:
            note("ADDED", pod)
        seen.there = len(seen.events)
        begun.set()
        version = str(listed["metadata"]["resourceVersion"])
        while (left := deadline - time.monotonic()) > 0:
            # Not `watch`, which does not say where what is there ends.
            stream = api._stream  # pyright: ignore[reportPrivateUsage]
            for what, pod in stream(path, version, left, {}):
                version = str(pod["metadata"]["resourceVersion"])
                if pod["metadata"]["name"] != MARK:
                    note(what, pod)
                elif what == "ADDED":
                    over.set()
                    return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    begun.wait()
    try:
        yield seen
    finally:
        # A watch is in order, so what comes before this Pod has been seen when it is.
        bench.plane.api.create(_mark(bench.namespace))
        over.wait(timeout=30)
        bench.plane.api.delete(f"{path}/{MARK}", grace_seconds=0)
        thread.join(timeout=30)


def _mark(namespace: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": MARK, "namespace": namespace},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "none", "image": "none"}]},
    }
