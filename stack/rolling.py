"""The strategies of a role Deployment: as the configuration says, as they are planned, and as they are read back.

What type `auto` comes to for a change is chosen elsewhere (`stack.strategy`), since it takes what is live; here stands
only what it comes to as long as nobody has looked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stack.config.root import StackConfig

Spec = dict[str, Any]
"""A Deployment's `spec.strategy`."""
QUARTER = "25%"
"""Kubernetes' own for both numbers (API reference, RollingUpdateDeployment)."""


def recreate() -> Spec:
    """All Pods leave, then the new ones start."""
    return {"type": "Recreate"}


def rolling(surge: int | str, unavailable: int | str) -> Spec:
    """So many Pods more, and so many fewer, at a time."""
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def surge() -> Spec:
    """The new Pod starts before an old one leaves."""
    return rolling(1, 0)


def in_turn() -> Spec:
    """An old Pod leaves before the new one asks for devices."""
    return rolling(0, 1)


def strategy_of(config: StackConfig, replicas: int, *, held: Mapping[str, Any] | None = None) -> Spec:
    """The strategy of a role in `replicas` mode.

    Args:
        config: the configuration.
        replicas: Pods of the role.
        held: the strategy that its Deployment has, where that is known. With type auto it stays what it is until a
            change restarts the role, so that nothing else shows a difference.
    """
    strategy = config.modelserver.strategy
    if strategy.type == "Recreate":
        return recreate()
    if strategy.rolling_update is not None:
        return rolling(strategy.rolling_update.max_surge, strategy.rolling_update.max_unavailable)
    return read_strategy(held) or settled(replicas, is_for_one_pod=_is_for_one_pod(config))


def settled(replicas: int, *, is_for_one_pod: bool) -> Spec:
    """What type auto comes to while nobody has looked for spare devices: what hangs only where all else stops the role.

    One whose volume is for one Pod stops in any way, and with Recreate it does not hang.
    """
    if is_for_one_pod:
        return recreate()
    return surge() if replicas == 1 else in_turn()


def read_strategy(live: Mapping[str, Any] | None) -> Spec | None:
    """A strategy as a cluster or the engine's state gives it back, as it is planned; None where there is none."""
    match (live or {}).get("type"):
        case "Recreate":
            return recreate()
        case "RollingUpdate":
            numbers: Mapping[str, Any] = (live or {}).get("rollingUpdate") or {}
            return rolling(*(_whole(numbers.get(key, QUARTER)) for key in ("maxSurge", "maxUnavailable")))
        case _:
            return None


def in_words(strategy: Mapping[str, Any]) -> str:
    """`Recreate`, or both numbers by their keys."""
    numbers: Mapping[str, Any] | None = strategy.get("rollingUpdate")
    if numbers is None:
        return str(strategy["type"])
    return f"maxSurge {numbers['maxSurge']}, maxUnavailable {numbers['maxUnavailable']}"


def _whole(number: float | str) -> int | str:
    """The engine gives numbers back with a fraction."""
    return int(number) if isinstance(number, float) else number


def _is_for_one_pod(config: StackConfig) -> bool:
    """Whether a volume that the stack makes can be mounted by one Pod at a time."""
    storage = config.storage
    return any(
        volume.kind == "pvc" and volume.access_modes == ("ReadWriteOncePod",)
        for volume in (storage.compile_cache, storage.model)
    )
