"""What was made and what went while something happened, with kinds of every sort on one time line.

A control plane has one etcd, whose revisions count every change of every object: that of a creation and that of a
deletion can be compared across kinds, which times of day with their whole seconds cannot.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from local.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

    from local.api import Object
    from tests.e2e.bench import Bench

SLICE_SECONDS = 1
SEEN_SECONDS = 60


@dataclass(kw_only=True)
class Life:
    """One object.

    Attributes:
        since: revision of its creation; 0 if it was there before.
        until: revision of its deletion; infinite while it is there.
        part: of the stack: `prefill`, `decode`, `aggregated`, `epp`, `topology` and so on.
    """

    name: str
    part: str
    since: float = 0
    until: float = inf


@dataclass(kw_only=True)
class Record:
    """Lives of the objects of a namespace, by UID, for each collection."""

    lives: dict[str, dict[str, Life]] = field(default_factory=dict[str, dict[str, Life]])

    def begun(self, collection: str, *parts: str) -> list[Life]:
        """Objects made meanwhile, oldest first; of some parts, if any are named."""
        return sorted((life for life in self._of(collection, parts) if life.since), key=lambda life: life.since)

    def ended(self, collection: str, *parts: str) -> list[Life]:
        """Objects gone meanwhile, in the order in which they went."""
        return sorted((life for life in self._of(collection, parts) if life.until < inf), key=lambda life: life.until)

    def alive(self, collection: str) -> set[str]:
        """UIDs of what is there."""
        return {uid for uid, life in self.lives[collection].items() if life.until == inf}

    def _of(self, collection: str, parts: tuple[str, ...]) -> list[Life]:
        return [life for life in self.lives[collection].values() if not parts or life.part in parts]


@contextmanager
def record(bench: Bench, *collections: str) -> Generator[Record]:
    """Watch collections of the bench's namespace (`v1/pods`) from before the block to its end.

    What was made and has gone again in the last moment may be missing.
    """
    seen, over = Record(), threading.Event()
    watches = [_Watch(bench, collection, seen, over) for collection in collections]
    for watch in watches:
        watch.start()
    try:
        yield seen
        for collection in collections:
            _catch_up(bench, collection, seen)
    finally:
        over.set()
        for watch in watches:
            watch.join()


def _catch_up(bench: Bench, collection: str, seen: Record) -> None:
    def is_seen() -> bool:
        return seen.alive(collection) == {item["metadata"]["uid"] for item in bench.list(collection)}

    wait_until(is_seen, timeout=SEEN_SECONDS, what=f"the watch of {collection} to have seen what is there")


class _Watch(threading.Thread):
    """One collection: listed at once, then watched in slices, so that it can end."""

    def __init__(self, bench: Bench, collection: str, seen: Record, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._api, self._over = bench.plane.api, over
        self._path = bench.path(collection)
        listed = self._api.request("GET", self._path)
        self._version = str(listed["metadata"]["resourceVersion"])
        self._lives = seen.lives[collection] = {
            item["metadata"]["uid"]: _life(item, since=0) for item in listed["items"]
        }

    def run(self) -> None:
        while not self._over.is_set():
            # Not `watch`, which lists anew each time and would miss what goes between two slices.
            stream = self._api._stream  # pyright: ignore[reportPrivateUsage]
            for what, item in stream(self._path, self._version, SLICE_SECONDS, {}):
                self._note(what, item)

    def _note(self, what: str, item: Object) -> None:
        self._version = str(item["metadata"]["resourceVersion"])
        uid, revision = item["metadata"]["uid"], int(self._version)
        if what == "ADDED":
            self._lives[uid] = _life(item, since=revision)
        elif what == "DELETED":
            self._lives[uid].until = revision


def _life(item: Object, *, since: int) -> Life:
    labels: dict[str, str] = item["metadata"].get("labels", {})
    return Life(name=item["metadata"]["name"], part=labels.get("app.kubernetes.io/component", ""), since=since)
