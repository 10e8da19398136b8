"""Every time limit on the way of a stream, as one calculation, so that none cuts what another one saves.

A request passes gateway, endpoint picker, routing proxy and engine, and each of them has its own idea of how long it
may take, how long it may take to leave, or how long it keeps a connection that nobody uses. What is the operator's own
(another Gateway, a load balancer before it, a client) is not known here; docs/drain.md says where to look.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from stack.router import epp_drain_seconds
from stack.scalars import milliseconds
from stack.serve import merge_env

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stack.config.root import StackConfig
    from stack.recipes.model import Recipe
    from stack.scalars import Role
    from stack.serve import RoleServe

Ends = Literal["request", "leaving", "connection"]

AUTOSCALERS_GRACE_SECONDS: Final = 600
"""For how long the Cluster Autoscaler lets Pods of a node leave that it takes away, whatever their grace period, unless
its `--max-graceful-termination-sec` says something else (Cluster Autoscaler FAQ)."""

KEEP_ALIVE: Final = "VLLM_HTTP_TIMEOUT_KEEP_ALIVE"
DEFAULT_KEEP_ALIVE: Final = 5
"""Seconds for which vLLM keeps a connection that nobody uses (`vllm/envs.py`)."""
PROXY_IDLE_SECONDS: Final = 90
"""How long the routing proxy keeps an unused connection to an engine: that of Go's DefaultTransport (llm-d's P/D guide
raises the engine's keep-alive over it)."""
PROXY_LEAVE_SECONDS: Final = 60
"""What the routing proxy gives its streams at its own SIGTERM (llm-d-router, `pkg/sidecar/proxy/proxy_helpers.go`).
Kubernetes sends it after the engine has ended, when no stream is left that could go on."""
ISTIO_LEAVE_SECONDS: Final = 5
"""Istio's `terminationDrainDuration`, unless the mesh or the Gateway's Pod says something else (ProxyConfig)."""


@dataclass(frozen=True, kw_only=True)
class TimeLimit:
    """One limit.

    Attributes:
        name: what limits.
        seconds: how long; None where there is no limit.
        key: config key that sets it, or in words who does.
        is_ours: whether a key of the stack file sets it.
        is_written: whether the operator wrote that key.
        ends: what it ends: a request, wherever it is; requests that still run while something leaves; or a connection
            that nobody uses.
    """

    name: str
    seconds: float | None
    key: str
    ends: Ends
    is_ours: bool = True
    is_written: bool = False

    def as_output(self) -> dict[str, Any]:
        """As a stack output."""
        return {"name": self.name, "seconds": self.seconds, "setBy": self.key, "ends": self.ends}


def time_limits(config: StackConfig, recipe: Recipe, serves: Mapping[Role, RoleServe]) -> tuple[TimeLimit, ...]:
    """All limits that are known, from the client to the engine."""
    return tuple(_limits(config, recipe, serves))


def request_timeout(config: StackConfig) -> TimeLimit | None:
    """The route's limit on a whole request, stream included; None where the stack makes no route."""
    gateway = config.gateway
    if not gateway.enabled or (not config.router.inference_pool.create and gateway.backend is None):
        return None
    return TimeLimit(
        name="HTTPRoute timeouts.request",
        seconds=milliseconds(gateway.request_timeout) / 1000 or None,
        key="gateway.requestTimeout",
        is_written="request_timeout" in gateway.model_fields_set,
        ends="request",
    )


def epp_drain(config: StackConfig, serves: Mapping[Role, RoleServe]) -> TimeLimit:
    """What streams get when an endpoint picker leaves, through which all of them pass."""
    return TimeLimit(
        name="endpoint picker, when it leaves",
        seconds=epp_drain_seconds(config, serves),
        key="router.epp.drainSeconds",
        is_written=config.router.epp.drain_seconds is not None,
        ends="leaving",
    )


def keep_alive(config: StackConfig, recipe: Recipe, role: Role) -> TimeLimit:
    """How long a role's engine keeps a connection that nobody uses; None where a reference hides the number."""
    text = str(merge_env(config, recipe, role).get(KEEP_ALIVE, DEFAULT_KEEP_ALIVE))
    written = config.modelserver
    return TimeLimit(
        name=f"unused connection at {role} engines",
        seconds=int(text) if text.isascii() and text.isdigit() else None,
        key=f"modelserver.extraServeEnv.{role}.{KEEP_ALIVE}",
        is_written=KEEP_ALIVE in written.extra_serve_env.of(role) or KEEP_ALIVE in written.serve_env,
        ends="connection",
    )


def _limits(config: StackConfig, recipe: Recipe, serves: Mapping[Role, RoleServe]) -> Iterator[TimeLimit]:
    if (route := request_timeout(config)) is not None:
        yield route
    if config.gateway.enabled and config.gateway.class_name == "istio":
        yield TimeLimit(
            name="gateway Pod, when it leaves",
            seconds=ISTIO_LEAVE_SECONDS,
            key="Istio's terminationDrainDuration",
            is_ours=False,
            ends="leaving",
        )
    yield epp_drain(config, serves)
    is_proxied = "decode" in serves and "aggregated" not in serves
    if is_proxied:
        yield TimeLimit(
            name="routing proxy, after its engine has ended",
            seconds=PROXY_LEAVE_SECONDS,
            key="fixed in the routing proxy",
            is_ours=False,
            ends="leaving",
        )
        yield TimeLimit(
            name="unused connection from routing proxy to engine",
            seconds=PROXY_IDLE_SECONDS,
            key="fixed in the routing proxy",
            is_ours=False,
            ends="connection",
        )
    for role, serve in serves.items():
        yield keep_alive(config, recipe, role)
        if serve.drain.mode != "off":
            yield TimeLimit(
                name=f"{role} Pod, when it leaves (N)",
                seconds=serve.drain.timeout,
                key=f"drain.shutdownTimeoutSeconds.{role}",
                is_written=config.drain.shutdown_timeout_seconds.of(role) is not None,
                ends="leaving",
            )
