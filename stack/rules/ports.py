"""Rules about ports: those of one Pod share one address, and the pool must know those that are served.

Ports of a role Pod: the engine's (one for each data-parallel rank with an API server of its own), the routing proxy's
before them on decode, one NIXL side-channel port for each rank, the RPC port by which the ranks meet, and that of the
supervisor of ranks with API servers of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stack.config.router import MAX_TARGET_PORTS
from stack.rules.rule import Finding, Rule, Setting, error, rule, warning
from stack.serve import API_PORT, EXTERNAL_LB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stack.scalars import Role

HIGHEST = 65535
SUPERVISOR_FLAG, SUPERVISOR_PORT = "data-parallel-supervisor-port", 9256
"""vLLM 0.30.0 starts a supervisor beside ranks that each have an API server (`vllm/entrypoints`)."""
Span = tuple[str, str, int, int]
"""Key that sets it, what it is for, first port, number of ports."""


def spans(setting: Setting, role: Role) -> list[Span]:
    """Ports of a role's Pod, in the order in which a clash is blamed on the later one."""
    config, ranks = setting.config, setting.parallelism[role]
    served = ranks.data if setting.in_force[role].get(EXTERNAL_LB) else 1
    proxy = config.routing.proxy
    found: list[Span] = []
    if role == "decode" and setting.is_disaggregated:
        found.append(("routing.proxy.port", "the routing proxy", proxy.port, served))
        found.append(("routing.proxy.modelServerPort", "the engine", proxy.model_server_port, served))
    else:
        found.append(("", "the engine", API_PORT, served))
    if setting.is_disaggregated:
        base = config.devices.rdma.side_channel.base_port.of(role)
        found.append((f"devices.rdma.sideChannel.basePort.{role}", "the side channel", base, ranks.data))
    rpc = setting.in_force[role].get("data-parallel-rpc-port")
    if ranks.data > 1 and isinstance(rpc, int):
        found.append((setting.place_of(role, "data-parallel-rpc-port"), "data-parallel RPC", rpc, 1))
    if served > 1:
        supervisor = setting.in_force[role].get(SUPERVISOR_FLAG, SUPERVISOR_PORT)
        if isinstance(supervisor, int):
            found.append((setting.place_of(role, SUPERVISOR_FLAG), "the data-parallel supervisor", supervisor, 1))
    return found


def active_ports(setting: Setting) -> dict[int, Role]:
    """Ports at which requests may be sent, with a role that serves there."""
    found: dict[int, Role] = {}
    for role in setting.parallelism:
        _, _, first, count = spans(setting, role)[0]
        found |= dict.fromkeys(range(first, first + count), role)
    return found


def do_not_meet(setting: Setting) -> Iterator[Finding]:
    """Two listeners on one port of a Pod, or a span past the last port."""
    for role in setting.parallelism:
        earlier: list[Span] = []
        for key, purpose, first, count in spans(setting, role):
            shown = f"{first}" if count == 1 else f"{first} to {first + count - 1}"
            if first + count - 1 > HIGHEST and key:
                yield error(
                    key,
                    first,
                    f"{purpose} of {role} Pods needs {count} ports from there on, and the last port is {HIGHEST}",
                    fix=f"Choose {HIGHEST - count + 1} or lower",
                )
            for other_key, other_purpose, other_first, other_count in earlier:
                if first < other_first + other_count and other_first < first + count:
                    there = (
                        f"{other_first}" if other_count == 1 else f"{other_first} to {other_first + other_count - 1}"
                    )
                    yield error(
                        key or other_key,
                        shown if key else there,
                        f"meets {other_purpose} at {there} in the same {role} Pod ({purpose} has {shown})",
                        fix="Choose ports that keep clear of one another",
                    )
            earlier.append((key, purpose, first, count))


def are_in_the_pool(setting: Setting) -> Iterator[Finding]:
    """Served ports against the pool's target ports."""
    served, given = active_ports(setting), setting.config.router.model_servers.target_ports
    key = "router.modelServers.targetPorts"
    if given is None:
        if len(served) > MAX_TARGET_PORTS:
            yield error(
                key,
                f"{len(served)} ports computed",
                f"an InferencePool has at most {MAX_TARGET_PORTS}, and each data-parallel rank serves at its own",
                fix=f"Use at most {MAX_TARGET_PORTS} data-parallel ranks with an API server each",
            )
        return
    missing = sorted(set(served) - set(given))
    if missing:
        role = served[missing[0]]
        yield error(
            key,
            ", ".join(map(str, given)),
            f"leaves out {', '.join(map(str, missing))}, at which {role} Pods serve and would get no request",
            fix="Remove the key to have the ports computed, or add them",
        )
    unserved = sorted(set(given) - set(served))
    if unserved and not missing and served:
        yield warning(
            key,
            ", ".join(map(str, given)),
            f"has {', '.join(map(str, unserved))}, at which no Pod serves",
            fix="Remove the key to have the ports computed",
        )


def of_the_epp_differ(setting: Setting) -> Iterator[Finding]:
    """The endpoint picker's own ports."""
    epp = setting.config.router.epp
    ports = (
        ("extProcPort", epp.ext_proc_port),
        ("grpcHealthPort", epp.grpc_health_port),
        ("metricsPort", epp.metrics_port),
    )
    for index, (name, port) in enumerate(ports):
        for other, taken in ports[:index]:
            if port == taken:
                yield error(
                    f"router.epp.{name}",
                    port,
                    f"is router.epp.{other} already",
                    fix="Give each of the three its own port",
                )


RULES: tuple[Rule, ...] = (
    rule(do_not_meet, "modelserver", "routing", "devices", "recipe"),
    rule(are_in_the_pool, "modelserver", "routing", "devices", "router", "recipe"),
    rule(of_the_epp_differ, "router"),
)
