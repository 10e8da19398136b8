"""Asking an API server that is not there, refuses, or answers in pages; a plain HTTP server stands in for it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from cluster.connect import Cluster, ClusterError
from cluster.facts import read_facts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class StandInApiServer(BaseHTTPRequestHandler):
    """Three ConfigMaps in pages of one, a forbidden path, a path that is not there."""

    def do_GET(self) -> None:  # the base class's name
        split = urlsplit(self.path)
        match split.path:
            case "/api/v1/configmaps":
                at = int(parse_qs(split.query).get("continue", ["0"])[0])
                meta = {"continue": str(at + 1)} if at < 2 else {}
                self.answer(200, {"metadata": meta, "items": [{"metadata": {"name": f"cm-{at}"}}]})
            case "/forbidden":
                self.answer(403, {"kind": "Status"})
            case _:
                self.answer(404, {"kind": "Status"})

    def answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), StandInApiServer)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def kubeconfig(folder: Path, server: str) -> Path:
    path = folder / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "there", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_list_is_read_to_its_last_page(server: str, tmp_path: Path) -> None:
    with Cluster("there", kubeconfig=kubeconfig(tmp_path, server)) as cluster:
        assert [item["metadata"]["name"] for item in cluster.list("/api/v1/configmaps")] == ["cm-0", "cm-1", "cm-2"]


def test_what_is_not_there_is_told_from_what_may_not_be_read(server: str, tmp_path: Path) -> None:
    with Cluster("there", kubeconfig=kubeconfig(tmp_path, server)) as cluster:
        assert cluster.find("/absent") is None
        with pytest.raises(ClusterError, match="403") as refused:
            cluster.find("/forbidden")
        assert refused.value.status == 403


def test_an_unknown_context_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="elsewhere"):
        Cluster("elsewhere", kubeconfig=kubeconfig(tmp_path, "http://127.0.0.1:1"))


@pytest.mark.parametrize(("context", "why"), [("there", "refused"), ("elsewhere", "Invalid kube-config")])
def test_a_cluster_that_cannot_be_asked_makes_every_fact_unknown(
    context: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "http://127.0.0.1:1")))
    facts = read_facts(context, namespace="ns", release="rel")
    assert (facts.claims, facts.anchor, facts.anchor_is_known, facts.workloads) == (None, None, False, None)
    [reason] = facts.unknown
    assert context in reason
    assert why in reason
