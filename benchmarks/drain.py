"""How long a Pod takes to leave, from its deletion until its last process is gone, with the drain of the defaults.

The hook of the manifests runs in namespaces of its own among real processes: stand-in engines, and the inference
simulator that streams. vLLM's own drain at SIGTERM (mode native) is not measured, since there is no vLLM here: both end
at once at SIGTERM, as an idle vLLM nearly does.

Run as root with `python -m benchmarks.drain [--json]`. A few situations run side by side, about three minutes.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from benchmarks.stage import command, machine, print_results
from local.toolchain import ensure
from tests.builders import container, plan, pod
from tests.e2e.sandbox import Sandbox, sandbox, why_not_here

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Case = tuple[str, str, dict[str, Any], Callable[[Sandbox], object]]

SIDE_BY_SIDE = 4
RANKS = (8200, 8201, 8202, 8203)
GPUS: dict[str, Any] = {"recipe": "gpt-oss-120b-nvidia"}
IDLE: dict[str, Any] = {"drain": {"mode": "idle"}}


def measure(case: Case) -> dict[str, Any]:
    """One row: arrange a Pod, delete it, and see how it goes."""
    what, role, blocks, arrange = case
    spec = pod(plan(**blocks), role)
    hook = container(spec)["lifecycle"]["preStop"]["exec"]["command"]
    grace = spec["terminationGracePeriodSeconds"]
    with sandbox() as here:
        arrange(here)
        found = here.leave(hook, grace)
        ended = "the hook" if not found.alive_at_sigterm else "SIGTERM"
        return {
            "a Pod with": what,
            "role": role,
            "mode": "idle" if blocks.get("drain") else "native",
            "hook s": found.hook_seconds,
            "gone after s": found.seconds,
            "grace s": grace,
            "ended by": "SIGKILL" if found.killed_at_the_end else ended,
        }


def busy_for(seconds: float, port: int) -> Callable[[Sandbox], object]:
    """A request that ends some time after the deletion."""

    def arrange(here: Sandbox) -> None:
        here.engine(port, requests="1 0")
        threading.Timer(seconds, here.requests_at, (port, "0 0")).start()

    return arrange


def half_started(here: Sandbox) -> None:
    """Three ranks that serve, one that loads."""
    for port in RANKS:
        here.engine(port, "loading" if port == RANKS[-1] else "serving")


def streaming(simulator: Path) -> Callable[[Sandbox], object]:
    """The inference simulator with a stream of about 40 s."""

    def arrange(here: Sandbox) -> object:
        here.simulator(simulator, 8200, "--inter-token-latency", "100ms")
        return here.stream(8200, 400)

    return arrange


def main() -> None:
    """Measure and print."""
    if (why := why_not_here()) is not None:
        sys.exit(why)
    simulator = ensure().path("llm-d-inference-sim")
    cases: list[Case] = [
        ("an engine that loads", "decode", GPUS, lambda here: here.engine(8200, "loading")),
        ("four ranks that load", "decode", {}, lambda here: [here.engine(port, "loading") for port in RANKS]),
        ("nothing to do", "decode", GPUS, lambda here: here.engine(8200)),
        ("nothing to do, four ranks", "decode", {}, lambda here: [here.engine(port) for port in RANKS]),
        ("nothing to do", "decode", {**GPUS, **IDLE}, lambda here: here.engine(8200)),
        ("nothing to do", "prefill", {}, lambda here: here.engine(8000)),
        ("a prompt for another 25 s", "prefill", {}, busy_for(25, 8000)),
        ("a stream for another 40 s", "decode", {**GPUS, **IDLE}, busy_for(40, 8200)),
        ("a stream of 40 s (simulator)", "decode", {**GPUS, **IDLE}, streaming(simulator)),
        ("a stream without end", "decode", {**GPUS, **IDLE}, lambda here: here.engine(8200, requests="1 0")),
        ("an engine that hangs", "decode", {**GPUS, **IDLE}, lambda here: here.engine(8200, "hung")),
        ("one of four ranks still loading", "decode", {}, half_started),
    ]
    on = machine()
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        rows = list(pool.map(measure, cases))
    print_results(
        rows,
        title="Leaving: seconds from the deletion of a Pod (aimed at: loading within seconds, idle about 25 s, never "
        "past the grace period)",
        ran=command("benchmarks.drain"),
        on=on,
        as_json="--json" in sys.argv[1:],
    )


if __name__ == "__main__":
    main()
