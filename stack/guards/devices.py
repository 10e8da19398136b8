"""Devices: whether the Pods that a change adds find some, told before any of them asks.

Three moments count. While the change goes on, the Pods that come before others leave need devices beside those that are
held. When it is through, all its new Pods need theirs, beside all that stays and with nothing that leaves: that an old
Pod runs somewhere is no proof that a new one may go there, for nodes are cordoned, devices tainted or withdrawn, and
volumes move. Where new Pods need others than the old ones, or the end is not sure, each step of a rolling update has to
find them with what has left by then. None may be impossible; that all goes well whatever the scheduler chooses is only
ever said of the first.

A roll-out that did not end may always be taken back: Pods of the earlier template are still there, and the devices that
are missing are those that it asked for in vain.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum
from itertools import combinations, islice, product
from typing import TYPE_CHECKING

from stack import labels
from stack.guards import references
from stack.guards.finding import GuardFinding, refusal, warning
from stack.guards.mounts import kept_to, ties
from stack.guards.taken_back import is_asked_before
from stack.impact import FreeDevices, Happening, Method
from stack.impact.live import read_live
from stack.rolling import in_words
from stack.rollout.pods import TEMPLATE_HASH, is_leaving
from stack.spares.demand import Demand, read_demand
from stack.spares.fit import Outcome, Verdict, judge
from stack.spares.pods import at, each
from stack.spares.reach import reach_of_claims
from stack.spares.supply import read_supply

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stack.config.root import StackConfig
    from stack.facts import Object, Surroundings, TrialFacts
    from stack.impact import Impact, PartImpact, WorkloadImpact
    from stack.impact.live import LiveWorkload
    from stack.planned import StackPlan
    from stack.spares.supply import Supply

Wanting = tuple[Demand, int]
"""What one Pod needs, and how many there are."""
PLACING = ("resourceClaims", "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")
EXCHANGED = frozenset({Happening.RESTARTS, Happening.GOES_BACK, Happening.CONTINUES})
NOT_READ = ("Pods of this release could not be read",)
WHO_HOLDS = "`kubectl get resourceclaims -A` shows who holds them"
MOST_STEPS = 4
"""So many steps at the beginning of a rolling update are looked at, and as many at its end."""
MOST_CHOICES = 24
"""So many choices of Pods that leave first are looked at; where there are more, nothing is proved of them."""
SPARE = {
    Outcome.ANY_ORDER: "free",
    Outcome.SOME_ORDER: "free for some placements only",
    Outcome.CANNOT: "not free",
    Outcome.UNKNOWN: "not known to be free",
}


class Moment(Enum):
    """When a change asks for devices."""

    BESIDE = "the Pods that this change adds"
    STEP = "the Pods of a step of this change"
    END = "when this change is through, its Pods"


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What is certain about the devices of a change.

    Attributes:
        verdict: the worst that can be said.
        moment: of which moment that is.
        beside: what can be said of the Pods that come before others have left.
    """

    verdict: Verdict
    moment: Moment
    beside: Verdict


def take_stock(surroundings: Surroundings) -> Supply:
    """What the cluster has, from what was read."""
    return read_supply(
        nodes=surroundings.nodes,
        pods=surroundings.pods,
        slices=surroundings.slices,
        classes=surroundings.device_classes,
        claims=surroundings.resource_claims,
        server_version=surroundings.server_version,
    )


def guard_devices(
    config: StackConfig,
    plan: StackPlan,
    impact: Impact,
    surroundings: Surroundings,
    trial: TrialFacts,
    *,
    supply: Supply | None = None,
    end: Verdict | None = None,
) -> tuple[Impact, tuple[GuardFinding, ...]]:
    """Judge a change, and note in its impact what was found.

    Args:
        config: the configuration.
        plan: its plan.
        impact: what the change does to Pods.
        surroundings: what is around the stack.
        trial: the planned Deployments as they would be stored.
        supply: what `take_stock` makes of the surroundings, where somebody has asked already.
        end: what `look_ahead` finds, where somebody has asked already.
    """
    if config.guards.devices == "off":
        return impact, ()
    change = Change(plan, impact, surroundings, trial)
    if not change.asks:
        return impact, ()
    outlook = look_at(change, supply or take_stock(surroundings), end=end)
    if outlook is None:
        return impact, ()
    is_end = outlook.moment is Moment.END and outlook.beside.outcome is not Outcome.ANY_ORDER
    seen = outlook.verdict if is_end else outlook.beside
    parts = tuple(_with_what_is_free(part, seen) for part in impact.parts)
    return replace(impact, parts=parts), tuple(_findings(config, change, outlook))


def look_at(
    change: Change, supply: Supply, *, is_given_back: bool = True, end: Verdict | None = None
) -> Outlook | None:
    """Judge every moment of a change; None where it asks for nothing.

    Args:
        change: what it asks for.
        supply: what there is.
        is_given_back: whether what other parts give back meanwhile may be waited for.
        end: what `look_ahead` finds, where somebody has asked already: it is the same for every strategy.
    """
    meanwhile = change.meanwhile()
    end = look_ahead(change, supply) if end is None else end
    if not meanwhile and end is None:
        return None
    beside = _beside(change, supply, meanwhile, is_given_back=is_given_back)
    if end is not None and end.outcome is Outcome.CANNOT:
        return Outlook(verdict=end, moment=Moment.END, beside=beside)
    if beside.outcome is Outcome.CANNOT:
        return Outlook(verdict=beside, moment=Moment.BESIDE, beside=beside)
    is_sure = end is None or end.outcome is Outcome.ANY_ORDER
    stuck = sorted(
        (found for part in change.parts for found in _stuck(change, part, supply, is_sure=is_sure)),
        key=lambda found: found.outcome is not Outcome.CANNOT,
    )
    if stuck and (stuck[0].outcome is Outcome.CANNOT or beside.outcome is Outcome.ANY_ORDER):
        return Outlook(verdict=stuck[0], moment=Moment.STEP, beside=beside)
    if meanwhile:
        return Outlook(verdict=beside, moment=Moment.BESIDE, beside=beside)
    is_told = end is not None and end.outcome is Outcome.UNKNOWN
    return Outlook(verdict=end, moment=Moment.END, beside=beside) if end is not None and is_told else None


def _beside(change: Change, supply: Supply, meanwhile: Sequence[Wanting], *, is_given_back: bool) -> Verdict:
    """Whether those that come find devices, at once or when those have left that don't wait for them."""
    freed = frozenset(change.impact.freed)
    verdict = judge(supply, meanwhile, freed=freed)
    if verdict.outcome is Outcome.ANY_ORDER:
        return _nowhere_else(change, supply, verdict, freed)
    if verdict.outcome is not Outcome.CANNOT:
        return verdict
    if change.giving and is_given_back:
        leaving = change.uids(change.giving)
        if leaving is None:
            return replace(verdict, outcome=Outcome.UNKNOWN, reasons=NOT_READ)
        if judge(supply, meanwhile, freed=freed | leaving).outcome is not Outcome.CANNOT:
            who = " and ".join(sorted(part.part for part in change.giving))
            return replace(verdict, outcome=Outcome.SOME_ORDER, reasons=(f"they fit once Pods of {who} have left",))
    return replace(verdict, reasons=(*verdict.reasons, *change.tied()))


def _nowhere_else(change: Change, supply: Supply, verdict: Verdict, freed: frozenset[str]) -> Verdict:
    """The scheduler does not know that a Pod whose volume is for one node can only be there."""
    for tied, demand, where in change.elsewhere():
        if judge(supply, [(demand, 1)], freed=freed).outcome is not Outcome.CANNOT:
            why = f"{tied}: there is room on other nodes, too, and there its new Pod can't mount {where}"
            return replace(verdict, outcome=Outcome.SOME_ORDER, reasons=(why,))
    return verdict


def look_ahead(change: Change, supply: Supply) -> Verdict | None:
    """Whether all new Pods can be there in the end; None where nothing leaves, or where all leaves before any comes."""
    if not change.is_exchanging:
        return None
    ends = change.ends()
    if ends is None:
        return Verdict(outcome=Outcome.UNKNOWN, reasons=NOT_READ)
    choosing = [end for end in ends if end.may_leave]
    freed = frozenset(uid for end in ends for uid in end.leaving)
    coming = [(end.demand, end.missing) for end in ends if end.demand is not None and end.missing]
    # Those of which some leave, and nobody knows which, might as well be made anew.
    anew = [(end.demand, len(end.staying) - end.may_leave) for end in choosing if end.demand is not None]
    verdict = judge(supply, [*coming, *anew], freed=freed.union(*(end.staying for end in choosing)))
    if verdict.outcome is not Outcome.CANNOT or not choosing:
        return verdict
    # But they stay where they are, also where no new one may go.
    most = judge(supply, coming, freed=freed.union(*(end.staying for end in choosing)))
    if most.outcome is Outcome.CANNOT:
        return most
    ways = product(*(combinations(end.staying, end.may_leave) for end in choosing))
    looked_at = [frozenset(uid for some in way for uid in some) for way in islice(ways, MOST_CHOICES + 1)]
    is_possible = len(looked_at) > MOST_CHOICES or any(
        judge(supply, coming, freed=freed | left).outcome is not Outcome.CANNOT for left in looked_at
    )
    who = " and ".join(sorted({end.part for end in choosing}))
    why = (f"it depends on which Pods of {who} leave",)
    return replace(most, outcome=Outcome.SOME_ORDER, reasons=why) if is_possible else verdict


def _stuck(change: Change, part: PartImpact, supply: Supply, *, is_sure: bool) -> Iterator[Verdict]:
    """Steps of a rolling update at which a new Pod finds nothing.

    After so many new Pods are Ready, as many old ones have left, and `maxUnavailable` more. If the next new one finds
    no place then, nothing goes on. Which old ones have left is for Kubernetes to choose, so only what holds of every
    choice is certain. What other parts hold counts as given back all the while.
    """
    if not change.walks(part, is_sure=is_sure):
        return
    old, others = change.old_pods(part), change.uids([each for each in change.touched if each is not part])
    if old is None or others is None:
        return
    demand = change.demand(part, part.workloads[0])
    near = _where(supply, others.union(old))
    gone_first = (part.max_unavailable or 0) + max(0, (part.before or 0) - part.after)
    # With none gone it is judged as what comes beside all that is there, and with all gone as the end.
    steps = [ready for ready in range(part.after) if 0 < gone_first + ready < len(old)]
    for ready in (*steps[:MOST_STEPS], *steps[MOST_STEPS:][-MOST_STEPS:]):
        gone = gone_first + ready

        def fails(choice: tuple[str, ...], asking: int = ready + 1) -> bool:
            # What finds room where Pods of the stack were needs no look at all the other nodes.
            asked, freed = [(demand, asking)], others.union(choice)
            return all(judge(each, asked, freed=freed).outcome is Outcome.CANNOT for each in (near, supply))

        # Those come first that Kubernetes is likeliest to choose.
        choices = tuple(islice(combinations(old, gone), MOST_CHOICES + 1))
        likeliest = fails(choices[0])
        if not likeliest and ready:
            continue
        looked_at = choices if len(choices) <= MOST_CHOICES else choices[:1]
        failing = [likeliest, *(fails(choice) for choice in looked_at[1:])]
        if any(failing):
            yield _stuck_at(part, ready, gone, is_certain=all(failing) and len(looked_at) == len(choices))


def _where(supply: Supply, uids: frozenset[str]) -> Supply:
    """The nodes alone on which these Pods are."""
    nodes = {name: node for name, node in supply.nodes.items() if any(pod.uid in uids for pod in node.pods)}
    return replace(supply, nodes=nodes, local={name: found for name, found in supply.local.items() if name in nodes})


def _stuck_at(part: PartImpact, ready: int, gone: int, *, is_certain: bool) -> Verdict:
    which = "whichever" if is_certain else "depending on which"
    what = "does not" if is_certain else "may not"
    old = "1 old Pod gone, {} it is" if gone == 1 else f"{gone} old Pods gone, {{}} they are"
    why = (
        f"{part.part}: step {ready + 1} of {part.after} {what} come to its end: with {old.format(which)}, there is no "
        f"place for {ready + 1} new one{'s' * (ready > 0)}"
    )
    return Verdict(outcome=Outcome.CANNOT if is_certain else Outcome.SOME_ORDER, reasons=(why,))


@dataclass(frozen=True, kw_only=True)
class _End:
    """The Pods of one Deployment when a change is through.

    Attributes:
        demand: of a new one; None where none is wanted.
        missing: Pods that have to find a place.
        leaving: uids of those that are gone for certain.
        staying: uids of those that keep their places, but for `may_leave` of them: which ones is not known.
    """

    part: str
    demand: Demand | None
    missing: int
    leaving: tuple[str, ...]
    staying: tuple[str, ...]
    may_leave: int


class Change:
    """What a change asks for, Pod by Pod."""

    def __init__(self, plan: StackPlan, impact: Impact, surroundings: Surroundings, trial: TrialFacts) -> None:
        self._surroundings = surroundings
        self._trial = trial
        self._specs = dict(claim_specs(plan, surroundings))
        self._live = {
            live["metadata"]["name"]: live
            for live in surroundings.deployments or ()
            if live["metadata"]["namespace"] == plan.namespace
        }
        self._planned = {workload.object.name: workload for workload in plan.modelserver.workloads}
        self._ties = ties(plan, surroundings)
        self._reaches = reach_of_claims(
            frozenset(references.mounted_claims(plan)),
            surroundings.volume_claims,
            surroundings.volumes,
            surroundings.storage_classes,
        )
        self.plan = plan
        self.impact = impact
        self.parts = [part for part in impact.parts if part.part != "epp"]

    @property
    def asks(self) -> bool:
        """Whether there is anything to look for."""
        return self.is_exchanging or any(self._adding())

    def meanwhile(self) -> list[Wanting]:
        """Pods that are made before others have left."""
        return [(self._beside(part, workload), workload.extra_pods) for part, workload in self._adding()]

    def _adding(self) -> Iterator[tuple[PartImpact, WorkloadImpact]]:
        for part in self.parts:
            for workload in part.workloads:
                if workload.name in self._planned and workload.extra_pods:
                    yield part, workload

    @property
    def is_exchanging(self) -> bool:
        """Whether Pods come where others leave, but for a change of the topology: there all leave before any comes."""
        comes = any(part.new or part.extra_pods for part in self.parts)
        return comes and not self.impact.topology and any(part.leaving for part in self.parts)

    def ends(self) -> list[_End] | None:
        """What becomes of the Pods of each Deployment; None when they are not known."""
        live = read_live(self._surroundings, namespace=self.plan.namespace, release=self.plan.release)
        if live is None:
            return None
        found: list[_End] = []
        for part in self.parts:
            for workload in part.workloads:
                if workload.happens is Happening.UNKNOWN:
                    continue
                pods = live[workload.name].pods if workload.name in live else ()
                if pods is None or (workload.kept and live[workload.name].replica_sets is None):
                    return None
                of = self._kept_template(workload, live.get(workload.name))
                staying = [pod for pod in pods if workload.kept and not pod.is_leaving and of in {None, pod.template}]
                placed = tuple(pod.uid for pod in staying if pod.has_node)
                is_wanted = workload.name in self._planned and workload.after > 0
                found.append(
                    _End(
                        part=part.part,
                        demand=self.demand(part, workload) if is_wanted else None,
                        missing=max(0, workload.after - len(placed)),
                        leaving=tuple(pod.uid for pod in pods if pod.uid not in placed),
                        staying=placed,
                        may_leave=max(0, len(placed) - workload.after),
                    )
                )
        return found

    def _kept_template(self, workload: WorkloadImpact, live: LiveWorkload | None) -> str | None:
        """By its hash, the template of the Pods that stay; None where any may."""
        if live is None or workload.happens not in EXCHANGED:
            return None
        result = self._trial.results.get(workload.name)
        kept = None if result is None else live.of_template(result["spec"]["template"])
        return None if kept is None else kept["metadata"]["labels"].get(TEMPLATE_HASH)

    def elsewhere(self) -> Iterator[tuple[str, Demand, str]]:
        """Parts whose Pods come beside one that ties them to its node: their demand on all others, and what ties."""
        for part, workload in self._adding():
            if (tie := self._ties.get(workload.name)) is not None and _is_beside_old(part, workload):
                yield part.part, self.demand(part, workload, away=tie.nodes), f"claim {tie.claim}"

    def tied(self) -> Iterator[str]:
        """By what Pods that come beside others are tied to nodes, in words."""
        for part, workload in self._adding():
            if (tie := self._ties.get(workload.name)) is not None and _is_beside_old(part, workload):
                nodes = ", ".join(sorted(tie.nodes))
                yield f"{part.part}: claim {tie.claim} is for one node, which is {nodes} as long as the old Pod has it"

    def uids(self, parts: Sequence[PartImpact]) -> frozenset[str] | None:
        """Pods of these parts; None when they are not known."""
        pods, of = self._surroundings.release_pods, {part.part for part in parts}
        if pods is None:
            return None
        return frozenset(
            pod["metadata"]["uid"] for pod in pods if pod["metadata"]["labels"].get(labels.COMPONENT) in of
        )

    def old_pods(self, part: PartImpact) -> tuple[str, ...] | None:
        """Pods of a part, first those that a ReplicaSet takes first; None when they are not known.

        Pods without a node and those that serve nobody go first, then those that share their node with others of the
        part, then the youngest (Kubernetes 1.36, `ActivePodsWithRanks`; costs of deletion are not heeded).
        """
        if self._surroundings.release_pods is None:
            return None
        pods = [
            pod
            for pod in self._surroundings.release_pods
            if pod["metadata"]["labels"].get(labels.COMPONENT) == part.part and not is_leaving(pod)
        ]
        shared = Counter(pod["spec"].get("nodeName") for pod in pods)
        # Sorting twice, since of two keys one goes down: names tell equal ones apart.
        pods.sort(key=lambda pod: (pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"]), reverse=True)
        pods.sort(key=lambda pod: (bool(pod["spec"].get("nodeName")), -shared[pod["spec"].get("nodeName")]))
        return tuple(pod["metadata"]["uid"] for pod in pods)

    def walks(self, part: PartImpact, *, is_sure: bool) -> bool:
        """Whether the steps of a part are to be looked at one by one.

        Its new Pods need others than the old ones, or it is not sure that all find theirs in the end.
        Pods that are added at the same time are of the old template first, so then the steps are others.
        """
        return (
            part.happens is Happening.RESTARTS
            and part.method is Method.ROLLING
            and part.after <= (part.before or 0)
            and (not is_sure or any(self._needs_other(workload.name) for workload in part.workloads))
        )

    @property
    def giving(self) -> list[PartImpact]:
        """Parts of which Pods leave without waiting for new ones: fewer are wanted, or some may be unavailable."""
        return [
            part
            for part in self.parts
            if part.leaving
            and (part.max_unavailable or part.method is not Method.ROLLING or part.after < (part.before or 0))
        ]

    @property
    def touched(self) -> list[PartImpact]:
        """Parts that get new Pods, and those of which some leave."""
        return [part for part in self.parts if part.new or part.leaving]

    @property
    def is_demand_changed(self) -> bool:
        """Whether new Pods may need other devices or nodes than those that they take the place of."""
        return any(
            workload.new and workload.leaving and self._needs_other(workload.name)
            for part in self.touched
            for workload in part.workloads
        )

    @property
    def is_asked_before(self) -> bool:
        """Whether all that asks for devices is what an earlier change asked for, or what takes it back."""
        return is_asked_before(self.parts, self._surroundings, self._trial)

    def _needs_other(self, name: str) -> bool:
        live, result = self._live.get(name), self._trial.results.get(name)
        if live is None or result is None:
            return True
        return placement_of(live) != placement_of(result)

    def _beside(self, part: PartImpact, workload: WorkloadImpact) -> Demand:
        tie = self._ties.get(workload.name)
        is_tied = tie is not None and _is_beside_old(part, workload)
        return self.demand(part, workload, on=tie.nodes if tie is not None and is_tied else None)

    def demand(
        self,
        part: PartImpact,
        workload: WorkloadImpact,
        *,
        on: frozenset[str] | None = None,
        away: frozenset[str] | None = None,
    ) -> Demand:
        """What one Pod needs; kept to some nodes or away from some where that is asked."""
        name = part.part if workload.entry is None else f"{part.part} ({workload.name})"
        stored = self._trial.results.get(workload.name, self._planned[workload.name].object.manifest)
        template: Object = stored["spec"]["template"]
        if on is not None:
            template = kept_to(template, on)
        if away is not None:
            template = kept_to(template, away, away=True)
        return read_demand(name, template, self._specs, self._reaches)


def _is_beside_old(part: PartImpact, workload: WorkloadImpact) -> bool:
    """Whether its first new Pod comes while an old one is there."""
    is_rolled = workload.method is Method.ROLLING and (part.max_unavailable or 0) < (workload.before or 0)
    return is_rolled or workload.happens is Happening.SCALES_UP


def claim_specs(plan: StackPlan, surroundings: Surroundings) -> Iterator[tuple[str, Object | None]]:
    """What each claim template asks for, by name, None for one that is not there."""
    for name, live in surroundings.claim_templates.items():
        yield name, None if live is None else live["spec"]["spec"]
    for planned in plan.claims:
        yield planned.name, planned.manifest["spec"]["spec"]


def placement_of(deployment: Object) -> Object:
    """What of a Pod template decides where its Pods can be."""
    spec: Object = deployment["spec"]["template"]["spec"]
    containers = (*(spec.get("initContainers") or ()), *spec["containers"])
    placement = {key: spec.get(key) or None for key in PLACING}
    # Other volumes are everywhere, and their names change with what they hold.
    claims = sorted(
        claim for volume in each(spec, "volumes") if (claim := at(volume, "persistentVolumeClaim", "claimName"))
    )
    return placement | {"claims": claims, "resources": [container.get("resources") for container in containers]}


# --- words ------------------------------------------------------------------------------------------------------------


def _with_what_is_free(part: PartImpact, verdict: Verdict) -> PartImpact:
    """A part with what was found for the Pods that it adds."""
    if not part.extra_pods or part.part == "epp":
        return part
    share = next((share for share in verdict.shares if share.name == part.part), None)
    free: Mapping[str, int] = {} if share is None else share.free
    needs: Mapping[str, int] = {} if share is None else share.needs
    return replace(
        part,
        spare=SPARE[verdict.outcome],
        fits=None if share is None else share.fits,
        free=tuple(
            FreeDevices(device_class=name, count=count, per_pod=needs.get(name, 0))
            for name, count in sorted(free.items())
        ),
    )


def _findings(config: StackConfig, change: Change, outlook: Outlook) -> Iterator[GuardFinding]:
    verdict = outlook.verdict
    if verdict.outcome is Outcome.ANY_ORDER:
        return
    key, value, fix = _way_out(config, change, outlook)
    why = "; ".join(verdict.reasons)
    found = f"devices for {outlook.moment.value}: {verdict.outcome.value}{': ' if why else ''}{why}"
    told = ". ".join([found, *(f"For {share}" for share in verdict.shares)])
    say = refusal if verdict.outcome is Outcome.CANNOT and not change.is_asked_before else warning
    yield say("devices", key, value, told, fix=fix, workloads=change.impact.starting, idle="omit")


def _way_out(config: StackConfig, change: Change, outlook: Outlook) -> tuple[str, str, str]:
    """The key that is to blame, its value, and what to do."""
    surging = [part for part in change.parts if part.extra_pods and part.method is Method.ROLLING and part.max_surge]
    if surging and outlook.moment is not Moment.END:
        return _way_out_of_surge(config, change, surging)
    if any(workload.entry is not None for part in change.parts for workload in part.workloads):
        return "modelserver.nodePlacement", "", f"Choose nodes with free devices, or free them: {WHO_HOLDS}"
    counts = _counts(change.parts)
    if outlook.verdict.outcome is Outcome.UNKNOWN and outlook.moment is Moment.END:
        return "devices", "", f"Look whether they find some before they are exchanged: {WHO_HOLDS}"
    if outlook.moment is Moment.END and not change.is_demand_changed:
        back = "bring back nodes and devices that take no new Pods (cordons, taints, ResourceSlices)"
        return "devices", "", f"Ask for fewer Pods ({counts}), free devices ({WHO_HOLDS}), or {back}"
    if outlook.moment is not Moment.BESIDE:
        return "devices", "", f"Ask for what a node has, or for fewer Pods ({counts}), or free devices: {WHO_HOLDS}"
    asking = [workload.name for part in change.parts if part.new or part.extra_pods for workload in part.workloads]
    return references.key_of_counts(change.plan, asking), counts, f"Ask for fewer Pods, or free devices: {WHO_HOLDS}"


def _way_out_of_surge(config: StackConfig, change: Change, surging: Sequence[PartImpact]) -> tuple[str, str, str]:
    strategy = config.modelserver.strategy
    alone = [part.part for part in surging if part.after == 1]
    stops = f" ({' and '.join(alone)} would stop with the only Pod, for a whole start)" if alone else ""
    if strategy.type == "auto":
        free = f"Free as many devices: {WHO_HOLDS}"
        # What this change does not restart is not chosen anew, so an outage that is allowed for it changes nothing.
        restarting = {part.part for part in surging if part.happens is Happening.RESTARTS}
        asked = [role for role in alone if role in restarting and role not in strategy.allow_outage]
        if asked:
            allow = f"modelserver.strategy.allowOutage: [{', '.join(asked)}]"
            return "modelserver.strategy", "auto", f"{free}, or allow an outage by name: {allow}"
        if len(restarting) == len(surging):
            return "modelserver.strategy", "auto", free
        is_going_on = any(part.happens is Happening.CONTINUES for part in surging)
        back = "; or put the previous configuration back" * is_going_on
        numbers = "type: RollingUpdate with maxSurge: 0 and maxUnavailable: 1"
        return "modelserver.strategy", "auto", f"{free}{back}; or set {numbers} until it is through{stops}"
    held = next(
        workload.object.manifest["spec"]["strategy"]
        for workload in change.plan.modelserver.workloads
        if workload.role == surging[0].part
    )
    fix = "Set maxSurge: 0 and maxUnavailable: 1, so that a Pod returns its devices before the next asks for them"
    return "modelserver.strategy.rollingUpdate", in_words(held), f"{fix}{stops}, or free as many devices: {WHO_HOLDS}"


def _counts(parts: Sequence[PartImpact]) -> str:
    return ", ".join(f"{part.part} {part.after}" for part in parts if part.new or part.extra_pods)
