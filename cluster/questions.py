"""Asks an API server several things at a time, and keeps why something was not answered. Changes nothing.

Questions seldom depend on one another, and most of the time goes into waiting for an API server that may be far away.
What may not or can't be read becomes *unknown* with its reason; it is never taken for *none there*.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cluster.connect import NOT_FOUND, Cluster, ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from cluster.connect import Object

T = TypeVar("T")
AT_A_TIME = 4
MOST_NAMED = 3
"""So many names stand in one reason; of more, only their number."""


@contextmanager
def questions_to(context: str) -> Generator[Questions]:
    """Ask through one kubeconfig context.

    Raises:
        ClusterError: there is no such context.
    """
    with Cluster(context) as cluster, ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="questions") as pool:
        yield Questions(cluster, pool)


class Questions:
    """What is asked, and the reasons of what was not answered, in the order of the answers taken."""

    def __init__(self, cluster: Cluster, pool: ThreadPoolExecutor) -> None:
        self.cluster = cluster
        self._pool = pool
        self._unreachable: str | None = None
        self._refused: dict[str, list[str]] = {}

    def ask(self, what: str, read: Callable[[], T], *, is_always_there: bool = False) -> Callable[[], Sequence[T]]:
        """Begin to ask. The answer comes in a list, so that *none there* differs from an empty one: *not answered*.

        Args:
            what: what is asked for, to be named in the reason.
            read: asks for it.
            is_always_there: whether a server without it is no API server. One that lacks another collection has nothing
                in it either, which is no reason to complain.
        """
        asked = self._pool.submit(self._try, read)

        def answer() -> Sequence[T]:
            found = asked.result()
            if not isinstance(found, ClusterError):
                return found
            if found.status is not None and (is_always_there or found.status != NOT_FOUND):
                self._refused.setdefault(str(found), []).append(what)
            return ()

        return answer

    def _try(self, read: Callable[[], T]) -> Sequence[T] | ClusterError:
        if self._unreachable is not None:  # the next question would only wait again
            return ()
        try:
            return [read()]
        except ClusterError as error:
            if error.status is None:
                self._unreachable = str(error)
            return error

    def list(
        self, what: str, path: str, query: Mapping[str, str] | None = None, *, is_always_there: bool = False
    ) -> Callable[[], list[Object] | None]:
        """Begin to ask for a collection; the answer is None where it was not answered."""
        answer = self.ask(what, partial(self.cluster.list, path, **(query or {})), is_always_there=is_always_there)
        return lambda: next(iter(answer()), None)

    @property
    def unknown(self) -> tuple[str, ...]:
        """What was not answered, by reason."""
        told = [f"{_join(what)}: {why}" for why, what in self._refused.items()]
        if self._unreachable is not None:
            told.append(f"cluster of context {self.cluster.context}: {self._unreachable}")
        return tuple(told)


def _join(what: Sequence[str]) -> str:
    """`Nodes, Pods, Secret a and 4 more`."""
    more = len(what) - MOST_NAMED
    return ", ".join(what) if more <= 1 else f"{', '.join(what[:MOST_NAMED])} and {more} more"
