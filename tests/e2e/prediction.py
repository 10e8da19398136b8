"""Compares what a run says beforehand with what then happens to the Pods.

`as_foreseen` watches while an update is made and holds what was seen against the impact that the program gave, number
by number. What is words only (compile caches, notes) is left alone.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from stack.impact import Happening, Method, render_table
from tests.e2e.bench import is_ready
from tests.e2e.witness import part_of, uid, witness

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from collections.abc import Set as AbstractSet

    from local.api import Object
    from stack.impact import Impact, PartImpact, WorkloadImpact
    from stack.report import Report
    from tests.e2e.bench import Bench
    from tests.e2e.witness import Witness

HASH = "pod-template-hash"
EXCHANGES = (Happening.RESTARTS, Happening.GOES_BACK, Happening.CONTINUES)
"""The most serious first."""
CLOCK_SECONDS = 1
"""Kubernetes keeps times in whole seconds."""


@dataclass(kw_only=True)
class Life:
    """One Pod. Moments count what was seen from 1, 0 is the beginning and infinity is never.

    Attributes:
        part: of the stack. deployment: name of its Deployment. template: hash of its template.
        since: when it was made.
        ready: when it was Ready first. told: when it was told to go. gone: when it was gone.
        had_node: whether it had one at the beginning.
    """

    uid: str
    part: str
    deployment: str
    template: str
    since: float
    ready: float = inf
    told: float = inf
    gone: float = inf
    had_node: bool = False


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Time, and UIDs of the Pods that were not told to go, those of them that had a node, and those that served."""

    time: float
    there: frozenset[str]
    holding: frozenset[str]
    ready: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Pods of a part or of a Deployment while something happened, counted as an impact counts them.

    Attributes:
        before, after: Pods asked for.
        new: made, of the template that is there in the end. kept: that stayed. leaving: that were there and left.
        extra: most at a time that had a node and were not told to go, beyond those that had one at the beginning. Those
            that waited for one then and left are not counted. See `Happened.most`.
        made: the same at any moment, with or without a node: how many came before as many were told to go.
        ready: that served at the beginning. least_ready: fewest that served at a time.
        outage: longest time in seconds in which none served, though some did at the beginning.
    """

    before: int
    after: int
    new: int
    kept: int
    leaving: int
    extra: int
    made: int
    ready: int
    least_ready: int
    outage: float


@dataclass
class Happened:
    """What happened to the Pods of a stack.

    Attributes:
        before, after: its Deployments by name.
        lives: its Pods by UID.
        moments: the beginning, and how it was after each thing that was seen.
    """

    before: dict[str, Object]
    after: dict[str, Object]
    lives: dict[str, Life] = field(default_factory=dict[str, Life])
    moments: list[Moment] = field(default_factory=list[Moment])

    @classmethod
    def read(cls, seen: Witness, before: dict[str, Object], after: dict[str, Object], *, begin: int = 0) -> Happened:
        """From what was seen, as if it had begun so many events later."""
        found = cls(before, after)
        state: dict[str, tuple[str, Object]] = {}
        first = seen.there + begin
        for what, pod in seen.events[:first]:
            state[uid(pod)] = (what, pod)
        for what, pod in state.values():
            if what != "DELETED" and not is_leaving(pod):
                found.lives[uid(pod)] = replace(_life(pod), had_node=has_node(pod))
        found.note(seen.times[first - 1] if first else 0, state)
        for moment, (what, pod) in enumerate(seen.events[first:], 1):
            state[uid(pod)] = (what, pod)
            if uid(pod) not in found.lives and what != "DELETED" and not is_leaving(pod):
                found.lives[uid(pod)] = replace(_life(pod), since=moment)
            if (life := found.lives.get(uid(pod))) is not None:
                life.told = min(life.told, moment if what == "DELETED" or is_leaving(pod) else inf)
                life.gone = min(life.gone, moment if what == "DELETED" else inf)
                life.ready = min(life.ready, moment if is_ready(pod) else inf)
            found.note(seen.times[first + moment - 1], state)
        return found

    def note(self, time: float, state: dict[str, tuple[str, Object]]) -> None:
        """How it is now."""
        there = {key: pod for key, (what, pod) in state.items() if what != "DELETED" and not is_leaving(pod)}
        holding = frozenset(key for key, pod in there.items() if has_node(pod))
        ready = frozenset(key for key, pod in there.items() if is_ready(pod))
        self.moments.append(Moment(time=time, there=frozenset(there), holding=holding, ready=ready))

    def pods(self, is_it: Callable[[Life], bool]) -> list[Life]:
        """Those that are one."""
        return [life for life in self.lives.values() if is_it(life)]

    def names(self, part: str) -> set[str]:
        """Deployments of a part, before and afterwards."""
        return {name for name, of in (self.before | self.after).items() if part_of(of) == part}

    def group(self, names: set[str]) -> Group:
        """The Pods of these Deployments."""
        of = {life.uid: life for life in self.pods(lambda life: life.deployment in names)}
        there = [life for life in of.values() if not life.since]
        ready = [len(moment.ready & of.keys()) for moment in self.moments]
        in_vain = {life.uid for life in there if not life.had_node and life.told < inf}
        in_the_end = {life.template for life in of.values() if life.told == inf}
        counting, held = of.keys() - in_vain, sum(life.had_node for life in there)
        return Group(
            before=sum(self.before[name]["spec"]["replicas"] for name in names if name in self.before),
            after=sum(self.after[name]["spec"]["replicas"] for name in names if name in self.after),
            new=sum(life.since > 0 and life.template in in_the_end for life in of.values()),
            kept=sum(life.told == inf for life in there),
            leaving=sum(life.told < inf for life in there),
            extra=max(0, self.most(counting) - held),
            made=max(0, max(len(moment.there & counting) for moment in self.moments) - held),
            ready=ready[0],
            least_ready=min(ready),
            outage=self._outage(ready) if ready[0] else 0.0,
        )

    def most(self, of: AbstractSet[str]) -> int:
        """Most of these Pods at a time that had a node and were not told to go.

        Counted when one of them has become Ready, and in the end. The Pods of one step come and go by the hands of two
        ReplicaSets, so for a moment one more may be there than either of them has been told.
        """
        counted = [self.moments[-1]]
        for earlier, moment in pairwise(self.moments):
            if (moment.ready - earlier.ready) & of:
                counted.append(moment)
        return max(len(moment.holding & of) for moment in counted)

    def _outage(self, ready: list[int]) -> float:
        """Longest time without any."""
        longest = began = 0.0
        for moment, count in zip(self.moments, ready, strict=True):
            began = moment.time if count else began
            longest = max(longest, moment.time - began)
        return longest

    def happens(self, name: str) -> Happening:
        """What happened to a Deployment."""
        before, after = self.before.get(name), self.after.get(name)
        if before is None:
            return Happening.CREATED
        if after is None:
            return Happening.DELETED
        if before["metadata"]["uid"] != after["metadata"]["uid"]:
            return Happening.RESTARTS
        of = self.pods(lambda life: life.deployment == name)
        last = {life.template for life in of if life.told == inf}
        there = [life for life in of if not life.since]
        if before["spec"]["template"] != after["spec"]["template"]:
            return Happening.GOES_BACK if any(life.template in last for life in there) else Happening.RESTARTS
        if any(life.template not in last for life in there):
            return Happening.CONTINUES
        return _scales(before["spec"]["replicas"], after["spec"]["replicas"])


def is_leaving(pod: Object) -> bool:
    """Whether it was told to go."""
    return "deletionTimestamp" in pod["metadata"]


def has_node(pod: Object) -> bool:
    """Whether it was given a node, and with it its devices."""
    return bool(pod["spec"].get("nodeName"))


def deployments(bench: Bench) -> dict[str, Object]:
    """Those of the stack, by name."""
    found = bench.list("apps/v1/deployments", labelSelector="app.kubernetes.io/instance=rel")
    return {each["metadata"]["name"]: each for each in found if not is_leaving(each)}


@contextmanager
def as_foreseen(
    bench: Bench, report: Report | None = None, *, is_moving: bool = False, fails: bool = False
) -> Generator[Witness]:
    """What happens in the block must be what the run in it says, and what a preview before it said.

    Args:
        bench: the stack.
        report: of the preview, if there was one.
        is_moving: whether Pods come and go before the run looks at them. What it says must be right from then on, so
            from some moment between its beginning and its report on.
        fails: whether the update does not come to its end. Then what must not happen does not, and more can't be said.
    """
    before = deployments(bench)
    with witness(bench) as seen:
        yield seen
    after, last = deployments(bench), bench.report()
    assert last is not None
    assert last.impact is not None
    assert report is None or report.impact == last.impact, "preview and update say the same"
    clock = time.monotonic() - time.time()
    begins = beginnings(seen, bench.began + clock, bench.looked + clock) if is_moving else range(1)
    compare = excesses if fails else disagreements
    wrong = (compare(last.impact, Happened.read(seen, before, after, begin=begin)) for begin in begins)
    fewest = min(wrong, key=len)
    assert not fewest, "\n".join([*fewest, f"foreseen was: {render_table(last.impact)}"])


def beginnings(seen: Witness, began: float, looked: float) -> range:
    """How many things may have happened before a run saw how it is, which it did between these times."""
    return range(seen.until(began), seen.until(looked) + 1)


def excesses(impact: Impact, happened: Happened) -> list[str]:
    """What went further than was foreseen."""
    return [f"{part.part}: {wrong}" for part in impact.parts for wrong in _excesses(part, happened)]


def _excesses(part: PartImpact, happened: Happened) -> Iterator[str]:
    seen = happened.group(happened.names(part.part))
    if seen.extra > part.extra_pods:
        yield f"{part.extra_pods} extra Pods, seen {seen.extra}"
    if part.capacity_percent is not None and 100 * seen.least_ready < part.capacity_percent * min(
        seen.before, part.after
    ):
        yield f"capacity {part.capacity_percent} %, seen {seen.least_ready} of {min(seen.before, part.after)} Ready"
    if seen.leaving > part.leaving:
        yield f"{part.leaving} leave, seen {seen.leaving}"


def disagreements(impact: Impact, happened: Happened) -> list[str]:
    """Everything that was foreseen otherwise than it happened."""
    foreseen = {part.part for part in impact.parts}
    found = [f"{part} is not foreseen" for part in {life.part for life in happened.lives.values()} - foreseen]
    found += [f"not known: {each}" for each in impact.unknown]
    for part in impact.parts:
        found += [f"{part.part}: {each}" for each in _of_a_part(impact, part, happened)]
    return found + list(_of_the_stack(impact, happened))


def _of_a_part(impact: Impact, part: PartImpact, happened: Happened) -> Iterator[str]:
    seen = happened.group(names := happened.names(part.part))
    yield from _numbers(part, seen)
    if names != {each.name for each in part.workloads} and part.workloads:
        yield f"Deployments {[each.name for each in part.workloads]}, seen {names}"
    if (happens := _part_happens(names, seen, happened)) is not part.happens:
        yield f"{part.happens}, seen {happens}"
    # Of several new ones the first may be Ready, and its old one told to go, before the others have a node.
    fewest, most = _extra(part, seen, seen.extra), _extra(part, seen, seen.made)
    # With both numbers it depends on who is quicker whether the new ones come before the old ones go.
    is_sure = not (part.max_surge and part.max_unavailable)
    if fewest > part.extra_pods or (is_sure and most < part.extra_pods):
        yield f"{part.extra_pods} extra Pods, seen {fewest}" + (f" to {most}" if most > fewest else "")
    yield from _of_serving(part, seen)
    if (seconds := _seconds(part.part, happened)) > part.at_most_seconds + CLOCK_SECONDS:
        yield f"at most {part.at_most_seconds} s, seen {seconds} s"
    yield from _freed(part, happened)
    for each in part.workloads:
        for wrong in _of_a_workload(each, happened, is_alone=not impact.topology):
            yield f"{each.name}: {wrong}"


def _of_serving(part: PartImpact, seen: Group) -> Iterator[str]:
    """Capacity and outage."""
    wanted = min(seen.before, seen.after)
    if part.capacity_percent is not None and seen.before:
        share = min(100, 100 * seen.least_ready // wanted) if wanted else 0
        if share != part.capacity_percent:
            yield f"capacity {part.capacity_percent} %, seen {seen.least_ready} of {wanted} Ready"
    if part.part != "epp" and seen.after and bool(seen.outage) is not (part.outage is not None):
        yield f"outage {part.outage}, seen one of {seen.outage} s"
    if part.outage is not None and seen.outage > part.outage.at_most_seconds:
        yield f"an outage of at most {part.outage.at_most_seconds} s, seen one of {seen.outage} s"


def _numbers(told: PartImpact | WorkloadImpact, seen: Group) -> Iterator[str]:
    for what in ("before", "after", "new", "kept", "leaving"):
        if getattr(told, what) != getattr(seen, what):
            yield f"{what} {getattr(told, what)}, seen {getattr(seen, what)}"


def _seconds(part: str, happened: Happened) -> float:
    """From the first Pod that came or was told to go to the last that was Ready or gone."""
    of = happened.pods(lambda life: life.part == part)
    begun = [*(life.since for life in of if life.since), *(life.told for life in of if life.told < inf)]
    ended = [*(life.ready for life in of if life.since), *(life.gone for life in of)]
    if not begun:
        return 0
    last = max((moment for moment in ended if moment < inf), default=0)
    return happened.moments[int(last)].time - happened.moments[int(min(begun))].time


def _extra(part: PartImpact, seen: Group, counted: int) -> int:
    """Where all is given back before, every new Pod needs devices beyond what is held then."""
    if part.method in {Method.ALL_DOWN, Method.REPLACE}:
        return seen.new
    return counted if part.new or part.happens in EXCHANGES else 0


def _of_a_workload(told: WorkloadImpact, happened: Happened, *, is_alone: bool) -> Iterator[str]:
    seen = happened.group({told.name})
    yield from _numbers(told, seen)
    if told.ready != seen.ready:
        yield f"{told.ready} Ready, seen {seen.ready}"
    if is_alone and (happens := happened.happens(told.name)) is not told.happens:
        yield f"{told.happens}, seen {happens}"
    of = happened.pods(lambda life: life.deployment == told.name)
    last = {life.template for life in of if life.told == inf}
    # Kubernetes makes what is added of the old template first, and these are exchanged as well.
    new = [life for life in of if life.since and life.template in last]
    old = [life for life in of if not life.since and life.told < inf]
    if new and old:
        first_new, last_gone = min(life.since for life in new), max(life.gone for life in old)
        is_one_after_the_other = last_gone < first_new
        comes_first = first_new < min(life.told for life in old)
        match told.method:
            case Method.RECREATE | Method.REPLACE | Method.ALL_DOWN:
                if not is_one_after_the_other:
                    yield f"{told.method}, seen a new Pod before the last old one was gone"
            case Method.ROLLING:
                if told.extra_pods and not told.kept and seen.least_ready == seen.ready and not comes_first:
                    yield "rolling with more, seen an old Pod go before a new one came"
            case _:
                yield f"{told.method}, seen Pods exchanged"
    earlier = happened.pods(lambda life: life.deployment in told.waits_for and life.since > 0)
    if told.happens in EXCHANGES and old and earlier:
        begun, ready = min(life.told for life in old), max(life.ready for life in earlier)
        if ready > begun:
            yield f"waits for {told.waits_for}, seen an old Pod go before"


def _part_happens(names: set[str], seen: Group, happened: Happened) -> Happening:
    """The most serious of what happened to its Deployments; of those that came and went by the number of Pods."""
    found = {happened.happens(name) for name in names}
    if not seen.before:
        return Happening.CREATED
    if not seen.after:
        return Happening.DELETED
    if not seen.kept and {Happening.CREATED, Happening.DELETED} <= found:
        return Happening.RESTARTS
    return next((each for each in EXCHANGES if each in found), _scales(seen.before, seen.after))


def _scales(before: int, after: int) -> Happening:
    if before == after:
        return Happening.STAYS
    return Happening.SCALES_UP if after > before else Happening.SCALES_DOWN


def _freed(part: PartImpact, happened: Happened) -> Iterator[str]:
    """Pods of which it says that they are gone before new ones ask for devices: of the part, or of any if it goes."""
    is_for_all = part.method in {Method.ALL_DOWN, Method.LEAVE}
    new = happened.pods(lambda life: life.since > 0 and life.part != "epp" and (is_for_all or life.part == part.part))
    first = min((life.since for life in new), default=inf)
    for each in part.freed:
        life = happened.lives.get(each)
        if life is not None and life.gone > first:
            yield f"{life.deployment} gives back before, seen a new Pod first"


def _of_the_stack(impact: Impact, happened: Happened) -> Iterator[str]:
    """What is said of all roles together where the topology changes."""
    if not impact.topology:
        return
    roles = [part.part for part in impact.parts if part.part != "epp"]
    seen = happened.group({name for role in roles for name in happened.names(role)})
    if bool(seen.outage) is not (impact.outage is not None):
        yield f"outage of the stack {impact.outage}, seen one of {seen.outage} s"
    of = happened.pods(lambda life: life.part in roles)
    if max((life.gone for life in of if not life.since), default=0) > min(life.since for life in of if life.since):
        yield "all down first, seen a new Pod before the last old one was gone"


def _life(pod: Object) -> Life:
    labels = pod["metadata"]["labels"]
    return Life(
        uid=uid(pod),
        part=part_of(pod),
        deployment=pod["metadata"]["name"].rpartition(f"-{labels[HASH]}-")[0],
        template=labels[HASH],
        since=0,
    )
