"""A plain HTTP server in place of an API server: it gives the answers it was told, one after the other."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import yaml

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

Answer = tuple[int, Any]
"""Status and body: JSON-shaped, or text to be sent as it is."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One request that brought something along; `body` as JSON."""

    method: str
    path: str
    content_type: str
    body: Any


class StandIn:
    """What it answers, and what it was asked.

    Attributes:
        url: where it listens.
        asked: path and query of every request, in order.
        sent: those of them that had a body.
        accepted: path of every request, with what it accepts.
    """

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.sent: list[Sent] = []
        self.accepted: list[tuple[str, str]] = []
        self._answers: dict[str, list[Answer]] = {}
        self._headers: dict[str, list[tuple[str, str]]] = {}

    def tell(self, path: str, *answers: Answer) -> None:
        """Give these answers to a path, one a request; the last one is given from then on. Others get 404."""
        self._answers[path] = list(answers)

    def tell_list(self, path: str, *items: Any) -> None:
        """Answer with a list of one page."""
        self.tell(path, (200, {"metadata": {}, "items": list(items)}))

    def tell_headers(self, path: str, *headers: tuple[str, str]) -> None:
        """Send these along with every answer to a path; one name may be there several times."""
        self._headers[path] = list(headers)

    def headers_of(self, path: str) -> list[tuple[str, str]]:
        """What goes along with an answer to a path."""
        return self._headers.get(path, [])

    def times_asked(self, path: str) -> int:
        """How often a path was asked for."""
        return sum(asked == path for asked, _ in self.asked)

    def query_of(self, path: str) -> dict[str, str]:
        """The query of the last request for a path."""
        return next(query for asked, query in reversed(self.asked) if asked == path)

    def answer(self, path: str, query: dict[str, str]) -> Answer:
        """The next answer to a path."""
        self.asked.append((path, query))
        answers = self._answers.get(path, [(404, {"kind": "Status"})])
        return answers.pop(0) if len(answers) > 1 else answers[0]


class _Handler(BaseHTTPRequestHandler):
    stand_in: ClassVar[StandIn]

    def do_PATCH(self) -> None:  # the base class's name
        self._take("PATCH")

    def do_POST(self) -> None:  # the base class's name
        self._take("POST")

    def _take(self, method: str) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.stand_in.sent.append(
            Sent(
                method=method,
                path=urlsplit(self.path).path,
                content_type=self.headers["Content-Type"],
                body=json.loads(body),
            )
        )
        self._answer()

    def do_GET(self) -> None:  # the base class's name
        self._answer()

    def _answer(self) -> None:
        split = urlsplit(self.path)
        self.stand_in.accepted.append((split.path, self.headers["Accept"]))
        query = {key: values[0] for key, values in parse_qs(split.query).items()}
        status, body = self.stand_in.answer(split.path, query)
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if status == 429:
            self.send_header("Retry-After", "0")  # an API server sends one
        for name, value in self.stand_in.headers_of(split.path):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        """Say nothing."""


@contextmanager
def serve() -> Generator[StandIn]:
    """A stand-in that listens until the end."""
    stand_in = StandIn()
    with listening(_Handler, stand_in) as stand_in.url:
        yield stand_in


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler], stand_in: object) -> Generator[str]:
    """Have requests answered by a handler, which finds the stand-in as an attribute, until the end; the address."""
    bound = type("Handler", (handler,), {"stand_in": stand_in})
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), bound)
    thread = threading.Thread(target=lambda: httpd.serve_forever(poll_interval=0.01))
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}"
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


def kubeconfig(folder: Path, server: str, *, context: str = "test") -> Path:
    """A file with one context that leads to the server."""
    path = folder / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": context, "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path
