"""How long each Pod has been stuck. Knows no clock: it is told the time with every look.

A *case* is one Pod in one kind of trouble. Its clock starts at the look that first saw it, and counts the time between
two looks if the Pod was stuck at both of them, excused at neither, and not held at both. When a case ends:

* unschedulable: when the Pod has a node.
* no image, or a container that cannot be made: when that container has begun (loading a model may then take its time),
  or the Pod is Ready.
* crashing: when the Pod is Ready, or it was an init container and that has done its work.
* overdue in leaving (see `departures`): when it is gone.
* fewer than the floor: when the scaler has asked for as many, or something else is waited for.

The clock of a crashing container goes on while it runs between two crashes, and is held once it has run for longer than
it did before its last crash: then it got further than ever, and what it is at now (loading a model takes many minutes)
is a start like any other. It is held and not ended, so whatever was counted counts again from the next crash on: a
container that crashes again and again, at however different moments, waits out the kubelet's back-off each time, and
that always counts. How long it ran before is a difference of two moments that one kubelet noted, how long it has been
running now is counted here: no two clocks are compared.

A Pod that goes while it is stuck bequeaths its clock to one Pod that appears after it and gets into the same kind of
trouble: whatever deletes and replaces Pods (a drained node, an impatient operator, evictions one after the other) would
otherwise start the clock anew each time, for ever. For crashes and evictions the time in between counts as well, since
a successor has to start before it can fail. All that is forgotten as soon as another Pod becomes Ready: that is the
progress in want of which a roll-out is given up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stack.rollout.pods import Kind, PodState, Run, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stack.rollout.progress import RollOut

_Key = tuple[str | None, Kind]
"""A case: the Pod, or None for the Deployment itself, and the kind of its trouble."""
GOES_ON_BETWEEN_PODS = frozenset({Kind.CRASHING, Kind.ENDED})


@dataclass(frozen=True, kw_only=True)
class Case:
    """One Pod in one kind of trouble, as of the last look.

    Attributes:
        pod: its name; None when Kubernetes can't even make one, or nobody asks for more.
        seconds: how long it has been stuck, without the time for which it was excused.
        excuse: which leaving Pod holds what it waits for; None when there is none.
        is_held: whether it crashed, and has been running for longer than before the crash.
    """

    pod: str | None
    trouble: Trouble
    seconds: float
    excuse: str | None = None
    is_held: bool = False


@dataclass(kw_only=True)
class _Clock:
    trouble: Trouble
    seconds: float
    seen: float
    excuse: str | None
    run: Run | None
    ran_for: float = 0
    is_held: bool = False

    def tick(self, now: float, trouble: Trouble, excuse: str | None, run: Run | None) -> None:
        self.ran_for = self.ran_for + now - self.seen if run is not None and run == self.run else 0
        was_held, self.run = self.is_held, run
        self.is_held = run is not None and self.ran_for > run.before
        if self.excuse is None and excuse is None and not (was_held and self.is_held):
            self.seconds += now - self.seen
        # The back-off after a failed pull, which takes turns with it, says less of the reason.
        if (self.trouble.reason, trouble.reason) != ("ErrImagePull", "ImagePullBackOff"):
            self.trouble = trouble
        self.seen, self.excuse = now, excuse


@dataclass(frozen=True, kw_only=True)
class _Legacy:
    """The clock of a Pod that went while it was stuck.

    Attributes:
        seen: when it was seen last.
        before: Pods that were there already, and so don't stand in its place.
    """

    kind: Kind
    seconds: float
    seen: float
    before: frozenset[str]


@dataclass
class Patience:
    """The clocks of one roll-out.

    Attributes:
        seconds: longest time one case may last.
        has_excused: whether a Pod was excused since the last one became Ready. Kubernetes excuses nobody: the deadline
            after which it gives up has been running meanwhile, and starts anew only when another Pod is Ready.
    """

    seconds: float
    has_excused: bool = False
    _clocks: dict[_Key, _Clock] = field(default_factory=dict[_Key, _Clock])
    _legacies: list[_Legacy] = field(default_factory=list[_Legacy])
    _newest: str | None = None
    _seen: frozenset[str] = frozenset()
    _seen_ready: frozenset[str] = frozenset()
    _seen_ended: frozenset[str] | None = None

    def look(
        self, now: float, state: RollOut, excuses: Mapping[str, str], overstays: Mapping[str, Trouble] | None = None
    ) -> tuple[Case, ...]:
        """Take in how things are, and tell every case there is, the longest one first.

        Args:
            now: seconds on a clock that never goes back.
            state: the roll-out.
            excuses: unschedulable Pod -> leaving Pod that holds what it waits for.
            overstays: Pod that holds up the roll-out by not leaving -> what to say of it.
        """
        self._forget(state)
        pods: dict[str | None, PodState] = {pod.name: pod for pod in state.new}
        before = {key: clock for key, clock in self._clocks.items() if not _is_settled(clock.trouble, pods.get(key[0]))}
        self._clocks = {}
        is_open = dict(_open(state, before))
        for name, trouble in (overstays or {}).items():
            is_open[name, trouble.kind] = trouble
        for key, clock in before.items():
            if key not in is_open and key[0] is not None and key[0] not in pods and key[1] is not Kind.TERMINATING:
                self._bequeath(key[1], clock)
        for key, trouble in is_open.items():
            excuse = excuses.get(key[0] or "") if key[1] is Kind.UNSCHEDULABLE else None
            run = _run(trouble, pods.get(key[0])) if key[1] is Kind.CRASHING else None
            if (clock := before.get(key)) is None:
                clock = self._start(now, key, trouble, excuse)
                clock.run = run
            else:
                clock.tick(now, trouble, excuse, run)
            self._clocks[key] = clock
        clocks = [*self._clocks.items(), *self._ended(now, state)]
        self._remember(state)
        cases = [
            Case(pod=pod, trouble=clock.trouble, seconds=clock.seconds, excuse=clock.excuse, is_held=clock.is_held)
            for (pod, _), clock in clocks
        ]
        self.has_excused = self.has_excused or any(case.excuse is not None for case in cases)
        # Of two that began together, the one that doesn't leave is why the other one waits.
        return tuple(
            sorted(cases, key=lambda c: (-c.seconds, c.trouble.kind is not Kind.TERMINATING, c.pod or "")),
        )

    def blink(self, now: float) -> None:
        """Nothing could be seen since the last look: no clock runs while nobody answers."""
        for clock in self._clocks.values():
            clock.seen = now

    def overdue(self, cases: Sequence[Case]) -> Case | None:
        """The case that has lasted too long, if one has."""
        return next((case for case in cases if case.excuse is None and case.seconds >= self.seconds), None)

    def _forget(self, state: RollOut) -> None:
        """What was, if it says nothing of what is: another template is in force, or the roll-out got on."""
        if state.newest != self._newest:
            self._newest = state.newest
            self._clocks, self._legacies, self.has_excused = {}, [], False
        if _ready(state) - self._seen_ready:
            self._legacies, self.has_excused = [], False

    def _remember(self, state: RollOut) -> None:
        self._seen |= {pod.name for pod in (*state.new, *state.old, *state.leaving)}
        self._seen_ready |= _ready(state)
        self._seen_ended = (self._seen_ended or frozenset()) | {pod.name for pod in state.ended}

    def _ended(self, now: float, state: RollOut) -> Iterator[tuple[_Key, _Clock]]:
        """Pods that ended since the last look; each is a case at this one look, and bequeaths its clock at once."""
        for pod in state.ended:
            is_news = self._seen_ended is not None and pod.name not in self._seen_ended
            if is_news and pod.trouble is not None and pod.template == state.newest:
                key = pod.name, pod.trouble.kind
                clock = self._start(now, key, pod.trouble, None)
                self._bequeath(key[1], clock)
                yield key, clock

    def _start(self, now: float, key: _Key, trouble: Trouble, excuse: str | None) -> _Clock:
        """A new clock, or the longest one that is bequeathed to a Pod like this."""
        pod, kind = key
        heritage = [legacy for legacy in self._legacies if legacy.kind is kind and pod not in legacy.before]
        seconds = 0.0
        if heritage:
            legacy = max(heritage, key=lambda legacy: legacy.seconds)
            self._legacies.remove(legacy)
            seconds = legacy.seconds + (now - legacy.seen if kind in GOES_ON_BETWEEN_PODS else 0)
        return _Clock(trouble=trouble, seconds=seconds, seen=now, excuse=excuse, run=None)

    def _bequeath(self, kind: Kind, clock: _Clock) -> None:
        self._legacies.append(_Legacy(kind=kind, seconds=clock.seconds, seen=clock.seen, before=self._seen))


def _open(state: RollOut, before: Mapping[_Key, _Clock]) -> Iterator[tuple[_Key, Trouble]]:
    """Every case there is at a look, but for Pods that ended."""
    if state.refused is not None:
        yield (None, state.refused.kind), state.refused
    if (unscaled := state.unscaled) is not None:
        yield (None, unscaled.kind), unscaled
    for pod in state.new:
        if pod.is_ready:
            continue
        for (name, kind), clock in before.items():
            if name == pod.name and _lasts(clock.trouble, pod):
                yield (name, kind), clock.trouble
        if pod.trouble is not None:
            yield (pod.name, pod.trouble.kind), pod.trouble


def _lasts(trouble: Trouble, pod: PodState) -> bool:
    """Whether a case is still open although the Pod does not show it just now."""
    match trouble.kind:
        case Kind.CRASHING:
            return True
        case Kind.IMAGE | Kind.CONFIGURATION:
            return trouble.container not in pod.begun
        case _:
            return False


def _is_settled(trouble: Trouble, pod: PodState | None) -> bool:
    """Whether what crashed has done its work in the end."""
    return trouble.kind is Kind.CRASHING and pod is not None and trouble.container in pod.succeeded


def _run(trouble: Trouble, pod: PodState | None) -> Run | None:
    """How a container that crashed runs now."""
    return pod.again.get(trouble.container or "") if pod is not None else None


def _ready(state: RollOut) -> frozenset[str]:
    return frozenset(pod.name for pod in state.new if pod.is_ready)
