"""How Kubernetes exchanges the Pods of one Deployment: in how many steps, with how many more and how many fewer.

Read in Kubernetes 1.36, `pkg/controller/deployment`: `NewRSNewReplicas` (never more than replicas + maxSurge, Pods that
are told to go not counted), `reconcileOldReplicaSets` (never fewer available than replicas - maxUnavailable, Pods that
are not available first), `rolloutRecreate` (no new Pod before the last old one is gone), and `scale` (a changed number
of replicas reaches the Pods that are there first, of whatever template, then they are exchanged).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from stack.rolling import QUARTER
from stack.rules.strategy import resolve_surge, resolve_unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """How a Deployment of so many Pods is rolled; both numbers are 0 with `Recreate`.

    Attributes:
        surge: Pods above the wanted number, a percentage rounded up.
        unavailable: Pods below it, a percentage rounded down; 1 where both would be 0 by that (`ResolveFenceposts`).
    """

    is_recreate: bool
    surge: int
    unavailable: int

    @classmethod
    def read(cls, spec: Mapping[str, Any], replicas: int) -> Strategy:
        """From a Deployment's `spec`."""
        strategy: Mapping[str, Any] = spec.get("strategy") or {}
        if strategy.get("type") == "Recreate":
            return cls(is_recreate=True, surge=0, unavailable=0)
        numbers: Mapping[str, Any] = strategy.get("rollingUpdate") or {}
        surge = resolve_surge(numbers.get("maxSurge", QUARTER), replicas)
        unavailable = resolve_unavailable(numbers.get("maxUnavailable", QUARTER), replicas)
        return cls(is_recreate=False, surge=surge, unavailable=unavailable if surge or unavailable else 1)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Pods of one Deployment as they are now; none of them has been told to go.

    Attributes:
        pods: all. kept: those of the wanted template.
        ready: those that serve. ready_kept: those of them that are of the wanted template.
        placed: those that have a node, and so devices.
    """

    pods: int = 0
    kept: int = 0
    ready: int = 0
    ready_kept: int = 0
    placed: int = 0

    @property
    def old(self) -> int:
        """Pods that have to go, for they are of another template."""
        return self.pods - self.kept

    @property
    def waiting(self) -> int:
        """Pods of the wanted template that have no devices yet."""
        return min(self.kept - self.ready_kept, self.pods - self.placed)

    @property
    def is_starting(self) -> bool:
        """Whether Pods of the wanted template have devices and are not Ready."""
        return self.kept - self.ready_kept > self.waiting


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """What becomes of the Pods of one Deployment.

    Attributes:
        new: Pods that will be made, of the wanted template. kept: that stay. leaving: that go.
        extra: most Pods at a time that hold devices, beyond those that do now.
        least_ready: Pods that serve at any time while it goes on.
        steps: how often it takes a drain and a start-up.
    """

    new: int
    kept: int
    leaving: int
    extra: int
    least_ready: int
    steps: int


def exchange(
    standing: Standing, strategy: Strategy, *, wanted: int, before: int | None = None, is_back: bool = False
) -> Exchange:
    """Bring a Deployment to so many Pods of the wanted template.

    Args:
        standing: its Pods.
        strategy: how they are exchanged.
        wanted: Pods that it will ask for.
        before: Pods that it asks for now; None if that is how many there are.
        is_back: whether a roll-out is taken back, so that the wanted template is the older one.

    A percentage or number that lets everything go is no special case: then the least number of ready Pods is 0.
    """
    asked = standing.pods if before is None else before
    if standing.old and not strategy.is_recreate and asked != wanted:
        scaled, stays, more_old = _scale(standing, strategy, wanted=wanted, before=asked, is_back=is_back)
    else:
        scaled, stays, more_old = standing, min(standing.kept, wanted), 0
    new = wanted - stays
    leaving = standing.pods - stays
    # What waits for devices is taken away first.
    asking = new + max(0, standing.waiting - max(0, standing.kept - stays))
    if not standing.old:
        return Exchange(
            new=new,
            kept=stays,
            leaving=leaving,
            extra=min(asking, max(0, wanted - standing.placed)),
            least_ready=min(standing.ready, wanted),
            steps=1 if new or leaving else 0,
        )
    if strategy.is_recreate:
        # What is kept stays through it; what is made comes when the devices of the old Pods are free.
        return Exchange(
            new=new,
            kept=stays,
            leaving=leaving,
            extra=min(asking, max(0, wanted - standing.placed)),
            least_ready=min(standing.ready_kept, wanted),
            steps=1,
        )
    return Exchange(
        new=new,
        kept=stays,
        leaving=leaving,
        # What is added reaches the old template as well, so beside all new ones there may be these.
        extra=min(asking + more_old, max(0, wanted + min(strategy.surge, asking) - standing.placed)),
        # What is kept and Ready stays, however many may go; if that is all that is wanted, the others just go.
        least_ready=min(scaled.ready, max(wanted - strategy.unavailable, min(scaled.ready_kept, wanted))),
        # What is kept and starts has to be Ready before others may go, and with them what waits for their devices.
        steps=max(1, standing.is_starting + ceil(asking / (strategy.surge + strategy.unavailable))),
    )


def share(
    old: int, kept: int, strategy: Strategy, *, wanted: int, before: int, is_back: bool = False
) -> tuple[int, int]:
    """How many Pods of the old and of the wanted template are to be there once another number has reached both.

    As the controller's `scale`: one template alone gets the new number; two share it and the surge by size, and what
    is left over by rounding goes to the larger one. What it was before is taken to be as much more than asked for as is
    there, or may be by the strategy: the surge that the number was shared by last stands in no object's spec.

    Args:
        old: Pods of the other templates, taken for one.
        kept: of the wanted one.
        strategy: how it is rolled.
        wanted: Pods that it will ask for.
        before: Pods that it asks for now.
        is_back: whether the wanted template is the older one.
    """
    if not kept or not old:
        pods = old + kept
        scaled = pods + max(0, wanted - max(before, pods)) - max(0, min(before, pods) - wanted)
        return (scaled, 0) if old else (0, scaled)
    pods, most = old + kept, wanted + strategy.surge
    missing = rest = most - pods
    sizes = {False: old, True: kept}
    # Larger ones first; of two as large, the newer gets what is added, and the older gives what is taken away.
    order = sorted(sizes, key=lambda is_wanted: (-sizes[is_wanted], (is_wanted is not is_back) is (missing < 0)))
    for is_wanted in order:
        of = _rounded(sizes[is_wanted] * most, max(pods, before + strategy.surge)) - sizes[is_wanted]
        part = 0 if not rest else min(of, rest) if missing > 0 else max(of, rest)
        sizes[is_wanted] += part
        rest -= part
    sizes[order[0]] = max(0, sizes[order[0]] + rest)
    return sizes[False], sizes[True]


def _scale(
    standing: Standing, strategy: Strategy, *, wanted: int, before: int, is_back: bool
) -> tuple[Standing, int, int]:
    """Its Pods after that, how many of the wanted template stay through it, and how many more of the old ones come.

    Pods that are taken away are first those without devices, then those that are not Ready.
    """
    old, kept = share(standing.old, standing.kept, strategy, wanted=wanted, before=before, is_back=is_back)
    ready_kept = min(standing.ready_kept, kept)
    ready = ready_kept + min(standing.ready - standing.ready_kept, old)
    scaled = Standing(pods=old + kept, kept=kept, ready=ready, ready_kept=ready_kept, placed=standing.placed)
    return scaled, min(standing.kept, kept, wanted), max(0, old - standing.old)


def _rounded(number: int, by: int) -> int:
    """A quotient, half of one rounded up."""
    return (2 * number + by) // (2 * by)


def percent(part: int, whole: int) -> int | None:
    """Rounded down, so that it never promises more; None of nothing."""
    return None if whole <= 0 else min(100, 100 * part // whole)
