"""A change of the topology: all model servers leave in parallel, and only then the new ones are made.

Names of Deployments may change with it, so a role is looked at as a whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stack.impact.judge import PLACES
from stack.impact.keys import Delta, compare, in_words
from stack.impact.model import Happening, KeyChange, Method
from stack.impact.parts import add_up, devices_of, longest_drain, outage_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stack.impact.judge import Judged, Wanted
    from stack.impact.live import LiveWorkload
    from stack.impact.model import CompileCache, PartImpact
    from stack.planned import BudgetPlan, TopologyPlan

MODEL = "modelserver.model"
WHY_ALL_GO = "all model servers leave before the first new one starts, since the topology changes"


def exchange_all(
    role: str, judged: Sequence[Judged], start: CompileCache | None, budget: BudgetPlan, *, drain: int
) -> PartImpact:
    """A role that goes with the topology anchor, comes after it, or both.

    All its new Pods need devices, and all devices that the stack holds are free by then.

    Args:
        role: its name.
        judged: its Deployments.
        start: what its new Pods find in the compile cache.
        budget: what its Pods request.
        drain: until the last Pod of any role is gone, in seconds.
    """
    part = add_up(role, judged, start, budget)
    accelerators, nics = devices_of(role, part.after, budget)
    drain = drain if part.after else longest_drain(judged)
    return replace(
        part,
        happens=_happens(part),
        method=Method.ALL_DOWN if part.after else Method.LEAVE,
        extra_pods=part.after,
        accelerators=accelerators,
        nics=nics,
        capacity_percent=0 if part.before else None,
        outage=outage_of(judged, start, why=WHY_ALL_GO, drain=drain) if part.before and part.after else None,
        at_most_seconds=drain + max(each.start_seconds for each in judged),
        keys=(),
        paths=(),
        reason=None,
        is_restart_certain=True,
    )


def deltas_of_a_role(role: str, live: Iterable[LiveWorkload], wanted: Iterable[Wanted]) -> tuple[Delta, ...] | None:
    """What is another for the Pods of a role, by its first Deployment before and after; None if that is not known."""
    before = next((each.record for each in live if each.part == role and each.record is not None), None)
    after = next((each.record for each in wanted if each.part == role), None)
    return None if before is None or after is None else compare(before, after)


def shown(deltas: Iterable[Delta] | None) -> tuple[KeyChange, ...]:
    """Keys of a role besides those that say why the topology changes."""
    return in_words(each for each in deltas or () if each.key != MODEL and not each.key.startswith(PLACES))


def why_it_changes(
    live: Sequence[LiveWorkload], wanted: Sequence[Wanted], topology: TopologyPlan
) -> tuple[KeyChange, ...]:
    """From what to what: mode, roles, model, and the place of each entry that has another."""
    was_placed = any(each.entry is not None for each in live)
    is_placed = topology.mode == "nodePlacement"
    keys: list[KeyChange] = []
    if live and was_placed is not is_placed:
        modes = ("nodePlacement", "replicas") if was_placed else ("replicas", "nodePlacement")
        keys.append(KeyChange(key="modelserver (mode)", before=modes[0], after=modes[1]))
    roles = {"aggregated" if each.part == "aggregated" else "prefill and decode" for each in live}
    are = "prefill and decode" if topology.is_disaggregated else "aggregated"
    if roles and roles != {are}:
        keys.append(KeyChange(key="modelserver (roles)", before=" and ".join(sorted(roles)), after=are))
    keys += _another_model(live, wanted)
    if was_placed and is_placed:
        keys += _reassigned({each.entry: each.place for each in live}, {each.entry: each.place for each in wanted})
    return tuple(keys)


def _another_model(live: Iterable[LiveWorkload], wanted: Iterable[Wanted]) -> tuple[KeyChange, ...]:
    before = next((each.record.values.get(MODEL) for each in live if each.record is not None), None)
    after = next((each.record.values.get(MODEL) for each in wanted), None)
    if before is None or before == after:
        return ()
    return in_words([Delta(key=MODEL, before=before, after=after)])


def _reassigned(before: Mapping[int | None, str], after: Mapping[int | None, str]) -> list[KeyChange]:
    entries = sorted(entry for entry in before.keys() | after.keys() if entry is not None)
    return [
        KeyChange(key=f"{PLACES}[{entry}]", before=before.get(entry), after=after.get(entry))
        for entry in entries
        if before.get(entry) != after.get(entry)
    ]


def _happens(part: PartImpact) -> Happening:
    if not part.after:
        return Happening.DELETED
    return Happening.RESTARTS if part.before else Happening.CREATED
