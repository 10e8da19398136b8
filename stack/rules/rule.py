"""What a rule is, what it looks at, and how it speaks.

A rule relates settings that stand in different places, and says what Kubernetes, the scheduler, the engine or the
endpoint picker would say later. It is a function from a `Setting` to findings; the blocks it reads stand beside it, so
that it is left out when one of them could not be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from stack.errors import Problem, show
from stack.scalars import ROLES
from stack.serve import in_force_args, merge_args, plan_serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from stack.config.root import StackConfig
    from stack.recipes import Recipe
    from stack.scalars import Role
    from stack.serve import RoleServe

Block = Literal[
    "release",
    "namespace",
    "cluster",
    "recipe",
    "modelserver",
    "devices",
    "drain",
    "disruption_budget",
    "storage",
    "routing",
    "gateway",
    "router",
    "autoscaling",
    "monitoring",
    "tracing",
    "image_pull_secrets",
    "epp_service_name",
]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A letter, and whether it stops the stack or only warns."""

    problem: Problem
    is_error: bool


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule and the blocks it reads; the recipe is read by all that read `recipe`."""

    check: Callable[[Setting], Iterator[Finding]]
    reads: frozenset[Block]


def rule(check: Callable[[Setting], Iterator[Finding]], *reads: Block) -> Rule:
    """Name the blocks that a check reads."""
    return Rule(check=check, reads=frozenset(reads))


def once(check: Callable[[Setting], Iterator[Finding]]) -> Callable[[Setting], Iterator[Finding]]:
    """Keep the first finding about each key, for checks that look at every role and would repeat themselves."""

    def first_of_each(setting: Setting) -> Iterator[Finding]:
        told: set[str] = set()
        for finding in check(setting):
            if finding.problem.key not in told:
                told.add(finding.problem.key)
                yield finding

    return first_of_each


def error(key: str, value: object, why: str, *, fix: str) -> Finding:
    """A setting that something would refuse later, or that cannot work."""
    return Finding(problem=Problem(key=key, value=show(value), why=why, fix=fix), is_error=True)


def warning(key: str, value: object, why: str, *, fix: str) -> Finding:
    """A setting that is legal and probably not meant."""
    return Finding(problem=Problem(key=key, value=show(value), why=why, fix=fix), is_error=False)


MOST_RANKS: Final = 1024
"""More ranks than the devices of any claim (32); larger numbers are mistakes, and nothing is counted with them."""
PARALLEL_FLAGS: Final[Mapping[str, str]] = {
    "tensor": "tensor-parallel-size",
    "pipeline": "pipeline-parallel-size",
    "data": "data-parallel-size",
}


@dataclass(frozen=True, kw_only=True)
class Parallelism:
    """Ranks of one engine in each dimension."""

    tensor: int
    pipeline: int
    data: int

    @property
    def devices(self) -> int:
        """Accelerators that one Pod uses."""
        return self.tensor * self.pipeline * self.data

    def __str__(self) -> str:
        return f"tensor {self.tensor} x pipeline {self.pipeline} x data {self.data}"


@dataclass(frozen=True)
class Setting:
    """The configuration with its recipe, and what several rules ask of the two."""

    config: StackConfig
    recipe: Recipe

    @cached_property
    def pods(self) -> dict[Role, int]:
        """Pods of each role, in either mode."""
        return self.config.modelserver.pods()

    @cached_property
    def fewest_pods(self) -> dict[Role, int]:
        """Pods of each role when its scaler has taken away all it may."""
        return {role: self.config.bounds(role)[0] for role in ROLES}

    @cached_property
    def most_pods(self) -> dict[Role, int]:
        """Pods of each role when its scaler has added all it may."""
        return {role: self.config.bounds(role)[1] for role in ROLES}

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        """Roles that have Pods."""
        return self.config.modelserver.roles()

    @property
    def is_placed(self) -> bool:
        """Whether Pods are placed by nodePlacement."""
        return bool(self.config.modelserver.node_placement)

    @property
    def is_disaggregated(self) -> bool:
        """Whether prefill and decode are apart."""
        return self.config.modelserver.is_disaggregated()

    @cached_property
    def arguments(self) -> dict[Role, dict[str, Any]]:
        """Serve arguments of each role with Pods, before anything appended: flag -> value."""
        return {role: merge_args(self.config, self.recipe, role) for role in self.roles}

    @cached_property
    def in_force(self) -> dict[Role, dict[str, Any]]:
        """Serve arguments as the engine will see them, `extraServeArgs` included; their values are text."""
        extra = self.config.modelserver.extra_serve_args
        return {role: in_force_args(self.arguments[role], extra.of(role)) for role in self.roles}

    @cached_property
    def parallelism(self) -> dict[Role, Parallelism]:
        """Ranks of each role whose numbers are whole and 1 or more; other rules speak about the rest."""
        found: dict[Role, Parallelism] = {}
        for role, arguments in self.arguments.items():
            ranks = {name: arguments.get(flag, 1) for name, flag in PARALLEL_FLAGS.items()}
            if all(is_count(value) and value <= MOST_RANKS for value in ranks.values()):
                found[role] = Parallelism(**ranks)
        return found

    @cached_property
    def serves(self) -> dict[Role, RoleServe]:
        """How each role serves whose parallelism is sound."""
        return {
            role: plan_serve(self.config, self.recipe, role, is_disaggregated=self.is_disaggregated)
            for role in self.parallelism
        }

    def place_of(self, role: Role, flag: str) -> str:
        """Key under which a flag of a role is written: the operator's place, or where it would be written."""
        written, known = self.config.modelserver.serve_args, self.recipe.serve_args
        is_own = flag in written.of(role) or (flag in getattr(known, role) and flag not in written.common)
        is_common = not is_own and (flag in written.common or flag in known.common)
        return f"modelserver.serveArgs.{'common' if is_common else role}.{flag}"


def is_count(value: object) -> bool:
    """Whether a value is a whole number of 1 or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
