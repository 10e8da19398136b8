"""What `drain-budget` finds out of each role, and how it says so. Needs numpy (extra `advice`)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any, Final

from cli.asked import Form, complaints
from cli.plots import Curve, Plot, as_image, as_text
from cli.prometheus import NOT_SCRAPED, numbers
from cli.samples import Sample, read_sample
from stack.config.drain import MAX_SECONDS
from stack.durations import Buckets, Choice, Clamp, Durations, Interval, choose
from stack.errors import Problem, UnusableError
from stack.scalars import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from cli.asked import Layout, Place, Unit
    from cli.prometheus import Prometheus
    from cli.situation import RoleSituation, Situation
    from stack.durations import Measured
    from stack.scalars import Role

LATENCY: Final = "vllm:e2e_request_latency_seconds"
"""Histogram of vLLM: from the arrival of a request at an engine until its end (`vllm/v1/metrics/loggers.py`)."""
LOOKS: Final = 168
"""How often a window is looked into, to see of how much of it there is data: a week by the hour."""
MOST_POINTS: Final = 240
AROUND: Final = 20
"""Seconds that a Pod takes to leave besides N where no stack file says it: the router's delay."""
NOT_PRINTED: Final = (
    "longestRequestSeconds is not among the lines below: of the longest request only its bucket is known, and time "
    "limits would be held against the upper edge of that"
)
NEAR_LIMIT = 0.98
"""Where the longest requests end so near to a limit, it was the limit that ended them."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Between what N is looked for, in seconds, and with how much cut."""

    step: int
    least: int
    most: int
    most_cut: float


@dataclass(frozen=True, kw_only=True)
class Where:
    """What Prometheus is asked about, and how many seconds back."""

    place: Place
    window: int
    situation: Situation | None


@dataclass(frozen=True, kw_only=True)
class Budget:
    """N of a role and what it rests on.

    Attributes:
        now: what the stack file says of the role; None without one.
        left_out: why requests or lines were not taken, and how many.
        notes: what to know before it is used.
    """

    role: Role
    choice: Choice
    measured: Measured
    source: str
    now: RoleSituation | None
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    notes: tuple[str, ...] = ()

    @property
    def longest(self) -> int | None:
        """Seconds that the longest request took, rounded up, as far as a stack file takes it; None if not known."""
        found = self.measured.longest
        return min(math.ceil(found.high), MAX_SECONDS) if found.is_exact else None

    @property
    def needed(self) -> int:
        """Seconds that no limit in the stack file may be below."""
        return max(self.choice.seconds, self.longest or 0)

    @property
    def leaves_within(self) -> int:
        """Seconds that a busy Pod takes to leave at most, and holds its devices."""
        return self.choice.seconds + (AROUND if self.now is None else self.now.around)


def from_file(
    file: Path, standard_input: IO[bytes], *, column: str | None, unit: Unit | None, layout: Layout | None
) -> Sample:
    """The durations of a file, or of standard input if it is `-`."""
    if str(file) == "-":
        return read_sample(standard_input, "standard input", column=column, unit=unit, layout=layout)
    with file.open("rb") as stream:
        return read_sample(stream, str(file), column=column, unit=unit, layout=layout)


def budget_of_sample(sample: Sample, role: Role, limits: Limits, situation: Situation | None) -> Budget:
    """N from durations one by one."""
    notes: list[str] = []
    if sample.is_gateway and role == "prefill":
        notes.append(
            "these are whole answers, as a gateway sees them; prefill Pods of a P/D pair have a request for its first "
            "token only: take their durations from Prometheus"
        )
    if sample.broken:
        notes.append(f"{sample.broken} answers of status 2xx were cut on their way and are not in the sample")
    measured = Durations(sample.seconds, key=sample.source)
    return _budget(role, measured, sample.source, limits, situation, notes=notes, left_out=sample.left_out)


def budgets_of_prometheus(asked: Prometheus, where: Where, role: Role | None, limits: Limits) -> list[Budget]:
    """N of the role that is named, or of each.

    Raises:
        UnusableError: of a role that was asked for, or that the stack file has, nothing can be told.
    """
    situation = where.situation
    roles: list[Role] = [role] if role is not None else list(ROLES) if situation is None else list(situation.roles)
    may_miss = role is None and situation is None
    found: list[Budget] = []
    missing: list[UnusableError] = []
    for each in roles:
        try:
            found.append(_of_prometheus(asked, where, each, limits))
        except _NothingError as error:
            missing.append(error)
    if missing and not (may_miss and found):
        raise missing[0]
    for warning in asked.warnings:
        complaints.print(f"warning: Prometheus: {warning}", soft_wrap=True)
    return found


class _NothingError(UnusableError):
    """There are no series of a role."""


def _of_prometheus(asked: Prometheus, where: Where, role: Role, limits: Limits) -> Budget:
    labels, window = where.place.labels(role, where.situation), where.window
    buckets = asked.buckets(f"sum by (le) (increase({LATENCY}_bucket{{{labels}}}[{window}s]))")
    sums = asked.instant(f"sum(increase({LATENCY}_sum{{{labels}}}[{window}s]))")
    if not buckets or not sums:
        raise _NothingError(
            Problem(
                key="--prometheus",
                value=asked.address,
                why=f"has no {LATENCY} of {role} Pods in the last {_span(window)} ({{{labels}}})",
                fix=NOT_SCRAPED,
            )
        )
    source = f"{LATENCY} of {role} Pods in the last {_span(window)}"
    measured = Buckets(buckets, sums[0].values[0], key=source)
    look = max(window // LOOKS, 60)
    seen = asked.instant(f"count_over_time(count({LATENCY}_count{{{labels}}})[{window}s:{look}s])")
    covered = max([*(value for series in seen for value in numbers(series).values())], default=0.0) * look / window
    notes = ["counted in buckets, so N is known within an interval only; durations one by one narrow it", NOT_PRINTED]
    if covered < 0.95:  # noqa: PLR2004
        notes.append(f"there is data of {covered * 100:.0f} % of the last {_span(window)} only")
    return _budget(role, measured, source, limits, where.situation, notes=notes)


def _budget(
    role: Role,
    measured: Measured,
    source: str,
    limits: Limits,
    situation: Situation | None,
    *,
    notes: Sequence[str],
    left_out: Mapping[str, int] | None = None,
) -> Budget:
    now = None if situation is None else situation.roles.get(role)
    if situation is not None and now is None:
        why = f"has no {role} Pods"
        fix = f"Name one of its roles with --role: {', '.join(situation.roles)}"
        raise UnusableError(Problem(key="--stack", value=situation.release, why=why, fix=fix))
    choice = choose(measured, step=limits.step, least=limits.least, most=limits.most, most_cut=limits.most_cut)
    budget = Budget(
        role=role,
        choice=choice,
        measured=measured,
        source=source,
        now=now,
        left_out=left_out or {},
    )
    said = [*notes, *_of_limits(budget, situation), *_refused(budget, situation), _censored(budget)]
    return replace(budget, notes=tuple(said))


def _of_limits(budget: Budget, situation: Situation | None) -> list[str]:
    """Limits of the stack that end a request before N does, or ended those that were measured."""
    said: list[str] = []
    written = () if situation is None else situation.written
    for seconds, key in () if situation is None or budget.role == "prefill" else situation.limits:
        longest = budget.measured.longest
        if longest.is_exact and NEAR_LIMIT * seconds <= longest.high <= seconds * (2 - NEAR_LIMIT):
            said.append(
                f"the longest request ended at {longest.high:.0f} s, where {key} ({seconds:g} s) ends them: longer "
                "ones were cut there, and are not in the sample"
            )
        elif longest.low > seconds:
            said.append(f"requests took longer than {key} allows now ({seconds:g} s)")
        if budget.choice.seconds > seconds and (seconds, key) not in written:
            said.append(f"{key} ({seconds:g} s) ends requests before N: raise it to {budget.choice.seconds} s or more")
    return said


def _refused(budget: Budget, situation: Situation | None) -> Iterator[str]:
    """What is printed for the stack file, and the stack file does not take as it is."""
    high = budget.measured.longest.high
    if budget.longest is not None and high > MAX_SECONDS:
        yield (
            f"the longest request took {high:.0f} s; a stack file takes {MAX_SECONDS} s (a day) at most as "
            "longestRequestSeconds, so that is printed"
        )
    for seconds, key in () if situation is None or budget.role == "prefill" else situation.written:
        if seconds < budget.needed:
            what = "N" if seconds < budget.choice.seconds else f"the longest request ({budget.longest} s)"
            yield (
                f"{key} is written in the stack file ({seconds:g} s), which is below {what}: raise it to "
                f"{budget.needed} s or more, or the file is refused with the lines below"
            )


def _censored(budget: Budget) -> str:
    now = budget.now
    so_far = (
        "" if now is None else f", which was {now.timeout} s" if now.timeout else ", which was 0: every one was cut"
    )
    return (
        f"requests that were cut by an earlier N{so_far}, or by a time limit, ended early or are missing: choose again "
        "after a week with this one"
    )


# --- how it is said ---------------------------------------------------------------------------------------------------


def write(budgets: Sequence[Budget], form: Form) -> str:
    """All roles in a format."""
    if form is Form.JSON:
        return json.dumps(as_json(budgets), indent=2) + "\n"
    return "\n".join([*(_text(budget) for budget in budgets), _stack_lines(budgets)])


def _text(budget: Budget) -> str:
    choice, measured = budget.choice, budget.measured
    half, most, longest = (
        _seconds(found) for found in (measured.quantile(0.5), measured.quantile(0.99), measured.longest)
    )
    lines = [
        f"{budget.role}: N = {choice.seconds} s",
        f"  from {round(measured.count):,} requests: {budget.source}",
        *(f"  left out: {count:,} {why}" for why, count in sorted(budget.left_out.items())),
        f"  durations: half within {half}, 99 % within {most}, all within {longest}",
        f"  cut at N: {_percent(choice.cut)} of the requests' time; {_neighbours(budget)}",
        f"  {_clamped(budget)}",
        *(f"  costs: {cost}" for cost in _costs(budget)),
        *(f"  note: {note}" for note in budget.notes),
        "",
        as_text(plot(budget)),
        "",
    ]
    return "\n".join(lines)


def _neighbours(budget: Budget) -> str:
    choice = budget.choice
    beside = [seconds for seconds in (choice.seconds - choice.step, choice.seconds + choice.step) if seconds > 0]
    return ", ".join(f"at {seconds} s {_percent(budget.measured.cut(seconds))}" for seconds in beside)


def _clamped(budget: Budget) -> str:
    choice, allowed = budget.choice, f"{budget.choice.most_cut:.3g}"
    share = f"{float(allowed) * 100:g} %"
    kindly = choice.wanted_low
    interval = (
        ""
        if budget.measured.longest.is_exact or kindly == choice.wanted
        else f"; the buckets allow {kindly} to {choice.wanted or 'more'} s, and the safe end is taken"
    )
    match choice.clamp:
        case Clamp.MOST:
            needs = "more than any bucket tells" if choice.wanted is None else f"{choice.wanted} s"
            return f"limit: the most allowed binds, at most {share} would need {needs}{interval}"
        case Clamp.LEAST:
            return f"limit: the least allowed binds, {choice.wanted} s would be enough for at most {share}{interval}"
        case _:
            first = f"the first multiple of {choice.step} s with at most {share}"
            return f"limit: none binds, {choice.seconds} s is {first}{interval}"


def _costs(budget: Budget) -> list[str]:
    now, leaves = budget.now, budget.leaves_within
    before = "" if now is None else f" (now {now.leaves} s)"
    costs = [f"on scale-down, node drains and evictions a busy Pod keeps its devices for up to {leaves} s{before}"]
    if now is None:
        costs.append(f"a roll-out without surge (0/1) waits up to {leaves} s for each Pod, one after the other")
        return costs
    together = f"{now.pods * leaves} s for its {now.pods} Pods (now {now.pods * now.leaves} s)"
    set_now = (
        f"as is set: {now.strategy}" if now.waits else f"set is {now.strategy}, which waits for none with spare devices"
    )
    costs.append(f"a roll-out without surge (0/1) waits up to {together}; {set_now}")
    return costs


def _stack_lines(budgets: Sequence[Budget]) -> str:
    """What to put into the stack file."""
    lines = ["Into the stack file:", "  serving-stack:drain:", "    shutdownTimeoutSeconds:"]
    lines += [f"      {budget.role}: {budget.choice.seconds}" for budget in budgets]
    if longest := [f"      {budget.role}: {budget.longest}" for budget in budgets if budget.longest is not None]:
        lines += ["    longestRequestSeconds:", *longest]
    return "\n".join(lines) + "\n"


def as_json(budgets: Sequence[Budget]) -> dict[str, Any]:
    """For programs: all times in seconds, shares as such, and what is not bounded as null."""
    longest = {budget.role: budget.longest for budget in budgets if budget.longest is not None}
    return {
        "roles": {budget.role: _role_json(budget) for budget in budgets},
        "stackFile": {
            "drain": {"shutdownTimeoutSeconds": {budget.role: budget.choice.seconds for budget in budgets}}
            | ({"longestRequestSeconds": longest} if longest else {})
        },
    }


def _role_json(budget: Budget) -> dict[str, Any]:
    choice, measured, now = budget.choice, budget.measured, budget.now
    around = [seconds for seconds in (choice.seconds - choice.step, choice.seconds + choice.step) if seconds > 0]
    return {
        "seconds": choice.seconds,
        "cut": _bounds(choice.cut),
        "wanted": choice.wanted,
        "wantedAtBest": choice.wanted_low,
        "clamp": choice.clamp,
        "requests": round(measured.count),
        "p50": _bounds(measured.quantile(0.5)),
        "p99": _bounds(measured.quantile(0.99)),
        "longest": _bounds(measured.longest),
        "neighbours": [{"seconds": seconds, "cut": _bounds(measured.cut(seconds))} for seconds in around],
        "leavesWithin": budget.leaves_within,
        "rollOutWaits": None if now is None else now.pods * budget.leaves_within,
        "now": None if now is None else {"seconds": now.timeout, "leavesWithin": now.leaves, "pods": now.pods},
        "source": budget.source,
        "leftOut": dict(budget.left_out),
        "notes": list(budget.notes),
    }


def _bounds(interval: Interval) -> dict[str, float | None]:
    return {
        "low": interval.low,
        "high": None if math.isinf(interval.high) else interval.high,
    }


# --- the plot ---------------------------------------------------------------------------------------------------------


def plot(budget: Budget) -> Plot:
    """Cut against N; with buckets its two bounds."""
    choice, measured = budget.choice, budget.measured
    end = _end(budget)
    x = [end * at / MOST_POINTS for at in range(MOST_POINTS + 1)]
    cuts = [measured.cut(seconds) for seconds in x]
    curves = [
        Curve(name="at most" if not measured.longest.is_exact else "cut", x=x, y=[cut.high * 100 for cut in cuts])
    ]
    if not measured.longest.is_exact:
        curves.append(Curve(name="at least", x=x, y=[cut.low * 100 for cut in cuts]))
    return Plot(
        title=f"{budget.role}: what is cut",
        x="N in seconds",
        y="share of the requests' time that is cut",
        curves=tuple(curves),
        across=((choice.most_cut * 100, f"{choice.most_cut * 100:g} % allowed"),),
        up=((choice.seconds, f"N = {choice.seconds} s"),),
        is_percent=True,
    )


def _end(budget: Budget) -> float:
    """Where the plot ends: well beyond N and what was wanted, not where a single long request does."""
    choice = budget.choice
    return max(choice.seconds, min(choice.wanted or 0, 4 * choice.seconds)) * 1.5


def draw(budgets: Sequence[Budget], path: Path) -> None:
    """Write the plots of all roles into an image."""
    as_image([plot(budget) for budget in budgets], path)


def _seconds(interval: Interval) -> str:
    if interval.is_exact:
        return f"{interval.high:,.3g} s" if interval.high < 100 else f"{interval.high:,.0f} s"  # noqa: PLR2004
    return f"{interval.low:g} to {'?' if math.isinf(interval.high) else f'{interval.high:g}'} s"


def _percent(interval: Interval) -> str:
    low, high = (f"{value * 100:.2f}" for value in (interval.low, interval.high))
    return f"{high} %" if low == high else f"{low} to {high} %"


def _span(seconds: int) -> str:
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:g} {unit}"
    return f"{seconds} s"
