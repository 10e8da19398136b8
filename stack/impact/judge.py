"""What happens to one Deployment: it goes, comes, is exchanged, or stays.

Judged against its live ReplicaSets and Pods, not against what was applied last: Pods that are of the wanted template
already stay, so going back after a roll-out that did not end exchanges only what was exchanged before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stack import labels
from stack.impact.arithmetic import Exchange, Standing, Strategy, exchange
from stack.impact.keys import Delta, compare, in_words, number_of_pods
from stack.impact.model import Happening, KeyChange, Method, WorkloadImpact
from stack.impact.templates import is_same_template, where_templates_differ

if TYPE_CHECKING:
    from stack.facts import TrialFacts
    from stack.impact.live import LiveWorkload, Object
    from stack.planned import Manifest
    from stack.record import Record

PLACES = "modelserver.nodePlacement"
NOT_A_KEY = (
    "no key of the stack file says why: somebody changed the live Deployment, or another version of this program or of "
    "the recipe makes another template"
)
NOT_RECORDED = "it is not known what was applied before"
NOT_ENDED = "an earlier change has not come to its end yet"
NOT_COUNTED = "neither its status nor its ReplicaSets or Pods say how many Pods of it there are and serve"
NOT_ASKED = "the API server was not asked what it would make of it"
EXCHANGED = frozenset({Happening.RESTARTS, Happening.GOES_BACK, Happening.CONTINUES})
NO_STRATEGY = Strategy(is_recreate=True, surge=0, unavailable=0)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One Deployment as it is planned.

    Attributes:
        part: `prefill`, `decode`, `aggregated` or `epp`.
        record: what it is made from.
        start_seconds: longest time one of its Pods may take to become Ready.
        after: names of Deployments that have to be exchanged before it.
        is_scaled: whether something else than the configuration says how many Pods it has.
    """

    part: str
    manifest: Manifest
    record: Record
    start_seconds: int
    entry: int | None = None
    after: tuple[str, ...] = ()
    is_scaled: bool = False

    @property
    def name(self) -> str:
        """Name in the cluster."""
        return self.manifest["metadata"]["name"]

    @property
    def pods(self) -> int:
        """Pods that it will ask for."""
        return self.manifest["spec"]["replicas"]

    @property
    def place(self) -> str:
        """Role and node of a nodePlacement entry, as they are shown."""
        return f"{self.part} on {self.manifest['metadata']['annotations'][labels.NODE]}"

    @property
    def replicas_key(self) -> str:
        """The config key that says how many Pods there are."""
        return f"autoscaling.{self.part}" if self.is_scaled else replicas_key(self.part)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What happens to one Deployment, with the numbers that its part adds up.

    Attributes:
        standing: its Pods now. exchange: what becomes of them. strategy: how.
        drain_seconds, start_seconds: longest time one of its Pods may take to leave, and to become Ready.
        seen_seconds: how long its Pods took to become Ready; None if none tells it, or a new one may not take as long.
        deltas: what is another for the new Pods; None if that is not known.
        freed: uids of Pods that are gone before the first new one asks for devices, and whose devices none of its own
            new Pods counts on: those are in `Exchange.extra`.
        after: names of Deployments that have to be exchanged before it.
        is_draining: whether Pods are on their way out already that have to be gone before it is through.
        guesses: what could not be read, so that numbers are guessed.
        is_certain: whether the API server said what it would make of it.
    """

    impact: WorkloadImpact
    standing: Standing
    exchange: Exchange
    strategy: Strategy = NO_STRATEGY
    drain_seconds: int = 0
    start_seconds: int = 0
    seen_seconds: int | None = None
    deltas: tuple[Delta, ...] | None = None
    freed: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    is_draining: bool = False
    guesses: tuple[str, ...] = ()
    is_certain: bool = True

    @property
    def is_exchanged(self) -> bool:
        """Whether Pods of it are exchanged, by this change or still by one before it."""
        return self.impact.happens in EXCHANGED

    @property
    def waits_to_drain(self) -> bool:
        """Whether Pods have to leave before it is through, told to go by this change or before it."""
        return self.impact.leaving > 0 or self.is_draining

    @property
    def seconds(self) -> int:
        """Longest time that it may take."""
        is_starting = self.impact.new or (self.is_exchanged and self.standing.ready_kept < self.impact.kept)
        each = (self.drain_seconds if self.waits_to_drain else 0) + (self.start_seconds if is_starting else 0)
        # Where more Pods are there than are wanted, the first new one waits for one that leaves; and so it does where
        # two templates share more Pods, for one of the old template may have taken its devices.
        is_shared = self.standing.old > 0 and self.standing.kept > 0 and (self.impact.before or 0) < self.impact.after
        is_crowded = is_starting and self.strategy.surge > 0 and (self.standing.pods > self.impact.after or is_shared)
        is_crowded &= not self.standing.is_starting
        return (self.drain_seconds if is_crowded else 0) + self.exchange.steps * each


def replicas_key(part: str) -> str:
    """The config key that says how many Pods a part has."""
    return "router.epp.replicas" if part == "epp" else f"modelserver.replicas.{part}"


def judge_leaving(live: LiveWorkload) -> Judged:
    """A Deployment that is not wanted any more."""
    standing = live.standing(None)
    is_placed = live.entry is not None
    key = (
        KeyChange(key=f"{PLACES}[{live.entry}]", before=live.place, after=None)
        if is_placed
        else number_of_pods(replicas_key(live.part), live.replicas, 0)
    )
    return Judged(
        impact=WorkloadImpact(
            name=live.name,
            part=live.part,
            entry=live.entry,
            happens=Happening.DELETED,
            method=Method.LEAVE,
            before=live.replicas,
            after=0,
            new=0,
            kept=0,
            leaving=standing.pods,
            is_template_changed=None,
            keys=(key,),
        ),
        standing=standing,
        exchange=Exchange(new=0, kept=0, leaving=standing.pods, extra=0, least_ready=0, steps=1),
        drain_seconds=live.leave_seconds(),
        seen_seconds=live.start_seconds,
        deltas=(),
        # A role at 0 is deleted before any other changes; an entry that is dropped goes last.
        freed=() if is_placed else live.all_pods,
        is_draining=bool(live.draining),
        guesses=live.guesses,
    )


def judge_starting(wanted: Wanted, *, is_first: bool) -> Judged:
    """A Deployment that is not there yet; `is_first` says that nothing of the stack is, so that no key is to blame."""
    pods = wanted.pods
    key = (
        number_of_pods(wanted.replicas_key, 0, pods)
        if wanted.entry is None
        else KeyChange(key=f"{PLACES}[{wanted.entry}]", before=None, after=wanted.place)
    )
    return Judged(
        impact=WorkloadImpact(
            is_scaled=wanted.is_scaled,
            name=wanted.name,
            part=wanted.part,
            entry=wanted.entry,
            happens=Happening.CREATED,
            method=Method.START,
            before=0,
            after=pods,
            new=pods,
            kept=0,
            leaving=0,
            is_template_changed=None,
            keys=() if is_first or wanted.part == "epp" else (key,),
        ),
        standing=Standing(),
        exchange=exchange(Standing(), NO_STRATEGY, wanted=pods),
        start_seconds=wanted.start_seconds,
    )


def judge_standing(live: LiveWorkload, wanted: Wanted, trial: TrialFacts) -> Judged:
    """A Deployment that is there and stays: its Pods are exchanged, more or fewer, or left alone."""
    result = trial.results.get(live.name, {})
    template: Object | None = result.get("spec", {}).get("template")
    is_changed = None if template is None else not is_same_template(live.template, template)
    deltas = None if live.record is None else compare(live.record, wanted.record)
    # Without a dry run the keys alone tell it, if they tell of a change; that there is none they can't promise.
    is_guessed = is_changed is None and bool(deltas)
    pods = wanted.pods
    standing = live.standing(template)
    strategy = Strategy.read((result if template is not None else wanted.manifest)["spec"], pods)
    done = exchange(
        standing, strategy, wanted=pods, before=live.replicas, is_back=is_guessed if is_changed is None else is_changed
    )
    happens = _happens(live, standing, is_changed=True if is_guessed else is_changed, pods=pods)
    why_not = None
    if happens is not Happening.UNKNOWN and not live.is_counted(template):
        why_not = NOT_COUNTED
    elif _is_halted(happens, standing, (result if template is not None else live.deployment)["spec"]):
        why_not = _paused(live)
    if why_not is not None:
        happens = Happening.UNKNOWN
    if happens is Happening.CONTINUES and template is not None:
        old = live.old_record(template) if standing.old else wanted.record
        deltas = None if old is None else compare(old, wanted.record)
    if why_not is None:
        keys, paths, reason = _why(live, template, happens, deltas, trial)
    else:
        keys, paths, reason = in_words(deltas or ()), (), why_not
    if pods != live.replicas:
        # The endpoint picker's own key says no more than that there are several.
        keys = tuple(key for key in keys if key.key != wanted.replicas_key)
        keys = (*keys, number_of_pods(wanted.replicas_key, live.replicas, pods))
    return Judged(
        impact=WorkloadImpact(
            is_scaled=wanted.is_scaled,
            name=live.name,
            part=live.part,
            entry=live.entry,
            happens=happens,
            method=_method(happens, strategy, standing),
            before=live.replicas,
            after=pods,
            new=done.new if happens in {*EXCHANGED, Happening.SCALES_UP} else 0,
            kept=done.kept,
            leaving=done.leaving if happens in {*EXCHANGED, Happening.SCALES_DOWN} else 0,
            is_template_changed=is_changed,
            keys=keys,
            paths=paths,
            reason=reason,
        ),
        standing=standing,
        exchange=done,
        strategy=strategy,
        drain_seconds=live.leave_seconds(template if done.kept == standing.kept else None),
        start_seconds=wanted.start_seconds,
        seen_seconds=_seen(live, wanted),
        deltas=deltas,
        # The devices of the others are those that its new Pods take.
        freed=live.draining if happens in EXCHANGED and strategy.is_recreate and live.entry is None else (),
        after=wanted.after,
        is_draining=happens in EXCHANGED and strategy.is_recreate and bool(live.draining),
        guesses=() if happens is Happening.STAYS else live.guesses,
        is_certain=not is_guessed,
    )


def judge_replaced(live: LiveWorkload, wanted: Wanted, method: Method) -> Judged:
    """A Deployment that is deleted with its Pods and made anew."""
    gone = judge_leaving(live)
    pods = wanted.pods
    deltas = None if live.record is None else compare(live.record, wanted.record)
    return Judged(
        impact=WorkloadImpact(
            is_scaled=wanted.is_scaled,
            name=live.name,
            part=live.part,
            entry=live.entry,
            happens=Happening.RESTARTS,
            method=method,
            before=live.replicas,
            after=pods,
            new=pods,
            kept=0,
            leaving=gone.impact.leaving,
            is_template_changed=True,
            keys=in_words(deltas or ()),
            reason=NOT_RECORDED if deltas is None else None,
        ),
        standing=gone.standing,
        exchange=Exchange(new=pods, kept=0, leaving=gone.impact.leaving, extra=pods, least_ready=0, steps=1),
        drain_seconds=live.leave_seconds(),
        start_seconds=wanted.start_seconds,
        seen_seconds=_seen(live, wanted),
        deltas=deltas,
        freed=live.all_pods,
        is_draining=bool(live.draining),
        guesses=live.guesses,
    )


def _seen(live: LiveWorkload, wanted: Wanted) -> int | None:
    """How long its Pods took to start, if a new one may take as long; what took longer says nothing of it."""
    seen = live.start_seconds
    return seen if seen is not None and seen <= wanted.start_seconds else None


def _is_halted(happens: Happening, standing: Standing, spec: Object) -> bool:
    """Whether Pods would be exchanged, if nobody had paused the Deployment: then it is only scaled."""
    is_exchange = happens is Happening.RESTARTS or (happens in EXCHANGED and standing.old > 0)
    return is_exchange and spec.get("paused", False)


def _paused(live: LiveWorkload) -> str:
    meta: Object = live.deployment["metadata"]
    return (
        f"Deployment {live.name} is paused (`kubectl rollout pause`), so none of its Pods is exchanged until somebody "
        f"runs `kubectl -n {meta['namespace']} rollout resume deployment/{live.name}`"
    )


def _happens(live: LiveWorkload, standing: Standing, *, is_changed: bool | None, pods: int) -> Happening:
    if is_changed is None:
        return Happening.UNKNOWN
    if is_changed and not standing.kept:
        return Happening.RESTARTS
    if is_changed and (standing.old or standing.kept < pods):
        return Happening.GOES_BACK
    if standing.old or standing.kept < pods <= live.replicas:
        return Happening.CONTINUES  # or some are missing, which Kubernetes is about to make, or may not (a quota)
    if pods == live.replicas:
        return Happening.STAYS
    return Happening.SCALES_UP if pods > live.replicas else Happening.SCALES_DOWN


def _method(happens: Happening, strategy: Strategy, standing: Standing) -> Method | None:
    if happens is Happening.CONTINUES and not standing.old:
        return Method.START
    if happens in EXCHANGED:
        return Method.RECREATE if strategy.is_recreate else Method.ROLLING
    return {Happening.SCALES_UP: Method.START, Happening.SCALES_DOWN: Method.LEAVE}.get(happens)


def _why(
    live: LiveWorkload,
    template: Object | None,
    happens: Happening,
    deltas: tuple[Delta, ...] | None,
    trial: TrialFacts,
) -> tuple[tuple[KeyChange, ...], tuple[str, ...], str | None]:
    """Keys, paths in the template where keys tell nothing, and what there is to say besides."""
    match happens:
        case Happening.RESTARTS | Happening.GOES_BACK:
            if deltas:
                return in_words(deltas), (), None
            paths = () if template is None else where_templates_differ(live.template, template)
            return (), paths, NOT_RECORDED if deltas is None else NOT_A_KEY
        case Happening.CONTINUES:
            return in_words(deltas or ()), (), NOT_ENDED
        case Happening.UNKNOWN:
            return (), (), trial.unknown or NOT_ASKED
        case _:
            return (), (), None
