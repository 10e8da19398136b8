"""The rendered hook among real processes: what it waits for, what it kills, and that it outlasts nobody's patience.

Order and outcome are looked at; how long it takes is measured by `benchmarks/drain.py`.
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import container, plan, pod
from tests.e2e.sandbox import Sandbox, sandbox, why_not_here

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.toolchain import Toolbox

pytestmark = pytest.mark.e2e
SYSTEM_PYTHON = "/usr/bin/python3"
SHORT = {"prefill": 4, "decode": 4, "aggregated": 4}
GPUS: dict[str, Any] = {"recipe": "gpt-oss-120b-nvidia"}
AGGREGATED: dict[str, Any] = {"modelserver": {"replicas": {"aggregated": 1}}, "devices": {"rdma": {"enabled": False}}}


@pytest.fixture(autouse=True)
def _namespaces() -> None:  # pyright: ignore[reportUnusedFunction]  # a fixture
    if (why := why_not_here()) is not None:
        pytest.skip(why)


@pytest.fixture
def here() -> Iterator[Sandbox]:
    with sandbox() as made:
        yield made


@pytest.fixture
def simulator(toolbox: Toolbox) -> Path:
    return toolbox.path("llm-d-inference-sim")


def hook(role: str, drain: dict[str, Any] | None = None, **blocks: Any) -> list[str]:
    """The command in the manifest."""
    short = {"routerDelaySeconds": 1, "shutdownTimeoutSeconds": SHORT, "kvPullSeconds": 2, **(drain or {})}
    if role == "aggregated":
        del short["kvPullSeconds"]
    whole = plan(drain=short, **blocks)
    return container(pod(whole, role))["lifecycle"]["preStop"]["exec"]["command"]


NATIVE, IDLE = hook("decode", **GPUS), hook("decode", {"mode": "idle"}, **GPUS)
LAYOUTS = {
    "an engine alone": (hook("prefill"), [8000]),
    "behind a proxy": (NATIVE, [8200]),
    "several ranks behind a proxy": (hook("decode"), [8200, 8201, 8202, 8203]),
    "several ranks": (hook("aggregated", **AGGREGATED), [8000, 8001, 8002, 8003]),
}


# --- who is there -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("command", "ports"), LAYOUTS.values(), ids=LAYOUTS)
def test_an_engine_that_serves_is_left_to_kubernetes(here: Sandbox, command: list[str], ports: list[int]) -> None:
    engines = [here.engine(port) for port in ports]
    found = here.leave(command, 20)
    assert found.alive_at_sigterm
    assert found.hook_seconds >= 1, "routers had their time"
    assert not found.killed_at_the_end
    assert [engine.process.returncode for engine in engines] == [-signal.SIGTERM] * len(engines)


@pytest.mark.parametrize(("command", "ports"), LAYOUTS.values(), ids=LAYOUTS)
def test_an_engine_that_loads_is_killed_at_once(here: Sandbox, command: list[str], ports: list[int]) -> None:
    engines = [here.engine(port, "loading") for port in ports]
    found = here.leave(command, 20)
    assert not found.alive_at_sigterm
    assert [engine.process.returncode for engine in engines] == [-signal.SIGKILL] * len(engines)
    assert "[drain] 0.0 s: nothing is served yet: killing everything" in engines[0].said


def test_a_proxy_that_listens_is_no_engine(here: Sandbox) -> None:
    """The trap of a hook that looks at port 8000: the sidecar listens there while the engine still loads."""
    engine, proxy = here.engine(8200, "loading"), here.engine(8000)
    assert not here.leave(NATIVE, 20).alive_at_sigterm
    assert engine.process.returncode == proxy.process.returncode == -signal.SIGKILL


def test_a_client_of_the_port_is_no_engine(here: Sandbox) -> None:
    """Only state LISTEN counts: a connection from a port of that number is established."""
    here.engine(9000)
    client = here.start(
        [
            "python3",
            "-c",
            CLIENT,
        ]
    )
    while "connected" not in client.said:
        assert client.lives
    here.leave(NATIVE, 20)
    assert client.process.returncode == -signal.SIGKILL, "nothing listens at 8200"


@pytest.mark.parametrize("host", ["::", "::1"])
def test_an_engine_at_ipv6_alone_is_found_and_asked(here: Sandbox, host: str) -> None:
    engine = here.engine(8200, host=host)
    found = here.leave(IDLE, 20)
    assert found.alive_at_sigterm
    assert "no work seen" in engine.said


def test_a_rank_that_still_loads_has_the_others_drained_and_everything_killed(here: Sandbox) -> None:
    """Half started: SIGTERM would not be heard by all, and the devices would be held to the end."""
    command = hook("decode", {"shutdownTimeoutSeconds": {"decode": 60}})
    first = here.engine(8200)
    engines = [here.engine(8201), here.engine(8202, "loading"), here.engine(8203)]
    found = here.leave(command, 60)
    assert not found.alive_at_sigterm
    assert {engine.process.returncode for engine in (first, *engines)} == {-signal.SIGKILL}
    said = first.said
    assert "no engine at [8202]" in said
    assert said.index("nothing runs any more") < said.index("killing everything")


# --- waiting until idle -----------------------------------------------------------------------------------------------


CLIENT = """\
import socket, time
connection = socket.create_connection(("127.0.0.1", 9000), source_address=("127.0.0.1", 8200))
print("connected", flush=True)
time.sleep(3600)
"""


def seconds_of(said: str, text: str) -> float:
    [line] = [line for line in said.splitlines() if line.startswith("[drain]") and text in line]
    return float(line.split()[1])


def test_it_waits_for_running_and_waiting_requests_and_no_longer(here: Sandbox) -> None:
    engine = here.engine(8200, requests="0 1")
    command = hook("decode", {"mode": "idle", "shutdownTimeoutSeconds": {"decode": 60}}, **GPUS)
    threading.Timer(4, here.requests_at, (8200, "0 0")).start()
    found = here.leave(command, 60)
    assert found.alive_at_sigterm
    assert seconds_of(engine.said, "nothing runs any more") > 12, "one request waited, and then 10 s without work"
    assert not found.killed_at_the_end


def test_a_request_that_came_and_went_between_two_looks_was_work(here: Sandbox) -> None:
    """vLLM's gauges never show one that ends with its first step; the number of those that have ended does."""
    engine = here.engine(8200, requests="0 0 7")
    command = hook("decode", {"mode": "idle", "shutdownTimeoutSeconds": {"decode": 60}}, **GPUS)
    threading.Timer(5, here.requests_at, (8200, "0 0 8")).start()
    here.leave(command, 60)
    assert seconds_of(engine.said, "nothing runs any more") > 13


@pytest.mark.parametrize("how", ["hung", "failing", "deaf"])
def test_an_engine_without_a_full_answer_is_busy_until_time_is_up(here: Sandbox, how: str) -> None:
    engine = here.engine(8200, how)
    found = here.leave(IDLE, 30)
    assert found.alive_at_sigterm
    assert found.hook_seconds >= 5, "1 s for routers and 4 s for requests"
    assert "time is up: no answer" in engine.said


def test_it_waits_no_longer_than_it_may(here: Sandbox) -> None:
    engine = here.engine(8200, requests="3 2")
    found = here.leave(IDLE, 30)
    assert found.alive_at_sigterm
    assert seconds_of(engine.said, "time is up: 5 requests") >= 5


def test_once_idle_is_not_idle(here: Sandbox) -> None:
    engine = here.engine(8200, "flickering")
    here.leave(IDLE, 30)
    assert "nothing runs any more" not in engine.said


def test_one_busy_rank_is_enough(here: Sandbox) -> None:
    command = hook("decode", {"mode": "idle"})
    engines = [here.engine(port, requests="1 0" if port == 8203 else "0 0") for port in (8200, 8201, 8202, 8203)]
    here.leave(command, 30)
    assert "time is up: 1 requests" in engines[0].said


def test_a_rank_that_dies_in_the_middle_is_not_waited_for(here: Sandbox) -> None:
    command = hook("decode", {"mode": "idle", "shutdownTimeoutSeconds": {"decode": 60}})
    first = here.engine(8200)
    others = [here.engine(port, requests="1 0" if port == 8203 else "0 0") for port in (8201, 8202, 8203)]
    threading.Timer(4, others[-1].send, (signal.SIGKILL,)).start()
    found = here.leave(command, 60)
    assert found.alive_at_sigterm
    assert "nothing runs any more" in first.said
    assert others[-1].process.returncode == -signal.SIGKILL


def test_an_engine_that_dies_in_the_middle_ends_the_wait(here: Sandbox) -> None:
    engine = here.engine(8200, requests="1 0")
    command = hook("decode", {"mode": "idle", "shutdownTimeoutSeconds": {"decode": 60}}, **GPUS)
    threading.Timer(3, engine.send, (signal.SIGKILL,)).start()
    found = here.leave(command, 60)
    assert not found.killed_at_the_end
    assert "nothing runs any more" in engine.said


# --- prefill ----------------------------------------------------------------------------------------------------------


def test_blocks_of_the_last_prompt_stay_until_they_can_be_pulled(here: Sandbox) -> None:
    engine = here.engine(8000, requests="1 0")
    threading.Timer(3, here.requests_at, (8000, "0 0")).start()
    here.leave(hook("prefill", {"shutdownTimeoutSeconds": {"prefill": 60}, "kvPullSeconds": 20}), 60)
    said = engine.said
    assert "s for pulls" in said
    assert seconds_of(said, "over to the engine") > seconds_of(said, "nothing runs any more") + 1


def test_an_idle_prefill_pod_waits_for_pulls_when_routers_have_noticed(here: Sandbox) -> None:
    """A prompt of one step is in no gauge, and may have come at the last moment."""
    engine = here.engine(8000)
    here.leave(hook("prefill", {"routerDelaySeconds": 11, "kvPullSeconds": 3}), 60)
    assert "nothing runs any more" in engine.said
    assert seconds_of(engine.said, "over to the engine") >= 14


# --- the log, and who is spared ---------------------------------------------------------------------------------------


def test_what_it_does_is_in_the_log_of_its_own_container_and_no_other(here: Sandbox) -> None:
    proxy = here.start(["python3", "-c", "import time; time.sleep(3600)"], own_files=True)
    engine = here.engine(8200)
    here.leave(NATIVE, 20)
    assert "over to the engine" in engine.said
    assert "[drain]" not in proxy.said, "another mount namespace is another container"


def test_a_module_of_the_working_directory_does_not_take_the_place_of_pythons_own(here: Sandbox) -> None:
    (here.folder / "socket.py").write_text("raise SystemExit(3)")
    engine = here.engine(8200)
    here.leave(NATIVE, 20)
    assert "over to the engine" in engine.said


@pytest.mark.parametrize(("how", "want"), [("serving", "over to the engine"), ("loading", "killing everything")])
def test_the_user_of_the_image_is_enough(how: str, want: str) -> None:
    """No capability, not root: for the log, the engine's answers, and to kill what is its own."""
    if not Path(SYSTEM_PYTHON).exists():
        pytest.skip(f"there is no {SYSTEM_PYTHON}, and this Python may be root's alone")
    with sandbox(python=SYSTEM_PYTHON, user=2000) as here:
        engine = here.engine(8200, how)
        found = here.leave(IDLE, 30)
        assert want in engine.said
        assert found.alive_at_sigterm == (how == "serving")
        assert not found.killed_at_the_end


def test_pid_1_and_the_hook_itself_survive(here: Sandbox) -> None:
    here.engine(8200, "loading")
    here.leave(NATIVE, 20)
    assert here.pause.poll() is None


# --- the inference simulator ------------------------------------------------------------------------------------------


def test_streams_of_the_simulator_end_before_sigterm(here: Sandbox, simulator: Path) -> None:
    engine = here.simulator(simulator, 8200, "--inter-token-latency", "100ms", "--time-to-first-token", "100ms")
    stream = here.stream(8200, tokens=50)
    command = hook("decode", {"mode": "idle", "shutdownTimeoutSeconds": {"decode": 60}}, **GPUS)
    found = here.leave(command, 90)
    assert stream.is_whole
    assert found.alive_at_sigterm
    assert "nothing runs any more" in engine.said


def test_without_a_drain_the_same_stream_is_cut(here: Sandbox, simulator: Path) -> None:
    """What the test above would look like if the hook did nothing."""
    here.simulator(simulator, 8200, "--inter-token-latency", "100ms", "--time-to-first-token", "100ms")
    stream = here.stream(8200, tokens=50)
    here.leave(["python3", "-c", "pass"], 30)
    assert not stream.is_whole


def test_a_rank_of_the_simulator_that_streams_keeps_all_ranks(here: Sandbox, simulator: Path) -> None:
    first = here.simulator(simulator, 8200, "--inter-token-latency", "100ms")
    for port in (8201, 8202, 8203):
        here.simulator(simulator, port, "--inter-token-latency", "100ms")
    stream = here.stream(8203, tokens=40)
    command = hook("decode", {"mode": "idle", "shutdownTimeoutSeconds": {"decode": 60}})
    found = here.leave(command, 90)
    assert stream.is_whole
    assert found.alive_at_sigterm
    assert "nothing runs any more" in first.said
