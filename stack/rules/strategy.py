"""Rules about the rolling update of role Deployments in `replicas` mode.

Kubernetes rounds a percentage of maxSurge up and one of maxUnavailable down, refuses the two both at 0, and if rounding
makes them so it uses maxUnavailable 1 (Kubernetes API reference, RollingUpdateDeployment; deployment controller,
ResolveFenceposts).
"""

from __future__ import annotations

from math import ceil, floor
from typing import TYPE_CHECKING

from stack.rules.rule import Finding, Rule, Setting, error, rule, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEY = "modelserver.strategy.rollingUpdate"


def resolve_surge(value: int | str, replicas: int) -> int:
    """Pods above the wanted number that a Deployment with so many replicas may have."""
    return value if isinstance(value, int) else ceil(replicas * int(value.rstrip("%")) / 100)


def resolve_unavailable(value: int | str, replicas: int) -> int:
    """Pods below the wanted number that a Deployment with so many replicas may have."""
    return value if isinstance(value, int) else floor(replicas * int(value.rstrip("%")) / 100)


def surge_of(setting: Setting, replicas: int) -> int:
    """Pods that a change adds before it removes any: 0 with nodePlacement, Recreate, and auto, which chooses."""
    numbers = setting.config.modelserver.strategy.rolling_update
    return 0 if setting.is_placed or numbers is None else resolve_surge(numbers.max_surge, replicas)


def moves(setting: Setting) -> Iterator[Finding]:
    """Both numbers 0: the update could neither add nor remove a Pod."""
    numbers = setting.config.modelserver.strategy.rolling_update
    if setting.is_placed or numbers is None:
        return
    if resolve_surge(numbers.max_surge, 100) == 0 and resolve_unavailable(numbers.max_unavailable, 100) == 0:
        yield error(
            _KEY,
            f"maxSurge {numbers.max_surge}, maxUnavailable {numbers.max_unavailable}",
            "both are 0, so an update could neither add nor remove a Pod, and Kubernetes refuses it",
            fix="Set maxSurge: 1 with spare devices, or maxUnavailable: 1 without",
        )


def stays_below_all(setting: Setting) -> Iterator[Finding]:
    """More than all Pods unavailable."""
    numbers = setting.config.modelserver.strategy.rolling_update
    if setting.is_placed or numbers is None or not isinstance(numbers.max_unavailable, str):
        return
    if int(numbers.max_unavailable.rstrip("%")) > 100:  # noqa: PLR2004
        yield error(
            f"{_KEY}.maxUnavailable",
            numbers.max_unavailable,
            "is more than all Pods, which Kubernetes refuses",
            fix="Write 100% or less",
        )


def keeps_a_pod(setting: Setting) -> Iterator[Finding]:
    """All Pods of a role gone at once during an update, or a percentage that rounds to nothing."""
    numbers = setting.config.modelserver.strategy.rolling_update
    if setting.is_placed or numbers is None:
        return
    for role in setting.roles:
        replicas = setting.fewest_pods[role]
        down = resolve_unavailable(numbers.max_unavailable, replicas)
        surge = resolve_surge(numbers.max_surge, replicas)
        if surge == 0 and down == 0 and isinstance(numbers.max_unavailable, str) and numbers.max_unavailable != "0%":
            yield warning(
                f"{_KEY}.maxUnavailable",
                numbers.max_unavailable,
                f"rounds down to 0 of {replicas} {role} Pods, and Kubernetes then takes 1",
                fix="Write maxUnavailable: 1",
            )
            down = 1
        if down >= replicas:
            yield warning(
                f"{_KEY}.maxUnavailable",
                numbers.max_unavailable,
                f"covers all {replicas} {role} Pods, so an update leaves none of them serving for a whole start",
                fix="With spare devices write maxSurge: 1 and maxUnavailable: 0, or give the role more replicas",
            )


def allows_outages_of_roles_with_pods(setting: Setting) -> Iterator[Finding]:
    """An outage of a role that has no Pods, or so many that none is needed."""
    for place, role in enumerate(setting.config.modelserver.strategy.allow_outage):
        if role not in setting.roles:
            yield error(
                f"modelserver.strategy.allowOutage[{place}]",
                role,
                f"there are no {role} Pods",
                fix=f"Remove it, or give {role} replicas",
            )
        elif setting.fewest_pods[role] > 1 and not setting.is_placed:
            yield warning(
                f"modelserver.strategy.allowOutage[{place}]",
                role,
                f"changes nothing: of {setting.fewest_pods[role]} {role} Pods one leaves at a time, so it never stops",
                fix="Remove it",
            )


RULES: tuple[Rule, ...] = (
    rule(moves, "modelserver"),
    rule(stays_below_all, "modelserver"),
    rule(keeps_a_pod, "modelserver"),
    rule(allows_outages_of_roles_with_pods, "modelserver"),
)
