"""Rules about which Pods there are: replicas, nodePlacement, roles.

Decisions: `nodePlacement` turns replicas that are not written to 0, so only written ones above 0 contradict it. A
stack with only prefill or only decode Pods is legal, as it is for the chart (a role scaled to 0); it is a warning. Two
entries of one role on one node are legal: a node may have devices for both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stack import names
from stack.config.modelserver import PodOverrideConfig
from stack.rules.rule import Finding, Rule, Setting, error, rule, warning
from stack.scalars import LABEL_LENGTH, ROLES

if TYPE_CHECKING:
    from collections.abc import Iterator


def excludes_replicas_and_placement(setting: Setting) -> Iterator[Finding]:
    """Replicas above 0 together with nodePlacement (V1)."""
    modelserver = setting.config.modelserver
    if not modelserver.node_placement:
        return
    for role in ROLES:
        count = getattr(modelserver.replicas, role)
        if count:
            yield error(
                f"modelserver.replicas.{role}",
                count,
                "is given together with nodePlacement, and Pods are placed by one of the two",
                fix="Remove modelserver.replicas to use nodePlacement, or remove modelserver.nodePlacement",
            )


def has_pods(setting: Setting) -> Iterator[Finding]:
    """Neither replicas nor nodePlacement (V2)."""
    if not setting.roles:
        yield error(
            "modelserver.replicas",
            "0 of every role",
            "nothing would serve",
            fix="Give a role replicas above 0, write modelserver.nodePlacement, or run `pulumi destroy`",
        )


def splits_or_aggregates(setting: Setting) -> Iterator[Finding]:
    """Aggregated Pods beside prefill or decode Pods: one pool cannot tell who answers what."""
    modelserver = setting.config.modelserver
    why = "aggregated Pods stand beside prefill or decode Pods, and a stack either splits the two or does not"
    if modelserver.node_placement:
        placed = {entry.role for entry in modelserver.node_placement}
        if "aggregated" in placed and len(placed) > 1:
            index = next(i for i, entry in enumerate(modelserver.node_placement) if entry.role == "aggregated")
            yield error(
                f"modelserver.nodePlacement[{index}].role",
                "aggregated",
                why,
                fix="Use only aggregated entries, or only prefill and decode entries",
            )
    elif len(setting.roles) > 1 and "aggregated" in setting.roles:
        yield error(
            "modelserver.replicas.aggregated",
            setting.pods["aggregated"],
            why,
            fix="Set prefill and decode to 0, or aggregated to 0",
        )


def has_both_halves(setting: Setting) -> Iterator[Finding]:
    """Prefill without decode answers nothing; decode without prefill prefills by itself."""
    if setting.roles == ("prefill",):
        yield warning(
            "modelserver.replicas.decode",
            0,
            "prefill Pods alone answer no request: the answer comes from decode Pods",
            fix="Give decode a replica, or use the role aggregated",
        )
    if setting.roles == ("decode",):
        yield warning(
            "modelserver.replicas.prefill",
            0,
            "without prefill Pods the decode Pods prefill by themselves, for which their arguments are not made",
            fix="Give prefill a replica, or use the role aggregated",
        )


def ignores_strategy(setting: Setting) -> Iterator[Finding]:
    """A strategy in nodePlacement mode."""
    modelserver = setting.config.modelserver
    if modelserver.node_placement and "strategy" in modelserver.model_fields_set:
        yield warning(
            "modelserver.strategy",
            modelserver.strategy.type,
            "has no effect with nodePlacement, where every entry is replaced with Recreate",
            fix="Remove modelserver.strategy",
        )


def speaks_of_roles_with_pods(setting: Setting) -> Iterator[Finding]:
    """Settings of a role that has no Pods."""
    modelserver = setting.config.modelserver
    if not setting.roles:
        return
    for block, key in (
        (modelserver.serve_args, "serveArgs"),
        (modelserver.extra_serve_args, "extraServeArgs"),
        (modelserver.extra_serve_env, "extraServeEnv"),
        (modelserver.pod_overrides, "podOverrides"),
    ):
        for role in ROLES:
            given = block.of(role)
            is_given = bool(given.model_fields_set) if isinstance(given, PodOverrideConfig) else bool(given)
            if role not in setting.roles and is_given:
                yield warning(
                    f"modelserver.{key}.{role}",
                    "given",
                    f"has no effect now, since there are no {role} Pods",
                    fix=f"Give {role} replicas, or remove the key",
                )


def fits_names(setting: Setting) -> Iterator[Finding]:
    """Names made from the release: Pods of Deployments must stay DNS labels, with the suffix Kubernetes adds."""
    config, modelserver = setting.config, setting.config.modelserver
    workloads = (
        [names.workload("", entry.role, index) for index, entry in enumerate(modelserver.node_placement)]
        if modelserver.node_placement
        else [names.workload("", role) for role in setting.roles]
    )
    if not workloads:
        return
    longest = max(workloads, key=len)
    room = LABEL_LENGTH - names.POD_SUFFIX - len(longest)
    if len(config.release) > room:
        yield error(
            "release",
            config.release,
            f"with {longest} and the {names.POD_SUFFIX} characters of a Pod its names pass {LABEL_LENGTH} characters",
            fix=f"Choose a release of at most {room} characters for these nodePlacement entries",
        )


RULES: tuple[Rule, ...] = (
    rule(excludes_replicas_and_placement, "modelserver"),
    rule(has_pods, "modelserver"),
    rule(splits_or_aggregates, "modelserver"),
    rule(has_both_halves, "modelserver"),
    rule(ignores_strategy, "modelserver"),
    rule(speaks_of_roles_with_pods, "modelserver"),
    rule(fits_names, "release", "modelserver"),
)
