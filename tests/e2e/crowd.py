"""Very many objects on a plane at once, over a few connections that stay open meanwhile."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from http.client import HTTPSConnection

    from local.api import Api

Object = dict[str, Any]
Request = tuple[str, str, Object | None]
"""Method, path and body."""
AT_A_TIME = 4


class Sender:
    """Sends many requests; the plane's own client opens a connection for each."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._mine = threading.local()
        self._open: list[HTTPSConnection] = []

    def send(self, requests: Sequence[Request]) -> None:
        """Send them all, in no order.

        Raises:
            AssertionError: one was refused; what is to be deleted may be gone.
        """
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            list(pool.map(self._send, requests))
        while self._open:
            self._open.pop().close()

    def create(self, manifests: Sequence[Object]) -> list[str]:
        """Make objects; their paths."""
        paths = [self.api.path_of(manifest) for manifest in manifests]
        bodies = zip(paths, manifests, strict=True)
        self.send([("POST", path.rpartition("/")[0], manifest) for path, manifest in bodies])
        return paths

    def _send(self, request: Request) -> None:
        method, path, body = request
        if not hasattr(self._mine, "connection"):
            self._mine.connection = self.api._connect(60)  # pyright: ignore[reportPrivateUsage]  # see above
            self._open.append(self._mine.connection)
        headers = {"Authorization": f"Bearer {self.api.token}", "Content-Type": "application/json"}
        self._mine.connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = self._mine.connection.getresponse()
        said = response.read().decode()
        assert response.status < 300 or (method == "DELETE" and response.status == 404), said
