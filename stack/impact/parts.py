"""Adds up what happens to the Deployments of one part of the stack: a role, or the endpoint picker."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stack.impact.arithmetic import percent
from stack.impact.model import CompileCache, Happening, Method, Outage, PartImpact, Start, WorkloadImpact

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stack.impact.judge import Judged
    from stack.planned import BudgetPlan

AS_BEFORE = frozenset({Start.WARM, Start.NOTHING_COMPILED})
"""With these the start-up times of the Pods that run say something about new ones."""


def add_up(part: str, judged: Sequence[Judged], start: CompileCache | None, budget: BudgetPlan) -> PartImpact:
    """A part whose Deployments are changed in place, made or deleted.

    Args:
        part: its name.
        judged: its Deployments in the order in which they are declared, those that are deleted last.
        start: what its new Pods find in the compile cache.
        budget: what its Pods request.
    """
    before, after = _sum_of_pods(judged)
    happens = _happens(judged, before, after)
    least = _least_ready(judged)
    extra = sum(_extra(each) for each in judged)
    accelerators, nics = devices_of(part, extra, budget)
    accelerators_per_pod, nics_per_pod = devices_of(part, 1, budget)
    rolling = next((each.strategy for each in judged if each.impact.method is Method.ROLLING), None)
    is_known = happens is not Happening.UNKNOWN
    return PartImpact(
        part=part,
        happens=happens,
        method=_method(judged),
        before=before,
        after=after,
        new=sum(each.impact.new for each in judged),
        kept=sum(each.impact.kept for each in judged),
        leaving=sum(each.impact.leaving for each in judged),
        extra_pods=extra,
        accelerators=accelerators,
        nics=nics,
        capacity_percent=_capacity(least, before, after) if is_known else None,
        outage=outage_of(judged, start) if is_known and after and not least else None,
        at_most_seconds=_longest_time(judged),
        max_surge=None if rolling is None else rolling.surge,
        max_unavailable=None if rolling is None else rolling.unavailable,
        cache=start,
        keys=tuple(dict.fromkeys(key for each in judged for key in each.impact.keys)),
        paths=tuple(dict.fromkeys(path for each in judged for path in each.impact.paths)),
        reason=next((each.impact.reason for each in judged if each.impact.reason is not None), None),
        notes=notes_of(judged),
        freed=tuple(uid for each in judged for uid in each.freed),
        is_restart_certain=all(each.is_certain for each in judged),
        drain_seconds=max(each.drain_seconds for each in judged),
        start_seconds=max(each.start_seconds for each in judged),
        about_start_seconds=_about_start(judged, start, most=max(each.start_seconds for each in judged)),
        accelerators_per_pod=accelerators_per_pod,
        nics_per_pod=nics_per_pod,
        workloads=tuple(_with_numbers(each) for each in judged),
    )


def unknown_part(part: str, pods: int, *, reason: str | None = None) -> PartImpact:
    """A planned part about which nothing can be told."""
    return PartImpact(
        part=part,
        happens=Happening.UNKNOWN,
        method=None,
        before=None,
        after=pods,
        new=0,
        kept=0,
        leaving=0,
        extra_pods=0,
        accelerators=0,
        nics=0,
        capacity_percent=None,
        outage=None,
        at_most_seconds=0,
        reason=reason,
        is_restart_certain=False,
    )


def devices_of(part: str, pods: int, budget: BudgetPlan) -> tuple[int | None, int | None]:
    """Accelerators and NICs of so many Pods; None where a claim template of the operator decides."""
    line = next((each for each in budget.lines if each.part == part), None)
    if line is None or not pods:
        return 0, 0
    accelerators = None if line.accelerators is None else pods * line.accelerators
    return accelerators, None if line.nics is None else pods * line.nics


def outage_of(
    judged: Sequence[Judged], start: CompileCache | None, *, why: str | None = None, drain: int | None = None
) -> Outage | None:
    """The time in which none of these Deployments serves; None if none does so now.

    From the first Pod told to go until a new one is Ready: the longest drain and the longest start.

    Args:
        judged: the Deployments.
        start: what their new Pods find.
        why: said where no single Deployment tells it.
        drain: longest drain in seconds, where others have to leave, too.
    """
    gone = [each for each in judged if each.impact.leaving]
    if not gone or not any(each.standing.ready for each in judged):
        return None
    drain = longest_drain(judged) if drain is None else drain
    most = max(each.start_seconds for each in judged)
    about = _about_start(gone, start, most=most)
    return Outage(
        at_most_seconds=drain + most,
        about_seconds=None if about is None else drain + about,
        start=_found(start),
        why=why or _why_all_go(gone),
    )


def longest_drain(judged: Iterable[Judged]) -> int:
    """Until the last Pod of these Deployments is gone that has to leave, or does already, in seconds."""
    return max((each.drain_seconds for each in judged if each.waits_to_drain), default=0)


def notes_of(judged: Iterable[Judged]) -> tuple[str, ...]:
    """What could not be looked at."""
    notes: dict[str, None] = {}
    for each in judged:
        if each.guesses:
            notes[f"{' and '.join(each.guesses)} could not be read, so numbers of Pods may be others"] = None
        if not each.is_certain:
            notes["told by the keys alone, since the API server could not be asked"] = None
    return tuple(notes)


def _with_numbers(judged: Judged) -> WorkloadImpact:
    """What happens to one Deployment, with the numbers that it was added up from."""
    all_go = judged.impact.happens is Happening.DELETED or judged.impact.method in {Method.ALL_DOWN, Method.REPLACE}
    return replace(
        judged.impact,
        extra_pods=_extra(judged),
        already=0 if all_go else judged.standing.kept,
        ready=judged.standing.ready,
        ready_kept=0 if all_go else judged.standing.ready_kept,
        placed=judged.standing.placed,
        drain_seconds=judged.drain_seconds,
        start_seconds=judged.start_seconds,
        about_start_seconds=judged.seen_seconds,
        waits_for=judged.after,
    )


def _extra(judged: Judged) -> int:
    """Pods for which it needs devices beyond those that are held; what waits for some anyway is not this change's."""
    return judged.exchange.extra if judged.impact.new or judged.is_exchanged else 0


def _found(start: CompileCache | None) -> Start:
    return Start.NOTHING_COMPILED if start is None else start.start


def _about_start(judged: Iterable[Judged], start: CompileCache | None, *, most: int) -> int | None:
    """How long new Pods will take to become Ready, going by those that run now; None where these say nothing of it.

    `most` is how long a new one may take, 0 where none comes.
    """
    found = [each.seen_seconds for each in judged if each.seen_seconds is not None]
    seen = [seconds for seconds in found if not most or seconds <= most]
    return max(seen) if seen and _found(start) in AS_BEFORE else None


def _sum_of_pods(judged: Iterable[Judged]) -> tuple[int, int]:
    """Pods asked for before and afterwards."""
    pods = [(each.impact.before or 0, each.impact.after) for each in judged]
    return sum(before for before, _ in pods), sum(after for _, after in pods)


def _happens(judged: Iterable[Judged], before: int, after: int) -> Happening:
    """The most serious of what happens to its Deployments; entries that come or go are more or fewer Pods of it."""
    found = {each.impact.happens for each in judged}
    for happens in (Happening.UNKNOWN, Happening.RESTARTS, Happening.GOES_BACK, Happening.CONTINUES):
        if happens in found:
            return happens
    if len(found) == 1:
        return found.pop()
    if before == after:
        return Happening.STAYS
    return Happening.SCALES_UP if after > before else Happening.SCALES_DOWN


def _method(judged: Sequence[Judged]) -> Method | None:
    exchanged = [each for each in judged if each.is_exchanged]
    if len(exchanged) > 1:
        return Method.ONE_BY_ONE
    methods = [each.impact.method for each in exchanged or judged if each.impact.method is not None]
    return methods[0] if methods else None


def _least_ready(judged: Sequence[Judged]) -> int:
    """Pods of all its Deployments that serve at any time.

    Of entries that wait for one another one alone is down at a time. Entries that are dropped go last: they serve until
    all others are as wanted.
    """
    first = _first_ones(judged)
    least = 0
    for each in judged:
        is_next = each.is_exchanged and each.impact.name not in first
        least += each.standing.ready if is_next or _goes_last(each) else each.exchange.least_ready
    in_the_end = sum(each.impact.after if each.is_exchanged else each.exchange.least_ready for each in judged)
    return min(least, in_the_end)


def _goes_last(judged: Judged) -> bool:
    """Whether it is an entry that is dropped; a role at 0 goes first."""
    return judged.impact.happens is Happening.DELETED and judged.impact.entry is not None


def _first_ones(judged: Iterable[Judged]) -> set[str]:
    """Deployments that are exchanged and wait for no other that is; they are down at the same time.

    The next ones in a row are down only when those serve again.
    """
    by_name = {each.impact.name: each for each in judged}

    def waits(name: str) -> bool:
        of = by_name.get(name)
        return of is not None and any(
            (earlier in by_name and by_name[earlier].is_exchanged) or waits(earlier) for earlier in of.after
        )

    return {name for name, each in by_name.items() if each.is_exchanged and not waits(name)}


def _capacity(least: int, before: int, after: int) -> int | None:
    """Share of the wanted Pods; 0 of a role that goes, and None of one that comes."""
    return percent(least, min(before, after)) if after else 0


def _longest_time(judged: Sequence[Judged]) -> int:
    """Of those that wait for one another the sum; all others at the same time; and then entries that are dropped."""
    in_a_row = sum(each.seconds for each in judged if each.is_exchanged)
    beside = [each.seconds for each in judged if not each.is_exchanged and not _goes_last(each)]
    return max([in_a_row, *beside]) + max([0, *(each.seconds for each in judged if _goes_last(each))])


def _why_all_go(gone: Sequence[Judged]) -> str:
    match gone[0].impact.method:
        case Method.ROLLING:
            return f"maxUnavailable lets all Pods go at once ({gone[0].strategy.unavailable} of {gone[0].impact.after})"
        case Method.REPLACE:
            return "the Deployment is made anew, since its selector changes"
        case _ if gone[0].impact.entry is not None:
            return "no other entry of the role serves while one leaves and comes back"
        case _:
            return "all Pods leave before the first new one starts (Recreate)"
