"""Kinds of devices that Pods ask for, and whether two of them can be the same devices.

Names of classes don't tell: two classes may select the same devices, and two requests of one class none in common. The
devices that are published do, asked by the selectors of class and request.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from stack.spares.cel import Answer, selector_of
from stack.spares.pods import at, each, inside
from stack.spares.supply import class_selectors, published

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from stack.spares.pods import Object
    from stack.spares.supply import Device, DeviceId


class Meeting(Enum):
    """Whether two kinds have devices in common."""

    SHARED = "shared"
    APART = "apart"
    UNKNOWN = "unknown"


@dataclass(frozen=True, order=True)
class Kind:
    """Devices of one class, or of a device plugin.

    Attributes:
        name: of the DeviceClass, or of an extended resource that none provides.
        selectors: CEL expressions of the request, all of which must hold besides those of the class.
        is_plugins: whether a device plugin counts them: such devices are in no claim.
    """

    name: str
    selectors: tuple[str, ...] = ()
    is_plugins: bool = False


def kinds_of_claim(spec: Object) -> Iterator[Kind]:
    """What the spec of a claim asks for, alternatives included; who only looks at devices takes none."""
    for request in each(spec, "devices", "requests"):
        for choice in (inside(request, "exactly"), *each(request, "firstAvailable")):
            if "deviceClassName" in choice and not choice.get("adminAccess"):
                selectors = (at(selector, "cel", "expression") or "" for selector in each(choice, "selectors"))
                yield Kind(choice["deviceClassName"], tuple(selectors))


def kinds_of_resources(resources: Iterable[str], class_of: Mapping[str, str]) -> Iterator[Kind]:
    """What extended resources ask for: devices of the class that provides each, where one does."""
    for resource in resources:
        provider = class_of.get(resource)
        yield Kind(resource, is_plugins=True) if provider is None else Kind(provider)


class Kinds:
    """Answers which kinds meet, from what is published; each kind is looked up once."""

    def __init__(self, classes: Mapping[str, Object] | None, slices: Sequence[Object] | None) -> None:
        """Takes DeviceClasses by name and ResourceSlices; None for what could not be read."""
        self._classes = None if classes is None else {name: class_selectors(found) for name, found in classes.items()}
        self._slices = slices
        self._devices: list[Device] | None = None
        self._found: dict[Kind, tuple[frozenset[DeviceId], frozenset[DeviceId]]] = {}

    def meet(self, one: Kind, other: Kind) -> Meeting:
        """Whether a device may be taken by either."""
        if one.is_plugins or other.is_plugins:
            return Meeting.SHARED if one == other else Meeting.APART
        if one == other or (one.name == other.name and not (one.selectors and other.selectors)):
            return Meeting.SHARED  # of one class, and one of them takes any of it
        if self._classes is None or self._slices is None:
            return Meeting.UNKNOWN
        (ours, maybe_ours), (theirs, maybe_theirs) = self._matching(one), self._matching(other)
        if ours & theirs:
            return Meeting.SHARED
        return Meeting.UNKNOWN if (ours | maybe_ours) & (theirs | maybe_theirs) else Meeting.APART

    def _matching(self, kind: Kind) -> tuple[frozenset[DeviceId], frozenset[DeviceId]]:
        """Devices that would do, and those of which that is not known."""
        if kind not in self._found:
            if self._devices is None:
                self._devices = list(published(self._slices or ()))
            answers = {device.id: self._answer(kind, device) for device in self._devices}
            sure = frozenset(device for device, answer in answers.items() if answer is Answer.YES)
            maybe = frozenset(device for device, answer in answers.items() if answer in {Answer.UNKNOWN, Answer.FAILS})
            self._found[kind] = (sure, maybe)
        return self._found[kind]

    def _answer(self, kind: Kind, device: Device) -> Answer:
        of_class = (self._classes or {}).get(kind.name)
        if of_class is None:
            return Answer.NO  # nobody gets a device of a class that is not there
        for expression in (*of_class, *kind.selectors):
            answer = selector_of(expression).ask(device.view)
            if answer is not Answer.YES:
                return answer
        return Answer.YES
