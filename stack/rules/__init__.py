"""Rules across blocks: everything that would be refused later, told before anything is touched.

`accept` is the way in: it reads the configuration, finds the recipe, and applies every rule whose blocks could be read.
Rules about the live cluster are not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stack.config.root import Reading, StackConfig, read_config
from stack.config.shape import near_key
from stack.errors import HIDDEN, ConfigError, Problem, in_order
from stack.recipes import Recipe, known, load_recipe, recipe_names
from stack.rules import (
    autoscaling,
    devices,
    disruption,
    drain,
    env,
    metadata,
    pods,
    ports,
    router,
    serve_args,
    startup,
    storage,
    strategy,
    topology,
    tracing,
)
from stack.rules.rule import Finding, Rule, Setting

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Accepted", "accept", "check_rules"]

RULES: tuple[Rule, ...] = (
    *topology.RULES,
    *strategy.RULES,
    *storage.RULES,
    *devices.RULES,
    *ports.RULES,
    *serve_args.RULES,
    *env.RULES,
    *startup.RULES,
    *drain.RULES,
    *pods.RULES,
    *metadata.RULES,
    *router.RULES,
    *autoscaling.RULES,
    *disruption.RULES,
    *tracing.RULES,
)


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A configuration that every rule accepts, the recipe it names, and what is legal but surprising."""

    config: StackConfig
    recipe: Recipe
    warnings: tuple[Problem, ...]


def accept(blocks: Mapping[str, object], *, context: str | None) -> Accepted:
    """Read a configuration and apply every rule. Arguments as for `stack.config.root.load_config`.

    Raises:
        ConfigError: with every problem; rules about blocks that could not be read are left out.
    """
    reading = read_config(blocks, context=context)
    problems = list(reading.problems)
    broken = set(reading.broken)
    if "recipe" not in broken and not known(reading.config.recipe):
        problems.append(_unknown_recipe(reading.config.recipe))
        broken.add("recipe")
    recipe = load_recipe(reading.config.recipe if "recipe" not in broken else recipe_names()[0])
    errors, warnings = _apply(reading.config, recipe, broken=broken)
    problems += [problem for problem in errors if not _is_about_a_secret(problem, reading)]
    if problems:
        raise ConfigError(problems)
    return Accepted(config=reading.config, recipe=recipe, warnings=in_order(warnings))


def check_rules(config: StackConfig, recipe: Recipe) -> tuple[list[Problem], list[Problem]]:
    """Apply every rule to a configuration that could be read; returns errors and warnings, each sorted by key."""
    errors, warnings = _apply(config, recipe, broken=set())
    return list(in_order(errors)), list(in_order(warnings))


def _apply(config: StackConfig, recipe: Recipe, *, broken: set[str]) -> tuple[list[Problem], list[Problem]]:
    setting = Setting(config, recipe)
    findings: list[Finding] = []
    for rule in RULES:
        if not rule.reads & broken:
            findings += rule.check(setting)
    return (
        [finding.problem for finding in findings if finding.is_error],
        [finding.problem for finding in findings if not finding.is_error],
    )


def _is_about_a_secret(problem: Problem, reading: Reading) -> bool:
    return any(problem.key.startswith(found.key) for found in reading.problems if found.value == HIDDEN)


def _unknown_recipe(name: str) -> Problem:
    near = near_key(name, list(recipe_names()))
    listed = ", ".join(recipe_names())
    return Problem(
        key="recipe",
        value=name,
        why=f"there is no such recipe; there are {listed}",
        fix=f"Did you mean {near}?" if near else "Choose one of these",
    )
