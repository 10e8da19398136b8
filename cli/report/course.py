"""The course of a change in words: what there is of each part from each moment on, and whether it comes to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stack.impact import duration
from stack.impact.timeline import Reading, simulate
from stack.spares.fit import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stack.impact import Impact, PartImpact
    from stack.impact.timeline import Counts, PartTimeline, Timeline
    from stack.report import Report

DEVICES = "devices"
"""The guard whose letter says that new Pods would wait in vain, be it a refusal or not."""
WHEN = {
    Reading.ABOUT: "if new Pods start as fast as those that run now, and each Pod takes all the time it may to leave",
    Reading.LONGEST: "if each Pod takes all the time it may, to leave and to start",
}
NAMES = {Reading.ABOUT: "as it was", Reading.LONGEST: "at most"}


@dataclass(frozen=True, kw_only=True)
class Course:
    """A change over time, in one reading.

    Attributes:
        timeline: what is simulated.
        is_short: whether new Pods find only the devices that are free, which are too few: proved, refused or not.
        heads: columns of the table of steps: the time, and each part that changes.
        steps: its rows.
    """

    timeline: Timeline
    is_short: bool
    heads: tuple[str, ...]
    steps: tuple[tuple[str, ...], ...]

    @property
    def reading(self) -> Reading:
        """How long a start takes in it."""
        return self.timeline.reading

    @property
    def name(self) -> str:
        """Its reading, short."""
        return NAMES[self.reading]

    @property
    def summary(self) -> str:
        """How long it takes, or that it does not come to its end."""
        condition = WHEN[self.reading]
        if self.timeline.is_stuck:
            return "It would go no further: new Pods wait for devices that nobody gives back."
        return f"Through after {duration(self.timeline.seconds)}, {condition}."


def courses(report: Report) -> tuple[Course, ...]:
    """The course in each reading that is known, the likelier one first; none where nothing changes over time."""
    return tuple(_courses(report))


def likeliest(report: Report) -> Course | None:
    """The first of them."""
    return next(_courses(report), None)


def _courses(report: Report) -> Iterator[Course]:
    if report.impact is None:
        return
    is_short = any(
        letter.guard == DEVICES and f": {Outcome.CANNOT.value}" in letter.text
        for letter in (*report.refusals, *report.warnings)
    )
    for reading in (Reading.ABOUT, Reading.LONGEST):
        timeline = simulate(report.impact, reading, is_short=is_short)
        if timeline is None or (is_short and not timeline.is_stuck and _asks_anew(report.impact)):
            continue  # that it gets stuck is proved, and nothing that is simulated here shows it
        if timeline.seconds or timeline.is_stuck:
            moving = tuple(part for part in timeline.parts if is_moving(part))
            steps = tuple(_steps(moving))
            heads = ("after", *(part.part for part in moving))
            yield Course(timeline=timeline, is_short=is_short, heads=heads, steps=steps)
            if timeline.is_stuck and not timeline.seconds:
                return  # how long a start takes plays no part


def _asks_anew(impact: Impact) -> bool:
    """Whether Pods ask for devices other than to take an earlier change back, which never gets stuck."""
    return any(part.extra_pods and not part.is_going_back for part in impact.parts)


def is_moving(part: PartTimeline) -> bool:
    """Whether anything of it changes, or would."""
    return bool(part.spans) or part.is_stuck


def describe(part: PartTimeline, impact: PartImpact) -> str:
    """A part's course in a sentence, for those who do not see the figure."""
    serving = [counts.serve for _, counts in part.moments]
    wanted = min(impact.before or 0, impact.after)
    least = (
        f"at least {min(serving)} of {wanted} serve" if wanted and serving else f"{part.last.serve} serve at the end"
    )
    if part.is_stuck:
        return f"{part.part}: {least}; it goes no further, since Pods wait for devices in vain"
    gone = sum(end - begin for begin, end in part.gaps)
    gap = f"; none serves for {duration(gone)}" if gone else ""
    return f"{part.part}: {least}{gap}; through after {duration(part.seconds)}"


def in_words(counts: Counts) -> str:
    """Pods of a part at a moment: `3 serve, 1 drains`."""
    found = [
        f"{count} {word}{'s' * (count == 1)}"
        for count, word in (
            (counts.serve, "serve"),
            (counts.draining, "drain"),
            (counts.waiting, "wait"),
            (counts.starting, "start"),
        )
        if count
    ]
    if counts.idle:
        found.append(f"{counts.idle} not Ready")
    return ", ".join(found) or "none"


def _steps(parts: tuple[PartTimeline, ...]) -> Iterator[tuple[str, ...]]:
    """A row for each moment at which something changes; a cell is empty where nothing of its part does."""
    changes = [dict(part.moments) for part in parts]
    for at in sorted({at for change in changes for at in change}):
        cells = [in_words(change[at]) if at in change else "" for change in changes]
        yield (duration(at) if at else "at once", *cells)
