"""What a guard finds, and what becomes of it: a refusal, a warning or nothing, as the configuration says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from stack.errors import Problem, in_order, show
from stack.facts import FactsError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from stack.config.guards import GuardName, GuardsConfig
    from stack.spares.fit import Outcome

Idle = Literal["refuse", "warn", "omit"]
"""What becomes of a refusal when no Pod starts that it is about."""


class GuardsError(FactsError):
    """Guards refuse the plan, in previews and updates, before anything is touched. Carries every reason."""

    def __str__(self) -> str:
        return "\n".join(["Refused before anything was touched:", *(f"  {problem}" for problem in self.problems)])


@dataclass(frozen=True, kw_only=True)
class GuardProblem(Problem):
    """A letter, and which guard says it."""

    guard: GuardName


@dataclass(frozen=True, kw_only=True)
class GuardFinding:
    """One letter of one guard.

    Attributes:
        guard: which one.
        problem: live value, wanted value, and the commands that lead out.
        is_refusal: whether the plan must not be carried out; otherwise it is legal and surprising, or not known.
        workloads: names of the Deployments whose Pods it is about; empty when it is about more than Pods.
        idle: what becomes of a refusal when none of these workloads starts a Pod.
        room: what was found of the room for Pods that come before others leave; None where it is about something else.
    """

    guard: GuardName
    problem: Problem
    is_refusal: bool
    workloads: frozenset[str] = frozenset()
    idle: Idle = "refuse"
    room: Outcome | None = None


def sort_findings(
    guards: GuardsConfig, findings: Iterable[GuardFinding], *, starting: Collection[str] | None = None
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """Refusals and warnings, each in the order of their keys.

    Args:
        guards: what each guard does.
        findings: what the guards found.
        starting: names of the Deployments that start Pods in this change; None when that is not known, and then all do.
    """
    refusals: list[Problem] = []
    warnings: list[Problem] = []
    for finding in findings:
        force = guards.of(finding.guard)
        idle = starting is not None and finding.workloads and finding.workloads.isdisjoint(starting)
        if force == "off" or (idle and finding.idle == "omit"):
            continue
        if finding.is_refusal and force == "enforce" and not (idle and finding.idle == "warn"):
            refusals.append(_with_a_way_out(finding))
        else:
            warnings.append(_said_by(finding))
    return in_order(refusals), in_order(warnings)


def _with_a_way_out(finding: GuardFinding) -> Problem:
    """Who knows better may go on."""
    fix = finding.problem.fix
    dot = "" if fix.endswith((".", "?")) else "."
    return replace(_said_by(finding), fix=f"{fix}{dot} `guards.{finding.guard}: warn` lets it pass")


def _said_by(finding: GuardFinding) -> GuardProblem:
    problem = finding.problem
    return GuardProblem(guard=finding.guard, key=problem.key, value=problem.value, why=problem.why, fix=problem.fix)


def refusal(
    guard: GuardName,
    key: str,
    value: object,
    why: str,
    *,
    fix: str,
    workloads: Iterable[str] = (),
    idle: Idle = "refuse",
    room: Outcome | None = None,
) -> GuardFinding:
    """Something that would be refused, get stuck or do harm half-way through."""
    problem = Problem(key=key, value=show(value) if value != "" else "", why=why, fix=fix)
    return GuardFinding(
        guard=guard, problem=problem, is_refusal=True, workloads=frozenset(workloads), idle=idle, room=room
    )


def warning(
    guard: GuardName,
    key: str,
    value: object,
    why: str,
    *,
    fix: str,
    workloads: Iterable[str] = (),
    idle: Idle = "warn",
    room: Outcome | None = None,
) -> GuardFinding:
    """Something legal and surprising, or that can't be told."""
    found = refusal(guard, key, value, why, fix=fix, workloads=workloads, idle=idle, room=room)
    return replace(found, is_refusal=False)
