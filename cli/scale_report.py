"""What `scale-advice` finds out of a role, and how it says so. Needs numpy (extra `advice`)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

from cli.asked import Form
from cli.loads import LONG_WAIT, QueueTimes, load_of_file, load_of_prometheus, queue_times
from cli.plots import Curve, Plot, as_image, as_text
from stack.advice import (
    WEEK,
    Depth,
    Floor,
    History,
    Pace,
    Replay,
    Target,
    backlog_by_occupancy,
    choose_floor,
    choose_target,
    depths,
    replay,
)
from stack.config.autoscaling import BehaviorConfig
from stack.errors import Problem, UnusableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cli.prometheus import Prometheus
    from cli.situation import RoleSituation, Situation
    from stack.durations import Interval
    from stack.scalars import Role

START: Final = 1200
"""Seconds that a Pod takes to start where nobody says it: twenty minutes (*Rollouts and scaling*, Autoscaling)."""
MOST_FLOORS: Final = 40
"""Floors that a plot shows."""
COVERED: Final = 0.95


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What advice rests on besides the numbers.

    Attributes:
        slots: requests that one Pod runs at once.
        start: seconds until a new Pod serves. start_is: whose word that is.
        behavior: how fast the scaler moves.
        most_wait: share of the requests' time that may pass in a queue.
        now: what the stack file says of the role; None without one.
    """

    role: Role
    slots: int
    start: int
    start_is: str
    behavior: BehaviorConfig
    most_wait: float
    now: RoleSituation | None


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What to tell the scaler of a role, and why."""

    ground: Ground
    past: History
    target: Target
    pace: Pace
    floor: Floor
    depths: tuple[Depth, ...]
    queued: QueueTimes | None
    source: str
    notes: tuple[str, ...]

    @property
    def ceiling(self) -> int:
        """The most Pods that the replay came to, and one more than the floor at least, so that something can scale."""
        return max(self.floor.chosen.most, self.floor.chosen.floor + 1)

    @property
    def scales_by_occupancy(self) -> bool:
        """Whether occupancy is the signal: not of prefill Pods, whose requests are short, unless somebody wrote so."""
        written = None if self.ground.now is None else self.ground.now.signal
        fits = self.target.fits and self.ground.role != "prefill"
        return fits if written is None else written == "occupancy"


def ground_of(
    role: Role, situation: Situation | None, *, slots: int | None, start: int | None, most_wait: float
) -> Ground:
    """What is given, completed by the stack file.

    Raises:
        UnusableError: the stack has no such role.
    """
    now = None if situation is None else situation.roles.get(role)
    if situation is not None and now is None:
        fix = f"Name one of its roles with --role: {', '.join(situation.roles)}"
        raise UnusableError(Problem(key="--stack", value=situation.release, why=f"has no {role} Pods", fix=fix))
    if start is not None:
        start_is = "as given"
    elif now is not None:
        start, start_is = now.start, "its start-up budget: give what a start really takes with --start-seconds"
    else:
        start, start_is = START, "assumed: give what a start really takes with --start-seconds"
    chosen = slots if slots is not None else now.slots if now is not None else 0
    return Ground(
        role=role,
        slots=chosen,
        start=start,
        start_is=start_is,
        behavior=BehaviorConfig() if now is None else now.behavior,
        most_wait=most_wait,
        now=now,
    )


def advise_by_file(file: Path, standard_input: IO[bytes], ground: Ground, *, step: int | None) -> Advice:
    """Advice from a file, or from standard input if it is `-`."""
    if str(file) == "-":
        return advise(load_of_file(standard_input, "standard input", step=step), ground, source="standard input")
    with file.open("rb") as stream:
        return advise(load_of_file(stream, str(file), step=step), ground, source=str(file))


def advise_by_prometheus(asked: Prometheus, labels: str, ground: Ground, *, window: int, step: int) -> Advice:
    """Advice from what Prometheus saw."""
    past = load_of_prometheus(asked, labels, role=ground.role, window=window, step=step)
    queued = queue_times(asked, labels, window=window)
    warnings = [f"Prometheus: {warning}" for warning in asked.warnings]
    missing = window / 86_400 - past.days
    short = (
        [f"there is data of {past.days:.1f} of {window / 86_400:.1f} days only"] if missing > past.days * 0.05 else []
    )
    return advise(past, ground, source=asked.address, queued=queued, notes=[*short, *warnings])


def advise(
    past: History,
    ground: Ground,
    *,
    source: str,
    queued: QueueTimes | None = None,
    notes: Sequence[str] = (),
) -> Advice:
    """Floor, ceiling and occupancy of one role."""
    target = choose_target(past, ground.slots)
    up, down = ground.behavior.scale_up, ground.behavior.scale_down
    pace = Pace(
        slots=ground.slots,
        occupancy=target.occupancy,
        start=ground.start,
        up=up.period_seconds / up.pods,
        down=down.period_seconds / down.pods,
        window=down.stabilization_window_seconds,
    )
    floor = choose_floor(past, pace, most_wait=ground.most_wait)
    return Advice(
        ground=ground,
        past=past,
        target=target,
        pace=pace,
        floor=floor,
        depths=depths(past, ground.slots),
        queued=queued,
        source=source,
        notes=(*notes, *_notes(past, ground, target, floor)),
    )


def _notes(past: History, ground: Ground, target: Target, floor: Floor) -> list[str]:
    said: list[str] = []
    if past.days * 86_400 < WEEK * (1 - 0.01):
        said.append(f"{past.days:.1f} days are less than a week: what other days ask for is not known")
    if past.covered < COVERED:
        said.append(f"there is data of {past.covered * 100:.0f} % of this time only; the rest is left out")
    if float((past.running / (past.pods * ground.slots)).max()) > 1.0 + 1e-9:
        said.append(f"Pods ran more requests at once than {ground.slots}, so that is not their number of slots")
    if ground.role == "prefill":
        said.append("prefill requests are short, so occupancy says little: scale by in-flight tokens, or by queue time")
    elif not target.fits:
        begins = f"{(target.begins or 0) * 100:.0f} % of the slots"
        said.append(f"requests wait with {begins} taken: scale by queue time, or find what they wait for")
    ceiling = None if ground.now is None else ground.now.most
    if ceiling is not None and floor.chosen.most > ceiling:
        key = f"autoscaling.{ground.role}.maxReplicas = {ceiling}"
        said.append(f"{key} would have held it back: {floor.chosen.most} Pods were wanted")
    if floor.chosen.floor == floor.by_peak and floor.by_peak > 1:
        said.append("no scaler helps with this: Pods start too slowly for what was asked for")
    return said


# --- how it is said ---------------------------------------------------------------------------------------------------


def write(advice: Advice, form: Form) -> str:
    """The advice in a format."""
    return json.dumps(as_json(advice), indent=2) + "\n" if form is Form.JSON else _text(advice)


def _text(advice: Advice) -> str:
    ground, past, floor, target = advice.ground, advice.past, advice.floor, advice.target
    demand = past.running + past.waiting
    lines = [
        f"{ground.role}: {floor.chosen.floor} to {advice.ceiling} Pods, occupancy {target.occupancy:g}",
        f"  from {past.times.size:,} times {past.step:g} s apart in {past.days:.1f} days: {advice.source}",
        f"  asked for: {demand.mean():.3g} requests at once on average, {demand.max():.4g} at most",
        f"  had: {past.pods.mean():.3g} Pods on average, with {ground.slots} slots each",
        *([] if advice.queued is None else [f"  waited: {_waited(advice.queued)}"]),
        f"  a Pod serves {ground.start} s after it is asked for ({ground.start_is})",
        f"  floor: {_played(floor.chosen)}",
        *([] if floor.below is None else [f"         {_played(floor.below)}"]),
        f"         the longest queue alone would ask for {floor.by_peak}",
        f"  occupancy: {target.because}",
        *(f"         {line}" for line in _depth_lines(advice.depths)),
        *(f"  note: {note}" for note in advice.notes),
        "",
        as_text(floors_plot(advice)),
        "",
        *_stack_lines(advice),
    ]
    return "\n".join(lines) + "\n"


def _played(played: Replay) -> str:
    wait = f"requests spend {played.wait * 100:.2f} % of their time in a queue"
    queue = f"{_span(played.queued)} with a queue, {_span(played.longest)} in one go" if played.queued else "no queue"
    pods = f"{played.mean:.3g} Pods on average, {played.most} at most"
    return f"with {played.floor} Pod{'s' * (played.floor > 1)} {wait} ({queue}); {pods}"


def _waited(queued: QueueTimes) -> str:
    long = f"{queued.long * 100:.2f} % longer than {LONG_WAIT:g} s"
    return f"half of the requests {_seconds(queued.half)}, 99 % {_seconds(queued.most)}; {long}"


def _depth_lines(found: Sequence[Depth]) -> list[str]:
    lines = ["waiting a Pod   times   occupancy: low  middle  high"]
    for depth in found:
        line = f"{_depth_label(depth):<13} {depth.times:>7}"
        if depth.low is not None and depth.middle is not None and depth.high is not None:
            line += f" {depth.low:>15.2f} {depth.middle:>7.2f} {depth.high:>5.2f}"
        lines.append(line)
    return lines


def _depth_label(depth: Depth) -> str:
    if depth.up_to == 0:
        return "none"
    return f"over {depth.above:g}" if math.isinf(depth.up_to) else f"up to {depth.up_to:g}"


def _stack_lines(advice: Advice) -> list[str]:
    return [
        "Into the stack file:",
        "  serving-stack:autoscaling:",
        f"    {advice.ground.role}:",
        *(f"      {key}: {value:g}" for key, value in _keys(advice).items()),
    ]


def _keys(advice: Advice) -> dict[str, float]:
    """What to put below `autoscaling.<role>`."""
    bounds = {"minReplicas": advice.floor.chosen.floor, "maxReplicas": advice.ceiling}
    return bounds | ({"occupancy": advice.target.occupancy} if advice.scales_by_occupancy else {})


def as_json(advice: Advice) -> dict[str, Any]:
    """For programs: times in seconds, shares as such, what has no end as null."""
    past, target, floor, queued = advice.past, advice.target, advice.floor, advice.queued
    demand = past.running + past.waiting
    return {
        "role": advice.ground.role,
        "slotsPerPod": advice.ground.slots,
        "startSeconds": advice.ground.start,
        "window": {"days": past.days, "covered": past.covered, "times": int(past.times.size), "step": past.step},
        "demand": {"mean": float(demand.mean()), "most": float(demand.max()), "pods": float(past.pods.mean())},
        "queueTime": None
        if queued is None
        else {"p50": _bounds(queued.half), "p99": _bounds(queued.most), "long": queued.long, "longIs": LONG_WAIT},
        "floor": {
            "chosen": _replay_json(floor.chosen),
            "below": None if floor.below is None else _replay_json(floor.below),
            "byPeak": floor.by_peak,
            "mostWait": floor.most_wait,
        },
        "target": {
            "occupancy": target.occupancy,
            "begins": target.begins,
            "backlog": target.backlog,
            "fits": target.fits,
            "because": target.because,
        },
        "depths": [
            {
                "above": depth.above,
                "upTo": None if math.isinf(depth.up_to) else depth.up_to,
                "times": depth.times,
                "low": depth.low,
                "middle": depth.middle,
                "high": depth.high,
            }
            for depth in advice.depths
        ],
        "notes": list(advice.notes),
        "source": advice.source,
        "stackFile": {"autoscaling": {advice.ground.role: _keys(advice)}},
    }


def _replay_json(played: Replay) -> dict[str, float]:
    return {
        "floor": played.floor,
        "most": played.most,
        "mean": played.mean,
        "wait": played.wait,
        "queuedSeconds": played.queued,
        "longestQueueSeconds": played.longest,
    }


def _bounds(interval: Interval) -> dict[str, float | None]:
    return {"low": interval.low, "high": None if math.isinf(interval.high) else interval.high}


# --- plots ------------------------------------------------------------------------------------------------------------


def floors_plot(advice: Advice) -> Plot:
    """Time in a queue by floor."""
    floor, ground, pace = advice.floor, advice.ground, advice.pace
    end = max(floor.by_peak, floor.chosen.floor, 2)
    every = math.ceil(end / MOST_FLOORS)
    floors = sorted({*range(1, end + 1, every), floor.chosen.floor, end})
    return Plot(
        title=f"{ground.role}: requests in a queue",
        x="fewest Pods",
        y="share of the requests' time in a queue",
        curves=(Curve(name="in a queue", x=floors, y=[replay(advice.past, each, pace).wait * 100 for each in floors]),),
        across=((floor.most_wait * 100, f"{floor.most_wait * 100:g} % allowed"),),
        up=((floor.chosen.floor, f"floor {floor.chosen.floor}"),),
        is_percent=True,
    )


def occupancy_plot(advice: Advice) -> Plot:
    """Where a backlog begins: waiting requests by occupancy."""
    points = backlog_by_occupancy(advice.past, advice.ground.slots)
    return Plot(
        title=f"{advice.ground.role}: where a backlog begins",
        x="occupancy of all Pods together",
        y="waiting requests a Pod, on average",
        curves=(Curve(name="waiting", x=[x for x, _ in points], y=[y for _, y in points]),),
        up=((advice.target.occupancy, f"occupancy {advice.target.occupancy:g}"),),
    )


def draw(advice: Advice, path: Path) -> None:
    """Write both plots into an image."""
    as_image([floors_plot(advice), occupancy_plot(advice)], path)


def _seconds(interval: Interval) -> str:
    if interval.is_exact:
        return f"{interval.high:g} s"
    return f"{interval.low:g} to {'?' if math.isinf(interval.high) else f'{interval.high:g}'} s"


def _span(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 10 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
