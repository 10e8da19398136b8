"""Geometry of the figures: Pods of a part, and devices that they hold, over the time of a change. It draws nothing."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from cli.report.course import describe, is_moving
from stack.impact import Method, duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cli.report.course import Course
    from stack.impact import Impact, PartImpact
    from stack.impact.timeline import Counts, PartTimeline

WIDTH, LEFT, RIGHT = 960, 124, 66
"""Of the drawing, in its own units: names of lanes stand left of the plot, those of levels right of it."""
PLOT = WIDTH - LEFT - RIGHT
LANE, LEAST_UNIT, MOST_UNIT = 96, 3, 20
"""Height of a lane, and of one Pod or device in it."""
ABOVE, BELOW, TICKS = 30, 18, 40
"""Room over a lane, for what is written there, under it, and for the times."""
TAIL, MOST_TICKS = 0.05, 9
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
"""Seconds from one time that is written to the next."""
STACKED = ("ready", "serving", "starting", "draining", "idle", "waiting")
"""From the bottom: what serves, then what does not, with its devices and without."""
MOST_LETTERS = 17
FAR = 1.7
"""How far above all that is used a limit may lie to be drawn."""

Moments = tuple[tuple[int, tuple[int, ...]], ...]
"""From each second on, the height of each band."""


@dataclass(frozen=True, kw_only=True)
class Band:
    """One kind in a lane: its class, and its outline as a path."""

    kind: str
    path: str


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A stretch of time with something to say about it."""

    x: float
    width: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Level:
    """A height with something to say about it."""

    y: float
    text: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class Lane:
    """A part, or a kind of device.

    Attributes:
        top, bottom: its upper and lower edge. lines: heights of whole Pods or devices, to count by.
        gaps: when nothing serves. stuck: where it goes no further.
        said: what it shows, in a sentence.
    """

    name: str
    below: tuple[str, ...]
    top: float
    bottom: float
    bands: tuple[Band, ...]
    lines: tuple[float, ...]
    levels: tuple[Level, ...]
    said: str
    gaps: tuple[Mark, ...] = ()
    stuck: Mark | None = None


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Lanes over one axis of time; `outage` is when the stack as a whole serves nothing."""

    lanes: tuple[Lane, ...]
    ticks: tuple[tuple[float, str], ...]
    kinds: tuple[str, ...]
    height: float
    outage: Mark | None = None
    width: int = WIDTH
    left: int = LEFT
    right: int = LEFT + PLOT


@dataclass(frozen=True, kw_only=True)
class _Clock:
    """Turns seconds into places."""

    horizon: float

    def x(self, seconds: float) -> float:
        return LEFT + PLOT * min(1.0, seconds / self.horizon)

    def ticks(self) -> tuple[tuple[float, str], ...]:
        step = next((step for step in STEPS if self.horizon / step <= MOST_TICKS), STEPS[-1])
        return tuple((self.x(at), duration(at) if at else "0") for at in range(0, int(self.horizon * 0.995) + 1, step))


def draw_pods(course: Course, impact: Impact) -> Figure:
    """A lane of Pods for each part that changes."""
    clock = _clock(course)
    parts = {part.part: part for part in impact.parts}
    lanes: list[Lane] = []
    outage = _outage(course, parts, clock)
    top = float(ABOVE + (ABOVE if outage else 0))
    for told in course.timeline.parts:
        if not is_moving(told):
            continue
        lane = _pods(told, parts[told.part], top, clock)
        if outage is not None and told.part != "epp":
            lane = replace(lane, gaps=())
        lanes.append(lane)
        top = lane.bottom + BELOW + ABOVE
    kinds = tuple(kind for kind in STACKED if any(band.kind == kind for lane in lanes for band in lane.bands))
    height = lanes[-1].bottom + TICKS
    return Figure(lanes=tuple(lanes), ticks=clock.ticks(), kinds=kinds, height=height, outage=outage)


def draw_devices(course: Course, impact: Impact) -> Figure | None:
    """A lane for the devices of each class that the roles hold; None where they hold none."""
    clock = _clock(course)
    roles = [part for part in impact.parts if part.part != "epp"]
    told = [part for part in course.timeline.parts if part.part != "epp"]
    if not any(is_moving(part) for part in told):
        return None
    lanes: list[Lane] = []
    top = float(ABOVE)
    for kind in _kinds(impact, roles):
        lane = _devices(kind, told, top, clock)
        lanes.append(lane)
        top = lane.bottom + BELOW + ABOVE
    if not lanes:
        return None
    kinds = tuple(part.part for part in told)
    return Figure(lanes=tuple(lanes), ticks=clock.ticks(), kinds=kinds, height=lanes[-1].bottom + TICKS)


def _clock(course: Course) -> _Clock:
    """With some room after the end, to show what is there then."""
    seconds = course.timeline.seconds
    if course.timeline.is_stuck:
        seconds = max(2 * seconds, 600)
    return _Clock(horizon=seconds * (1 + TAIL))


# --- Pods -------------------------------------------------------------------------------------------------------------


def _pods(told: PartTimeline, part: PartImpact, top: float, clock: _Clock) -> Lane:
    moments: Moments = tuple((at, tuple(getattr(counts, kind) for kind in STACKED)) for at, counts in told.moments)
    wanted = part.after
    most = max(*(sum(heights) for _, heights in moments), wanted, 1)
    unit = _unit(most)
    bottom = top + unit * most
    before = part.before or 0
    pods = f"{part.after} Pod{'s' * (part.after != 1)}" if before == part.after else f"{before} → {part.after} Pods"
    serving = [counts.serve for _, counts in told.moments]
    compared = min(before, part.after)
    least = (f"{min(serving)} of {compared} serve",) if compared else ()
    return Lane(
        name=part.part,
        below=(pods, *least),
        top=top,
        bottom=bottom,
        bands=tuple(_bands(STACKED, moments, bottom, unit, clock)),
        lines=tuple(bottom - unit * count for count in range(1, most)),
        levels=(Level(y=bottom - unit * wanted, text=f"{wanted} wanted", kind="wanted"),) if wanted else (),
        said=describe(told, part),
        gaps=tuple(
            Mark(x=clock.x(begin), width=clock.x(end) - clock.x(begin), text=f"none serves for {duration(end - begin)}")
            for begin, end in told.gaps
        ),
        stuck=_stuck(told, clock),
    )


def _outage(course: Course, parts: Mapping[str, PartImpact], clock: _Clock) -> Mark | None:
    """From when the first role serves nothing until each that is wanted serves, where all leave before any starts."""
    if not any(part.method is Method.ALL_DOWN and part.after for part in parts.values()):
        return None
    roles = [told for told in course.timeline.parts if told.part != "epp"]
    serving = [told for told in roles if told.now.serve]
    begin = min((at for told in serving for at, counts in told.moments if not counts.serve), default=None)
    ends = [
        next((at for at, counts in told.moments if begin is not None and at > begin and counts.serve), None)
        for told in roles
        if parts[told.part].after
    ]
    known = [end for end in ends if end is not None]
    if begin is None or not ends or len(known) < len(ends):
        return None
    x, end = clock.x(begin), max(known)
    return Mark(x=x, width=clock.x(end) - x, text=f"outage for {duration(end - begin)}")


def _stuck(told: PartTimeline, clock: _Clock) -> Mark | None:
    if not told.is_stuck:
        return None
    x = clock.x(told.seconds)
    waiting = told.last.waiting
    return Mark(
        x=x,
        width=LEFT + PLOT - x,
        text=f"{waiting} new Pod{'s' * (waiting != 1)} wait{'s' * (waiting == 1)} for devices in vain",
    )


# --- devices ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """Devices of which each Pod of a part needs so many; `free` are beyond those that are held, None if not known."""

    name: str
    per_pod: dict[str, int]
    free: int | None


def _kinds(impact: Impact, roles: Sequence[PartImpact]) -> Iterator[_Kind]:
    """By class where somebody has looked at all of them, else by what the configuration says, else by Pods."""
    found = sorted((free for part in roles for free in part.free), key=lambda free: -free.per_pod)
    classes = dict.fromkeys(free.device_class for free in found)
    asking = [part for part in roles if part.extra_pods]
    if classes and all(part.free for part in asking):
        for name in classes:
            needs = {part.part: free.per_pod for part in roles for free in part.free if free.device_class == name}
            # Roles that ask for nothing more hold the same, as one claim template is made for all.
            usual = max(needs.values())
            free = max(free.count for part in roles for free in part.free if free.device_class == name)
            yield _Kind(name=name, per_pod={part.part: needs.get(part.part, usual) for part in roles}, free=free)
        return
    for word, counts in (
        (f"{impact.accelerator}s", {part.part: part.accelerators_per_pod for part in roles}),
        ("NICs", {part.part: part.nics_per_pod for part in roles}),
    ):
        known = {name: count for name, count in counts.items() if count is not None}
        if len(known) == len(counts) and any(known.values()):
            yield _Kind(name=word, per_pod=known, free=None)
    if any(part.accelerators_per_pod is None for part in roles):
        yield _Kind(name="Pods with devices", per_pod={part.part: 1 for part in roles}, free=None)


def _devices(kind: _Kind, told: Sequence[PartTimeline], top: float, clock: _Clock) -> Lane:
    moments = _together(told, lambda part, counts: kind.per_pod[part] * counts.holding)
    held = sum(kind.per_pod[part.part] * part.now.holding for part in told)
    peak = max(sum(heights) for _, heights in moments)
    limit = None if kind.free is None else held + kind.free
    most = max(peak, held, 1)
    if limit is not None and limit <= FAR * most:
        most = max(most, limit)
    unit = _unit(most)
    bottom = top + unit * most
    levels = [Level(y=bottom - unit * held, text=f"{held} now", kind="wanted")]
    if limit is not None and limit <= most:
        levels.append(Level(y=bottom - unit * limit, text=f"{limit} in all", kind="limit"))
    free = () if kind.free is None else (f"{kind.free} free now",)
    beyond = f", {kind.free} more are free now" if kind.free is not None else ""
    return Lane(
        name=kind.name if len(kind.name) <= MOST_LETTERS else f"{kind.name[:MOST_LETTERS]}…",
        below=(f"at most {peak}", *free),
        top=top,
        bottom=bottom,
        bands=tuple(_bands([part.part for part in told], moments, bottom, unit, clock)),
        lines=tuple(bottom - unit * count for count in _counted(most)),
        levels=tuple(levels),
        said=f"{kind.name}: {held} held now, at most {peak} while the change goes on{beyond}",
    )


def _together(told: Sequence[PartTimeline], height: Callable[[str, Counts], int]) -> Moments:
    """The heights of all parts, from each second on at which one of them changes."""
    moments = [part.moments for part in told]
    begins = [[at for at, _ in each] for each in moments]
    times = sorted({at for each in begins for at in each})
    found: list[tuple[int, tuple[int, ...]]] = []
    for at in times:
        current = [each[bisect_right(begin, at) - 1][1] for each, begin in zip(moments, begins, strict=True)]
        found.append((at, tuple(height(part.part, counts) for part, counts in zip(told, current, strict=True))))
    return tuple(found)


# --- both -------------------------------------------------------------------------------------------------------------


def _unit(most: int) -> float:
    """Height of one in a lane of so many."""
    return min(MOST_UNIT, max(LEAST_UNIT, LANE / most)) if most <= LANE / LEAST_UNIT else LANE / most


def _counted(most: int) -> range:
    """Lines to count by, not too many of them."""
    step = next(step for step in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 10**6) if most / step <= 2 * MOST_TICKS)
    return range(step, most, step)


def _bands(kinds: Iterable[str], moments: Moments, bottom: float, unit: float, clock: _Clock) -> Iterator[Band]:
    """One upon the other, in steps; those that are never there left out."""
    for index, kind in enumerate(kinds):
        if not any(heights[index] for _, heights in moments):
            continue
        stretches = [(begin, end, heights) for (begin, heights), (end, _) in pairwise((*moments, (clock.horizon, ())))]
        path = "".join(
            _box(clock.x(begin), clock.x(end), bottom - unit * sum(heights[:index]), unit * heights[index])
            for begin, end, heights in _merged(stretches, index)
        )
        yield Band(kind=kind, path=path)


def _merged(
    stretches: Iterable[tuple[float, float, tuple[int, ...]]], index: int
) -> Iterator[tuple[float, float, tuple[int, ...]]]:
    """Stretches in which a band has some height, joined where it stays as it is."""
    found: list[tuple[float, float, tuple[int, ...]]] = []
    for begin, end, heights in stretches:
        if not heights[index]:
            continue
        if found and found[-1][1] == begin and found[-1][2][: index + 1] == heights[: index + 1]:
            found[-1] = (found[-1][0], end, heights)
        else:
            found.append((begin, end, heights))
    yield from found


def _box(begin: float, end: float, floor: float, height: float) -> str:
    return f"M{begin:.1f} {floor:.1f}V{floor - height:.1f}H{end:.1f}V{floor:.1f}Z"
