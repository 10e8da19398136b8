"""How an EPP leaves: nothing that runs is cut, and nothing new is sent to it.

ext_proc carries every running stream to its end, so an EPP that stops cuts streams of model servers that are well, and
fail-open does not save them. What a release does when it is told to stop decides how it is given the time (ADR 0016).
Kubernetes tells the gateways that a Pod leaves and runs its preStop at the same moment, and sends SIGTERM after it.
"""

from dataclasses import dataclass
from typing import Final

from stack.epp.releases import EppRelease

DRAIN_TIMEOUT_FLAG: Final = "drain-timeout"
SPREAD_SECONDS: Final = 10
"""Until every gateway knows that an EPP leaves, or that another one leads."""
GIVE_UP_SECONDS: Final = 30
"""How long controller-runtime's manager waits for what it runs (GracefulShutdownTimeout, by default). In releases that
have no --drain-timeout the ext_proc server is among that, and its streams are cut then (seen with GAIE v1.5.0)."""
MARGIN_SECONDS: Final = 5
"""Between the end of the longest way out and SIGKILL."""


@dataclass(frozen=True, kw_only=True)
class EppDrain:
    """The way out of one EPP Pod, in seconds.

    Attributes:
        pre_stop: Kubernetes waits this long before SIGTERM, while the EPP works as ever.
        hand_over: value of --drain-timeout: from SIGTERM on the lease is free and the EPP goes on serving the
            connections it has; None when the release has no such flag.
        restart: how long a container that failed its liveness probe may take; its view is lost either way.
        grace: terminationGracePeriodSeconds, which includes the preStop.
    """

    pre_stop: int
    hand_over: int | None
    restart: int
    grace: int


def plan_drain(seconds: int, release: EppRelease) -> EppDrain:
    """Give every stream that runs when the Pod is deleted `seconds` to end.

    With --drain-timeout (llm-d v0.10.0, `cmd/epp/runner/runner.go`) the EPP gives its lease away at SIGTERM, goes on
    serving for that time, always the whole of it, then takes no more streams and waits for those that run without a
    limit of its own: it leaves with the last one, and the grace period is the limit. Without, everything ends soon
    after SIGTERM, which has to come after the streams.
    """
    if DRAIN_TIMEOUT_FLAG in release.flags:
        pre_stop, hand_over, streams = SPREAD_SECONDS, SPREAD_SECONDS, seconds
    else:
        pre_stop, hand_over, streams = max(seconds, SPREAD_SECONDS), None, 0
    return EppDrain(
        pre_stop=pre_stop,
        hand_over=hand_over,
        restart=GIVE_UP_SECONDS,
        grace=pre_stop + GIVE_UP_SECONDS + (hand_over or 0) + streams + MARGIN_SECONDS,
    )
