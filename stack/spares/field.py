"""What the nodes of a cluster have for some demands, as long as no Pod has left: the same for all who ask of one stock.

Several questions are asked of one cluster (this change, its end, its steps), and they differ in numbers and in who has
left, which concerns few nodes. So what is found here stays with the stock, and `ground` only looks anew where somebody
is counted as gone. Devices that selectors, taints and constraints can't tell apart are looked at once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from stack.spares.cel import Answer, selector_of
from stack.spares.demand import MOST_DEVICES, Claim, Request
from stack.spares.pods import REQUIRED, at, each, inside, selects, untolerated, why_not
from stack.spares.sites import Cell, ClaimPlan, PodPlan, Vector

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from stack.spares.cel import Selector
    from stack.spares.demand import Demand
    from stack.spares.pods import Amounts, Object
    from stack.spares.supply import Device, Supply, SupplyNode

Note = tuple[str, str]
"""What is not known, its sort first: of each sort one is told."""
NOBODY: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Shape:
    """What Pods ask of a node; the same for all nodes on which they ask the same.

    Attributes:
        plans: what a Pod of each demand claims; None where it may not be.
        needs: amounts that a Pod of each demand needs, resource by resource.
        kinds: kinds of request that are made there.
    """

    plans: tuple[PodPlan | None, ...]
    needs: tuple[Vector, ...]
    kinds: frozenset[int]


class Cells(NamedTuple):
    """Free devices that one node alone can have.

    Attributes:
        counts: (number of the cell, devices of it), in order.
        failing: devices for which a selector fails, with the kind of request that has it.
    """

    counts: tuple[tuple[int, int], ...]
    notes: tuple[Note, ...] = ()
    failing: tuple[tuple[int, Device], ...] = ()


class _Mix(NamedTuple):
    """What devices are good for where some kinds are asked for.

    Attributes:
        attributes: names of those that a constraint asks of such a device, in place of all others None.
        failing: kinds whose selector fails.
        is_unclear: whether a selector could not be evaluated.
    """

    kinds: frozenset[int]
    attributes: tuple[str | None, ...]
    failing: tuple[int, ...]
    is_unclear: bool


def field_of(supply: Supply, demands: Sequence[Demand]) -> Field:
    """What a cluster has for these demands, looked up once for all that need the same."""
    key = tuple(map(_key, demands))
    if key not in supply.fields:
        supply.fields[key] = Field(supply, demands)
    return supply.fields[key]


def _key(demand: Demand) -> Hashable:
    amounts, extended = (tuple(sorted(held.items())) for held in (demand.amounts, demand.extended))
    return demand.name, repr(_where(demand)), demand.claims, amounts, extended


def _where(demand: Demand) -> tuple[object, ...]:
    """What of a demand decides to which nodes its Pods may go."""
    spec = demand.spec
    affinity = at(spec, "affinity", "nodeAffinity", REQUIRED)
    return each(spec, "tolerations"), inside(spec, "nodeSelector"), affinity, demand.reach


class Field:
    """Nodes with what they have for some demands.

    Attributes:
        kinds: kinds of request, numbered.
        attributes: constrained attributes, numbered.
        amounts: resources of which a demand needs some.
        shapes: for each node that some demand may use, what its Pods ask there.
        cells: groups of devices that nothing tells apart, numbered by their place.
        notes: what is not known, whatever is looked at.
    """

    def __init__(self, supply: Supply, demands: Sequence[Demand]) -> None:
        self.supply, self._demands = supply, tuple(demands)
        self.kinds: dict[Request, int] = {}
        self.attributes: dict[str, int] = {}
        self.notes: list[Note] = []
        self.amounts = sorted({resource for demand in demands for resource in demand.amounts} | {"pods"})
        self.cells: list[Cell] = []
        self._matters: dict[int, set[int]] = defaultdict(set)  # attributes that a constraint asks of a kind
        self._plan_of: dict[tuple[int, frozenset[str]], PodPlan] = {}
        self.shapes = self._read_shapes()
        self._number_of: dict[tuple[frozenset[int], tuple[object, ...]], int] = {}
        self._mixes: dict[tuple[int, frozenset[int]], _Mix] = {}
        self._answers: dict[Device, Mapping[int, Answer]] = {}
        self._answers_by_look: dict[Hashable, Mapping[int, Answer]] = {}
        self._cells_on: dict[str, Cells] = {}
        self._left_on: dict[str, Vector] = {}

    # -- what is asked --------------------------------------------------------------------------------------------

    def _read_shapes(self) -> dict[str, Shape]:
        places = [repr(_where(demand)) for demand in self._demands]
        asking = dict(zip(places, self._demands, strict=True))
        provided = [resource for resource in self.amounts if resource in self.supply.class_of]
        made: dict[tuple[tuple[bool, ...], frozenset[str]], Shape] = {}
        found: dict[str, Shape] = {}
        for name, node in self.supply.nodes.items():
            may = {place: _may_go(demand, name, node) for place, demand in asking.items()}
            allowed = tuple(may[place] for place in places)
            if True not in allowed:
                continue
            claimed = frozenset(r for r in provided if self.is_claimed(r, node.allocatable))
            if (shape := made.get((allowed, claimed))) is None:
                shape = made[allowed, claimed] = self._shape(allowed, claimed)
            found[name] = shape
        return found

    def is_claimed(self, resource: str, allocatable: Amounts) -> bool:
        """Whether the scheduler claims devices for an extended resource, as no device plugin counts it there."""
        return resource in self.supply.class_of and not allocatable.get(resource)

    def _shape(self, allowed: tuple[bool, ...], claimed: frozenset[str]) -> Shape:
        plans: list[PodPlan | None] = []
        needs: list[Vector] = []
        for d, demand in enumerate(self._demands):
            if not allowed[d]:
                plans.append(None)
                needs.append((0,) * len(self.amounts))
                continue
            by_class = claimed.intersection(demand.extended)
            if by_class and not self.supply.claims_extended:
                self.notes.append(("version", f"whether this cluster claims devices for {min(by_class)} is not known"))
            plans.append(self._plan(d, by_class))
            here = {r: n for r, n in demand.amounts.items() if r not in claimed} | {"pods": 1}
            needs.append(tuple(here.get(resource, 0) for resource in self.amounts))
        kinds = frozenset(kind for plan in plans for claim in plan or () for kind, _ in claim.requests)
        return Shape(tuple(plans), tuple(needs), kinds)

    def _plan(self, d: int, by_class: frozenset[str]) -> PodPlan:
        if (d, by_class) not in self._plan_of:
            demand = self._demands[d]
            claims = list(demand.claims)
            if by_class:
                extra = [
                    Request(device_class=self.supply.class_of[resource], count=demand.extended[resource])
                    for resource in sorted(by_class)
                ]
                claims.append(Claim(requests=tuple(extra)))
                if sum(request.count for request in extra) > MOST_DEVICES:
                    self.notes.append((demand.name, f"{demand.name} asks for more devices than one claim may get"))
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

    # -- what devices are -----------------------------------------------------------------------------------------

    def answers(self, device: Device) -> Mapping[int, Answer]:
        """What each kind of request says of a device, as far as it is not a plain no."""
        if (found := self._answers.get(device)) is None:
            found = self._answers[device] = self._answers_of(device)
        return found

    @cached_property
    def _selectors(self) -> list[tuple[Request, int, Sequence[Selector] | None]]:
        """Every kind of request with the selectors that count for it; None where its class is not there."""
        classes = self.supply.classes or {}
        return [
            (
                request,
                kind,
                tuple(map(selector_of, (*classes[request.device_class], *request.selectors)))
                if request.device_class in classes
                else None,
            )
            for request, kind in self.kinds.items()
        ]

    @cached_property
    def _reads(self) -> list[tuple[str, str]] | None:
        """What of a device a selector can see; None where that may be all."""
        selectors = [selector for _, _, held in self._selectors for selector in held or ()]
        if any(selector.reads is None for selector in selectors):
            return None
        return sorted({read for selector in selectors for read in selector.reads or ()})

    def _answers_of(self, device: Device) -> Mapping[int, Answer]:
        if self._reads is None:
            return self._ask(device)
        maps: list[object] = []
        for which, name in self._reads:
            view = device.view
            maps.append((view.attributes if which == "attributes" else view.capacity).get(name))
        look = (device.id[0], device.is_unlimited, tuple(maps), repr(device.taints) if device.taints else "")
        if (found := self._answers_by_look.get(look)) is None:
            found = self._answers_by_look[look] = self._ask(device)
        return found

    def _ask(self, device: Device) -> Mapping[int, Answer]:
        asked = ((kind, self._answer(request, selectors, device)) for request, kind, selectors in self._selectors)
        return {kind: answer for kind, answer in asked if answer is not Answer.NO}

    def _answer(self, request: Request, selectors: Sequence[Selector] | None, device: Device) -> Answer:
        if self.supply.classes is None:
            return Answer.UNKNOWN
        if selectors is None:
            return Answer.NO
        for selector in selectors:
            answer = selector.ask(device.view)
            if answer is not Answer.YES:
                return answer
        # Taints come after the selectors: a tainted device can still make one fail.
        is_kept_away = (
            device.taints and untolerated(device.taints, map(dict[str, Any], request.tolerations)) is not None
        )
        return Answer.NO if is_kept_away else Answer.YES

    def cell_of(
        self, device: Device, kinds: frozenset[int], notes: list[Note], failing: list[tuple[int, Device]]
    ) -> int | None:
        """The cell of a device where these kinds are asked for; None if nobody there wants it.

        What is found out besides is added to `notes` and `failing`.
        """
        answers = self.answers(device)
        if not answers:
            return None
        key = (id(answers), kinds)  # answers are kept
        if (mix := self._mixes.get(key)) is None:
            mix = self._mixes[key] = self._mix(answers, kinds)
        failing += [(kind, device) for kind in mix.failing]
        if mix.is_unclear:
            notes.append(("selector", f"a selector could not be evaluated for {words(device)}"))
        if not mix.kinds:
            return None
        if device.oddity is not None:
            notes.append((device.oddity, f"{words(device)} {device.oddity}, which is not modelled"))
        values: tuple[object, ...] = ()
        if mix.attributes:
            held = device.view.attributes
            values = tuple([None if name is None else held.get(name) for name in mix.attributes])
        if (number := self._number_of.get((mix.kinds, values))) is None:
            number = self._number_of[mix.kinds, values] = len(self.cells)
            self.cells.append(Cell(mix.kinds, values))
        return number

    def _mix(self, answers: Mapping[int, Answer], asked: frozenset[int]) -> _Mix:
        here = {kind: answer for kind, answer in answers.items() if kind in asked}
        kinds = frozenset(kind for kind, answer in here.items() if answer is not Answer.FAILS)
        matters = {attribute for kind in kinds for attribute in self._matters[kind]}
        return _Mix(
            kinds=kinds,
            attributes=tuple(name if place in matters else None for name, place in self.attributes.items()),
            failing=tuple(kind for kind, answer in here.items() if answer is Answer.FAILS),
            is_unclear=self.supply.classes is not None and Answer.UNKNOWN in here.values(),
        )

    # -- what nodes have ------------------------------------------------------------------------------------------

    def cells_on(self, name: str) -> Cells:
        """Free devices that only this node can have."""
        if (found := self._cells_on.get(name)) is None:
            found = self._cells_on[name] = self.cells_without(name, NOBODY, hopeful=False)
        return found

    def cells_without(self, name: str, gone: frozenset[str], *, hopeful: bool) -> Cells:
        """The same, as if some Pods were gone.

        Args:
            name: the node.
            gone: uids of Pods that count as gone.
            hopeful: whether an allocation that nobody has reserved counts as given back.
        """
        counts: dict[int, int] = {}
        notes: list[Note] = []
        failing: list[tuple[int, Device]] = []
        kinds, held = self.shapes[name].kinds, self.supply.held
        for device in self.supply.local.get(name, ()) if kinds else ():
            users = held.get(device.id)
            if users is not None and not is_given_back(users, gone, hopeful=hopeful):
                continue
            if (number := self.cell_of(device, kinds, notes, failing)) is not None:
                counts[number] = counts.get(number, 0) + 1
        return Cells(tuple(sorted(counts.items())), tuple(notes), tuple(failing))

    def left_on(self, name: str) -> Vector:
        """Amounts that are left on a node."""
        if (found := self._left_on.get(name)) is None:
            node = self.supply.nodes[name]
            allocatable, used = node.allocatable, node.used
            left = [allocatable.get(resource, 0) - used.get(resource, 0) for resource in self.amounts]
            found = self._left_on[name] = tuple(left)
        return found

    def left_without(self, name: str, gone: frozenset[str], taken: Amounts | None = None) -> Vector:
        """The same, as if some Pods were gone, and other amounts taken."""
        back: dict[str, int] = {}
        for pod in self.supply.nodes[name].pods:
            if pod.uid in gone:
                for resource, units in (pod.requests | {"pods": 1}).items():
                    back[resource] = back.get(resource, 0) + units
        left = zip(self.left_on(name), self.amounts, strict=True)
        return tuple(units + back.get(resource, 0) - (taken or {}).get(resource, 0) for units, resource in left)


def is_given_back(users: frozenset[str], gone: frozenset[str], *, hopeful: bool) -> bool:
    """Whether an allocated device is used by nobody but Pods that count as gone.

    An allocation that nobody has reserved is about to be given back, which is no more than a hope.
    """
    return users <= gone and (hopeful or bool(users))


def _may_go(demand: Demand, name: str, node: SupplyNode) -> bool:
    """Whether Pods may be on a node, and their volumes can be reached from there."""
    if why_not(demand.spec, node.object) is not None:
        return False
    labels: Object = inside(node.object, "metadata", "labels") if demand.reach else {}
    return all(selects(selector, name, labels) for selector in demand.reach)


def _kind(request: Request) -> Request:
    """A request apart from its number."""
    return Request(
        device_class=request.device_class, count=1, selectors=request.selectors, tolerations=request.tolerations
    )


def words(device: Device) -> str:
    """A device, for the operator."""
    driver, pool, name = device.id
    return f"device {name} of {driver} on {pool}"
