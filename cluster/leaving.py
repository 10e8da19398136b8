"""Has one Pod evicted, and watches it leave. The only thing here that changes a cluster, and only when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from urllib3.exceptions import HTTPError

from cluster.connect import FIRST_ERROR, NOT_FOUND, TIMEOUT_SECONDS, Cluster, ClusterError, innermost, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.connect import Object

SINCE_SECONDS = 5
MODEL_SERVER = "modelserver"
"""Container whose log a drain writes to."""


class EvictingCluster(Cluster):
    """A cluster in which one Pod may be evicted."""

    def evict(self, namespace: str, name: str) -> None:
        """Ask for a Pod to be evicted: deleted, if the disruption budget allows it.

        Raises:
            ClusterError: it was not; with status 429 the budget does not allow it now.
        """
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        answer = self._ask("POST", path, {}, body=eviction)
        if answer.status >= FIRST_ERROR:
            raise refused(answer)

    def follow(self, namespace: str, name: str, *, longest: float) -> Iterator[str]:
        """Lines of a model server's log until it ends, from a few seconds ago on: a hook writes at once.

        Raises:
            ClusterError: the log can't be read, or broke off.
        """
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/log"
        query = {"container": MODEL_SERVER, "follow": "true", "sinceSeconds": str(SINCE_SECONDS)}
        answer = self._send("GET", path, query, timeout=(TIMEOUT_SECONDS[0], longest))
        if answer.status >= FIRST_ERROR:
            raise ClusterError(f"{answer.status} {answer.reason}", answer.status)
        rest = b""
        try:
            for piece in answer.response.stream(2**12):
                *lines, rest = (rest + piece).split(b"\n")
                yield from (line.decode(errors="replace") for line in lines)
        except (HTTPError, OSError) as error:
            raise ClusterError(innermost(error)) from None
        if rest:
            yield rest.decode(errors="replace")

    def until_gone(self, pod: Object, *, clock: Callable[[], float], rest: Callable[[], None], until: float) -> bool:
        """Wait until a Pod is gone; whether it is.

        Args:
            pod: which one; one of the same name that came after it is another.
            clock: seconds.
            rest: called between two looks.
            until: when to give up, by the clock.
        """
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        while True:
            try:
                found = self.find_metadata(path)
            except ClusterError as error:
                if error.status == NOT_FOUND:  # the namespace went along
                    return True
                found = meta  # a passing trouble; asked again
            if found is None or found["uid"] != meta["uid"]:
                return True
            if clock() >= until:
                return False
            rest()
