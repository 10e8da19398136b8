"""The cluster as the search sees it: sites, each with what it has for the demands in question.

Two views are taken. The *sure* one counts what is free now. The *hopeful* one also counts what may become free without
anybody's doing: what Pods hold that were told to go, and, where amounts are short, what Pods of a lower priority hold.
What is not modelled is noted; it only narrows what the scheduler may do, or is taken for free in both views.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from stack.spares.cel import Answer
from stack.spares.field import NOBODY, Cells, Shape, field_of, is_given_back, words
from stack.spares.pods import matches_labels
from stack.spares.sites import Cell, PodPlan, Room, Site, Vector, site_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from stack.spares.demand import Demand, Request
    from stack.spares.field import Note
    from stack.spares.pods import Amounts
    from stack.spares.supply import Device, Supply

ALL_NODES_ARE_TRIED = 100
"""Below this number of nodes the scheduler looks at every one (kube-scheduler, `minFeasibleNodesToFind`)."""
View = dict[Site, list[tuple[str, ...]]]
"""Sites with the names of the nodes of each: places that behave alike are one."""


class _Look(NamedTuple):
    """What a node has to give, and the Pods that are counted as gone for it."""

    room: Room
    cells: Cells
    gone: frozenset[str]


class _Tied(NamedTuple):
    """A free device that several nodes can have."""

    cell: int
    near: frozenset[str]


class Ground:
    """A cluster and the demands in question.

    Attributes:
        contested: Pods that wait for the same devices.
        unknown: what is not modelled or could not be evaluated; filled while views are taken.
    """

    def __init__(
        self, supply: Supply, demands: Sequence[Demand], wanted: Sequence[int], freed: frozenset[str] = frozenset()
    ) -> None:
        self.supply, self.demands, self.wanted, self.freed = supply, tuple(demands), tuple(wanted), freed
        self.field = field_of(supply, demands)
        self.unknown: dict[str, None] = {}  # a set that keeps its order
        self.leaving = supply.leaving
        self._noted: set[str] = set()
        for sort, text in self.field.notes:
            self._note(sort, text)
        self._failing: dict[tuple[int, str], list[Device]] = defaultdict(list)
        self.contested, self._taken_first = self._competition()
        self._looks: dict[tuple[str, bool], _Look] = {}
        self._rooms: dict[tuple[Shape, Vector], Room] = {}
        self._same_rooms: dict[tuple[Shape, Vector], Room] = {}
        self._limits: dict[Shape, list[tuple[int, int]]] = {}
        self._sites: dict[Hashable, Site] = {}
        self._touched = supply.touched_by(freed)
        self._gaining = supply.giving_back | supply.touched_by(self.leaving)

    @property
    def kinds(self) -> Mapping[Request, int]:
        """Kinds of request, numbered."""
        return self.field.kinds

    @property
    def attributes(self) -> Mapping[str, int]:
        """Constrained attributes, numbered."""
        return self.field.attributes

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """For each node that some demand may use, what its Pods ask there."""
        return self.field.shapes

    def answers(self, device: Device) -> Mapping[int, Answer]:
        """What each kind of request says of a device, as far as it is not a plain no."""
        return self.field.answers(device)

    def plans(self, d: int) -> list[PodPlan]:
        """What Pods of a demand claim, in each way that there is."""
        plans = (shape.plans[d] for shape in dict.fromkeys(self.shapes.values()))
        return [plan for plan in plans if plan is not None]

    def _competition(self) -> tuple[list[str], Amounts]:
        """Pods that wait for the same devices, and the amounts that others who wait may take first.

        Those that the scheduler tried in vain are none as long as nothing becomes free.
        """
        classes = {request.device_class for request in self.kinds}
        resources = {resource for demand in self.demands for resource in demand.extended}
        contested: list[str] = []
        amounts: Counter[str] = Counter()
        for pod in self.supply.waiting:
            if pod.uid in self.freed or (pod.is_known_not_to_fit and not self.freed):
                continue
            if pod.classes is None or pod.classes & classes or resources & pod.requests.keys():
                contested.append(pod.name)
            else:
                amounts.update({**pod.requests, "pods": 1})
        return contested, dict(amounts)

    # -- what is there --------------------------------------------------------------------------------------------

    @cached_property
    def hopeful(self) -> View:
        """With what may become free."""
        return self._view(hopeful=True)

    @cached_property
    def sure(self) -> View:
        """With what is free."""
        return self._view(hopeful=False)

    def _view(self, *, hopeful: bool) -> View:
        """Take the cluster apart into sites."""
        looks = {name: self._look(name, hopeful=hopeful) for name in self.shapes}
        tied = self._tied(looks, hopeful=hopeful)
        places = _joined(looks, tied)
        alike: dict[Hashable, list[tuple[str, ...]]] = {}
        sites: dict[Hashable, Site] = {}
        group_of = {name: names for names in places for name in names} if tied else {}
        shared: dict[tuple[str, ...], list[_Tied]] = defaultdict(list)
        for each in tied:
            shared[group_of[next(iter(each.near))]].append(each)
        for names in places:
            here = shared.get(names, ())
            look = looks[names[0]]
            # Like rooms are one here.
            key: Hashable = names if here else (look.cells.counts, id(look.room))
            if (same := alike.get(key)) is None:
                alike[key] = [names]
                sites[key] = self._site(names, looks, here)
            else:
                same.append(names)
        view: View = {}
        for key, held in alike.items():
            view.setdefault(sites[key], []).extend(held)
        return view

    def _tied(self, looks: Mapping[str, _Look], *, hopeful: bool) -> list[_Tied]:
        """Free devices that several nodes can have, though maybe one of them alone is for these demands."""
        near_of: dict[frozenset[str], tuple[frozenset[str], frozenset[str], frozenset[int]]] = {}
        found: list[_Tied] = []
        for device, reach in self.supply.shared:
            if reach not in near_of:
                near = frozenset(reach & looks.keys())
                gone = frozenset[str]().union(*(looks[name].gone for name in near))
                kinds = frozenset[int]().union(*(self.shapes[name].kinds for name in near))
                near_of[reach] = near, gone | self.leaving if hopeful and near else gone, kinds
            near, gone, kinds = near_of[reach]
            if not near or not self.is_free(device, gone, hopeful=hopeful):
                continue
            notes: list[Note] = []
            failing: list[tuple[int, Device]] = []
            cell = self.field.cell_of(device, kinds, notes, failing)
            for name in sorted(near) if failing else ():
                self._heed(name, notes, failing)
            self._heed("", notes, ())
            if cell is not None:
                found.append(_Tied(cell, near))
        return found

    def _heed(self, name: str, notes: Iterable[Note], failing: Iterable[tuple[int, Device]]) -> None:
        for sort, text in notes:
            self._note(sort, text)
        for kind, device in failing:
            self._failing[kind, name].append(device)

    def _look(self, name: str, *, hopeful: bool) -> _Look:
        """What one node has. Where nothing can become free, hope sees the same."""
        hopeful = hopeful and (bool(self._taken_first) or name in self._gaining or self._has_weaker(name))
        if (found := self._looks.get((name, hopeful))) is None:
            found = self._looks[name, hopeful] = self._hopeful_look(name) if hopeful else self._sure_look(name)
            if found.cells.notes or found.cells.failing:
                self._heed(name, found.cells.notes, found.cells.failing)
        return found

    def _sure_look(self, name: str) -> _Look:
        if name not in self._touched:
            cells = self.field.cells_on(name)
        else:
            cells = self.field.cells_without(name, self.freed, hopeful=False)
        return _Look(self.room(name, self.freed, self._taken_first), cells, self.freed)

    def _hopeful_look(self, name: str) -> _Look:
        gone = self.freed | self.leaving
        room = self.room(name, gone)
        if (weaker := self._weaker(name) - gone) and self.is_short(room):
            gone |= weaker
            room = self.room(name, gone)
        is_touched = name in self._touched or name in self._gaining or weaker
        cells = self.field.cells_without(name, gone, hopeful=True) if is_touched else self.field.cells_on(name)
        return _Look(room, cells, gone)

    def _site(self, names: tuple[str, ...], looks: Mapping[str, _Look], tied: Iterable[_Tied]) -> Site:
        here = tuple(looks[name].room for name in names)
        cells = self.field.cells
        counts: Counter[Cell] = Counter()
        is_one = len(names) == 1
        for place, name in enumerate(names):
            reach = None if is_one else frozenset({place})
            for number, count in looks[name].cells.counts:
                counts[Cell(cells[number].kinds, cells[number].values, reach)] += count
        reaches = {near: frozenset(p for p, name in enumerate(names) if name in near) for _, near in tied}
        for number, near in tied:
            counts[Cell(cells[number].kinds, cells[number].values, None if is_one else reaches[near])] += 1
        key = (frozenset(counts.items()), here)
        if key not in self._sites:
            self._sites[key] = site_of(counts, here)
        return self._sites[key]

    def room(self, name: str, gone: frozenset[str], taken: Amounts | None = None) -> Room:
        """What a node has to give besides devices.

        Args:
            name: the node.
            gone: uids of Pods that count as gone.
            taken: amounts that count as taken besides.
        """
        shape = self.shapes[name]
        is_as_it_is = not taken and (not gone or (gone is self.freed and name not in self._touched))
        left = self.field.left_on(name) if is_as_it_is else self.field.left_without(name, gone, taken)
        if (found := self._rooms.get((shape, left))) is None:
            # Nodes that make no difference to these demands look the same, and are looked at once.
            limits = zip(self._limits_of(shape), left, strict=True)
            free = tuple(min(most, max(0, units)) // step * step if step else 0 for (step, most), units in limits)
            if (found := self._same_rooms.get((shape, free))) is None:
                found = self._same_rooms[shape, free] = Room(shape.plans, shape.needs, free)
            self._rooms[shape, left] = found
        return found

    def _limits_of(self, shape: Shape) -> list[tuple[int, int]]:
        """For each resource the least amount that makes a difference, and the most that does."""
        if shape not in self._limits:
            self._limits[shape] = [
                (math.gcd(*of), sum(number * need for number, need in zip(self.wanted, of, strict=True)))
                for of in zip(*shape.needs, strict=True)
            ]
        return self._limits[shape]

    def is_short(self, room: Room) -> bool:
        """Whether a node's amounts are not enough for all that is wanted."""
        return any(
            sum(number * need[r] for number, need in zip(self.wanted, room.needs, strict=True)) > free
            for r, free in enumerate(room.free)
        )

    @cached_property
    def _priority(self) -> float:
        """Of the demands' Pods, the highest: that of live Pods of the same class, 0 without a class, else any."""
        known = self.supply.priorities
        return max(
            0 if demand.priority_class is None else known.get(demand.priority_class, math.inf)
            for demand in self.demands
        )

    def _has_weaker(self, name: str) -> bool:
        return self.supply.nodes[name].least_priority < self._priority

    def _weaker(self, name: str) -> frozenset[str]:
        """Pods on a node that the scheduler may push out for one of these."""
        if not self._has_weaker(name):
            return NOBODY
        return frozenset(pod.uid for pod in self.supply.nodes[name].pods if pod.priority < self._priority)

    def is_free(self, device: Device, gone: frozenset[str], *, hopeful: bool) -> bool:
        """Whether nobody has a device, or nobody but Pods that count as gone."""
        users = self.supply.held.get(device.id)
        return users is None or is_given_back(users, gone, hopeful=hopeful)

    def _note(self, sort: str, text: str) -> None:
        """Note something that is not known; the first of a sort stands for the others."""
        if sort not in self._noted:
            self._noted.add(sort)
            self.unknown[text] = None

    # -- what forbids proofs --------------------------------------------------------------------------------------

    def impossible(self) -> list[str]:
        """Why demands can never be scheduled, whatever is free."""
        found = [f"{demand.name}: {why}" for demand in self.demands for why in demand.impossible]
        if self.supply.classes is not None:
            found += [
                f"{demand.name}: there is no DeviceClass {name}"
                for demand in self.demands
                for name in dict.fromkeys(request.device_class for claim in demand.claims for request in claim.requests)
                if name not in self.supply.classes
            ]
        return found

    def missing(self) -> list[str]:
        """Lists that could not be read and make a difference."""
        asks = any(demand.claims or demand.extended for demand in self.demands)
        return [what for what in self.supply.unknown if asks or what in {"nodes", "pods"}]

    def kept_away(self) -> Iterator[str]:
        """Demands whose Pods others may keep away from a node."""
        for demand in self.demands:
            for pod in self.supply.keeping_away:
                if any(matches_labels(selector, demand.labels) for selector in pod.keeps_away):
                    yield f"{demand.name}: the anti-affinity of {pod.name} is not modelled"
                    break

    def doubtful(self) -> str | None:
        """A pool in reach that is being published, so that devices may come to it."""
        reached = (pool for pool, reach in self.supply.doubtful if reach & self.shapes.keys())
        return next(reached, None) if self.kinds else None

    def is_unlimited(self) -> bool:
        """Whether a device that would do can be given away several times."""
        return any(reach & self.shapes.keys() and self.answers(device) for device, reach in self.supply.unlimited)

    def failing(self) -> tuple[list[str], bool]:
        """Selectors that fail, and whether that surely ends every attempt to place Pods of one of the demands.

        The scheduler stops at the first device for which a selector fails, and then tries no other node. It surely
        comes to that device while it looks for a Pod's first devices on a node that has too few of them.
        """
        told: list[str] = []
        is_certain = False
        if not self._failing:
            return told, is_certain
        for d, demand in enumerate(self.demands):
            for name, shape in self.shapes.items():
                requests = [request for claim in shape.plans[d] or () for request in claim.requests]
                for place, (kind, count) in enumerate(requests):
                    if devices := self._failing.get((kind, name)):
                        told = told or [
                            f"{demand.name}: a selector fails for {words(devices[0])}, which ends every attempt"
                        ]
                        is_first = place == 0 and not demand.unknown
                        is_certain = is_certain or (is_first and self._surely_fails(name, kind, count))
        return told, is_certain

    def _surely_fails(self, name: str, kind: int, count: int) -> bool:
        room = self.room(name, self.freed, self._taken_first)
        is_tried = not self.is_short(room) and len(self.supply.nodes) < ALL_NODES_ARE_TRIED
        near = [*self.supply.local.get(name, ()), *(device for device, reach in self.supply.shared if name in reach)]
        good = [
            device
            for device in near
            if self.answers(device).get(kind) in {Answer.YES, Answer.UNKNOWN}
            and self.is_free(device, self.freed | self.leaving, hopeful=True)
        ]
        # Nobody else may take the device away before, and nothing may be free later that comes before it.
        fatal = any(
            self.is_free(device, self.freed, hopeful=False) and set(self.answers(device).values()) == {Answer.FAILS}
            for device in self._failing[kind, name]
        )
        return is_tried and fatal and len(good) < count and not self.supply.unknown


def _joined(names: Iterable[str], tied: Iterable[_Tied]) -> list[tuple[str, ...]]:
    """Nodes that share a device together, directly or through others; the rest one by one."""
    parent = {name: name for name in names}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for near in dict.fromkeys(each.near for each in tied):
        first, *others = sorted(near)
        for name in others:
            parent[root(name)] = root(first)
    groups: dict[str, list[str]] = defaultdict(list)
    for name in parent:
        groups[root(name)].append(name)
    return [tuple(sorted(names)) for names in groups.values()]
