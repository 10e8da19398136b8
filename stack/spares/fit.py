"""Whether planned Pods find devices and room: in any order, in some order, not at all, or not known.

*In any order* and *cannot* are proofs against kube-scheduler, whatever it chooses: Pods in any order, nodes by any
score, devices in any sequence. Pods that have found their places can have come in any order of their own, and what is
left only ever shrinks, so a Pod waits in vain exactly if others can be so placed that it fits nowhere.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum
from heapq import nsmallest
from typing import TYPE_CHECKING

from stack.spares.demand import Demand, needs
from stack.spares.ground import Ground, View
from stack.spares.sites import (
    Effort,
    Findings,
    PodPlan,
    Site,
    TooLargeError,
    at_most,
    can_be_blocked,
    explore,
    packs,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stack.spares.supply import Supply

MOST_WAYS = 60_000
"""Placements that are looked at before the answer is *not known*: some tenths of a second."""
PLACES_TOLD = 3


class Outcome(Enum):
    """What is certain."""

    ANY_ORDER = "fits in any order"
    SOME_ORDER = "fits in some order"
    CANNOT = "cannot fit"
    UNKNOWN = "not known"


@dataclass(frozen=True, kw_only=True)
class Place:
    """A node, or nodes that share devices, and what one demand finds there.

    Attributes:
        nodes: their names.
        fits: Pods that fit when nothing else is put there; None when that is not known.
        free: free devices by DeviceClass.
        together: (attribute, devices) of each constraint: most of the constrained free devices with one value.
    """

    nodes: tuple[str, ...]
    fits: int | None
    free: Mapping[str, int]
    together: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        free = " and ".join(f"{count} {name}" for name, count in sorted(self.free.items())) or "room"
        text = f"{free} free on {', '.join(self.nodes)}"
        return text + "".join(f", {count} of them with one {name.rpartition('/')[2]}" for name, count in self.together)


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one demand needs and finds.

    Attributes:
        wanted: Pods.
        needs: devices of one Pod by DeviceClass.
        fits: Pods that fit when nothing else is put anywhere, at most `wanted`; None when that is not known.
        free: free devices by DeviceClass, on all nodes that the Pod may use.
        where: the best places first, few.
        coming: devices that Pods hold who were told to go, in words.
    """

    name: str
    wanted: int
    needs: Mapping[str, int]
    fits: int | None
    free: Mapping[str, int]
    where: tuple[Place, ...]
    coming: tuple[str, ...] = ()

    def __str__(self) -> str:
        each = " and ".join(f"{count} {name}" for name, count in sorted(self.needs.items())) or "no devices by claim"
        fits = "not known how many fit" if self.fits is None else f"{self.fits} fit{'s' * (self.fits == 1)}"
        parts = [f"{self.name}: {_pods(self.wanted)} with {each} each, {fits}"]
        parts += map(str, self.where) if self.where else ["no node has anything for it free"]
        parts += [f"coming: {text}" for text in self.coming]
        return "; ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is certain, why, and what each demand finds."""

    outcome: Outcome
    reasons: tuple[str, ...]
    shares: tuple[Share, ...] = ()

    def __str__(self) -> str:
        return ". ".join([f"{self.outcome.value}: {'; '.join(self.reasons)}", *map(str, self.shares)])


def judge(supply: Supply, wanted: Sequence[tuple[Demand, int]], *, freed: frozenset[str] = frozenset()) -> Verdict:
    """Judge whether so many Pods of each demand, all made at once, find their places.

    Args:
        supply: the cluster as it is.
        wanted: demands, each with its number of Pods.
        freed: uids of Pods that will be gone before: what they hold counts as free (a mode switch takes all of a
            release down first).
    """
    asked = [(demand, number) for demand, number in wanted if number > 0]
    if not asked:
        return Verdict(outcome=Outcome.ANY_ORDER, reasons=("no Pod is to be made",))
    ground = Ground(supply, [demand for demand, _ in asked], [number for _, number in asked], freed)
    if stop := stopped(ground):
        return stop
    question = Question(ground)
    return question.verdict(*question.decide())


def stopped(ground: Ground) -> Verdict | None:
    """What can be said before anything is counted; None if that is nothing."""
    if impossible := ground.impossible():
        return Verdict(outcome=Outcome.CANNOT, reasons=tuple(impossible))
    missing = ground.missing()
    # Without classes an extended resource may be provided by any of them.
    needed = {"nodes", "slices"} | ({"classes"} if any(demand.extended for demand in ground.demands) else set[str]())
    told = tuple(f"{_LISTS[what]} could not be read" for what in missing)
    if needed & set(missing):
        return Verdict(outcome=Outcome.UNKNOWN, reasons=told)
    ground.unknown |= dict.fromkeys(told)
    ground.unknown |= dict.fromkeys(f"{demand.name}: {why}" for demand in ground.demands for why in demand.unknown)
    ground.unknown |= dict.fromkeys(ground.kept_away())
    return None


_LISTS = {
    "nodes": "Nodes",
    "pods": "Pods",
    "slices": "ResourceSlices",
    "classes": "DeviceClasses",
    "claims": "ResourceClaims",
}
Reply = tuple[Outcome, tuple[str, ...]]


class Question:
    """A ground, taken apart and looked through."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.hopeful, self.sure = ground.hopeful, ground.sure
        self.findings: dict[Site, Findings] = {}
        self.effort = Effort(MOST_WAYS)
        try:
            for site in (*self.sure, *self.hopeful):
                if site not in self.findings:
                    self.findings[site] = explore(site, ground.wanted, self.effort)
        except TooLargeError:
            self.findings = {}

    def verdict(self, outcome: Outcome, reasons: tuple[str, ...]) -> Verdict:
        """Put an answer together with what each demand finds."""
        shares = tuple(self._share(d, demand) for d, demand in enumerate(self.ground.demands))
        return Verdict(outcome=outcome, reasons=reasons, shares=shares)

    def decide(self) -> Reply:
        """Look for proofs in turn."""
        failing, is_certain = self.ground.failing()
        if is_certain:
            return Outcome.CANNOT, tuple(failing)
        pool = self.ground.doubtful()
        if pool is None and not self.ground.is_unlimited() and (short := self._short()):
            return Outcome.CANNOT, tuple(short)
        if reasons := (*failing, *self.ground.unknown):
            return Outcome.UNKNOWN, reasons
        try:
            return self._order(pool)
        except TooLargeError:
            return Outcome.UNKNOWN, (f"there are more than {MOST_WAYS} ways to place them",)

    def _order(self, pool: str | None) -> Reply:
        """In which order they fit, when everything is known and nothing speaks against it."""
        ground, sites = self.ground, _counted(self.sure)
        if not self.findings:
            raise TooLargeError
        if not packs(self.findings, sites, ground.wanted):
            if pool is not None:
                return Outcome.UNKNOWN, (f"the pool {pool} is not published in whole",)
            return Outcome.SOME_ORDER, ("they fit once Pods that leave, or yield to a higher priority, are gone",)
        if ground.contested:
            more = len(ground.contested) - 1
            who = ground.contested[0] + (f" and {more} more wait" if more else " waits")
            return Outcome.SOME_ORDER, (f"{who} for the same devices and may be first",)
        for d, demand in enumerate(ground.demands):
            if can_be_blocked(self.findings, sites, ground.wanted, d):
                why = f"others can be so placed that the last Pod of {demand.name} finds no place"
                return Outcome.SOME_ORDER, (why,)
        return Outcome.ANY_ORDER, ("wherever the others are put, every Pod finds its place",)

    def _short(self) -> list[str]:
        """Why not all can fit, however well they are put; nothing if they can, or if it is not known."""
        ground, sites = self.ground, _counted(self.hopeful)
        room = [
            sum(
                number * (self.findings[site].alone[d] if self.findings else at_most(site, d))
                for site, number in sites.items()
            )
            for d in range(len(ground.demands))
        ]
        short = [
            f"{demand.name} needs room for {_pods(wanted)}, and there is room for {fits or 'none'}"
            for demand, wanted, fits in zip(ground.demands, ground.wanted, room, strict=True)
            if fits < wanted
        ]
        try:
            if not short and self.findings and not packs(self.findings, sites, ground.wanted):
                return ["each demand fits alone, but not all of them together"]
        except TooLargeError:
            return []
        return short

    # -- words ----------------------------------------------------------------------------------------------------

    def _share(self, d: int, demand: Demand) -> Share:
        free: Counter[str] = Counter()
        fits = 0
        best: list[Place] = []
        for site, places in self.sure.items():
            plan = next((room.plans[d] for room in site.rooms if room.plans[d] is not None), None)
            if plan is None:
                continue
            found = self._place(d, site, plan)
            fits += (found.fits or 0) * len(places)
            for name, count in found.free.items():
                free[name] += count * len(places)
            if found.fits or any(found.free.values()):
                best += [replace(found, nodes=names) for names in nsmallest(PLACES_TOLD, places)]
        best.sort(key=lambda place: (-(place.fits or 0), -sum(place.free.values()), place.nodes))
        asked = self._needs(d)
        return Share(
            name=demand.name,
            wanted=self.ground.wanted[d],
            needs=asked,
            fits=min(fits, self.ground.wanted[d]) if self.findings else None,
            free={name: free[name] for name in asked},
            where=tuple(best[:PLACES_TOLD]),
            coming=tuple(self._coming(d)),
        )

    def _needs(self, d: int) -> Mapping[str, int]:
        demand, class_of = self.ground.demands[d], self.ground.supply.class_of
        found = needs(demand)
        claimed = {class_of[resource]: count for resource, count in demand.extended.items() if resource in class_of}
        return found or claimed

    def _place(self, d: int, site: Site, plan: PodPlan) -> Place:
        class_of = self._class_of()
        held = [(cell, count) for cell, count in zip(site.cells, site.counts, strict=True) if count]
        free: dict[str, int] = {}
        together: dict[str, int] = {}
        for claim in plan:
            for kind, _ in claim.requests:
                have = sum(count for cell, count in held if kind in cell.kinds)
                free[class_of[kind]] = max(free.get(class_of[kind], 0), have)
            for named, attribute in claim.constraints:
                kinds = {claim.requests[place][0] for place in named}
                values: Counter[object] = Counter()
                for cell, count in held:
                    if cell.kinds & kinds and cell.values[attribute] is not None:
                        values[cell.values[attribute]] += count
                together[list(self.ground.attributes)[attribute]] = max(values.values(), default=0)
        return Place(
            nodes=(),
            fits=self.findings[site].alone[d] if self.findings else None,
            free=free,
            together=tuple(sorted(together.items())) if any(free.values()) else (),
        )

    def _class_of(self) -> Mapping[int, str]:
        return {kind: request.device_class for request, kind in self.ground.kinds.items()}

    def _coming(self, d: int) -> Iterable[str]:
        """Devices of its kinds that Pods hold who were told to go."""
        ground = self.ground
        if not ground.leaving:
            return
        named = {pod.uid: pod.name for pod in ground.supply.pods()}
        kinds = {kind for plan in ground.plans(d) for claim in plan for kind, _ in claim.requests}
        class_of = self._class_of()
        held: Counter[tuple[str, str, str]] = Counter()
        for node in ground.supply.touched_by(ground.leaving) & ground.shapes.keys():
            for device in ground.supply.local.get(node, ()):
                users = ground.supply.held.get(device.id)
                if users and users <= ground.leaving:
                    for kind in sorted(kinds & ground.answers(device).keys())[:1]:
                        held[node, class_of[kind], ", ".join(sorted(named[uid] for uid in users))] += 1
        for (node, device_class, pods), count in sorted(held.items()):
            yield f"{count} {device_class} on {node} when {pods} has left"


def _counted(view: View) -> dict[Site, int]:
    """How many of each there are."""
    return {site: len(places) for site, places in view.items()}


def _pods(number: int) -> str:
    return f"{number} Pod{'s' * (number != 1)}"
