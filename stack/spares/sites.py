"""The search behind the verdict: what can be put on one site, in every way the scheduler might choose.

A site is a node, or several that share devices. Devices that no demand can tell apart are counted, not listed, and
groups of them that differ only in the value they share (NUMA nodes, PCIe roots) are taken for one another. Where a
scheduler may choose, every choice is followed: kube-scheduler takes the first that fits, in an order that changed
between versions (Kubernetes 1.36 sorts pools by name).

Everything is numbers here: demands, kinds of request, constrained attributes and nodes are known by their index.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Vector = tuple[int, ...]
"""Pods of each demand."""

MOST_VECTORS = 4_000


class TooLargeError(Exception):
    """There are more ways than will be followed."""


@dataclass(frozen=True)
class Cell:
    """Devices of a site that nothing tells apart.

    Attributes:
        kinds: kinds of request that each would do for.
        values: its value of each constrained attribute; None where it has none, or no constraint asks.
        reach: nodes of the site that can have it; None for all.
    """

    kinds: frozenset[int]
    values: tuple[object, ...]
    reach: frozenset[int] | None = None


@dataclass(frozen=True)
class ClaimPlan:
    """A claim: (kind, count) of each request, and (requests, attribute) of each constraint."""

    requests: tuple[tuple[int, int], ...]
    constraints: tuple[tuple[frozenset[int], int], ...] = ()


PodPlan = tuple[ClaimPlan, ...]


@dataclass(frozen=True)
class Room:
    """A node of a site.

    Attributes:
        plans: what a Pod of each demand claims here; None where it may not be.
        needs: amounts that a Pod of each demand needs here, resource by resource.
        free: amounts that are left.
    """

    plans: tuple[PodPlan | None, ...]
    needs: tuple[Vector, ...]
    free: Vector

    def has_amounts_for(self, placed: Vector, one_more: int) -> bool:
        """Whether another Pod of a demand finds its amounts beside those placed."""
        return all(
            self.needs[one_more][r] + sum(n * self.needs[d][r] for d, n in enumerate(placed) if n) <= free
            for r, free in enumerate(self.free)
            if self.needs[one_more][r]
        )


@dataclass(frozen=True)
class Site:
    """What is free in one place. Equal sites behave alike, whatever their names; make them with `site_of`.

    Attributes:
        runs: (start, width, number) of groups of cells that can be taken for one another.
    """

    cells: tuple[Cell, ...]
    counts: Vector
    runs: tuple[tuple[int, int, int], ...]
    rooms: tuple[Room, ...]


def site_of(counted: Mapping[Cell, int], rooms: Sequence[Room]) -> Site:
    """Bring a site into a form that only depends on what it is like."""
    groups: list[tuple[tuple[object, ...], tuple[Cell, ...], Vector]] = []
    for cells in _connected(counted):
        ordered = sorted(cells, key=lambda cell: (sorted(cell.kinds), sorted(cell.reach or ()), repr(cell.values)))
        names: dict[tuple[int, object], int] = {}
        alike = tuple(
            Cell(
                cell.kinds,
                tuple(
                    None if value is None else names.setdefault((a, value), len(names))
                    for a, value in enumerate(cell.values)
                ),
                cell.reach,
            )
            for cell in ordered
        )
        shape = tuple((tuple(sorted(cell.kinds)), repr(cell.values), tuple(sorted(cell.reach or ()))) for cell in alike)
        groups.append((shape, tuple(ordered), tuple(counted[cell] for cell in ordered)))
    groups.sort(key=lambda group: (group[0], group[2]))
    cells: list[Cell] = []
    counts: list[int] = []
    runs: list[tuple[int, int, int]] = []
    for shape, same in groupby(groups, key=lambda group: group[0]):
        held = list(same)
        runs.append((len(cells), len(shape), len(held)))
        for number, (_, found, numbers) in enumerate(held):
            # Values only have to differ between groups; their own names are of no matter.
            labels: dict[tuple[int, object], tuple[int, int, int]] = {}
            for cell in found:
                values = tuple(
                    None if value is None else labels.setdefault((a, value), (len(runs), number, len(labels)))
                    for a, value in enumerate(cell.values)
                )
                cells.append(Cell(cell.kinds, values, cell.reach))
            counts += numbers
    return Site(tuple(cells), tuple(counts), tuple(runs), tuple(rooms))


def _connected(counted: Iterable[Cell]) -> list[list[Cell]]:
    """Cells that share a value, directly or through others, together."""
    group_of: dict[tuple[int, object], list[Cell]] = {}
    found: list[list[Cell]] = []
    for cell in counted:
        met: list[list[Cell]] = []
        for key in _values(cell):
            group = group_of.get(key)
            if group is not None and not any(group is other for other in met):
                met.append(group)
        joined = [member for group in met for member in group] + [cell]
        group_of |= {key: joined for member in joined for key in _values(member)}
        found = [group for group in found if not any(group is other for other in met)] + [joined]
    return found


def _values(cell: Cell) -> list[tuple[int, object]]:
    return [(a, value) for a, value in enumerate(cell.values) if value is not None]


# --- the ways of one Pod ----------------------------------------------------------------------------------------------


class _Filling:
    """A Pod that gets its devices on a node, every way once as far as cells tell it."""

    def __init__(self, site: Site, counts: Vector, node: int, plan: PodPlan) -> None:
        self.left = list(counts)
        self.usable = [
            (place, cell)
            for place, cell in enumerate(site.cells)
            if counts[place] and (cell.reach is None or node in cell.reach)
        ]
        self.plan = plan
        self.requests = [
            (claim, request, kind, count)
            for claim, held in enumerate(plan)
            for request, (kind, count) in enumerate(held.requests)
        ]
        self.bound: dict[tuple[int, int], object] = {}  # (claim, constraint) -> the value that its devices share

    def ways(self, at: int = -1, start: int = 0, missing: int = 0) -> Iterator[Vector]:
        """What may be left. A request takes from cells in their order, so that no choice comes twice.

        Args:
            at: the request in question; those before it have their devices.
            start: first cell that it may still take from.
            missing: devices that it still needs.
        """
        while missing == 0:
            at += 1
            if at == len(self.requests):
                yield tuple(self.left)
                return
            start, missing = 0, self.requests[at][3]
        claim, request, kind, _ = self.requests[at]
        for number in range(start, len(self.usable)):
            place, cell = self.usable[number]
            if not self.left[place] or kind not in cell.kinds:
                continue
            settled = self._settle(claim, request, cell)
            if settled is None:
                continue
            for taken in range(min(missing, self.left[place]), 0, -1):
                self.left[place] -= taken
                yield from self.ways(at, number + 1, missing - taken)
                self.left[place] += taken
            for key in settled:
                del self.bound[key]

    def _settle(self, claim: int, request: int, cell: Cell) -> list[tuple[int, int]] | None:
        """Note the values that a choice settles, and say which are new; None if a constraint forbids it."""
        values = {
            (claim, place): cell.values[attribute]
            for place, (requests, attribute) in enumerate(self.plan[claim].constraints)
            if request in requests
        }
        if any(value is None or self.bound.get(key, value) != value for key, value in values.items()):
            return None
        new = [key for key in values if key not in self.bound]
        self.bound |= values
        return new


@dataclass(frozen=True)
class Findings:
    """What a site can take.

    Attributes:
        most: Pods that fit together, none of which could be more.
        blocks: for each demand, fewest Pods after which none of it fits any more.
        alone: for each demand, how many fit when nothing else does.
    """

    most: frozenset[Vector]
    blocks: tuple[frozenset[Vector], ...]
    alone: Vector


class Effort:
    """How much may still be looked at."""

    def __init__(self, ways: int) -> None:
        self.ways = ways

    def spend(self) -> None:
        """Count one way.

        Raises:
            TooLargeError: that was one too many.
        """
        self.ways -= 1
        if self.ways < 0:
            raise TooLargeError


def explore(site: Site, wanted: Vector, effort: Effort) -> Findings:
    """Follow every way to put up to `wanted` Pods there.

    Raises:
        TooLargeError: there are too many.
    """
    demands = range(len(wanted))
    nothing = tuple(tuple(0 for _ in demands) for _ in site.rooms)
    start = (site.counts, nothing)
    seen = {start}
    waiting = [start]
    totals: set[Vector] = set()
    blocks: list[set[Vector]] = [set() for _ in demands]
    while waiting:
        counts, placed = waiting.pop()
        total = tuple(map(sum, zip(*placed, strict=True)))
        totals.add(total)
        for d in demands:
            if total[d] >= wanted[d]:
                continue
            fits = False
            for node, room in enumerate(site.rooms):
                plan = room.plans[d]
                if plan is None or not room.has_amounts_for(placed[node], d):
                    continue
                more = tuple(
                    tuple(n + (here == node and e == d) for e, n in enumerate(there))
                    for here, there in enumerate(placed)
                )
                for left in _Filling(site, counts, node, plan).ways():
                    effort.spend()
                    fits = True
                    state = (_sorted_alike(left, site.runs), more)
                    if state not in seen:
                        seen.add(state)
                        waiting.append(state)
            if not fits:
                blocks[d].add(total)
    return Findings(
        most=frozenset(largest(totals)),
        blocks=tuple(frozenset(smallest(found)) for found in blocks),
        alone=tuple(max(total[d] for total in totals if sum(total) == total[d]) for d in demands),
    )


def _sorted_alike(counts: Vector, runs: tuple[tuple[int, int, int], ...]) -> Vector:
    """The same state under one name, whichever of several like groups were used."""
    if all(number == 1 for _, _, number in runs):
        return counts
    made: list[int] = []
    for start, width, number in runs:
        groups = sorted(counts[start + i * width : start + (i + 1) * width] for i in range(number))
        for group in groups:
            made += group
    return tuple(made)


# --- vectors ----------------------------------------------------------------------------------------------------------


def _is_within(one: Vector, other: Vector) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))


def largest(vectors: Iterable[Vector]) -> set[Vector]:
    """Those that no other one contains."""
    kept: list[Vector] = []
    for vector in sorted(vectors, key=sum, reverse=True):
        if not any(_is_within(vector, other) for other in kept):
            kept.append(vector)
    return set(kept)


def smallest(vectors: Iterable[Vector]) -> set[Vector]:
    """Those that contain no other one."""
    kept: list[Vector] = []
    for vector in sorted(vectors, key=sum):
        if not any(_is_within(other, vector) for other in kept):
            kept.append(vector)
    return set(kept)


def packs(findings: Mapping[Site, Findings], sites: Mapping[Site, int], wanted: Vector) -> bool:
    """Whether all that is wanted fits, put well. `sites` says how many of each there are.

    Raises:
        TooLargeError: there are too many combinations.
    """
    reached = {tuple(0 for _ in wanted)}
    for site, number in sites.items():
        options = {tuple(map(min, option, wanted)) for option in findings[site].most if any(option)}
        if not options:
            continue
        for _ in range(number):
            if wanted in reached:
                return True
            more = largest(
                tuple(min(a + b, w) for a, b, w in zip(one, other, wanted, strict=True))
                for one in reached
                for other in options
            )
            if more == reached:
                break
            reached = more
            _check(reached)
    return wanted in reached


def can_be_blocked(findings: Mapping[Site, Findings], sites: Mapping[Site, int], wanted: Vector, demand: int) -> bool:
    """Whether some of the wanted Pods can be so placed that the last one of a demand fits nowhere.

    Raises:
        TooLargeError: there are too many combinations.
    """
    bound = tuple(w - (d == demand) for d, w in enumerate(wanted))
    reached = {tuple(0 for _ in wanted)}
    for site, number in sites.items():
        options = findings[site].blocks[demand]
        if options and not any(map(any, options)):
            continue  # nothing of it ever fits there
        for _ in range(number):
            sums = (tuple(map(sum, zip(one, other, strict=True))) for one in reached for other in options)
            reached = smallest(vector for vector in sums if _is_within(vector, bound))
            if not reached:
                return False
            _check(reached)
    return True


def _check(vectors: set[Vector]) -> None:
    if len(vectors) > MOST_VECTORS:
        raise TooLargeError


def at_most(site: Site, demand: int) -> int:
    """Pods of one demand that fit at the very most: by numbers alone, whatever their constraints."""
    found = 0
    for node, room in enumerate(site.rooms):
        plan = room.plans[demand]
        if plan is None:
            continue
        limits = [free // need for free, need in zip(room.free, room.needs[demand], strict=True) if need]
        asked: dict[int, int] = defaultdict(int)
        for claim in plan:
            for kind, count in claim.requests:
                asked[kind] += count
        for kind, count in asked.items():
            have = sum(
                number
                for cell, number in zip(site.cells, site.counts, strict=True)
                if kind in cell.kinds and (cell.reach is None or node in cell.reach)
            )
            limits.append(have // count)
        found += max(0, min(limits, default=0))
    return found
