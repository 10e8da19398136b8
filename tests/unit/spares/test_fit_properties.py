"""The verdict against every play of a scheduler, device by device, on clusters small enough for that."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stack.spares.demand import Demand, read_demand
from stack.spares.fit import Outcome, judge
from stack.spares.supply import Supply, read_supply
from tests import devices as make

if TYPE_CHECKING:
    from collections.abc import Iterator

Object = dict[str, Any]
NPU, NIC = "npu.example", "nic.example"
DRIVERS = {NPU: "npu", NIC: "nic"}
ROOT = "pcieRoot"
FAST = f'device.attributes["{NPU}"].fast'


@st.composite
def nodes(draw: st.DrawFn, name: str) -> tuple[Object, list[Object]]:
    """A node and the slices of its devices; some lack the constrained attribute."""
    slices: list[Object] = []
    for driver, prefix in DRIVERS.items():
        held: list[Object] = []
        for index in range(draw(st.integers(1, 6 if driver == NPU else 2))):
            values: dict[str, Any] = {"numa": draw(st.integers(0, 1)), "fast": draw(st.booleans())}
            if draw(st.integers(0, 9)):
                values[ROOT] = draw(st.sampled_from(["a", "b"]))
            taints = [{"key": "sick", "effect": "NoSchedule"}] if draw(st.integers(0, 7)) == 0 else []
            held.append(make.device(f"{prefix}-{index}", taints=taints, **values))
        slices.append(make.resource_slice(driver, held, on=name))
    cpu = draw(st.sampled_from(["2", "4", "64"]))
    spec: Object = {"taints": [{"key": "reserved", "effect": "NoSchedule"}]} if draw(st.integers(0, 5)) == 0 else {}
    return make.node(name, spec=spec, cpu=cpu), slices


@st.composite
def demands(draw: st.DrawFn, name: str) -> Demand:
    requests = [make.request("npu", "npu", draw(st.integers(1, 3)), *draw(st.sampled_from([(), (), (FAST,)])))]
    if draw(st.booleans()):
        requests.append(make.request("nic", "nic", draw(st.integers(1, 2))))
    if draw(st.integers(0, 3)) == 0:
        tolerated = [{"key": "sick", "operator": "Exists"}]
        requests.append(make.request("more", "npu", 1, tolerations=tolerated))
    constraints = draw(
        st.sampled_from(
            [
                [],
                [{"matchAttribute": make.NUMA}],
                [{"matchAttribute": f"{NPU}/{ROOT}", "requests": ["npu"]}],
                [{"matchAttribute": make.NUMA}, {"matchAttribute": f"{NPU}/{ROOT}", "requests": ["npu"]}],
            ]
        )
    )
    spec = make.claim_spec(*requests, constraints=constraints)
    kept: dict[str, Any] = draw(
        st.sampled_from(
            [
                {},
                {},
                {"tolerations": [{"key": "reserved", "operator": "Exists"}]},
                {"nodeSelector": {"kubernetes.io/hostname": "a"}},
            ]
        )
    )
    template = make.pod_template("t", cpu=draw(st.sampled_from(["1", "2"])), **kept)
    return read_demand(name, template, {"t": spec})


@st.composite
def cases(draw: st.DrawFn) -> tuple[Supply, list[tuple[Demand, int]]]:
    found = [draw(nodes(name)) for name in ("a", "b")[: draw(st.integers(1, 2))]]
    classes = {name: make.device_class(name, f'device.driver == "{driver}"') for driver, name in DRIVERS.items()}
    slices = [held for _, several in found for held in several]
    taken = [
        (held["spec"]["driver"], held["spec"]["pool"]["name"], item["name"])
        for held in slices
        for item in held["spec"]["devices"]
        if draw(st.integers(0, 5)) == 0
    ]
    supply = read_supply(
        nodes=[node for node, _ in found],
        pods=[],
        slices=slices,
        classes=classes,
        claims=[make.claim("theirs", taken, "somebody")],
    )
    wanted = [(draw(demands(name)), draw(st.integers(1, 3))) for name in ("p", "d")[: draw(st.integers(1, 2))]]
    return supply, wanted


def every_way(supply: Supply, demand: Demand, node: str, used: frozenset[Any]) -> Iterator[frozenset[Any]]:
    """Devices that a Pod could get on a node, device by device, straight from the rules of the API."""
    [claim] = demand.claims
    free = [device for device in supply.local.get(node, ()) if device.id not in used and device.id not in supply.held]

    def wants(place: int) -> list[Any]:
        request = claim.requests[place]
        tolerates = bool(request.tolerations)
        return [
            device
            for device in free
            if device.id[0].startswith(request.device_class)
            and (not request.selectors or device.view.attributes[f"{NPU}/fast"] == ("bool", True))
            and (tolerates or not device.taints)
        ]

    def choose(place: int, chosen: tuple[tuple[Any, ...], ...]) -> Iterator[frozenset[Any]]:
        if place == len(claim.requests):
            for constraint in claim.constraints:
                values = {
                    device.view.attributes.get(constraint.attribute)
                    for number, devices in enumerate(chosen)
                    for device in devices
                    if number in constraint.requests
                }
                if len(values) > 1 or None in values:
                    return
            yield frozenset(device.id for devices in chosen for device in devices)
            return
        taken = {device.id for devices in chosen for device in devices}
        left = [device for device in wants(place) if device.id not in taken]
        for devices in combinations(left, claim.requests[place].count):
            yield from choose(place + 1, (*chosen, devices))

    return choose(0, ())


def play(supply: Supply, wanted: list[tuple[Demand, int]]) -> Outcome:
    """Follow every play: which demand comes next, where it goes, which devices it gets."""
    start = (tuple(0 for _ in wanted), frozenset[Any](), tuple((node, 0) for node in sorted(supply.nodes)))
    seen, waiting = {start}, [start]
    is_stuck = is_full = False
    while waiting:
        placed, used, cpus = waiting.pop()
        is_full = is_full or all(done == count for done, (_, count) in zip(placed, wanted, strict=True))
        for d, (demand, count) in enumerate(wanted):
            if placed[d] == count:
                continue
            fits = False
            for node, cpu in cpus:
                if not may_use(demand, supply.nodes[node].object):
                    continue
                if cpu + demand.amounts["cpu"] > supply.nodes[node].allocatable["cpu"]:
                    continue
                for got in every_way(supply, demand, node, used):
                    fits = True
                    state = (
                        tuple(n + (e == d) for e, n in enumerate(placed)),
                        used | got,
                        tuple((other, held + (other == node) * demand.amounts["cpu"]) for other, held in cpus),
                    )
                    if state not in seen:
                        seen.add(state)
                        waiting.append(state)
            is_stuck = is_stuck or not fits
    if not is_full:
        return Outcome.CANNOT
    return Outcome.SOME_ORDER if is_stuck else Outcome.ANY_ORDER


def may_use(demand: Demand, node: Object) -> bool:
    if node["spec"].get("taints") and not demand.spec.get("tolerations"):
        return False
    return (
        demand.spec.get("nodeSelector", {}).get("kubernetes.io/hostname", node["metadata"]["name"])
        == (node["metadata"]["name"])
    )


@settings(max_examples=300, deadline=None)
@given(cases())
def test_the_verdict_is_what_every_play_of_the_scheduler_shows(case: tuple[Supply, list[tuple[Demand, int]]]) -> None:
    supply, wanted = case
    verdict = judge(supply, wanted)
    assert verdict.outcome is play(supply, wanted), str(verdict)


@settings(max_examples=50, deadline=None)
@given(cases(), st.randoms())
def test_the_order_of_what_is_read_changes_nothing(case: tuple[Supply, list[tuple[Demand, int]]], random: Any) -> None:
    supply, wanted = case
    names = random.sample(sorted(supply.nodes), len(supply.nodes))
    shuffled = Supply(
        nodes={name: supply.nodes[name] for name in names},
        local={name: random.sample(list(held), len(held)) for name, held in supply.local.items()},
        shared=supply.shared,
        doubtful=supply.doubtful,
        held=supply.held,
        classes=supply.classes,
        class_of=supply.class_of,
        waiting=supply.waiting,
    )
    assert judge(shuffled, wanted).outcome is judge(supply, wanted).outcome
