"""Requests and limits as a manifest carries them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from stack.scalars import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping


class Amounts(Protocol):
    """What an operator or a recipe writes for a container."""

    @property
    def requests(self) -> Mapping[str, str]:
        """What the scheduler reserves."""
        ...

    @property
    def limits(self) -> Mapping[str, str]:
        """What the container may not exceed."""
        ...


def canonical_resources(wanted: Amounts) -> dict[str, dict[str, str]]:
    """Non-empty `requests` and `limits`, each amount in the form the API server gives back."""
    return {
        key: {name: canonical(amount) for name, amount in amounts.items()}
        for key, amounts in (("requests", wanted.requests), ("limits", wanted.limits))
        if amounts
    }
