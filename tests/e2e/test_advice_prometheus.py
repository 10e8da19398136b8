"""Advice from a real Prometheus: a week of series whose truth is known, written as blocks of its own by promtool."""

from __future__ import annotations

import json
import math
import socket
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from cli.main import app
from cli.prometheus import Prometheus
from local.toolchain import ensure
from stack.durations import Durations, choose
from stack.errors import UnusableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("prometheus")]

EDGES = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
"""Of vLLM's latency histograms."""
WEEK, LOOK, GAUGE = 7 * 86_400, 300, 120
REQUESTS = 20_000
PODS = ("rel-decode-6c9d-aaaaa", "rel-decode-6c9d-bbbbb")
START_WITHIN = 120.0


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What really happened.

    Attributes:
        url: where Prometheus listens.
        durations: of every request, in seconds.
        samples: time, pod, running, waiting.
    """

    url: str
    durations: np.ndarray[Any, np.dtype[np.float64]]
    samples: list[tuple[int, str, int, int]]


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Truth]:
    tools = ensure(("promtool", "prometheus"))
    folder = tmp_path_factory.mktemp("prometheus")
    end = math.floor(time.time() / LOOK) * LOOK
    random = np.random.default_rng(5)
    durations = random.lognormal(3, 1, REQUESTS)
    samples = list(_gauges(end, random))
    (folder / "series.txt").write_text("\n".join([*_histogram(end, durations, random), *_lines(samples), "# EOF\n"]))
    subprocess.run(
        [
            tools.path("promtool"),
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            "--max-block-duration=48h",
            folder / "series.txt",
            folder / "data",
        ],
        check=True,
        capture_output=True,
    )
    (folder / "prometheus.yml").write_text("{}\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [
                tools.path("prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--storage.tsdb.retention.time=30d",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        ) as server,
    ):
        try:
            _await(f"http://127.0.0.1:{port}", server, folder / "log")
            yield Truth(url=f"http://127.0.0.1:{port}", durations=durations, samples=samples)
        finally:
            server.terminate()


def _await(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_WITHIN
    while True:
        try:
            Prometheus(url, timeout=5).instant("vector(1)")
        except UnusableError:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        else:
            return


def _histogram(end: int, durations: np.ndarray[Any, Any], random: np.random.Generator) -> Iterator[str]:
    """Counters of two Pods, each from nothing, as they are scraped every five minutes."""
    ended = np.sort(random.uniform(end - WEEK + LOOK, end, durations.size))
    of_pod = random.integers(0, len(PODS), durations.size)
    for at in range(end - WEEK, end + 1, LOOK):
        for number, pod in enumerate(PODS):
            so_far = durations[(ended <= at) & (of_pod == number)]
            labels = f'namespace="ns",pod="{pod}",engine="0"'
            for edge in (*EDGES, math.inf):
                le = "+Inf" if math.isinf(edge) else f"{float(edge)}"
                name = f'vllm:e2e_request_latency_seconds_bucket{{{labels},le="{le}"}}'
                yield f"{name} {int((so_far <= edge).sum())} {at}"
            yield f"vllm:e2e_request_latency_seconds_sum{{{labels}}} {so_far.sum()} {at}"
            yield f"vllm:e2e_request_latency_seconds_count{{{labels}}} {so_far.size} {at}"


def _gauges(end: int, random: np.random.Generator) -> Iterator[tuple[int, str, int, int]]:
    """Two Pods with four slots each: little by day, too much for an hour each evening."""
    for at in range(end - WEEK, end + 1, GAUGE):
        asked = int(random.integers(0, 3)) if (at - end) % 86_400 > 3600 else 9
        runs = min(asked, 8)
        yield at, PODS[0], math.ceil(runs / 2), asked - runs
        yield at, PODS[1], runs // 2, 0


def _lines(samples: list[tuple[int, str, int, int]]) -> Iterator[str]:
    for metric, column in (("running", 2), ("waiting", 3)):
        for row in samples:
            yield f'vllm:num_requests_{metric}{{namespace="ns",pod="{row[1]}",engine="0"}} {row[column]} {row[0]}'


def run(*arguments: str, given: str | None = None) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*arguments, "--format", "json"], input=given)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_n_from_buckets_holds_what_the_durations_themselves_say(truth: Truth) -> None:
    found = run("drain-budget", "--prometheus", truth.url, "--namespace", "ns", "--release", "rel")["roles"]
    assert list(found) == ["decode"]
    decode, exact = found["decode"], choose(Durations(truth.durations))
    assert exact.wanted is not None
    assert decode["requests"] == pytest.approx(REQUESTS, rel=0.02)
    assert decode["wantedAtBest"] <= exact.wanted <= decode["wanted"]
    for share in ("p50", "p99"):
        held = np.quantile(truth.durations, float(share[1:]) / 100)
        assert decode[share]["low"] <= held <= decode[share]["high"]
    assert not any("there is data of" in note for note in decode["notes"])


def test_a_longer_window_than_there_is_data_for_is_told(truth: Truth) -> None:
    arguments = ("--prometheus", truth.url, "--namespace", "ns", "--release", "rel", "--window", "4w")
    [note] = [each for each in run("drain-budget", *arguments)["roles"]["decode"]["notes"] if "data of" in each]
    assert note.startswith("there is data of 25 % of the last 28 days only")


def test_floor_and_occupancy_are_the_same_as_from_a_file_with_the_same_samples(truth: Truth) -> None:
    common = ("--slots", "4", "--start-seconds", "900", "--step", str(GAUGE))
    asked = run("scale-advice", "--prometheus", truth.url, "--namespace", "ns", "--release", "rel", *common)
    lines = ["time,pod,running,waiting", *(",".join(map(str, row)) for row in truth.samples)]
    from_file = run("scale-advice", "-", *common, given="\n".join(lines))
    assert asked["stackFile"] == from_file["stackFile"]
    assert asked["demand"]["mean"] == pytest.approx(from_file["demand"]["mean"], rel=0.01)
    assert asked["window"]["days"] == pytest.approx(7, abs=0.02)
    assert asked["floor"]["byPeak"] == 3  # nine at once on four slots


def test_what_prometheus_itself_says_is_in_the_letter(truth: Truth) -> None:
    with pytest.raises(UnusableError, match="parse error"):
        Prometheus(truth.url).instant("sum(")
    with pytest.raises(UnusableError, match="has nothing at /api/v1 there"):
        Prometheus(f"{truth.url}/elsewhere").instant("up")
