"""`scale-advice`, from the command line to what it prints."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.testing import CliRunner

from cli.main import app
from cli.stackfile import read_stack_file
from stack.rules import accept
from tests.builders import ROOT
from tests.prometheus_stand_in import PrometheusStandIn, serve

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from typer.testing import Result

PROD = str(ROOT / "Pulumi.prod.yaml")
NAMES = ("--namespace", "llm", "--release", "coding")
SLOTS = ("--slots", "4")
DAY = 86_400
BEGIN = 1_764_460_800


def run(*arguments: str, given: str | None = None) -> Result:
    return CliRunner().invoke(app, ["scale-advice", *arguments], input=given)


def told(*arguments: str, given: str | None = None) -> dict[str, Any]:
    result = run("-", "--format", "json", *arguments, given=given)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def week(*, busy: int = 7, quiet: int = 1, days: int = 7, step: int = 600) -> str:
    """Two Pods of four slots: quiet for half of each day, busy for the other half, in ten-minute looks."""
    lines = ["time,pod,running,waiting"]
    for at in range(0, days * DAY, step):
        asked = busy if at % DAY >= DAY / 2 else quiet
        runs = min(asked, 8)
        lines.append(f"{BEGIN + at},a,{math.ceil(runs / 2)},{asked - runs}")
        lines.append(f"{BEGIN + at},b,{runs // 2},0")
    return "\n".join(lines) + "\n"


@pytest.fixture
def server() -> Generator[PrometheusStandIn]:
    with serve() as stand_in:
        yield stand_in


def test_it_says_floor_ceiling_and_occupancy_and_what_speaks_for_them() -> None:
    result = run("-", *SLOTS, "--start-seconds", "600", given=week())
    assert result.exit_code == 0, result.output
    # Seven at once at 0.6 of four slots are three Pods; one is enough for the rest, and the scaler has the others soon.
    assert "decode: 1 to 3 Pods, occupancy 0.6" in result.stdout
    assert "from 1,008 times 600 s apart in 7.0 days" in result.stdout
    assert "asked for: 4 requests at once on average, 7 at most" in result.stdout
    assert "no real backlog was seen, so the usual one stays" in result.stdout
    assert "the longest queue alone would ask for 2" in result.stdout
    assert "less than a week" not in result.stdout


def test_slow_starts_raise_the_floor() -> None:
    quick = told(*SLOTS, "--start-seconds", "600", given=week())
    slow = told(*SLOTS, "--start-seconds", "10800", given=week())
    assert (quick["floor"]["chosen"]["floor"], slow["floor"]["chosen"]["floor"]) == (1, 2)
    # Three hours of twelve, each evening: 3 of 7 wait, in all 9 hours of 96.
    assert slow["floor"]["below"]["wait"] == pytest.approx(9 / 96, rel=0.1)
    assert slow["floor"]["chosen"]["wait"] == 0


def test_what_it_prints_for_the_stack_file_is_taken_there() -> None:
    result = run("-", "--stack", PROD, "--start-seconds", "600", given=week())
    block = yaml.safe_load(result.stdout.partition("Into the stack file:\n")[2])["serving-stack:autoscaling"]
    assert block == {"decode": {"minReplicas": 1, "maxReplicas": 3, "occupancy": 0.6}}
    blocks, context = read_stack_file((ROOT / "Pulumi.prod.yaml").read_text())
    scaled = {"decode": block["decode"] | {"provider": "hpa"}}
    assert accept(blocks | {"autoscaling": scaled}, context=context).config.autoscaling.decode.occupancy == 0.6


def test_the_step_is_that_of_the_file_or_what_is_said() -> None:
    assert told(*SLOTS, given=week())["window"]["step"] == 600
    assert told(*SLOTS, "--step", "1200", given=week())["window"]["times"] == 504


def test_slots_and_start_come_from_the_stack_file() -> None:
    found = told("--stack", PROD, given=week())
    assert (found["slotsPerPod"], found["startSeconds"]) == (4, 7200)
    assert "its start-up budget: give what a start really takes" in run("-", "--stack", PROD, given=week()).stdout


def test_a_backlog_that_begins_early_lowers_the_occupancy() -> None:
    lines = ["time,pod,running,waiting"]
    lines += [f"{BEGIN + at * 60},a,{4 if at % 2 else 1},{8 if at % 2 else 0}" for at in range(200)]
    found = told("--slots", "10", given="\n".join(lines))
    assert found["target"]["occupancy"] == 0.4
    assert found["stackFile"]["autoscaling"]["decode"]["occupancy"] == 0.4
    assert [depth["times"] for depth in found["depths"]] == [100, 0, 0, 0, 100, 0, 0]


def test_the_ceiling_leaves_room_for_one_more_than_the_floor() -> None:
    assert told(*SLOTS, given=week(busy=1))["stackFile"]["autoscaling"]["decode"]["maxReplicas"] == 2


def test_of_prefill_no_occupancy_is_advised() -> None:
    result = run("-", *SLOTS, "--role", "prefill", given=week())
    assert "scale by in-flight tokens, or by queue time" in result.stdout
    block = yaml.safe_load(result.stdout.partition("Into the stack file:\n")[2])["serving-stack:autoscaling"]
    assert set(block["prefill"]) == {"minReplicas", "maxReplicas"}


def test_a_scaler_that_looks_at_something_else_gets_no_occupancy(tmp_path: Path) -> None:
    scaled = "\n  serving-stack:autoscaling: {decode: {provider: hpa, maxReplicas: 4, signal: queueTime}}\n"
    (tmp_path / "Pulumi.x.yaml").write_text((ROOT / "Pulumi.prod.yaml").read_text() + scaled)
    found = told("--stack", str(tmp_path / "Pulumi.x.yaml"), given=week())
    assert set(found["stackFile"]["autoscaling"]["decode"]) == {"minReplicas", "maxReplicas"}


def test_a_ceiling_that_would_have_held_the_scaler_back_is_told(tmp_path: Path) -> None:
    scaled = "\n  serving-stack:autoscaling: {decode: {provider: hpa, minReplicas: 1, maxReplicas: 2}}\n"
    (tmp_path / "Pulumi.x.yaml").write_text((ROOT / "Pulumi.prod.yaml").read_text() + scaled)
    result = run("-", "--stack", str(tmp_path / "Pulumi.x.yaml"), "--start-seconds", "600", given=week())
    assert "autoscaling.decode.maxReplicas = 2 would have held it back: 3 Pods were wanted" in result.stdout


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (week(days=2), "2.0 days are less than a week"),
        (week() + f"{BEGIN + 9 * DAY},a,1,0\n", "there is data of 78 % of this time only"),
        (week() + f"{BEGIN},a,40,0\n{BEGIN},b,40,0\n", "Pods ran more requests at once than 4"),
    ],
)
def test_what_makes_the_advice_unsure_is_said(text: str, want: str) -> None:
    result = run("-", *SLOTS, given=text)
    assert result.exit_code == 0, result.output
    assert want in result.stdout


def test_times_may_be_written_as_iso_8601_and_lines_as_json() -> None:
    lines = [
        json.dumps({"time": f"2026-11-30T08:{minute:02}:00Z", "pod": "a", "running": 1, "waiting": 0})
        for minute in range(60)
    ]
    found = told(*SLOTS, given="\n".join(lines))
    assert found["window"]["days"] == pytest.approx(1 / 24)
    assert found["window"]["times"] == 60


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "there is nothing to learn from"),
        ("time,pod,running,waiting\n", "there is nothing to learn from"),
        ("time,pod,running\n1,a,2\n", "has no column waiting in its first line"),
        ("1,a,2,3\n", "has no column time and none pod and none running and none waiting"),
        ("time,pod,running,waiting\n1,a,x,3\n", "line 2, running = x: is no number of requests"),
        ("time,pod,running,waiting\n1,a,-1,3\n", "is no number of requests"),
        ("time,pod,running,waiting\n1,a,nan,3\n", "is no number of requests"),
        ("time,pod,running,waiting\n1,a,2\n", "line 2, waiting is missing"),
        ("time,pod,running,waiting\nnoon,a,2,3\n", "line 2, time = noon: is no time"),
        ('{"time": 1, "pod": "a", "running": 1, "waiting": 0}\n{"time": 1\n', "line 2"),
        ('{"time": 1, "pod": "a", "running": true, "waiting": 0}\n', "is no number of requests"),
        ("time,pod\x00", "zero bytes"),
        ('{"time":' + "[" * 200_000, "line 1"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_line(text: str, want: str) -> None:
    result = run("-", *SLOTS, given=text)
    assert result.exit_code == 1, result.output
    assert want in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        (*SLOTS,),
        ("-",),
        ("-", *SLOTS, "--prometheus", "http://host"),
        ("nothing.csv", *SLOTS),
        ("-", "--slots", "0"),
        ("-", *SLOTS, "--step", "1"),
        ("-", *SLOTS, "--plot", "plot.txt"),
        ("--prometheus", "http://host", *SLOTS),
    ],
)
def test_wrong_usage_is_told_from_wrong_input(arguments: tuple[str, ...]) -> None:
    result = run(*arguments, given=week(days=1))
    assert result.exit_code == 2, result.output


def test_both_plots_are_written_as_one_image(tmp_path: Path) -> None:
    result = run("-", *SLOTS, "--plot", str(tmp_path / "scale.svg"), given=week(days=1))
    assert result.exit_code == 0, result.output
    drawn = (tmp_path / "scale.svg").read_text()
    assert "decode: requests in a queue" in drawn
    assert "decode: where a backlog begins" in drawn


# --- Prometheus -------------------------------------------------------------------------------------------------------


def gauges(server: PrometheusStandIn, *, hours: int) -> None:
    """Tell two Pods' gauges, minute by minute up to now, one of which came an hour later."""
    end = math.floor(time.time() / 60) * 60
    times = range(end - hours * 3600, end + 1, 60)
    late = [at for at in times if at >= times[0] + 3600]
    for metric, value in (("running", 2), ("waiting", 0)):
        pods = (
            ({"pod": "a"}, dict.fromkeys(map(float, times), value)),
            ({"pod": "b"}, dict.fromkeys(map(float, late), value)),
        )
        server.matrix(f'sum by (pod) (vllm:num_requests_{metric}{{namespace="llm",pod=~"coding-decode-.+"}}', *pods)


def test_from_prometheus_it_takes_both_gauges_of_each_pod(server: PrometheusStandIn) -> None:
    gauges(server, hours=4)
    result = run("--prometheus", server.url, *NAMES, *SLOTS, "--window", "4h", "--format", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["window"]["times"] in {240, 241}
    assert found["demand"]["most"] == 4
    assert 1.7 < found["demand"]["pods"] < 1.8
    assert found["queueTime"] is None


def test_a_time_at_which_only_one_of_both_is_known_is_left_out(server: PrometheusStandIn) -> None:
    end = math.floor(time.time() / 60) * 60 - 600.0
    server.matrix("num_requests_running", ({"pod": "a"}, {end - 60: 1, end: 3}), ({"pod": "b"}, {end: 4}))
    server.matrix("num_requests_waiting", ({"pod": "a"}, {end - 60: 0, end: "NaN"}))
    result = run("--prometheus", server.url, *NAMES, *SLOTS, "--window", "1h", "--format", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["window"]["times"], found["demand"]["most"]) == (1, 1)


def test_how_long_requests_really_waited_is_shown(server: PrometheusStandIn) -> None:
    gauges(server, hours=4)
    counts = [("0.3", 900), ("1", 960), ("5", 990), ("10", 1000), ("+Inf", 1000)]
    server.vector("queue_time_seconds_bucket", *(({"le": edge}, count) for edge, count in counts))
    server.vector("queue_time_seconds_sum", ({}, 250))
    result = run("--prometheus", server.url, *NAMES, *SLOTS, "--window", "4h")
    assert "waited: half of the requests 0 to 0.3 s, 99 % 1 to 5 s; 1.00 % longer than 5 s" in result.stdout


def test_a_bucket_of_the_queue_without_an_edge_is_a_letter(server: PrometheusStandIn) -> None:
    gauges(server, hours=4)
    server.vector("queue_time_seconds_bucket", ({"le": "five"}, 10), ({"le": "+Inf"}, 10))
    server.vector("queue_time_seconds_sum", ({}, 250))
    result = run("--prometheus", server.url, *NAMES, *SLOTS, "--window", "4h")
    assert result.exit_code == 1
    assert "has a bucket without a number as its edge" in result.stderr


def test_that_nobody_waited_is_shown_too(server: PrometheusStandIn) -> None:
    gauges(server, hours=4)
    server.vector("queue_time_seconds_bucket", ({"le": "5"}, 10), ({"le": "+Inf"}, 10))
    server.vector("queue_time_seconds_sum", ({}, 0))
    assert (
        "waited: half of the requests 0 s" in run("--prometheus", server.url, *NAMES, *SLOTS, "--window", "4h").stdout
    )


def test_a_prometheus_that_keeps_less_than_was_asked_for_is_told(server: PrometheusStandIn) -> None:
    gauges(server, hours=48)
    result = run("--prometheus", server.url, *NAMES, *SLOTS)
    assert "there is data of 2.0 of 7.0 days only" in result.stdout
    assert "less than a week" in result.stdout


def test_no_series_of_the_role_is_a_letter(server: PrometheusStandIn) -> None:
    result = run("--prometheus", server.url, *NAMES, *SLOTS)
    assert result.exit_code == 1
    assert "has no vllm:num_requests_running and no vllm:num_requests_waiting of decode Pods" in result.stderr
