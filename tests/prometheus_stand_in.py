"""A stand-in for Prometheus: an HTTP server that gives the answers it was told to queries that contain a text.

It computes nothing. What a real one makes of the same queries is tested end to end.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs

from tests.stand_in import listening

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request: where to, its form, and what it carried."""

    path: str
    form: dict[str, str]
    headers: dict[str, str]


class PrometheusStandIn:
    """What it answers, and what it was asked.

    Attributes:
        url: where it listens.
        asked: every request, in order.
        raw: status, headers and body for every request instead, as a server that is no Prometheus would answer.
        hangs: set to answer nothing until the end.
    """

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[Asked] = []
        self.raw: tuple[int, dict[str, str], bytes] | None = None
        self.hangs = False
        self.ended = threading.Event()
        self._answers: list[tuple[str, dict[str, Any]]] = []

    def vector(self, text: str, *found: tuple[Mapping[str, str], Any], **more: Any) -> None:
        """Answer queries that contain a text with a value for each of these labels."""
        result = [{"metric": dict(labels), "value": [1_700_000_000, str(value)]} for labels, value in found]
        self._tell(text, {"resultType": "vector", "result": result}, more)

    def matrix(self, text: str, *found: tuple[Mapping[str, str], Mapping[float, Any]], **more: Any) -> None:
        """Answer range queries that contain a text: values by time, those between start and end."""
        result = [{"metric": dict(labels), "values": dict(values)} for labels, values in found]
        self._tell(text, {"resultType": "matrix", "result": result}, more)

    def data(self, text: str, data: Any, **more: Any) -> None:
        """Answer queries that contain a text with whatever."""
        self._tell(text, data, more)

    def _tell(self, text: str, data: Any, more: dict[str, Any]) -> None:
        self._answers.insert(0, (text, {"status": "success", "data": data} | more))

    def answer(self, form: Mapping[str, str]) -> dict[str, Any]:
        """The answer to a request: the last that was told, nothing where none was."""
        for text, answer in self._answers:
            if text in form["query"]:
                return _between(answer, form) if "start" in form else answer
        kind = "matrix" if "start" in form else "vector"
        return {"status": "success", "data": {"resultType": kind, "result": []}}


def _between(answer: dict[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
    data = answer["data"]
    if data.get("resultType") != "matrix" or not all(isinstance(each["values"], dict) for each in data["result"]):
        return answer
    start, end = float(form["start"]), float(form["end"])
    result = [
        each | {"values": [[t, str(value)] for t, value in sorted(each["values"].items()) if start <= t <= end]}
        for each in data["result"]
    ]
    return answer | {"data": {"resultType": "matrix", "result": [each for each in result if each["values"]]}}


class _Handler(BaseHTTPRequestHandler):
    stand_in: ClassVar[PrometheusStandIn]

    def do_POST(self) -> None:  # the base class's name
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {key: values[0] for key, values in parse_qs(body).items()}
        self.stand_in.asked.append(Asked(path=self.path, form=form, headers=dict(self.headers.items())))
        if self.stand_in.hangs:
            self.stand_in.ended.wait(30)
            return
        status, headers, data = self.stand_in.raw or (200, {}, json.dumps(self.stand_in.answer(form)).encode())
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST  # noqa: N815  # a redirect that is followed would come as one

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        """Say nothing."""


@contextmanager
def serve() -> Generator[PrometheusStandIn]:
    """A stand-in that listens until the end."""
    stand_in = PrometheusStandIn()
    with listening(_Handler, stand_in) as stand_in.url:
        try:
            yield stand_in
        finally:
            stand_in.ended.set()
