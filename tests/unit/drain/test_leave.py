"""The hook's decisions over a clock that goes by at once; tests/e2e/test_drain_hook.py has real processes and time."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from stack.hooks import leave

if TYPE_CHECKING:
    from collections.abc import Callable

DELAY, LONGEST, PULL = 20, 60, 30
IDLE = (0.0, 0.0)

Answer = tuple[float, float] | None


@dataclass
class Clock:
    now: float = 0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Pod:
    """An engine as `/metrics` shows it at each second: requests that run or wait, and how many have ended; or None."""

    monkeypatch: pytest.MonkeyPatch
    clock: Clock = field(default_factory=Clock)
    said: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    killed: int = 0

    def leave(
        self, shows: Callable[[float], Answer], *, watches: bool = True, pull: int = 0, delay: int = DELAY
    ) -> float:
        """Run the hook; how long it took."""

        def ask(_host: str, port: int, answers: dict[int, tuple[float, float]]) -> None:
            if (answer := shows(self.clock.now)) is not None:
                answers[port] = answer

        def listening(ports: set[int]) -> dict[int, str]:
            return dict.fromkeys(ports, "127.0.0.1")

        def say(_log: int, text: str) -> None:
            self.said.append((self.clock.now, text))

        def kill() -> None:
            self.killed += 1

        numbers = (delay, int(watches), LONGEST, pull, 8000)
        with self.monkeypatch.context() as patch:
            patch.setattr(leave, "time", self.clock)
            patch.setattr(leave, "began", 0.0)
            patch.setattr(leave, "listening", listening)
            patch.setattr(leave, "ask", ask)
            patch.setattr(leave, "log_of_container", lambda: 2)
            patch.setattr(leave, "say", say)
            patch.setattr(leave, "kill_everything", kill)
            patch.setattr(sys, "argv", ["leave", *map(str, numbers)])
            leave.main()
        return self.clock.now


@pytest.fixture
def pod(monkeypatch: pytest.MonkeyPatch) -> Pod:
    return Pod(monkeypatch)


def test_an_engine_without_work_leaves_when_routers_have_noticed(pod: Pod) -> None:
    assert pod.leave(lambda _: IDLE) == DELAY
    assert (DELAY, "nothing runs any more") in pod.said
    assert not pod.killed


def test_where_nobody_watches_nobody_is_asked(pod: Pod) -> None:
    assert pod.leave(lambda _: pytest.fail("asked"), watches=False) == DELAY


def test_with_a_short_delay_it_still_takes_ten_seconds_to_believe_it(pod: Pod) -> None:
    assert pod.leave(lambda _: IDLE, delay=2) == pytest.approx(leave.QUIET_SECONDS, abs=1)


def test_a_first_step_that_no_gauge_shows_yet_is_not_taken_for_nothing(pod: Pod) -> None:
    """Sent just before routers had noticed, computing until second 28, and only then among those that run."""
    took = pod.leave(lambda now: (1.0, 0.0) if now < 19 or 28 <= now < 40 else IDLE)
    assert took == pytest.approx(40 + leave.QUIET_SECONDS, abs=2)


def test_a_request_that_ended_within_its_first_step_was_work(pod: Pod) -> None:
    took = pod.leave(lambda now: (0.0, 8.0) if now >= 19 else (0.0, 7.0))
    assert took == pytest.approx(19 + leave.QUIET_SECONDS, abs=2)


def test_requests_that_ended_long_ago_are_no_work(pod: Pod) -> None:
    assert pod.leave(lambda _: (0.0, 4711.0)) == DELAY


def test_an_engine_that_does_not_answer_is_busy_to_the_end(pod: Pod) -> None:
    assert pod.leave(lambda _: None) == DELAY + LONGEST
    assert (DELAY + LONGEST, "time is up: no answer") in pod.said


def test_requests_that_end_at_the_last_moment_are_not_counted_as_running(pod: Pod) -> None:
    took = pod.leave(lambda now: (1.0, 0.0) if now < DELAY + LONGEST - 5 else IDLE)
    assert took == DELAY + LONGEST
    assert "no work seen for" in pod.said[-2][1]


def test_an_idle_prefill_pod_stays_for_the_pulls_of_a_prompt_that_nobody_saw(pod: Pod) -> None:
    assert pod.leave(lambda _: IDLE, pull=PULL) == DELAY + PULL


@pytest.mark.parametrize("last", [10, 45, 79])
def test_pulls_get_their_time_from_the_last_prompt_and_never_beyond_the_longest(pod: Pod, last: int) -> None:
    took = pod.leave(lambda now: (1.0, 0.0) if now < last else IDLE, pull=PULL)
    assert took == pytest.approx(max(last, DELAY) + PULL, abs=2)
    assert took <= DELAY + LONGEST + PULL
