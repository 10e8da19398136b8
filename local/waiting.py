"""Waiting for a condition, never for a time: each wait has a deadline and says what it waited for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from local.errors import DeadlineError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def wait_until(condition: Callable[[], T], *, timeout: float, what: str, interval: float = 0.02) -> T:
    """Ask until the answer is true, and return that answer.

    Args:
        condition: Asked at once and then every `interval` seconds; what it raises ends the wait.
        timeout: Seconds after which to give up.
        what: Completes "waited ... for".
        interval: Seconds between two questions.

    Raises:
        DeadlineError: if the answer was never true.
    """
    deadline = time.monotonic() + timeout
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            raise DeadlineError(f"Waited {timeout:g} s for {what}, in vain.")
        time.sleep(interval)
