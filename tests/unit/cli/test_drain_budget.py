"""`drain-budget`, from the command line to what it prints."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
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
    from collections.abc import Generator, Iterable
    from pathlib import Path

    from typer.testing import Result

PROD = str(ROOT / "Pulumi.prod.yaml")
NAMES = ("--namespace", "llm", "--release", "coding")
LONG = "duration\n" + "10\n" * 99 + "700\n"
"""99 requests of 10 s and one of 700: 1690 s in all. N = 690 cuts 10 of them, N = 660 would cut 40, 2.4 %."""


def run(*arguments: str, given: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["drain-budget", *arguments], input=given)


def told(*arguments: str, given: str | bytes | None = None) -> dict[str, Any]:
    result = run("-", "--format", "json", *arguments, given=given)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def server() -> Generator[PrometheusStandIn]:
    with serve() as stand_in:
        yield stand_in


def histogram(server: PrometheusStandIn, role: str, durations: Iterable[float], *, edges: Iterable[float]) -> None:
    """Tell what Prometheus would say of these requests."""
    taken = list(durations)
    buckets = [({"le": str(edge)}, sum(d <= edge for d in taken)) for edge in edges]
    chosen = f"coding-{role}-"
    server.vector(
        f'count_over_time(count(vllm:e2e_request_latency_seconds_count{{namespace="llm",pod=~"{chosen}', ({}, 168)
    )
    server.vector(f'latency_seconds_sum{{namespace="llm",pod=~"{chosen}', ({}, math.fsum(taken)))
    server.vector(f'latency_seconds_bucket{{namespace="llm",pod=~"{chosen}', *buckets, ({"le": "+Inf"}, len(taken)))


# --- files ------------------------------------------------------------------------------------------------------------


def test_it_says_n_what_is_cut_and_what_to_write_into_the_stack_file(tmp_path: Path) -> None:
    (tmp_path / "requests.csv").write_text(LONG)
    result = run(str(tmp_path / "requests.csv"))
    assert result.exit_code == 0, result.output
    assert "decode: N = 690 s" in result.stdout
    assert "half within 10 s, 99 % within 10 s, all within 700 s" in result.stdout
    assert "cut at N: 0.59 % of the requests' time; at 660 s 2.37 %, at 720 s 0.00 %" in result.stdout
    assert "a busy Pod keeps its devices for up to 710 s" in result.stdout
    assert "upright line: N = 690 s" in result.stdout


def test_what_it_prints_for_the_stack_file_is_taken_there() -> None:
    printed = run("-", given=LONG).stdout.partition("Into the stack file:\n")[2]
    block = yaml.safe_load(printed)["serving-stack:drain"]
    assert block == {"shutdownTimeoutSeconds": {"decode": 690}, "longestRequestSeconds": {"decode": 700}}
    blocks, context = read_stack_file((ROOT / "Pulumi.prod.yaml").read_text())
    config = accept(blocks | {"drain": block}, context=context).config
    assert config.drain.shutdown_timeout_seconds.of("decode") == 690


def test_for_programs_it_is_all_numbers() -> None:
    found = told(given=LONG)
    role = found["roles"]["decode"]
    assert (role["seconds"], role["wanted"], role["clamp"], role["requests"]) == (690, 690, None, 100)
    assert role["cut"]["high"] == pytest.approx(10 / 1690)
    assert role["longest"] == {"low": 700, "high": 700}
    assert [each["seconds"] for each in role["neighbours"]] == [660, 720]
    assert role["leavesWithin"] == 710
    assert found["stackFile"]["drain"]["shutdownTimeoutSeconds"] == {"decode": 690}


def test_that_the_upper_limit_binds_is_said_with_what_would_be_needed() -> None:
    text = run(
        "-",
        given="duration\n" + "10\n" * 99 + "2000\n",
    ).stdout
    assert "N = 900 s" in text
    assert "the most allowed binds, at most 1 % would need 1980 s" in text


def test_that_the_lower_limit_binds_is_said_too() -> None:
    assert "the least allowed binds, 30 s would be enough" in run("-", given="duration\n1\n1\n").stdout


def test_limits_and_cut_are_the_operators() -> None:
    assert told("--cut", "2.5", given=LONG)["roles"]["decode"]["seconds"] == 660
    assert told("--most", "600", given=LONG)["roles"]["decode"]["seconds"] == 600
    assert told("--step", "100", given=LONG)["roles"]["decode"]["seconds"] == 700
    assert told("--least", "10", given="duration\n1\n")["roles"]["decode"]["seconds"] == 30


def test_with_the_stack_file_it_says_what_that_costs_and_what_is_so_now() -> None:
    result = run("-", "--stack", PROD, given=LONG)
    assert "(now 80 s)" in result.stdout
    # Four Pods, one after the other, each 20 s for the router and N.
    assert "waits up to 2840 s for its 4 Pods (now 320 s)" in result.stdout
    assert "gateway.requestTimeout (300 s) ends requests before N: raise it to 690 s or more" in result.stdout
    assert "requests took longer than gateway.requestTimeout allows now (300 s)" in result.stdout
    assert told("--stack", PROD, given=LONG)["roles"]["decode"]["rollOutWaits"] == 2840


def stack_with(tmp_path: Path, **blocks: object) -> str:
    """The stack file of the reference, with other blocks."""
    file = tmp_path / "Pulumi.x.yaml"
    text = yaml.safe_load((ROOT / "Pulumi.prod.yaml").read_text())
    text["config"] |= {f"serving-stack:{name}": block for name, block in blocks.items()}
    file.write_text(yaml.safe_dump(text))
    return str(file)


@pytest.mark.parametrize(
    ("blocks", "want"),
    [
        ({"gateway": {"requestTimeout": "695s"}}, "gateway.requestTimeout is written in the stack file (695 s)"),
        ({"router": {"epp": {"drainSeconds": 695}}}, "router.epp.drainSeconds is written in the stack file (695 s)"),
    ],
)
def test_a_written_limit_below_the_longest_request_is_told_since_the_file_would_be_refused(
    tmp_path: Path, blocks: dict[str, object], want: str
) -> None:
    result = run("-", "--stack", stack_with(tmp_path, **blocks), given=LONG)
    assert f"{want}, which is below the longest request (700 s): raise it to 700 s or more" in result.stdout
    block = yaml.safe_load(result.stdout.partition("Into the stack file:\n")[2])["serving-stack:drain"]
    assert run("-", "--stack", stack_with(tmp_path, **blocks, drain=block), given=LONG).exit_code == 1


def test_a_written_limit_below_n_is_told_once(tmp_path: Path) -> None:
    result = run("-", "--stack", stack_with(tmp_path, gateway={"requestTimeout": "400s"}), given=LONG)
    assert "(400 s), which is below N: raise it to 700 s or more" in result.stdout
    assert "ends requests before N" not in result.stdout


def test_a_longest_request_that_no_stack_file_takes_is_printed_as_a_day() -> None:
    result = run("-", "--unit", "s", given="duration\n" + "10\n" * 99 + "90000\n")
    assert "      decode: 86400\n" in result.stdout
    assert "the longest request took 90000 s; a stack file takes 86400 s (a day) at most" in result.stdout


@pytest.mark.parametrize(("role", "leaves"), [("decode", 710), ("prefill", 740)])
def test_where_nothing_drains_now_it_costs_thirty_seconds_now(tmp_path: Path, role: str, leaves: int) -> None:
    # What Kubernetes gives a Pod by itself; with N 20 s for the router besides, and 30 for pulls from prefill.
    result = run("-", "--role", role, "--stack", stack_with(tmp_path, drain={"mode": "off"}), given=LONG)
    assert f"a busy Pod keeps its devices for up to {leaves} s (now 30 s)" in result.stdout
    assert f"waits up to {4 * leaves} s for its 4 Pods (now 120 s)" in result.stdout


def test_durations_that_pile_up_at_a_limit_are_known_to_be_cut_there() -> None:
    result = run("-", "--stack", PROD, given="duration\n" + "10\n" * 50 + "299.9\n")
    assert "gateway.requestTimeout (300 s) ends them: longer ones were cut there" in result.stdout


def test_that_cut_requests_are_missing_is_always_said() -> None:
    assert "ended early or are missing: choose again after a week" in run("-", given=LONG).stdout


def test_a_prefill_pod_leaves_with_time_for_pulls_and_has_no_use_for_a_gateways_log() -> None:
    log = '[2026-11-30T08:15:00Z] "POST /v1/completions HTTP/2" 200 - 154 2048 12500 100 "-" "-" "-" "-" "-"\n'
    result = run("-", "--role", "prefill", "--stack", PROD, given=log)
    assert "keeps its devices for up to 110 s" in result.stdout  # 20 for the router, 60, and 30 for pulls
    assert "whole answers" in result.stdout
    assert "gateway.requestTimeout" not in result.stdout


def test_a_role_that_the_stack_has_not_is_refused() -> None:
    result = run("-", "--role", "aggregated", "--stack", PROD, given=LONG)
    assert result.exit_code == 1
    assert "has no aggregated Pods. Name one of its roles with --role: prefill, decode" in result.stderr


def test_what_cannot_be_read_ends_with_a_letter_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("duration\n1\nx\n")
    result = run(str(tmp_path / "bad.csv"))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert re.fullmatch(r"\S+bad\.csv, line 3, column duration = x: is no number\. .+\.\n", result.stderr)


def test_a_bad_stack_file_ends_with_its_own_letter(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.x.yaml").write_text("config: {}\n")
    result = run("-", "--stack", str(tmp_path / "Pulumi.x.yaml"), given=LONG)
    assert result.exit_code == 1
    assert "is missing" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("-", "--prometheus", "http://host"),
        ("nothing.csv",),
        ("-", "--least", "100", "--most", "50"),
        ("-", "--step", "0"),
        ("-", "--cut", "100"),
        ("-", "--role", "router"),
        ("-", "--plot", "plot.pdf"),
        ("-", "--namespace", "llm"),
        ("-", "--window", "soon"),
        ("-", "--window", "1s"),
        ("--prometheus", "http://host"),
        ("--prometheus", "http://host", "--namespace", "llm"),
        ("--prometheus", "http://host", "--selector", 'job="x"'),
        ("--prometheus", "http://host", "--column", "duration", *NAMES),
    ],
)
def test_wrong_usage_is_told_from_wrong_input(arguments: tuple[str, ...]) -> None:
    result = run(*arguments, given=LONG)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""


@pytest.mark.parametrize("name", ["cut.svg", "cut.PNG"])
def test_the_plot_is_written_as_an_image_the_same_each_time(tmp_path: Path, name: str) -> None:
    first, again = tmp_path / "a" / name, tmp_path / "b" / name
    for path in (first, again):
        path.parent.mkdir()
        result = run("-", "--plot", str(path), given=LONG)
        assert result.exit_code == 0, result.output
        assert f"plot written to {path}" in result.stderr
    assert first.read_bytes() == again.read_bytes()
    start = b"<?xml" if name.endswith("svg") else b"\x89PNG"
    assert first.read_bytes().startswith(start)


def test_a_plot_that_cannot_be_written_is_told_without_a_traceback(tmp_path: Path) -> None:
    result = run("-", "--plot", str(tmp_path / "missing" / "cut.svg"), given=LONG)
    assert result.exit_code == 1
    assert "No such file or directory" in result.stderr


# --- Prometheus -------------------------------------------------------------------------------------------------------


def test_every_role_of_the_stack_is_looked_for_by_its_pods(server: PrometheusStandIn) -> None:
    histogram(server, "prefill", [2.0] * 100, edges=(1, 5, 50))
    histogram(server, "decode", [10.0] * 99 + [700.0], edges=(5, 10, 60, 720))
    result = run("--prometheus", server.url, "--stack", PROD, "--format", "json")
    assert result.exit_code == 0, result.output
    roles = json.loads(result.stdout)["roles"]
    assert roles["prefill"]["seconds"] == 60
    assert "longestRequestSeconds" not in json.loads(result.stdout)["stackFile"]["drain"]  # 720 would be an edge
    assert any("longestRequestSeconds is not among the lines below" in note for note in roles["decode"]["notes"])
    # 60 to 720 s is all that the buckets say of the longest; with the sum it took 700 s at most, and 690 s do for it.
    assert roles["decode"]["wantedAtBest"] <= 690 <= roles["decode"]["wanted"]
    assert roles["decode"]["longest"] == {"low": 60, "high": 720}
    asked = [each.form["query"] for each in server.asked]
    assert (
        "sum by (le) (increase(vllm:e2e_request_latency_seconds_bucket"
        '{namespace="llm",pod=~"coding-decode-.+"}[604800s]))'
    ) in asked


def test_the_interval_that_buckets_allow_is_shown_and_its_safe_end_taken(server: PrometheusStandIn) -> None:
    histogram(server, "decode", [30.0] * 900 + [100.0] * 95 + [500.0] * 5, edges=(50, 120, 480, 960))
    result = run("--prometheus", server.url, *NAMES, "--role", "decode")
    assert result.exit_code == 0, result.output
    found = re.search(r"the buckets allow (\d+) to (\d+) s, and the safe end is taken", result.stdout)
    assert found is not None, result.stdout
    low, high = (int(each) for each in found.groups())
    # One by one: of 39,000 s lie beyond 420 s 400 s, which is too much, and beyond 450 s 250 s.
    assert low <= 450 <= high
    assert f"N = {min(high, 900)} s" in result.stdout


def test_longer_than_any_bucket_is_told_as_not_known(server: PrometheusStandIn) -> None:
    histogram(server, "decode", [1.0] * 10 + [9000.0] * 10, edges=(5, 7680))
    result = run("--prometheus", server.url, *NAMES, "--role", "decode", "--format", "json")
    found = json.loads(result.stdout)
    assert (found["roles"]["decode"]["wanted"], found["roles"]["decode"]["clamp"]) == (None, "most")
    assert found["roles"]["decode"]["longest"] == {"low": 7680, "high": None}
    assert "longestRequestSeconds" not in found["stackFile"]["drain"]


def test_a_window_with_gaps_is_told(server: PrometheusStandIn) -> None:
    histogram(server, "decode", [10.0] * 100, edges=(5, 10, 60))
    server.vector("count_over_time", ({}, 42))
    assert "data of 25 % of the last 7 days only" in run("--prometheus", server.url, *NAMES, "--role", "decode").stdout


def test_roles_that_nobody_asked_for_may_be_missing(server: PrometheusStandIn) -> None:
    histogram(server, "aggregated", [10.0] * 100, edges=(5, 10, 60))
    result = run("--prometheus", server.url, *NAMES, "--format", "json")
    assert result.exit_code == 0, result.output
    assert list(json.loads(result.stdout)["roles"]) == ["aggregated"]


def test_a_role_that_the_stack_has_may_not(server: PrometheusStandIn) -> None:
    histogram(server, "decode", [10.0] * 100, edges=(5, 10, 60))
    result = run("--prometheus", server.url, "--stack", PROD)
    assert result.exit_code == 1
    assert "has no vllm:e2e_request_latency_seconds of prefill Pods in the last 7 days" in result.stderr


def test_series_can_be_named_by_their_labels(server: PrometheusStandIn) -> None:
    server.vector('_bucket{job=~"x.*"}[3600s]', ({"le": "10"}, 5), ({"le": "+Inf"}, 5))
    server.vector('_sum{job=~"x.*"}[3600s]', ({}, 25))
    arguments = ("--selector", 'job=~"x.*"', "--role", "decode", "--window", "1h")
    assert "N = 60 s" in run("--prometheus", server.url, *arguments).stdout


@pytest.mark.parametrize(
    ("buckets", "total", "want"),
    [
        ([("10", "NaN"), ("+Inf", "NaN")], "NaN", "NaN: is no count"),
        ([("10", "0"), ("+Inf", "0")], "0", "counted no request"),
        ([("10", "5")], "25", "has no bucket +Inf"),
        ([("ten", "5"), ("+Inf", "5")], "25", "without a number as its edge"),
        ([("10", "5"), ("+Inf", "5")], "2500", "lies outside of what its buckets allow"),
    ],
)
def test_a_histogram_that_says_nothing_is_refused(
    server: PrometheusStandIn, buckets: list[tuple[str, str]], total: str, want: str
) -> None:
    server.vector("_bucket", *(({"le": edge}, value) for edge, value in buckets))
    server.vector("_sum", ({}, total))
    result = run("--prometheus", server.url, *NAMES, "--role", "decode")
    assert result.exit_code == 1
    assert want in result.stderr


def test_prometheus_that_wants_a_token_gets_that_of_the_file(server: PrometheusStandIn, tmp_path: Path) -> None:
    histogram(server, "decode", [10.0] * 100, edges=(5, 10, 60))
    (tmp_path / "token").write_text("abc\n")
    run("--prometheus", server.url, *NAMES, "--role", "decode", "--token-file", str(tmp_path / "token"))
    assert {each.headers["Authorization"] for each in server.asked} == {"Bearer abc"}


@pytest.mark.parametrize("content", ["", "two words", "two\nlines", "naïve"])
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content, encoding="utf-8")
    result = run("--prometheus", "http://nothing.invalid", *NAMES, "--token-file", str(tmp_path / "token"))
    assert result.exit_code == 1
    assert "holds no token" in result.stderr


def test_partial_answers_are_warned_of(server: PrometheusStandIn) -> None:
    histogram(server, "decode", [10.0] * 100, edges=(5, 10, 60))
    server.vector("_sum", ({}, 1000), warnings=["store 2 did not answer"])
    result = run("--prometheus", server.url, *NAMES, "--role", "decode")
    assert result.exit_code == 0
    assert "warning: Prometheus: store 2 did not answer" in result.stderr


def test_prometheus_that_is_down_ends_with_a_letter() -> None:
    result = run("--prometheus", "http://127.0.0.1:1", *NAMES)
    assert result.exit_code == 1
    assert result.stderr.startswith("--prometheus = http://127.0.0.1:1: does not answer")


# --- packages ---------------------------------------------------------------------------------------------------------


def test_no_other_command_loads_what_only_advice_needs() -> None:
    program = """
import sys
from typer.testing import CliRunner
from cli.main import app
assert CliRunner().invoke(app, ["check", "Pulumi.prod.yaml"]).exit_code == 0
print(sorted({"numpy", "matplotlib", "plotext"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
