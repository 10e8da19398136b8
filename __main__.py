"""Config -> facts -> plan -> declare -> export. Decides nothing."""

from __future__ import annotations

import gc
import json
import os
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pulumi
import pulumi_kubernetes as k8s

from cluster.facts import read_facts
from cluster.surroundings import read_surroundings
from cluster.trial import try_workloads
from cluster.wait import WaitError, Waits, until_change_has_ended
from components.handover import forget_earlier_report, hand_over
from components.serving_stack import ServingStack, ServingStackArgs
from components.state import read_state
from components.waits import end_quietly_when_interrupted
from stack.config.encrypted import refuse_encrypted
from stack.errors import ConfigError
from stack.facts import NOT_TRIED, FactsError, not_known
from stack.guards import GuardsError
from stack.guards.wanted import wanted
from stack.plan import plan_stack
from stack.report import make_report
from stack.rules import accept
from stack.trial import weigh_trial
from stack.weigh import foresee_starts, weigh_change

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from stack.config.root import StackConfig
    from stack.facts import ClusterFacts, StateFacts, Surroundings, TrialFacts
    from stack.planned import ProviderPlan, StackPlan
    from stack.report import Report
    from stack.rules import Accepted


def read_blocks() -> dict[str, Any]:
    """Every `serving-stack:<block>` of the stack file, as the engine read it."""
    given: dict[str, str] = json.loads(os.environ.get("PULUMI_CONFIG", "{}"))
    prefix = f"{pulumi.get_project()}:"
    return {key.removeprefix(prefix): _decode(value) for key, value in given.items() if key.startswith(prefix)}


def read_secret_keys() -> list[str]:
    """Config keys that hold something encrypted."""
    return json.loads(os.environ.get("PULUMI_CONFIG_SECRET_KEYS", "[]"))


def _decode(value: str) -> Any:
    """The engine hands objects over as JSON and text as it is."""
    try:
        return json.loads(value) if value[:1] in "{[" else value
    except (ValueError, RecursionError):
        return value


@contextmanager
def without_kubeconfig() -> Generator[None]:
    """Hide it from the SDK, which copies it into the Provider's inputs and so the state, where its tokens grow old."""
    kept = os.environ.pop("KUBECONFIG", None)
    try:
        yield
    finally:
        if kept is not None:
            os.environ["KUBECONFIG"] = kept


def make_provider(plan: ProviderPlan) -> k8s.Provider:
    """The one explicit Provider, registered first: the topology barrier deletes before the program registers more."""
    with without_kubeconfig():
        return k8s.Provider(
            "cluster",
            context=plan.context,
            cluster_identifier=plan.cluster_identifier,
            upsert_existing_objects=True,
            opts=pulumi.ResourceOptions(version=plan.version),
        )


@contextmanager
def in_one_line() -> Generator[None]:
    """What ends the program is a message for the operator, and no traceback."""
    try:
        yield
    except (ConfigError, WaitError) as error:
        raise pulumi.RunError(str(error)) from None


@contextmanager
def refusals_handed_over(report: Callable[..., Report]) -> Generator[None]:
    """What is live may stand in the way before the change can be weighed."""
    try:
        yield
    except FactsError as error:
        hand_over(report(refusals=error.problems))
        raise


def weigh(
    config: StackConfig, plan: StackPlan, near: Surroundings, trial: TrialFacts, report: Callable[..., Report]
) -> StackPlan:
    """Say what the change does and what is in its way, end where it must not be made, and settle what was left open."""
    starting = foresee_starts(config, plan, near, trial)
    surroundings = read_surroundings(config.context, wanted(config, plan, near, starting), near)
    gc.freeze()  # What was read stays to the end: the collector would go through a whole cluster again and again.
    for unknown in surroundings.unknown:
        pulumi.log.warn(f"not known: {unknown}")
    weighed = weigh_change(config, plan, surroundings, trial)
    # A change of the topology is not made without a trial; see `StackPlan.refusal`.
    untried = (plan.untried,) if plan.untried is not None and plan.modelserver.topology.changes else ()
    hand_over(
        report(
            impact=weighed.impact,
            refusals=(*untried, *weighed.refusals),
            warnings=(*plan.warnings, *weighed.warnings),
            more_unknown=surroundings.unknown,
        )
    )
    if weighed.table:
        pulumi.log.info(weighed.table)
    for warning in weighed.warnings:
        pulumi.log.warn(str(warning))
    if weighed.refusals:
        raise GuardsError(weighed.refusals)
    return weighed.plan


def read_config() -> Accepted:
    """The stack file, accepted."""
    blocks = read_blocks()
    refuse_encrypted(blocks, read_secret_keys(), project=pulumi.get_project())
    return accept(blocks, context=pulumi.Config("kubernetes").get("context"))


def make_plan(accepted: Accepted, facts: ClusterFacts, state: StateFacts) -> tuple[StackPlan, TrialFacts]:
    """The plan, and what the API server says to its workloads, if one answers."""
    plan = plan_stack(accepted, facts, state)
    if not facts.anchor_is_known:
        return plan, NOT_TRIED
    # With the number of Pods also where a scaler says it: left out, the dry run would take it for given up.
    workloads = [replace(workload.object, manifest=workload.counted) for workload in plan.modelserver.workloads]
    owner = plan.modelserver.topology.owner_reference(facts.anchor.uid) if facts.anchor is not None else None
    others = [planned for planned in plan.router if planned.kind == "Deployment"]
    trial = try_workloads(accepted.config.context, workloads, owner=owner, others=others)
    return weigh_trial(plan, trial), trial


def declare(plan: StackPlan, *, context: str, release: str) -> None:
    """Register everything, and export what others need."""
    waits = Waits(context=context, plan=plan, report=pulumi.log.info)
    ServingStack(
        release,
        ServingStackArgs(
            plan=plan,
            until_may_be_made=in_one_line()(waits.until_may_be_made),
            until_rolled_out=in_one_line()(waits.until_rolled_out),
        ),
        pulumi.ResourceOptions(providers=[make_provider(plan.provider)]),
    )
    for name, value in plan.outputs.items():
        pulumi.export(name, value)
    pulumi.export("config", plan.applied)


def main() -> None:
    """Declare the stack."""
    end_quietly_when_interrupted()
    forget_earlier_report()
    with in_one_line():
        accepted = read_config()
    config = accepted.config
    facts = read_facts(config.context, namespace=config.namespace, release=config.release)
    state = read_state()
    unknown = not_known(facts, state)
    for each in unknown:
        pulumi.log.warn(f"not known: {each}")
    report = partial(
        make_report,
        stack=pulumi.get_stack(),
        release=config.release,
        namespace=config.namespace,
        context=config.context,
        unknown=unknown,
    )
    with in_one_line(), refusals_handed_over(report):
        plan, trial = make_plan(accepted, facts, state)
    topology = plan.modelserver.topology
    if not facts.answered or plan.refusal is not None:  # else, or if it goes on all the same, it is weighed below
        hand_over(report(warnings=plan.warnings, more_unknown=() if plan.refusal is None else (plan.refusal,)))
    if plan.refusal is not None and not pulumi.runtime.is_dry_run():
        if topology.leaving:
            # The engine looked at the cluster before this, so going on afterwards would take what goes for what runs.
            until_change_has_ended(
                config.context,
                namespace=config.namespace,
                release=config.release,
                report=pulumi.log.info,
                seconds=plan.ending_seconds,
            )
        raise pulumi.RunError(plan.refusal)
    if facts.answered and not topology.leaving:  # what goes has not given back yet what this change may count on
        with in_one_line():
            plan = weigh(config, plan, facts.near, trial, report)
    for warning in plan.warnings:
        pulumi.log.warn(str(warning))
    pulumi.log.info(f"node budget: {plan.budget}")
    declare(plan, context=config.context, release=config.release)


main()
