"""How Pods come and go while a change goes on, moment by moment, as Kubernetes' controllers bring it about.

Simulated from the impact alone: the Deployment controller rolls as in `stack.impact.arithmetic`, the parts follow one
another as the components declare them (the endpoint picker, roles that go, all others, nodePlacement entries that are
dropped). A Pod holds its devices from the moment that it has a node until it is gone, and no more Pods hold some than
hold some now and `extra_pods` beyond them, so a new one may wait for one that drains. Every Pod that starts becomes
Ready: what breaks is not foreseen here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from stack.impact.arithmetic import Strategy, share
from stack.impact.model import Happening, Method

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stack.impact.model import Impact, PartImpact, WorkloadImpact

PICKER = "epp"
"""The part that comes first, and whose Pods hold no devices."""
NO_LIMIT = 10**9
TOLD_ANEW = frozenset({Happening.RESTARTS, Happening.GOES_BACK, Happening.CONTINUES})


class Reading(StrEnum):
    """How long a Pod takes to start. To leave, each takes as long as it may."""

    LONGEST = "longest"
    """As long as its start-up budget allows."""
    ABOUT = "about"
    """As long as the Pods that run now took."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Pods of a part at one time.

    Attributes:
        serving: Ready, of the template that goes. idle: not Ready and not about to be.
        draining: on their way out, with their devices. waiting: new, for devices. starting: with devices, not Ready.
        ready: Ready, of the wanted template.
        holding: that hold devices.
    """

    serving: int = 0
    idle: int = 0
    draining: int = 0
    waiting: int = 0
    starting: int = 0
    ready: int = 0
    holding: int = 0

    @property
    def serve(self) -> int:
        """Pods that answer requests."""
        return self.serving + self.ready

    @property
    def pods(self) -> int:
        """Pods of which none has been told to go."""
        return self.serving + self.idle + self.waiting + self.starting + self.ready

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in STATES})


STATES = ("serving", "idle", "draining", "waiting", "starting", "ready", "holding")


@dataclass(frozen=True, kw_only=True)
class Span:
    """A time in which nothing changes, in seconds from the beginning of the change."""

    begin: int
    end: int
    counts: Counts


@dataclass(frozen=True, kw_only=True)
class PartTimeline:
    """One part, from the beginning of the whole change to its end.

    Attributes:
        now: what there is before anything begins.
        spans: one after the other, without a gap.
        last: what there is when the change has ended, or goes no further.
        gaps: times, from and to, in which nothing of it serves, though something did before.
        is_stuck: whether it goes no further before it is through, since Pods wait for devices in vain.
    """

    part: str
    now: Counts
    spans: tuple[Span, ...]
    last: Counts
    gaps: tuple[tuple[int, int], ...]
    is_stuck: bool

    @property
    def seconds(self) -> int:
        """When the last of it changes."""
        return self.spans[-1].end if self.spans else 0

    @property
    def moments(self) -> tuple[tuple[int, Counts], ...]:
        """What there is from each time on at which something changes."""
        return (*((span.begin, span.counts) for span in self.spans), (self.seconds, self.last))


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The whole change; parts in the order of the impact's."""

    reading: Reading
    parts: tuple[PartTimeline, ...]

    @property
    def seconds(self) -> int:
        """How long it takes."""
        return max((part.seconds for part in self.parts), default=0)

    @property
    def is_stuck(self) -> bool:
        """Whether a part goes no further before it is through."""
        return any(part.is_stuck for part in self.parts)


def simulate(impact: Impact, reading: Reading, *, is_short: bool = False) -> Timeline | None:
    """What will be there at which time.

    Args:
        impact: what the change does.
        reading: how long a start takes.
        is_short: whether to give new Pods only what the look at spare devices found (`fits`) instead of what they need.

    None where nothing changes, or where no time is known for that reading. Parts of which nothing is known are left
    out.
    """
    parts = [part for part in impact.parts if part.happens is not Happening.UNKNOWN]
    starts = {part.part: _start_seconds(impact, part, reading) for part in parts}
    if all(part.happens is Happening.STAYS for part in parts):
        return None
    courses: list[_Course] = []
    for part in parts:
        seconds = starts[part.part]
        if seconds is None:
            return None
        courses += _courses(part, seconds, is_short=is_short)
    _order(courses, is_all_down=_is_all_down(impact))
    return Timeline(reading=reading, parts=tuple(_follow(parts, courses)))


# --- one Deployment ---------------------------------------------------------------------------------------------------


class _State(StrEnum):
    READY = "ready"
    IDLE = "idle"
    DRAINING = "draining"
    WAITING = "waiting"
    STARTING = "starting"
    GONE = "gone"


@dataclass(eq=False)
class _Pods:
    """Pods that nothing tells apart. `due` is when they are Ready, or gone."""

    is_wanted: bool
    state: _State
    holds: bool
    due: int | None = None
    count: int = 1

    @property
    def kind(self) -> tuple[bool, _State, bool, int | None]:
        """What tells them from others."""
        return self.is_wanted, self.state, self.holds, self.due


def _number(pods: Iterable[_Pods]) -> int:
    return sum(each.count for each in pods)


def _first(pods: Iterable[_Pods], count: int) -> Iterator[tuple[_Pods, int]]:
    """Who the first so many are, and how many of each."""
    for each in pods:
        if count <= 0:
            return
        taken = min(each.count, count)
        count -= taken
        yield each, taken


@dataclass(eq=False)
class _Course:
    """What becomes of one Deployment."""

    part: PartImpact
    workload: WorkloadImpact
    start_seconds: int
    spare: int
    """Pods that find devices beyond those that its Pods hold now."""
    draining: int = 0
    """Pods that were told to go before, and have to be gone before it is through."""
    begins_after: list[_Course] = field(default_factory=list["_Course"])
    comes_after: list[_Course] = field(default_factory=list["_Course"])
    """All whose old Pods have to be gone before the first new one is made."""
    has_begun: bool = False
    pods: list[_Pods] = field(default_factory=list[_Pods])
    limit: int = NO_LIMIT

    def __post_init__(self) -> None:
        workload, part = self.workload, self.part
        if part.part != PICKER:
            self.limit = workload.placed + self.spare
        self.pods.append(
            _Pods(
                is_wanted=False,
                state=_State.DRAINING,
                holds=True,
                due=workload.drain_seconds,
                count=max(0, self.draining),
            )
        )
        pods = workload.kept + workload.leaving
        nowhere = pods - workload.placed
        # Who has no node is not Ready; of which template it is, is taken as in `Standing.waiting`.
        for is_wanted, count, ready in (
            (True, workload.already, workload.ready_kept),
            (False, pods - workload.already, workload.ready - workload.ready_kept),
        ):
            for index in range(count):
                is_ready = index < ready
                is_nowhere = not is_ready and nowhere > 0
                nowhere -= is_nowhere
                self.pods.append(self._standing(is_wanted=is_wanted, is_ready=is_ready, has_node=not is_nowhere))
        self._tidy()

    def _standing(self, *, is_wanted: bool, is_ready: bool, has_node: bool) -> _Pods:
        if is_ready:
            return _Pods(is_wanted=is_wanted, state=_State.READY, holds=True)
        if not is_wanted or self.workload.happens not in TOLD_ANEW:
            return _Pods(is_wanted=is_wanted, state=_State.IDLE, holds=has_node)
        if not has_node:
            return _Pods(is_wanted=is_wanted, state=_State.WAITING, holds=False)
        return _Pods(is_wanted=is_wanted, state=_State.STARTING, holds=True, due=self.start_seconds)

    # what is asked

    @property
    def is_over(self) -> bool:
        """Whether all is as wanted."""
        if self.workload.happens is Happening.STAYS:
            return True
        is_at_rest = all(pod.state in {_State.READY, _State.IDLE} and pod.is_wanted for pod in self.pods)
        return self.has_begun and is_at_rest and _number(self.pods) == self.workload.after

    @property
    def has_left(self) -> bool:
        """Whether no old Pod is there any more, with its devices."""
        return self.has_begun and all(pod.is_wanted for pod in self.pods)

    @property
    def due(self) -> int | None:
        """When something happens by itself."""
        return min((pod.due for pod in self.pods if pod.due is not None), default=None)

    def counts(self) -> Counts:
        """What there is."""
        of = {state: _number(pod for pod in self.pods if pod.state is state) for state in _State}
        wanted = _number(pod for pod in self.pods if pod.state is _State.READY and pod.is_wanted)
        return Counts(
            serving=of[_State.READY] - wanted,
            idle=of[_State.IDLE],
            draining=of[_State.DRAINING],
            waiting=of[_State.WAITING],
            starting=of[_State.STARTING],
            ready=wanted,
            holding=self._holding,
        )

    @property
    def _holding(self) -> int:
        return _number(pod for pod in self.pods if pod.holds)

    def _tidy(self) -> None:
        """Put together what nothing tells apart, where the first of it was, and forget who is gone.

        Who waits keeps its turn, whichever template it is of.
        """
        found: dict[tuple[bool, _State, bool, int | None, int], _Pods] = {}
        turn = 0
        last: bool | None = None
        for pods in self.pods:
            if pods.state is _State.GONE or not pods.count:
                continue
            is_waiting = pods.state is _State.WAITING
            if is_waiting and pods.is_wanted is not last:
                turn, last = turn + 1, pods.is_wanted
            same = found.setdefault((*pods.kind, turn if is_waiting else 0), pods)
            if same is not pods:
                same.count += pods.count
        self.pods = list(found.values())

    # what happens

    def begin(self, now: int) -> bool:
        """Begin, if all that come before are through."""
        if self.has_begun or not all(each.is_over for each in self.begins_after):
            return False
        self.has_begun = True
        is_scaled = self.workload.before is not None and self.workload.before != self.workload.after
        if is_scaled and self.workload.method is Method.ROLLING and not self.has_left:
            self._scale(now)
        return True

    def _scale(self, now: int) -> None:
        """What is there gets the new number before anything is exchanged."""
        before, after = self.workload.before or 0, self.workload.after
        old, new = self._of(is_wanted=False), self._of(is_wanted=True)
        strategy = Strategy(
            is_recreate=False, surge=self.part.max_surge or 0, unavailable=self.part.max_unavailable or 0
        )
        is_back = self.workload.happens is Happening.GOES_BACK
        sizes = share(_number(old), _number(new), strategy, wanted=after, before=before, is_back=is_back)
        for is_wanted, pods, size in ((False, old, sizes[0]), (True, new, sizes[1])):
            surplus = _number(pods) - size
            self._dismiss(pods, surplus, now)
            self._make(-surplus, is_wanted=is_wanted)

    def _of(self, *, is_wanted: bool) -> list[_Pods]:
        return [pod for pod in self.pods if pod.is_wanted is is_wanted and pod.state is not _State.DRAINING]

    def pass_on(self, now: int) -> None:
        """Let what is due happen."""
        for pod in self.pods:
            if pod.due == now:
                pod.due = None
                pod.state = _State.READY if pod.state is _State.STARTING else _State.GONE
                pod.holds = pod.state is _State.READY
        self._tidy()

    def move(self, now: int) -> bool:
        """One look of the controller and the scheduler; whether anything came of it."""
        if not self.has_begun or self.workload.happens is Happening.STAYS:
            return False
        return self._place(now) or self._control(now)

    def _place(self, now: int) -> bool:
        waiting = [pod for pod in self.pods if pod.state is _State.WAITING]
        free = self.limit - self._holding
        for pods, count in list(_first(waiting, free)):
            self._split(pods, count, _State.STARTING, holds=True, due=now + self.start_seconds)
        self._tidy()
        return bool(waiting) and free > 0

    def _split(self, pods: _Pods, count: int, state: _State, *, holds: bool, due: int | None) -> None:
        """Let something become of some of them; they keep their place before the others."""
        pods.count -= count
        made = _Pods(is_wanted=pods.is_wanted, state=state, holds=holds, due=due, count=count)
        self.pods.insert(self.pods.index(pods), made)

    def _control(self, now: int) -> bool:
        old, new = self._of(is_wanted=False), self._of(is_wanted=True)
        wanted = self.workload.after
        there = _number(new)
        if there > wanted:
            return self._dismiss(new, there - wanted, now)
        if self.workload.method is Method.ROLLING and (old or there < wanted):
            return self._roll(old, new, now)
        if old:
            return self._dismiss(old, _number(old), now)
        is_clear = self.has_left and all(each.has_left for each in self.comes_after)
        return is_clear and self._make(wanted - there, is_wanted=True)

    def _roll(self, old: list[_Pods], new: list[_Pods], now: int) -> bool:
        """As `rolloutRolling`: grow the new, else clean up what is not Ready of the old, else shrink the old."""
        wanted, surge, unavailable = self.workload.after, self.part.max_surge or 0, self.part.max_unavailable or 0
        old_number, new_number = _number(old), _number(new)
        more = min(wanted + surge - old_number - new_number, wanted - new_number)
        if more > 0:
            return self._make(more, is_wanted=True)
        least = wanted - unavailable
        new_ready = _number(pod for pod in new if pod.state is _State.READY)
        old_ready = _number(pod for pod in old if pod.state is _State.READY)
        fewer = old_number + new_number - least - (new_number - new_ready)
        if fewer <= 0 or not old:
            return False
        if old_ready < old_number:
            return self._dismiss(old, min(fewer, old_number - old_ready), now)
        return self._dismiss(old, min(old_ready + new_ready - least, old_number), now)

    def _make(self, count: int, *, is_wanted: bool) -> bool:
        if count > 0:
            self.pods.append(_Pods(is_wanted=is_wanted, state=_State.WAITING, holds=False, count=count))
            self._tidy()
        return count > 0

    def _dismiss(self, of: Iterable[_Pods], count: int, now: int) -> bool:
        """Those without devices first, then those that are not Ready, as the ReplicaSet controller chooses."""
        for pods, leaving in list(_first(sorted(of, key=lambda pod: (pod.holds, pod.state is _State.READY)), count)):
            if pods.holds:
                due = now + self.workload.drain_seconds
                self._split(pods, leaving, _State.DRAINING, holds=True, due=due)
            else:
                pods.count -= leaving
        self._tidy()
        return count > 0


# --- all of them ------------------------------------------------------------------------------------------------------


def _courses(part: PartImpact, start_seconds: int, *, is_short: bool) -> Iterator[_Course]:
    """Its Deployments, to which what fits is handed out in the order in which they are declared."""
    fits = part.fits if is_short else None
    draining = _draining(part)
    for workload in part.workloads:
        spare = workload.extra_pods if fits is None else min(workload.extra_pods, fits)
        fits = None if fits is None else fits - spare
        # One that comes has none; and of several that go it is the same for all that wait for them.
        mine = draining if workload.drain_seconds else 0
        draining -= mine
        yield _Course(part, workload, start_seconds, spare, mine)


def _draining(part: PartImpact) -> int:
    """Pods on their way out already that are waited for: those whose devices come free, without what is sent away."""
    if part.method is Method.ROLLING:
        return 0
    goes = sum(each.leaving for each in part.workloads if each.method is not Method.RECREATE)
    return max(0, len(part.freed) - goes)


def _is_all_down(impact: Impact) -> bool:
    return any(part.method is Method.ALL_DOWN for part in impact.parts)


def _start_seconds(impact: Impact, part: PartImpact, reading: Reading) -> int | None:
    """How long a new Pod of the part takes; None where that is not known."""
    if reading is Reading.LONGEST:
        return part.start_seconds
    if part.about_start_seconds is not None or not part.new:
        return part.about_start_seconds or 0
    if part.part != PICKER and _is_all_down(impact) and impact.outage is not None and impact.outage.start == "warm":
        # A role that is new under another topology starts as those did that it takes the place of.
        seen = [each.about_start_seconds or 0 for each in impact.parts if each.part != PICKER]
        return max((each for each in seen if 0 < each <= part.start_seconds), default=None)
    return None


def _order(courses: list[_Course], *, is_all_down: bool) -> None:
    """Who waits for whom, as the components declare it."""
    pickers = [each for each in courses if each.part.part == PICKER]
    roles = [each for each in courses if each.part.part != PICKER]
    gone = [] if is_all_down else [each for each in roles if each.workload.happens is Happening.DELETED]
    first = [each for each in gone if each.workload.entry is None]
    last = [each for each in gone if each.workload.entry is not None]
    middle = [each for each in roles if each not in gone]
    by_name = {each.workload.name: each for each in courses}
    for each in roles:
        each.begins_after += pickers
    for each in middle:
        each.begins_after += first
        each.begins_after += [by_name[name] for name in each.workload.waits_for if name in by_name]
        if is_all_down:
            each.comes_after += [other for other in roles if other is not each]
    for each in last:
        each.begins_after += middle


def _follow(parts: list[PartImpact], courses: list[_Course]) -> Iterator[PartTimeline]:
    """Let it all happen, then tell it part by part."""
    seen: list[tuple[int, dict[str, Counts]]] = []
    now = 0
    while True:
        seen.append((now, _look(parts, courses)))
        _settle(courses, now)
        seen.append((now, _look(parts, courses)))
        due = [each.due for each in courses if each.due is not None]
        if not due:
            break
        now = min(due)
        for each in courses:
            each.pass_on(now)
    for part in parts:
        mine = [each for each in courses if each.part is part]
        yield _told(part, [(at, of[part.part]) for at, of in seen], is_stuck=not all(each.is_over for each in mine))


def _settle(courses: list[_Course], now: int) -> None:
    """Until nobody has anything left to do at this moment."""
    while any([each.begin(now) for each in courses] + [each.move(now) for each in courses]):
        pass


def _look(parts: list[PartImpact], courses: list[_Course]) -> dict[str, Counts]:
    return {part.part: sum((each.counts() for each in courses if each.part is part), start=Counts()) for part in parts}


def _told(part: PartImpact, seen: list[tuple[int, Counts]], *, is_stuck: bool) -> PartTimeline:
    """Spans of some length, merged where nothing of this part changes."""
    spans: list[Span] = []
    for (begin, counts), (end, _) in pairwise(seen):
        if begin == end:
            continue
        if spans and spans[-1].counts == counts:
            spans[-1] = Span(begin=spans[-1].begin, end=end, counts=counts)
        else:
            spans.append(Span(begin=begin, end=end, counts=counts))
    last = seen[-1][1]
    if spans and spans[-1].counts == last:
        # Nothing of this part changes while others go on.
        spans.pop()
    serves_now = seen[0][1].serve > 0 and part.after > 0
    return PartTimeline(
        part=part.part,
        now=seen[0][1],
        spans=tuple(spans),
        last=last,
        gaps=tuple(_gaps(spans)) if serves_now else (),
        is_stuck=is_stuck,
    )


def _gaps(spans: Iterable[Span]) -> Iterator[tuple[int, int]]:
    begin: int | None = None
    end = 0
    for span in spans:
        if span.counts.serve == 0:
            begin, end = span.begin if begin is None else begin, span.end
        elif begin is not None:
            yield begin, end
            begin = None
    if begin is not None:
        yield begin, end
