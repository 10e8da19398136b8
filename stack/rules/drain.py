"""Rules about leaving: what is derived from the block `drain` and cannot be set, and limits that would cut a stream.

The arithmetic itself cannot come out wrong, since nobody writes it; what can be written beside it is held against it
here, with the numbers (`stack.drain`, `stack.limits`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic.alias_generators import to_camel

from stack.drain import FLAG, LOG_STATS_OFF, against_native, engine_version, kv_lease_seconds, parse_version
from stack.limits import (
    AUTOSCALERS_GRACE_SECONDS,
    KEEP_ALIVE,
    PROXY_IDLE_SECONDS,
    TimeLimit,
    epp_drain,
    keep_alive,
    request_timeout,
)
from stack.rules.rule import Finding, Rule, Setting, error, once, rule, warning
from stack.scalars import ROLES
from stack.serve import merge_env, split_argument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stack.drain import RoleDrain
    from stack.rules.rule import Block
    from stack.scalars import Role

LEAST_DELAY: Final = 5
"""Seconds within which endpoints reach every gateway of a healthy cluster."""


def is_derived(setting: Setting) -> Iterator[Finding]:
    """`--shutdown-timeout` by hand: equal to what is derived, or refused with the sum."""
    modelserver = setting.config.modelserver
    drains = {role: serve.drain for role, serve in setting.serves.items()}
    for key, roles, value in _by_hand(setting):
        differing = [drains[role] for role in roles if role in drains and not _agrees(value, drains[role])]
        if differing:
            yield _conflict(key, value, differing[0])
    for index, flag in enumerate(modelserver.remove_serve_args):
        if flag == FLAG:
            yield error(
                f"modelserver.removeServeArgs[{index}]",
                flag,
                f"--{FLAG} follows from the block drain, together with hook and grace period",
                fix="Write drain.mode: idle to wait outside of the engine, or off to have streams cut",
            )


def _by_hand(setting: Setting) -> Iterator[tuple[str, tuple[Role, ...], object]]:
    modelserver = setting.config.modelserver
    if FLAG in modelserver.serve_args.common:
        yield f"modelserver.serveArgs.common.{FLAG}", ROLES, modelserver.serve_args.common[FLAG]
    for role in ROLES:
        if FLAG in modelserver.serve_args.of(role):
            yield f"modelserver.serveArgs.{role}.{FLAG}", (role,), modelserver.serve_args.of(role)[FLAG]
        for index, argument in enumerate(modelserver.extra_serve_args.of(role)):
            flag, _ = split_argument(argument)
            if flag == FLAG:
                yield f"modelserver.extraServeArgs.{role}[{index}]", (role,), argument


def _agrees(value: object, drain: RoleDrain) -> bool:
    if isinstance(value, str) and value.startswith("-"):
        value = split_argument(value)[1]
    return drain.flag is not None and not isinstance(value, bool) and str(value) == str(drain.flag)


def _conflict(key: str, value: object, drain: RoleDrain) -> Finding:
    if drain.flag is None:
        return error(
            key,
            value,
            f"{drain.role} Pods leave in mode {drain.mode}, without --{FLAG}: {drain.why}",
            fix=f"Remove it; drain.shutdownTimeoutSeconds.{drain.role} says how long they wait",
        )
    return error(
        key,
        value,
        f"differs from drain.shutdownTimeoutSeconds.{drain.role} ({drain.flag}), from which hook and grace period of "
        f"{drain.role} Pods follow: {drain.arithmetic}",
        fix=f"Remove it, and write the time under drain.shutdownTimeoutSeconds.{drain.role}",
    )


def can_be_native(setting: Setting) -> Iterator[Finding]:
    """`native` by hand where the engine cannot."""
    config, recipe = setting.config, setting.recipe
    if config.drain.mode != "native":
        return
    is_known = parse_version(engine_version(config, recipe)) is not None
    for role in setting.serves:
        args, env = setting.in_force[role], merge_env(config, recipe, role)
        against = against_native(config, recipe, role, args, env)
        if against is None:
            continue
        yield (error if is_known else warning)(
            "drain.mode",
            "native",
            against,
            fix="Remove it, or write idle"
            if is_known
            else "Make sure that it is new enough, and write it as drain.engineVersion, or write idle",
        )
        return


def tells_its_requests(setting: Setting) -> Iterator[Finding]:
    """`--disable-log-stats` where a hook or a scaler lives by what an engine tells of its requests."""
    modelserver = setting.config.modelserver
    for role, serve in setting.serves.items():
        if serve.drain.watches:
            why = f"a {role} Pod that leaves would count as busy until its time is up"
        elif role in setting.config.autoscaling.scaled:
            why = f"the scaler of {role} would see none"
        else:
            continue
        if not setting.in_force[role].get(LOG_STATS_OFF):
            continue
        appended = [
            (f"modelserver.extraServeArgs.{role}[{index}]", argument)
            for index, argument in enumerate(modelserver.extra_serve_args.of(role))
            if split_argument(argument)[0] == LOG_STATS_OFF
        ]
        key, value = appended[-1] if appended else (setting.place_of(role, LOG_STATS_OFF), True)
        yield error(key, value, f"engines then tell nothing of their requests, and {why}", fix="Remove it")


def says_what_is_lost(setting: Setting) -> Iterator[Finding]:
    """No drain at all, and a router that may not follow in time."""
    drain = setting.config.drain
    if drain.mode == "off":
        yield warning(
            "drain.mode",
            "off",
            "every running stream is cut whenever a Pod leaves: at each roll-out, scale-down and node drain",
            fix="Remove it unless nobody minds",
        )
    elif drain.router_delay_seconds < LEAST_DELAY:
        yield warning(
            "drain.routerDelaySeconds",
            drain.router_delay_seconds,
            "routers may still send requests when the engine stops taking them, and those fail",
            fix=f"Write {LEAST_DELAY} or more; 20 is the default",
        )


def has_an_effect(setting: Setting) -> Iterator[Finding]:
    """Keys that nothing follows from: of roles that are not there, of pulls that nobody makes, of no drain."""
    drain = setting.config.drain
    is_off = drain.mode == "off"
    off = "drain.mode is off, so there is no drain that it could be for"
    for name, seconds in (
        ("shutdownTimeoutSeconds", drain.shutdown_timeout_seconds),
        ("longestRequestSeconds", drain.longest_request_seconds),
    ):
        for role in ROLES:
            given = seconds.of(role)
            if given is None:
                continue
            if role not in setting.roles:
                yield _idle_key(f"{name}.{role}", given, f"there are no {role} Pods")
            elif is_off and seconds is drain.shutdown_timeout_seconds:
                yield _idle_key(f"{name}.{role}", given, off)
    if is_off:
        for name, value in (
            ("router_delay_seconds", drain.router_delay_seconds),
            ("margin_seconds", drain.margin_seconds),
            ("kv_pull_seconds", drain.kv_pull_seconds),
            ("engine_version", drain.engine_version),
        ):
            if name in drain.model_fields_set and value is not None:
                yield _idle_key(to_camel(name), value, off)
    elif drain.kv_pull_seconds is not None and not _is_pulled_from(setting):
        yield _idle_key("kvPullSeconds", drain.kv_pull_seconds, "there are no Pods from which blocks are pulled")


def _is_pulled_from(setting: Setting) -> bool:
    """Whether blocks are pulled from prefill Pods, or it is not known since other rules speak of their ranks."""
    serve = setting.serves.get("prefill")
    return "prefill" in setting.roles if serve is None else serve.drain.is_pulled_from


def _idle_key(name: str, value: object, why: str) -> Finding:
    return warning(f"drain.{name}", value, f"has no effect: {why}", fix="Remove it")


def lets_nodes_go(setting: Setting) -> Iterator[Finding]:
    """A grace period beyond what the Cluster Autoscaler grants a node's Pods by default."""
    for role, serve in setting.serves.items():
        drain = serve.drain
        if drain.grace > AUTOSCALERS_GRACE_SECONDS:
            yield warning(
                f"drain.shutdownTimeoutSeconds.{role}",
                drain.timeout,
                f"where the Cluster Autoscaler takes a node away, it gives Pods {AUTOSCALERS_GRACE_SECONDS} s by "
                f"default, and {role} Pods may need more: {drain.arithmetic}",
                fix=f"Run it with --max-graceful-termination-sec={drain.grace} or more, or lower "
                f"drain.shutdownTimeoutSeconds.{role}; with no Cluster Autoscaler this is nothing to you",
            )


def pulls_in_time(setting: Setting) -> Iterator[Finding]:
    """Time for pulls against the lease on the blocks."""
    config, given = setting.config, setting.config.drain.kv_pull_seconds
    if given and setting.is_disaggregated and "prefill" in setting.serves:
        args, env = setting.in_force["prefill"], merge_env(config, setting.recipe, "prefill")
        lease = kv_lease_seconds(config, setting.recipe, args, env)
        if lease is not None and given > lease:
            yield error(
                "drain.kvPullSeconds",
                given,
                f"prefill engines let go of the blocks of a prompt {lease} s after it (their lease), so the rest of "
                f"the wait of {given} s is for nothing",
                fix=f"Write {lease} or less, or a longer kv_lease_duration into kv-transfer-config of both roles",
            )


def outlasts_requests(setting: Setting) -> Iterator[Finding]:
    """Limits on the way that end streams before the drain would, or before the longest request seen has ended."""
    config = setting.config
    limits = [limit for limit in (request_timeout(config), epp_drain(config, setting.serves)) if limit is not None]
    for limit in limits:
        if limit.seconds is None:
            continue
        for role in ("decode", "aggregated"):  # clients stream from these
            if role in setting.serves and (finding := _is_too_short(limit, limit.seconds, setting, role)):
                yield finding
                break


def _is_too_short(limit: TimeLimit, seconds: float, setting: Setting, role: Role) -> Finding | None:
    drain = setting.serves[role].drain
    longest = setting.config.drain.longest_request_seconds.of(role) or 0
    say = error if limit.is_written else warning
    if seconds < drain.timeout:
        return say(
            limit.key,
            f"{seconds:g} s",
            f"ends streams ({limit.name}) that {role} Pods would still wait for, {drain.timeout} s "
            f"(drain.shutdownTimeoutSeconds.{role}): {drain.arithmetic}",
            fix=f"Allow {max(drain.timeout, longest)} s or more, or lower drain.shutdownTimeoutSeconds.{role}",
        )
    if seconds < longest:
        return say(
            limit.key,
            f"{seconds:g} s",
            f"ends streams ({limit.name}) before the longest request seen at {role} Pods, {longest} s "
            f"(drain.longestRequestSeconds.{role})",
            fix=f"Allow {longest} s or more",
        )
    return None


def keeps_connections(setting: Setting) -> Iterator[Finding]:
    """An engine that closes connections which the routing proxy still counts on: its own, or one that prefills."""
    if not setting.is_disaggregated or "decode" not in setting.roles:
        return
    for role in setting.roles:
        limit = keep_alive(setting.config, setting.recipe, role)
        if limit.seconds is not None and limit.seconds <= PROXY_IDLE_SECONDS:
            yield warning(
                limit.key,
                f"{limit.seconds:g}",
                f"{role} engines close connections that the routing proxy keeps for {PROXY_IDLE_SECONDS} s, and a "
                "request that meets a closed one fails",
                fix=f"Write {KEEP_ALIVE}: 120",
            )


SERVING: tuple[Block, ...] = ("drain", "modelserver", "routing", "devices", "storage", "tracing", "recipe")
"""What decides how a role serves, and so how it leaves (`Setting.serves`)."""

RULES: tuple[Rule, ...] = (
    rule(is_derived, *SERVING),
    rule(can_be_native, *SERVING),
    rule(once(tells_its_requests), *SERVING, "autoscaling"),
    rule(says_what_is_lost, "drain"),
    rule(has_an_effect, *SERVING),
    rule(lets_nodes_go, *SERVING),
    rule(pulls_in_time, *SERVING),
    rule(outlasts_requests, *SERVING, "gateway", "router"),
    rule(keeps_connections, "modelserver", "recipe"),
)
