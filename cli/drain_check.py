"""Judges how a Pod left, from what was seen: its log, its time, and what the gateway counted. Pure.

The hook's lines are the program's own. Those of the engine are matched loosely, since vLLM words them anew from time to
time (vllm#43707): their absence proves nothing, an abort among them does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stack.drain import RoleDrain

HOOK: Final = "[drain]"
ABORTED: Final = re.compile(r"mode=abort|force[- ]kill", re.IGNORECASE)
DRAINED: Final = re.compile(r"mode=drain|drain(ing|ed)?\b", re.IGNORECASE)


class Outcome(StrEnum):
    """Of one check."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "not known"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    outcome: Outcome
    text: str


@dataclass(frozen=True, kw_only=True)
class Departure:
    """What was seen of a Pod that left.

    Attributes:
        pod: its name.
        grace: its own grace period in seconds, as it was made with.
        has_hook: whether it has a preStop hook.
        lines: what its log got from the deletion on.
        log_problem: why the log could not be read to its end; None if it could.
        seconds: from the deletion until it was gone; None if it did not go.
        resets: responses that broke off meanwhile, as the gateway counted; None if nobody was asked.
        resets_problem: why that is not known.
    """

    pod: str
    grace: int
    has_hook: bool
    lines: tuple[str, ...]
    log_problem: str | None
    seconds: float | None
    resets: float | None
    resets_problem: str | None = None


def judge(drain: RoleDrain, seen: Departure) -> tuple[Check, ...]:
    """Hold a departure against what was planned for it."""
    return tuple(_checks(drain, seen))


def _checks(drain: RoleDrain, seen: Departure) -> Iterator[Check]:
    if seen.grace == drain.grace:
        yield Check(name="grace period", outcome=Outcome.GOOD, text=f"{seen.grace} s, as planned")
    else:
        yield Check(
            name="grace period",
            outcome=Outcome.BAD,
            text=f"{seen.grace} s, and the stack file says {drain.grace} s: the Pod was made before. Run `pulumi up`",
        )
    yield _hook(seen)
    yield _requests(drain, seen)
    yield _time(seen)
    yield _gateway(seen)


def _hook(seen: Departure) -> Check:
    said = [line for line in seen.lines if HOOK in line]

    def check(outcome: Outcome, text: str) -> Check:
        return Check(name="hook", outcome=outcome, text=text)

    if not seen.has_hook:
        return check(Outcome.BAD, "the Pod has none")
    if any("nothing is served yet" in line for line in said):
        return check(Outcome.UNKNOWN, "the Pod was still loading, so it had nothing to drain. Choose a Ready one")
    if any(end in line for line in said for end in ("over to the engine", "killing everything")):
        return check(Outcome.GOOD, f"ran to its end: {_plain(said[-1])}")
    if seen.log_problem is not None:
        return check(Outcome.UNKNOWN, f"the log could not be read: {seen.log_problem}")
    if said:
        return check(Outcome.BAD, f"did not come to its end; at last: {_plain(said[-1])}")
    return check(Outcome.BAD, "wrote nothing to the log: it did not run, or has no python3")


def _requests(drain: RoleDrain, seen: Departure) -> Check:
    engine = [line for line in seen.lines if HOOK not in line]
    hook = [line for line in seen.lines if HOOK in line]

    def check(outcome: Outcome, text: str) -> Check:
        return Check(name="requests", outcome=outcome, text=text)

    late = next((line for line in hook if "time is up" in line), None)
    if late is not None:
        return check(Outcome.BAD, f"did not end within N = {drain.timeout} s: {_plain(late)}")
    aborted = next((line for line in engine if ABORTED.search(line)), None)
    if drain.mode == "native" and aborted is not None and "nothing runs any more" not in "".join(hook):
        return check(Outcome.BAD, f"were cut by the engine: {aborted.strip()}")
    if any("nothing runs any more" in line for line in hook):
        return check(Outcome.GOOD, "all had ended before the engine was told to stop")
    drained = next((line for line in engine if DRAINED.search(line)), None)
    if drained is not None:
        return check(Outcome.GOOD, f"the engine drained: {drained.strip()}")
    return check(Outcome.UNKNOWN, "neither hook nor engine said anything about them")


def _time(seen: Departure) -> Check:
    if seen.seconds is None:
        return Check(
            name="time", outcome=Outcome.BAD, text=f"the Pod is still there after its grace period of {seen.grace} s"
        )
    is_killed = seen.seconds >= seen.grace
    text = f"gone after {seen.seconds:.1f} s of {seen.grace} s"
    return Check(
        name="time",
        outcome=Outcome.BAD if is_killed else Outcome.GOOD,
        text=f"{text}: it was killed" if is_killed else text,
    )


def _gateway(seen: Departure) -> Check:
    if seen.resets is None:
        why = seen.resets_problem or "nobody was asked. Give --prometheus"
        return Check(name="gateway", outcome=Outcome.UNKNOWN, text=why)
    if seen.resets > 0:
        text = f"{seen.resets:g} responses broke off meanwhile"
        return Check(name="gateway", outcome=Outcome.BAD, text=text)
    return Check(name="gateway", outcome=Outcome.GOOD, text="no response broke off meanwhile")


def _plain(line: str) -> str:
    return line.partition(HOOK)[2].strip()
