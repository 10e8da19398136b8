"""What a plan changes about the Pods that run: which restart, because of which key, in which order, at what cost.

What could not be read makes *unknown*, never *nothing happens*.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stack import labels, names
from stack.impact import cache
from stack.impact.judge import (
    NOT_ASKED,
    Judged,
    Wanted,
    judge_leaving,
    judge_replaced,
    judge_standing,
    judge_starting,
)
from stack.impact.live import read_live
from stack.impact.model import CompileCache, Happening, Impact, Method, Outage, PartImpact
from stack.impact.parts import add_up, longest_drain, outage_of, unknown_part
from stack.impact.topology import WHY_ALL_GO, deltas_of_a_role, exchange_all, shown, why_it_changes
from stack.recipes import load_recipe
from stack.record import Record, read_record
from stack.router import START_SECONDS
from stack.scalars import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stack.config.root import StackConfig
    from stack.facts import Surroundings, TrialFacts
    from stack.impact.live import LiveWorkload
    from stack.planned import StackPlan, TopologyPlan
    from stack.recipes import Recipe

ACCELERATORS = {"npu": "NPU", "gpu": "GPU"}
NOT_READ = "the Deployments that run could not be read"


def foresee(config: StackConfig, plan: StackPlan, surroundings: Surroundings, trial: TrialFacts) -> Impact:
    """What an update with this plan will do.

    Args:
        config: the configuration that the plan was made from.
        plan: the plan.
        surroundings: what is around the stack, as the API server gave it.
        trial: the planned Deployments as the API server would store them.
    """
    recipe = load_recipe(config.recipe)
    accelerator = ACCELERATORS[recipe.accelerator.type]
    live = read_live(surroundings, namespace=plan.namespace, release=plan.release, others=trial.live)
    topology = plan.modelserver.topology
    if live is None or topology.unknown is not None:
        why = NOT_READ if topology.unknown is None else f"{topology.unknown.key}: {topology.unknown.why}"
        parts = _all_unknown(plan)
        return Impact(release=plan.release, parts=parts, accelerator=accelerator, unknown=(why.rstrip("."),))
    change = _Change(
        config=config, plan=plan, recipe=recipe, live=live, trial=trial, claims=_claims(plan, surroundings)
    )
    roles, outage = change.roles()
    picker = change.endpoint_picker()
    parts = (*roles, picker)
    return Impact(
        release=plan.release,
        parts=parts,
        is_first_install=all(part.happens is Happening.CREATED for part in parts),
        topology=why_it_changes(change.live_roles, change.wanted, topology) if topology.changes else (),
        outage=_longest((outage, picker.outage)),
        accelerator=accelerator,
        unknown=tuple(f"{part.part}: {part.reason}" for part in parts if part.happens is Happening.UNKNOWN),
    )


def _all_unknown(plan: StackPlan) -> tuple[PartImpact, ...]:
    pods: dict[str, int] = {}
    for roll_out in plan.roll_outs.values():
        pods[roll_out.part] = pods.get(roll_out.part, 0) + roll_out.pods
    return tuple(unknown_part(part, pods[part]) for part in (*ROLES, "epp") if part in pods)


def _claims(plan: StackPlan, surroundings: Surroundings) -> dict[str, bool | None]:
    """Claims that the stack makes, and whether they are there already; None if that is not known."""
    live = surroundings.volume_claims
    return {
        volume.object.name: (volume.import_id is not None or None) if live is None else volume.object.name in live
        for volume in plan.volumes
    }


@dataclass(frozen=True, kw_only=True)
class _Change:
    """The change as a whole."""

    config: StackConfig
    plan: StackPlan
    recipe: Recipe
    live: dict[str, LiveWorkload]
    trial: TrialFacts
    claims: dict[str, bool | None]

    @property
    def topology(self) -> TopologyPlan:
        """The topology that is planned."""
        return self.plan.modelserver.topology

    @property
    def live_roles(self) -> list[LiveWorkload]:
        """Live Deployments of roles."""
        return [each for each in self.live.values() if each.part != "epp"]

    @property
    def wanted(self) -> list[Wanted]:
        """Planned Deployments of roles."""
        return [
            Wanted(
                part=each.role,
                manifest=each.counted,
                record=Record(values=each.contributions),
                start_seconds=each.ready_seconds,
                entry=each.entry,
                after=each.after,
                is_scaled=each.is_scaled,
            )
            for each in self.plan.modelserver.workloads
        ]

    def roles(self) -> tuple[list[PartImpact], Outage | None]:
        """What happens to the roles that have Pods before or afterwards, and the longest outage."""
        if self.topology.changes:
            return self._all_down()
        parts: list[PartImpact] = []
        for role in ROLES:
            judged = self._judge(role)
            if judged:
                parts.append(add_up(role, judged, self._start(role, judged), self.plan.budget))
        return parts, _longest(part.outage for part in parts)

    def _judge(self, role: str) -> list[Judged]:
        wanted = [each for each in self.wanted if each.part == role]
        names_wanted = {each.name for each in wanted}
        judged: list[Judged] = []
        for each in wanted:
            live = self.live.get(each.name)
            if live is None:
                judged.append(judge_starting(each, is_first=not self.live))
            elif self.topology.changes:
                judged.append(judge_replaced(live, each, Method.ALL_DOWN))
            else:
                judged.append(judge_standing(live, each, self.trial))
        return judged + [
            judge_leaving(each) for each in self.live_roles if each.part == role and each.name not in names_wanted
        ]

    def _all_down(self) -> tuple[list[PartImpact], Outage | None]:
        """The topology changes."""
        parts: list[PartImpact] = []
        of_roles = {role: judged for role in ROLES if (judged := self._judge(role))}
        every = [each for judged in of_roles.values() for each in judged]
        drain = longest_drain(every)
        kind = self.config.storage.compile_cache.kind
        for role, judged in of_roles.items():
            is_new = not any(each.standing.pods for each in judged)
            deltas = deltas_of_a_role(role, self.live_roles, self.wanted)
            start = self._new_role(role) if is_new else cache.start_after(self.recipe, deltas, kind=kind)
            is_made = any(each.impact.new for each in judged)
            part = exchange_all(role, judged, start if is_made else None, self.plan.budget, drain=drain)
            freed = tuple(uid for each in self.live_roles if each.part == role for uid in each.all_pods)
            keys = shown(deltas) if part.before and part.after else ()
            parts.append(replace(part, keys=keys, freed=freed, notes=(*part.notes, *self._returns(role, part))))
        return parts, outage_of(every, cache.worst(part.cache for part in parts), why=WHY_ALL_GO)

    def _returns(self, role: str, part: PartImpact) -> Iterator[str]:
        """With how many Pods a scaled role comes back: nothing remembers what its scaler had brought it to."""
        scaler = next((each for each in self.plan.modelserver.scalers if each.role == role), None)
        if scaler is not None and part.before and part.after:
            now = f", and has {part.before} now" if part.before > scaler.floor else ""
            yield f"it returns at its floor of {scaler.floor} (autoscaling.{role}.minReplicas){now}"

    def _start(self, role: str, judged: Sequence[Judged]) -> CompileCache | None:
        """What new Pods of the role find in the compile cache; None if none is made."""
        kind = self.config.storage.compile_cache.kind
        if not any(each.impact.new for each in judged):
            return None
        # Pods of the template that is gone back to run still, with what they compiled.
        exchanged = [
            each.deltas for each in judged if each.is_exchanged and each.impact.happens is not Happening.GOES_BACK
        ]
        if exchanged:
            is_known = all(deltas is not None for deltas in exchanged)
            found = [delta for deltas in exchanged for delta in deltas or ()]
            return cache.start_after(self.recipe, found if is_known else None, kind=kind)
        if all(each.impact.happens is Happening.CREATED for each in judged):
            return self._new_role(role)
        return cache.start_of_more(self.recipe, kind=kind)

    def _new_role(self, role: str) -> CompileCache:
        """What the Pods of a role find that has none so far."""
        kind = self.config.storage.compile_cache.kind
        claim = names.compile_cache(self.plan.release, role)
        return cache.start_of_a_role(
            self.recipe, kind=kind, is_filled=self.claims.get(claim) if kind == "pvc" else None
        )

    # --- endpoint picker ----------------------------------------------------------------------------------------------

    def endpoint_picker(self) -> PartImpact:
        """What happens to the endpoint picker, which takes no devices."""
        manifest = next(each.manifest for each in self.plan.router if each.kind == "Deployment")
        wanted = Wanted(
            part="epp", manifest=manifest, record=read_record(manifest) or Record(), start_seconds=START_SECONDS
        )
        live = self.live.get(wanted.name)
        if live is None and wanted.name not in self.trial.live:
            reason = self.trial.unknown or NOT_ASKED
            return unknown_part("epp", manifest["spec"]["replicas"], reason=reason)
        if live is None:
            judged = judge_starting(wanted, is_first=not self.live)
        elif live.selector != manifest["spec"]["selector"]["matchLabels"]:
            judged = judge_replaced(live, wanted, Method.REPLACE)
        else:
            judged = judge_standing(live, wanted, self.trial)
        return self._picked(judged)

    def _picked(self, judged: Judged) -> PartImpact:
        """One picks alone, or one of several leads while the others stand by: Ready ones tell nothing of capacity."""
        leaves = judged.is_exchanged and judged.impact.leaving > 0
        has_gap = leaves and judged.impact.method is not Method.ROLLING
        is_exchanged = leaves and not has_gap
        part = add_up("epp", [judged], None, self.plan.budget)
        notes = (
            (self._gap(),) if has_gap else ("the new one is Ready before the old one leaves",) if is_exchanged else ()
        )
        refuses = has_gap and self._failure_mode() == "FailClose"
        return replace(
            part,
            capacity_percent=None if part.capacity_percent is None else 0 if has_gap else 100,
            outage=outage_of([judged], None) if refuses else None,
            notes=(*notes, *part.notes),
        )

    def _failure_mode(self) -> str | None:
        """What gateways do while no endpoint picker answers; None where none asks a pool."""
        pool = next((each.manifest for each in self.plan.router if each.kind == "InferencePool"), None)
        if pool is not None:
            return pool["spec"]["endpointPickerRef"]["failureMode"]
        live, gateway = self.live.get(names.epp(self.plan.release)), self.config.gateway
        had_pool = live is not None and labels.EPP_WITH_POOL in live.selector
        is_led_elsewhere = gateway.enabled and gateway.backend is not None
        # The engine deletes last what is not wanted any more, so this one still stands while the picker is made anew.
        return self.config.router.inference_pool.failure_mode if had_pool and not is_led_elsewhere else None

    def _gap(self) -> str:
        match self._failure_mode():
            case "FailOpen":
                meanwhile = "new requests go to any Pod (failureMode FailOpen)"
            case "FailClose":
                meanwhile = "new requests are refused (failureMode FailClose)"
            case _:
                meanwhile = "your proxy decides what becomes of new requests"
        return f"until the new one is Ready, {meanwhile}"


def _longest(outages: Iterable[Outage | None]) -> Outage | None:
    found = [each for each in outages if each is not None]
    return max(found, key=lambda each: each.at_most_seconds) if found else None
