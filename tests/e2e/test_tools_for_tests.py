"""What other tests take for granted about programs that the toolchain builds for tests alone, asked of them as built.

The inference simulator stands in for an engine where a drain is tried, and promtool judges rules. A version that
behaves otherwise would let those tests pass for a wrong reason.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import pytest

from local.ports import choose_ports, port_is_free
from local.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from http.client import HTTPResponse
    from pathlib import Path

    from local.toolchain import Toolbox

pytestmark = pytest.mark.e2e

SECONDS = 60
TOKENS = 20
END = b"data: [DONE]"
GAUGE = re.compile(r"^vllm:num_requests_(running|waiting)\{.*\} (\d+)$", re.MULTILINE)


@contextmanager
def simulator(toolbox: Toolbox, *arguments: str) -> Generator[tuple[subprocess.Popen[bytes], int]]:
    """A simulator with one slot per rank, 0.1 s per token, and two ranks; with the first rank's port."""
    port = choose_ports(["sim"], is_free=lambda first: port_is_free(first) and port_is_free(first + 1))["sim"]
    command = [toolbox.path("llm-d-inference-sim"), "--model=m", f"--port={port}", "--max-num-seqs=1"]
    command += ["--data-parallel-size=2", "--inter-token-latency=100ms", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for rank in (port, port + 1):
                wait_until(lambda rank=rank: not port_is_free(rank), timeout=SECONDS, what=f"port {rank} to be served")
            yield process, port
        finally:
            process.kill()


def counted(port: int) -> dict[str, int]:
    """Running and waiting requests, as the rank's own metrics say."""
    with asking(port, "/metrics") as answer:
        found = GAUGE.findall(answer().read().decode())
    assert len(found) == 2, "one engine a rank, each gauge once"
    return {name: int(number) for name, number in found}


@contextmanager
def asking(port: int, path: str, **body: object) -> Generator[Callable[[], HTTPResponse]]:
    """A request that is under way, and how its answer is got."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS)) as connection:
        sent = json.dumps({"model": "m", **body}) if body else None
        connection.request("POST" if body else "GET", path, sent, {"Content-Type": "application/json"})
        yield connection.getresponse


@contextmanager
def streaming(port: int) -> Generator[HTTPResponse]:
    """The answer of two seconds to a request, of which the first line has come."""
    length: dict[str, object] = {"max_tokens": TOKENS, "min_tokens": TOKENS, "ignore_eos": True}
    messages = [{"role": "user", "content": "a b c"}]
    with asking(port, "/v1/chat/completions", stream=True, messages=messages, **length) as answer:
        got = answer()
        assert got.readline().startswith(b"data: ")
        yield got


def test_the_simulator_counts_what_runs_and_what_waits_by_rank(toolbox: Toolbox) -> None:
    with simulator(toolbox) as (_, port):
        idle = {"running": 0, "waiting": 0}
        assert (counted(port), counted(port + 1)) == (idle, idle)
        with streaming(port) as first, asking(port, "/v1/completions", prompt="a", max_tokens=1) as second:
            wait_until(
                lambda: counted(port) == {"running": 1, "waiting": 1}, timeout=SECONDS, what="the second to wait"
            )
            assert counted(port + 1) == idle, "the other rank has metrics of its own"
            assert END in first.read()
            assert second().status == 200
        wait_until(lambda: counted(port) == idle, timeout=SECONDS, what="it to be idle again")


def test_the_simulator_ends_its_streams_before_it_ends_itself(toolbox: Toolbox) -> None:
    with simulator(toolbox) as (process, port), streaming(port) as answer:
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: port_is_free(port), timeout=SECONDS, what="it to take no more requests")
        assert END in answer.read(), "cut"
        assert process.wait(SECONDS) == 0


def test_promtool_tells_rules_that_do_what_they_should_from_those_that_do_not(toolbox: Toolbox, tmp_path: Path) -> None:
    def judge(command: str, file: str) -> int:
        asked = [toolbox.path("promtool"), command, "rules", file]
        said = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert ("SUCCESS" in said.stdout + said.stderr) == (said.returncode == 0), said
        return said.returncode

    rule = {"alert": "Full", "expr": "slots_free < 1", "for": "1m"}
    for name, expression in (("rules", rule["expr"]), ("broken", "slots_free <")):
        groups = [{"name": "a", "rules": [{**rule, "expr": expression}]}]
        (tmp_path / f"{name}.yaml").write_text(json.dumps({"groups": groups}), encoding="utf-8")
    for name, fires_after in (("right", "2m"), ("wrong", "1m")):
        expected: dict[str, object] = {
            "eval_time": fires_after,
            "alertname": "Full",
            "exp_alerts": [{"exp_labels": {}}],
        }
        case: dict[str, object] = {
            "interval": "1m",
            "input_series": [{"series": "slots_free", "values": "3 0 0 0"}],
            "alert_rule_test": [expected],
        }
        cases: dict[str, object] = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [case]}
        (tmp_path / f"{name}.yaml").write_text(json.dumps(cases), encoding="utf-8")

    assert judge("check", "rules.yaml") == 0
    assert judge("check", "broken.yaml") != 0
    assert judge("test", "right.yaml") == 0
    assert judge("test", "wrong.yaml") != 0
