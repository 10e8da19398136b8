"""Pods on their way out: how long each may take, and which should have been gone by now.

A Pod is gone when the kubelet of its node says that its containers have ended. When the node is dead nobody says so,
and the Pod keeps its `deletionTimestamp` for ever. That moment is on the clock of the API server, with which this
machine's need not agree; so what counts is for how long a Pod has been seen leaving here, against the grace period that
it was given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stack.rollout.pods import Kind, Object, Trouble, is_leaving, is_over

if TYPE_CHECKING:
    from collections.abc import Iterable

MARGIN_SECONDS = 60
"""For what comes after the grace period: killing, unmounting, giving devices back, and the kubelet's word for it."""
DEFAULT_GRACE_SECONDS = 30
"""Grace period where none is given (Kubernetes API, PodSpec.terminationGracePeriodSeconds)."""


@dataclass(frozen=True, kw_only=True)
class Overstay:
    """A Pod that should have been gone.

    Attributes:
        node: where it is, None when it is nowhere.
        grace: seconds that it was given to leave.
        seconds: for how long it has been seen leaving, at least.
    """

    namespace: str
    pod: str
    node: str | None
    grace: int
    seconds: float

    @property
    def trouble(self) -> Trouble:
        """The same as a reason why a roll-out does not go on."""
        return Trouble(
            kind=Kind.TERMINATING,
            reason="stays terminating",
            message=f"{self.where} for {self.seconds:.0f} s or more, and had {self.grace} s to leave",
            node=self.node,
        )

    @property
    def where(self) -> str:
        """Its node, as a phrase."""
        return "without a node" if self.node is None else f"on node {self.node}"


@dataclass
class Departures:
    """The clocks of Pods that leave. Time counts only while somebody answers: it is told with every look."""

    _answered: float = 0
    _at: float | None = None
    _since: dict[str, float] = field(default_factory=dict[str, float])

    def look(self, now: float, pods: Iterable[Object]) -> None:
        """Take in which Pods leave; any Pods may be given, a few at a time.

        Args:
            now: seconds on a clock that never goes back.
            pods: live Pods.
        """
        self._answered += now - self._at if self._at is not None else 0
        self._at = now
        for pod in pods:
            if is_leaving(pod) and not is_over(pod):
                self._since.setdefault(pod["metadata"]["uid"], self._answered)

    def blink(self, now: float) -> None:
        """Nothing could be seen since the last look: the nodes' word did not arrive either."""
        self._at = now

    def overstay(self, pod: Object) -> Overstay | None:
        """What there is to say of a Pod that should have been gone; None of one that has time left, or stays."""
        meta: Object = pod["metadata"]
        since = self._since.get(meta.get("uid", ""))
        grace = _grace(pod)
        if since is None or self._answered - since < grace + MARGIN_SECONDS:
            return None
        return Overstay(
            namespace=meta["namespace"],
            pod=meta["name"],
            node=pod["spec"].get("nodeName"),
            grace=grace,
            seconds=self._answered - since,
        )


def _grace(pod: Object) -> int:
    """What it was given when it was told to go, which may be less than its own; a second telling may shorten it."""
    own: int = pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    return pod["metadata"].get("deletionGracePeriodSeconds", own)
