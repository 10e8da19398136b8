"""The cluster as the search sees it: sites, each with what it has for the demands in question.

Two views are taken. The *sure* one counts what is free now. The *hopeful* one also counts what may become free without
anybody's doing: what Pods hold that were told to go, and, where amounts are short, what Pods of a lower priority hold.
What is not modelled is noted; it only narrows what the scheduler may do, or is taken for free in both views.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from stack.spares.cel import Answer, selector_of
from stack.spares.demand import MOST_DEVICES, Claim, Demand, Request
from stack.spares.pods import inside, matches_labels, selects, untolerated, why_not
from stack.spares.sites import Cell, ClaimPlan, PodPlan, Room, Site, site_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from stack.spares.pods import Amounts, Object
    from stack.spares.supply import Device, Supply

ALL_NODES_ARE_TRIED = 100
"""Below this number of nodes the scheduler looks at every one (kube-scheduler, `minFeasibleNodesToFind`)."""


@dataclass(frozen=True, kw_only=True)
class View:
    """Sites with the names of their nodes.

    Attributes:
        gone: for each node, the Pods that are counted as gone.
    """

    places: Sequence[tuple[Site, tuple[str, ...]]]
    gone: Mapping[str, frozenset[str]]


class _Look(NamedTuple):
    """What a node has to give, and the Pods that are counted as gone for it."""

    room: Room
    cells: Counter[Cell]
    gone: frozenset[str]


class Ground:
    """A cluster and the demands in question.

    Attributes:
        kinds: kinds of request, numbered.
        attributes: constrained attributes, numbered.
        plans: for each node that some demand may use, what a Pod of each demand claims there.
        leaving: uids of Pods that were told to go.
        contested: Pods that wait for the same devices.
        unknown: what is not modelled or could not be evaluated; filled while views are taken.
    """

    def __init__(
        self, supply: Supply, demands: Sequence[Demand], wanted: Sequence[int], freed: frozenset[str] = frozenset()
    ) -> None:
        self.supply, self.demands, self.wanted, self.freed = supply, tuple(demands), tuple(wanted), freed
        self.kinds: dict[Request, int] = {}
        self.attributes: dict[str, int] = {}
        self.unknown: dict[str, None] = {}  # a set that keeps its order
        self.leaving = frozenset(pod.uid for pod in supply.pods() if pod.is_leaving)
        self._matters: dict[int, set[int]] = defaultdict(set)  # attributes that a constraint asks of a kind
        self._plan_of: dict[tuple[int, frozenset[str]], PodPlan | None] = {}
        self._sites: dict[Any, Site] = {}
        self._noted: set[str] = set()
        self._failing: dict[tuple[int, str], list[Device]] = defaultdict(list)
        nowhere = (None,) * len(self.demands)
        self.plans = {name: plans for name in supply.nodes if (plans := self._at(name)) != nowhere}
        self.amounts = sorted({resource for demand in demands for resource in demand.amounts} | {"pods"})
        self.contested, self._taken_first = self._competition()
        self._answers: dict[Device, Mapping[int, Answer]] = {}
        self._looks: dict[tuple[str, bool], _Look] = {}
        self._cells: dict[tuple[Device, tuple[str, ...]], Cell | None] = {}
        self._asked: dict[tuple[int, ...], set[int]] = {}

    def devices(self) -> Iterator[Device]:
        """Every device in reach of a node that some demand may use."""
        for name in self.plans:
            yield from self.supply.local.get(name, ())
        for device, reach in self.supply.shared:
            if reach & self.plans.keys():
                yield device

    def answers(self, device: Device) -> Mapping[int, Answer]:
        """What each kind of request says of a device, as far as it is not a plain no."""
        if device not in self._answers:
            self._answers[device] = self._answers_of(device)
        return self._answers[device]

    # -- what is asked --------------------------------------------------------------------------------------------

    def _at(self, name: str) -> tuple[PodPlan | None, ...]:
        node = self.supply.nodes[name]
        found: list[PodPlan | None] = []
        for d, demand in enumerate(self.demands):
            if why_not(demand.spec, node.object) is not None or not _is_within(demand, name, node.object):
                found.append(None)
                continue
            by_class = frozenset(r for r in demand.extended if self._is_claimed(r, node.allocatable))
            if by_class and not self.supply.claims_extended:
                self._note("version", f"whether this cluster claims devices for {min(by_class)} is not known")
            found.append(self._plan(d, by_class))
        return tuple(found)

    def _is_claimed(self, resource: str, allocatable: Amounts) -> bool:
        """Whether the scheduler claims devices for an extended resource, as no device plugin counts it there."""
        return resource in self.supply.class_of and not allocatable.get(resource)

    def _plan(self, d: int, by_class: frozenset[str]) -> PodPlan | None:
        if (d, by_class) not in self._plan_of:
            demand = self.demands[d]
            claims = list(demand.claims)
            if by_class:
                extra = [
                    Request(device_class=self.supply.class_of[resource], count=demand.extended[resource])
                    for resource in sorted(by_class)
                ]
                claims.append(Claim(requests=tuple(extra)))
                if sum(request.count for request in extra) > MOST_DEVICES:
                    self._note(demand.name, f"{demand.name} asks for more devices than one claim may get")
            self._plan_of[d, by_class] = tuple(map(self._claim_plan, claims))
        return self._plan_of[d, by_class]

    def _claim_plan(self, claim: Claim) -> ClaimPlan:
        kinds = [self.kinds.setdefault(_kind(request), len(self.kinds)) for request in claim.requests]
        constraints: list[tuple[frozenset[int], int]] = []
        for constraint in claim.constraints:
            attribute = self.attributes.setdefault(constraint.attribute, len(self.attributes))
            constraints.append((constraint.requests, attribute))
            for place in constraint.requests:
                self._matters[kinds[place]].add(attribute)
        counts = [request.count for request in claim.requests]
        return ClaimPlan(tuple(zip(kinds, counts, strict=True)), tuple(constraints))

    def _answers_of(self, device: Device) -> Mapping[int, Answer]:
        found: dict[int, Answer] = {}
        for request, kind, known in self._known:
            if (answer := known.get(device)) is None:
                answer = known[device] = self._answer(request, device)
            if answer is not Answer.NO:
                found[kind] = answer
        return found

    @cached_property
    def _known(self) -> list[tuple[Request, int, dict[Device, Answer]]]:
        """Every kind of request with what it said of devices so far, also when others asked."""
        return [(request, kind, self.supply.answers.setdefault(request, {})) for request, kind in self.kinds.items()]

    def _answer(self, request: Request, device: Device) -> Answer:
        if self.supply.classes is None:
            return Answer.UNKNOWN
        of_class = self.supply.classes.get(request.device_class)
        if of_class is None:
            return Answer.NO
        for expression in (*of_class, *request.selectors):
            answer = selector_of(expression).ask(device.view)
            if answer is not Answer.YES:
                return answer
        # Taints come after the selectors: a tainted device can still make one fail.
        is_kept_away = (
            device.taints and untolerated(device.taints, map(dict[str, Any], request.tolerations)) is not None
        )
        return Answer.NO if is_kept_away else Answer.YES

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

    def view(self, *, hopeful: bool) -> View:
        """Take the cluster apart into sites."""
        looks = {name: self._look(name, hopeful=hopeful) for name in self.plans}
        rooms = {name: look.room for name, look in looks.items()}
        cells = {name: look.cells for name, look in looks.items()}
        gone = {name: look.gone | self.leaving if hopeful else look.gone for name, look in looks.items()}
        tied: list[tuple[Cell, frozenset[str]]] = []
        for device, reach in self.supply.shared:
            near = reach & rooms.keys()
            gone_near: frozenset[str] = frozenset[str]().union(*(gone[name] for name in near))
            if near and self.is_free(device, gone_near, hopeful=hopeful) and (cell := self._cell(device, near)):
                tied.append((cell, near))
        places = [
            (self._site(names, rooms, cells, tied if len(names) > 1 else ()), names) for names in _joined(rooms, tied)
        ]
        return View(places=places, gone=gone)

    def _look(self, name: str, *, hopeful: bool) -> _Look:
        """What one node has. Where nothing can become free, hope sees the same."""
        hopeful = hopeful and (bool(self._taken_first) or name in self._gaining or bool(self._weaker(name)))
        if (name, hopeful) not in self._looks:
            room, gone = self._room_in(name, hopeful=hopeful)
            self._looks[name, hopeful] = _Look(room, self.cells(name, gone, hopeful=hopeful), gone)
        return self._looks[name, hopeful]

    @cached_property
    def _gaining(self) -> frozenset[str]:
        """Nodes on which Pods leave that hold anything, or devices are about to be given back."""
        gone = self.freed | self.leaving
        coming = {
            device
            for device, users in self.supply.held.items()
            if users <= gone and not (users and users <= self.freed)
        }
        pods = {name for name, node in self.supply.nodes.items() if any(pod.uid in self.leaving for pod in node.pods)}
        local = self.supply.local.items() if coming else ()
        return frozenset(pods) | {name for name, devices in local if any(device.id in coming for device in devices)}

    def cells(self, node: str, gone: frozenset[str], *, hopeful: bool) -> Counter[Cell]:
        """Free devices that only this node can have."""
        found: Counter[Cell] = Counter()
        for device in self.supply.local.get(node, ()):
            if self.is_free(device, gone, hopeful=hopeful) and (cell := self._cell(device, (node,))):
                found[cell] += 1
        return found

    def _site(
        self,
        names: tuple[str, ...],
        rooms: Mapping[str, Room],
        cells: Mapping[str, Counter[Cell]],
        tied: Iterable[tuple[Cell, frozenset[str]]],
    ) -> Site:
        counts = Counter(cells[names[0]])
        if len(names) > 1:
            counts = Counter(
                {
                    Cell(cell.kinds, cell.values, frozenset({place})): number
                    for place, name in enumerate(names)
                    for cell, number in cells[name].items()
                }
            )
        for cell, near in tied:
            if near <= set(names):
                counts[Cell(cell.kinds, cell.values, frozenset(p for p, name in enumerate(names) if name in near))] += 1
        here = tuple(rooms[name] for name in names)
        key = (frozenset(counts.items()), here)
        if key not in self._sites:
            self._sites[key] = site_of(counts, here)
        return self._sites[key]

    def _room_in(self, name: str, *, hopeful: bool) -> tuple[Room, frozenset[str]]:
        """What a node has to give besides devices, and which of its Pods that takes for gone."""
        gone = self.freed | self.leaving if hopeful else self.freed
        room = self.room(name, gone, {} if hopeful else self._taken_first)
        if hopeful and (weaker := self._weaker(name) - gone) and self.is_short(room):
            gone |= weaker
            room = self.room(name, gone)
        return room, gone

    def room(self, name: str, gone: frozenset[str], taken: Amounts | None = None, *, exact: bool = False) -> Room:
        """What a node has to give besides devices.

        Args:
            name: the node.
            gone: uids of Pods that count as gone.
            taken: amounts that count as taken besides.
            exact: keep amounts that make no difference as long as no Pod leaves.
        """
        node = self.supply.nodes[name]
        used: Counter[str] = Counter(taken or {})
        for pod in node.pods:
            if pod.uid not in gone:
                used.update({**pod.requests, "pods": 1})
        needs: list[tuple[int, ...]] = []
        for demand, plan in zip(self.demands, self.plans[name], strict=True):
            here = {r: n for r, n in demand.amounts.items() if not self._is_claimed(r, node.allocatable)} | {"pods": 1}
            needs.append(tuple(here.get(resource, 0) if plan is not None else 0 for resource in self.amounts))
        free: list[int] = []
        for r, resource in enumerate(self.amounts):
            left = node.allocatable.get(resource, 0) - used[resource]
            if not exact:
                # Nodes that make no difference to these demands look the same, and are looked at once.
                step = math.gcd(*(need[r] for need in needs))
                most = sum(number * need[r] for number, need in zip(self.wanted, needs, strict=True))
                left = min(most, max(0, left)) // step * step if step else 0
            free.append(left)
        return Room(self.plans[name], tuple(needs), tuple(free))

    def is_short(self, room: Room) -> bool:
        """Whether a node's amounts are not enough for all that is wanted."""
        return any(
            sum(number * need[r] for number, need in zip(self.wanted, room.needs, strict=True)) > free
            for r, free in enumerate(room.free)
        )

    def _weaker(self, name: str) -> frozenset[str]:
        """Pods on a node that the scheduler may push out for one of these."""
        limit = max(map(self._priority, self.demands))
        return frozenset(pod.uid for pod in self.supply.nodes[name].pods if pod.priority < limit)

    def _priority(self, demand: Demand) -> float:
        """Priority of a demand's Pods: that of live Pods of the same class, 0 without a class, else the highest."""
        if demand.priority_class is None:
            return 0
        known = (pod.priority for pod in self.supply.pods() if pod.priority_class == demand.priority_class)
        return next(known, math.inf)

    def is_free(self, device: Device, gone: frozenset[str], *, hopeful: bool) -> bool:
        """Whether nobody has a device, or nobody but Pods that count as gone.

        An allocation that nobody has reserved is about to be given back, which is no more than a hope.
        """
        users = self.supply.held.get(device.id)
        return users is None or (users <= gone and (hopeful or bool(users)))

    def cell_of(self, device: Device, node: str) -> Cell | None:
        """How a device counts on its node; None if nobody there wants it."""
        return self._cell(device, (node,))

    def _cell(self, device: Device, nodes: Iterable[str]) -> Cell | None:
        key = (device, tuple(nodes))
        if key not in self._cells:  # each view asks
            self._cells[key] = self._new_cell(device, key[1])
        return self._cells[key]

    def _asked_on(self, nodes: tuple[str, ...]) -> set[int]:
        """Kinds of request that a demand has on one of these nodes."""
        key = tuple(id(plan) for name in nodes for plan in self.plans[name])  # there are few plans
        if key not in self._asked:
            plans = [plan for name in nodes for plan in self.plans[name] if plan is not None]
            self._asked[key] = {kind for plan in plans for claim in plan for kind, _ in claim.requests}
        return self._asked[key]

    def _new_cell(self, device: Device, nodes: tuple[str, ...]) -> Cell | None:
        if not (answers := self.answers(device)):
            return None
        asked = self._asked_on(nodes)
        for kind in asked & answers.keys():
            if answers[kind] is Answer.FAILS:
                for name in nodes:
                    self._failing[kind, name].append(device)
            elif answers[kind] is Answer.UNKNOWN and self.supply.classes is not None:
                self._note("selector", f"a selector could not be evaluated for {words(device)}")
        kinds = frozenset(kind for kind in asked & answers.keys() if answers[kind] is not Answer.FAILS)
        if not kinds:
            return None
        if device.oddity:
            self._note(device.oddity, f"{words(device)} {device.oddity}, which is not modelled")
        matters = {attribute for kind in kinds for attribute in self._matters[kind]}
        values = tuple(
            device.view.attributes.get(name) if place in matters else None for name, place in self.attributes.items()
        )
        return Cell(kinds, values)

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
            for pod in self.supply.pods():
                if any(matches_labels(selector, demand.labels) for selector in pod.keeps_away):
                    yield f"{demand.name}: the anti-affinity of {pod.name} is not modelled"
                    break

    def doubtful(self) -> str | None:
        """A pool in reach that is being published, so that devices may come to it."""
        reached = (pool for pool, reach in self.supply.doubtful if reach & self.plans.keys())
        return next(reached, None) if self.kinds else None

    def is_unlimited(self) -> bool:
        """Whether a device that would do can be given away several times."""
        return any(device.is_unlimited and self.answers(device) for device in self.devices())

    def failing(self) -> tuple[list[str], bool]:
        """Selectors that fail, and whether that surely ends every attempt to place Pods of one of the demands.

        The scheduler stops at the first device for which a selector fails, and then tries no other node. It surely
        comes to that device while it looks for a Pod's first devices on a node that has too few of them.
        """
        told: list[str] = []
        is_certain = False
        for d, demand in enumerate(self.demands):
            for name, plans in self.plans.items():
                requests = [request for claim in plans[d] or () for request in claim.requests]
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


def _is_within(demand: Demand, name: str, node: Object) -> bool:
    """Whether a Pod's volumes can be reached from a node."""
    labels = inside(node, "metadata", "labels")
    return all(selects(selector, name, labels) for selector in demand.reach)


def words(device: Device) -> str:
    """A device, for the operator."""
    driver, pool, name = device.id
    return f"device {name} of {driver} on {pool}"


def _kind(request: Request) -> Request:
    """A request apart from its number."""
    return Request(
        device_class=request.device_class, count=1, selectors=request.selectors, tolerations=request.tolerations
    )


def _joined(rooms: Iterable[str], tied: Iterable[tuple[Cell, frozenset[str]]]) -> list[tuple[str, ...]]:
    """Nodes that share a device together, directly or through others; the rest one by one."""
    parent = {name: name for name in rooms}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for _, near in tied:
        first, *others = sorted(near)
        for name in others:
            parent[root(name)] = root(first)
    groups: dict[str, list[str]] = defaultdict(list)
    for name in parent:
        groups[root(name)].append(name)
    return [tuple(sorted(names)) for names in groups.values()]
