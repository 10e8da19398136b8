"""Reports in a few words, for tests of what reads them."""

from __future__ import annotations

from typing import Any

from stack.impact import Happening, Impact, Method, PartImpact
from stack.report import Report, make_report


def part(happens: Happening, **more: Any) -> PartImpact:
    """A role with four Pods."""
    is_exchanged = happens in {Happening.RESTARTS, Happening.GOES_BACK}
    numbers: dict[str, Any] = {
        "part": "decode",
        "method": Method.ROLLING if is_exchanged else None,
        "before": 4,
        "after": 4,
        "new": 4 if is_exchanged else 0,
        "kept": 0 if is_exchanged else 4,
        "leaving": 4 if is_exchanged else 0,
        "extra_pods": 1,
        "accelerators": 4,
        "nics": 2,
        "capacity_percent": 100,
        "outage": None,
        "at_most_seconds": 60,
    }
    return PartImpact(happens=happens, **numbers | more)


def impact(*parts: PartImpact, **more: Any) -> Impact:
    return Impact(release="rel", parts=parts, **more)


def report(found: Impact | None, **more: Any) -> Report:
    return make_report(stack="prod", release="rel", namespace="ns", context="c", impact=found, **more)
