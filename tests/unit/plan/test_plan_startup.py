from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from stack.serve import plan_serve
from stack.startup import render_probes
from tests.builders import accepted, container, plan, pod

if TYPE_CHECKING:
    from collections.abc import Generator


def workload(role: str = "prefill", **modelserver: Any) -> Any:
    return next(w for w in plan(modelserver=modelserver).modelserver.workloads if w.role == role)


# --- clocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("startup", "want_budget"),
    [
        pytest.param({}, 7200, id="the reference: 30 s x 240"),
        pytest.param({"failureThreshold": 10}, 300, id="fewer tries"),
        pytest.param({"periodSeconds": 10, "failureThreshold": 10, "initialDelaySeconds": 45}, 145, id="with a delay"),
    ],
)
def test_the_start_up_budget_and_the_progress_deadline_with_the_grace_period(
    startup: dict[str, int], want_budget: int
) -> None:
    # 20 s for routers, 60 s of drain, 30 s margin; prefill another 30 s for pulls
    for role, want_grace in (("prefill", 140), ("decode", 110)):
        found = workload(role, probes={"startup": startup})
        assert found.ready_seconds == want_budget
        assert found.leave_seconds == want_grace
        assert found.object.manifest["spec"]["progressDeadlineSeconds"] == want_budget + want_grace


def test_the_engine_waits_for_every_pod_one_after_another() -> None:
    assert workload(replicas={"prefill": 3}).timeout_seconds >= 3 * (7200 + 140)


# --- probes -----------------------------------------------------------------------------------------------------------


def test_a_single_server_is_asked_by_http_at_its_own_port() -> None:
    server = container(pod(plan(), "prefill"))
    assert server["startupProbe"] == {
        "httpGet": {"path": "/v1/models", "port": 8000},
        "periodSeconds": 30,
        "failureThreshold": 240,
        "timeoutSeconds": 10,
        "terminationGracePeriodSeconds": 30,
    }
    assert server["readinessProbe"]["httpGet"] == {"path": "/v1/models", "port": 8000}
    assert server["livenessProbe"]["httpGet"] == {"path": "/health", "port": 8000}


def test_on_decode_the_engine_is_asked_and_not_the_proxy() -> None:
    decode = {"serveArgs": {"decode": {"data-parallel-multi-port-external-lb": False}}}
    server = container(pod(plan(modelserver=decode), "decode"))
    assert {server[f"{probe}Probe"]["httpGet"]["port"] for probe in ("startup", "readiness", "liveness")} == {8200}


def test_every_rank_with_a_server_of_its_own_is_asked() -> None:
    command = container(pod(plan(), "decode"))["livenessProbe"]["exec"]["command"]
    assert command[-6:] == ["/health", "10", "8200", "8201", "8202", "8203"]


def test_probes_of_the_operators_are_laid_over_the_recipes() -> None:
    probe = container(pod(plan(modelserver={"probes": {"readiness": {"path": "/ready"}}}), "prefill"))["readinessProbe"]
    assert probe["httpGet"]["path"] == "/ready"
    assert probe["periodSeconds"] == 15


# --- the program that asks all ranks, against real servers -----------------------------------------------------------


@contextmanager
def server(status: int, *, together: threading.Barrier | None = None) -> Generator[int]:
    """A server on a free port that answers every GET with one status, if asked to only once all have been asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the base class's name
            if together is not None:
                together.wait(timeout=20)
            self.send_response(status if self.path == "/it's?a={b}" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield listening.server_address[1]
        finally:
            listening.shutdown()
            thread.join()


def probe(*ports: int, **environment: str) -> int:
    """Exit status of the planned readiness probe, as the kubelet would run it."""
    found = accepted(modelserver={"probes": {"readiness": {"path": "/it's?a={b}"}}})
    serve = plan_serve(found.config, found.recipe, "decode", is_disaggregated=True)
    probes = render_probes(found.config, found.recipe, replace(serve, server_ports=ports))
    python, *rest = probes["readinessProbe"]["exec"]["command"]
    assert python == "python3"
    return subprocess.run(
        [sys.executable, "-S", *rest], env={**os.environ, **environment}, capture_output=True, timeout=30, check=False
    ).returncode


@pytest.mark.parametrize(
    ("statuses", "want_state"),
    [
        pytest.param((200, 200, 200), "ready", id="all ranks answer"),
        pytest.param((200, 503, 200), "not ready", id="one rank is still loading"),
    ],
)
def test_a_pod_counts_as(statuses: tuple[int, ...], want_state: str) -> None:
    with ExitStack() as stack:
        ports = [stack.enter_context(server(status)) for status in statuses]
        assert ("ready" if probe(*ports) == 0 else "not ready") == want_state


def test_a_pod_is_not_ready_while_a_rank_does_not_listen() -> None:
    with server(200) as port:
        with server(200) as gone:
            pass
        assert probe(port, gone) != 0


def test_all_ranks_are_asked_at_once_and_past_any_proxy_of_the_environment() -> None:
    together = threading.Barrier(3)
    with ExitStack() as stack:
        ports = [stack.enter_context(server(200, together=together)) for _ in range(3)]
        assert probe(*ports, http_proxy="http://127.0.0.1:9", no_proxy="") == 0
