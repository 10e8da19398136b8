"""Rules about capacity and scalers: slots that are known, targets that can be met, bounds that leave room.

A scaler aims at a number for each Pod. One that no Pod ever shows is never exceeded, and the role never grows; so every
target is held against the slots (`stack.capacity`).
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from stack.autoscaling import (
    AIBRIX_RATE,
    OCCUPANCY,
    TOLERANCE,
    sent_target,
    signal_of,
    target_of,
)
from stack.capacity import SLOTS_FLAG, is_slots
from stack.epp import DEFAULT_CONFIG
from stack.rules.rule import Finding, Rule, Setting, error, once, rule, warning
from stack.scalars import ROLES, Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stack.config.autoscaling import RoleScalingConfig

LONGEST_HOLD: Final = 180
"""Scaling up more often than once in so many seconds adds Pods before the ones added last can show (llm-d, autoscaling
guide; a model server starts for minutes)."""
LARGE_COUNT: Final = 10
TELL_TOKENS: Final = frozenset({("llm-d", "v0.10.0")})
"""Endpoint pickers with the metric `llm_d_epp_inflight_tokens` (llm-d-router#1697: it is not in v0.9.0)."""
_OF_SIGNALS: Final = {
    "occupancy": ("occupancy", "occupancy"),
    "tokens_per_second": ("tokensPerSecond", "inFlightTokens"),
    "backlog_seconds": ("backlogSeconds", "inFlightTokens"),
    "queue_seconds": ("queueSeconds", "queueTime"),
}


def tells_its_slots(setting: Setting) -> Iterator[Finding]:
    """Slots that nobody knows: every limit and target would be a guess."""
    for role in setting.roles:
        value = setting.in_force[role].get(SLOTS_FLAG)
        if is_slots(value):
            continue
        given = value is not None
        yield error(
            setting.place_of(role, SLOTS_FLAG),
            value if given else "absent",
            f"says not how many requests a rank of {role} Pods runs at once, and what the engine then takes depends on "
            "the hardware, while targets, limits, dashboard and alerts follow this number",
            fix="Write a whole number of 1 or more" if given else f"Write {SLOTS_FLAG}, and do not remove it",
        )


def scales_what_there_is(setting: Setting) -> Iterator[Finding]:
    """A scaler without Pods, or beside nodePlacement."""
    autoscaling = setting.config.autoscaling
    for role in autoscaling.scaled:
        key, provider = f"autoscaling.{role}.provider", autoscaling.of(role).provider
        if setting.is_placed:
            yield error(
                key,
                provider,
                "each nodePlacement entry is one Pod on its node, so there is no number to change",
                fix="Remove it, or give modelserver.replicas instead of modelserver.nodePlacement",
            )
        elif role not in setting.roles:
            yield error(
                key,
                provider,
                f"there are no {role} Pods, and a scaler does not begin at 0",
                fix=f"Remove it, or set modelserver.replicas.{role} to what the role has without a scaler",
            )


def has_bounds(setting: Setting) -> Iterator[Finding]:
    """Floor and ceiling."""
    for role, scaling in _scaled(setting):
        place, (floor, ceiling) = f"autoscaling.{role}", setting.config.bounds(role)
        configured = setting.pods[role]
        if scaling.max_replicas is None:
            yield error(
                f"{place}.maxReplicas",
                "absent",
                "a scaler does not see how deep a queue is, so the ceiling is what keeps it from asking for every "
                "device there is",
                fix=f"Write the most {role} Pods that there are devices for",
            )
        elif floor > ceiling:
            whose = "minReplicas" if scaling.min_replicas is not None else f"modelserver.replicas.{role}, its default"
            yield error(
                f"{place}.minReplicas" if scaling.min_replicas is not None else f"{place}.maxReplicas",
                floor if scaling.min_replicas is not None else ceiling,
                f"the floor ({floor}, {whose}) is above the ceiling ({ceiling}, maxReplicas)",
                fix="Raise maxReplicas, or lower minReplicas",
            )
        elif floor == ceiling:
            yield warning(
                f"{place}.maxReplicas",
                ceiling,
                "is the floor as well, so the number never changes",
                fix="Raise it, or set provider: none",
            )
        elif not floor <= configured <= ceiling:
            yield warning(
                f"modelserver.replicas.{role}",
                configured,
                f"lies outside of {floor} to {ceiling}, and is what the role has when the scaler goes",
                fix="Write what the role is to have then",
            )
        if floor == 0:
            yield error(
                f"{place}.minReplicas",
                0,
                "a role without Pods shows no signal to grow by, and its first request would wait for a whole start",
                fix="Use 1 or more",
            )


def can_reach_its_target(setting: Setting) -> Iterator[Finding]:
    """A target that no Pod ever shows, or that says nothing."""
    for role, scaling in _scaled(setting):
        if signal_of(role, scaling) != "occupancy" or (slots := slots_of(setting, role)) is None:
            continue
        key = f"autoscaling.{role}.occupancy"
        share = OCCUPANCY if scaling.occupancy is None else scaling.occupancy
        target = target_of(role, scaling, slots)
        assert target is not None  # noqa: S101  # with occupancy there is always one
        sent = sent_target(scaling, target)
        if share > 1:
            yield error(
                key,
                share,
                f"aims at {target:g} running requests, and a {role} Pod has {slots} slots: it never runs more, so the "
                "role never grows",
                fix=f"Use a share of at most 1; {OCCUPANCY} leaves room while a new Pod starts",
            )
        elif sent >= (1 - TOLERANCE) * slots:
            is_rounded = sent != target
            yield error(
                key,
                share,
                f"aims at {sent:g} of {slots} {'slot' if slots == 1 else 'slots'}"
                f"{', since AIBrix takes whole numbers,' if is_rounded else ''} and Kubernetes' scaler tolerates a "
                "tenth more than its target: full Pods ask for no further one, so the role never grows",
                fix=f"Raise {SLOTS_FLAG}, or use provider: hpa or keda"
                if is_rounded
                else f"Use a share below {1 - TOLERANCE:g}; {OCCUPANCY} leaves room while a new Pod starts",
            )
            continue
        if slots == 1:
            yield warning(
                f"autoscaling.{role}.signal",
                "occupancy",
                f"a {role} Pod has 1 slot, so it is full or idle and the signal knows nothing between",
                fix=f"Raise {SLOTS_FLAG}, or use signal: queueTime",
            )
        elif sent != target:
            yield warning(
                key,
                share,
                f"comes to {target:g} requests, and AIBrix takes whole numbers: it gets {sent:g}",
                fix="Choose a share that comes out even, if that matters",
            )
        if role == "prefill":
            yield warning(
                f"autoscaling.{role}.signal",
                "occupancy",
                "a prompt is prefilled in moments, so between two scrapes most of them are never seen running",
                fix="Use signal: inFlightTokens or queueTime",
            )


def gets_its_signal(setting: Setting) -> Iterator[Finding]:
    """Signals that a scaler, a role or the endpoint picker cannot give."""
    for role, scaling in _scaled(setting):
        key, kind = f"autoscaling.{role}.signal", signal_of(role, scaling)
        if kind == "inFlightTokens":
            yield from _counts_tokens(setting, role, scaling)
        if scaling.provider == "aibrix" and kind != "occupancy":
            yield error(
                key,
                kind,
                "AIBrix averages a metric over the Pods that show it, and has no selector for one of the whole role",
                fix="Use provider: keda or hpa, or signal: occupancy",
            )
        if kind == "queueTime":
            yield warning(
                key,
                kind,
                "is 0 as soon as new Pods have drained the queue, so the number of Pods goes up and down with it",
                fix="Give a floor that carries the usual load, and a ceiling close above it",
            )
        for name, (written, of) in _OF_SIGNALS.items():
            if name in scaling.model_fields_set and of != kind:
                yield warning(
                    f"autoscaling.{role}.{written}",
                    getattr(scaling, name),
                    f"has no effect with signal {kind}",
                    fix=f"Remove it, or set signal: {of}",
                )


def _counts_tokens(setting: Setting, role: Role, scaling: RoleScalingConfig) -> Iterator[Finding]:
    epp, key, kind = setting.config.router.epp, f"autoscaling.{role}.signal", "inFlightTokens"
    if role != "prefill":
        yield error(
            key,
            kind,
            f"counts prompt tokens that wait for prefill, which {role} Pods are not measured by",
            fix="Use signal: occupancy",
        )
        return
    if (epp.distribution, epp.version) not in TELL_TOKENS:
        yield error(
            key,
            kind,
            f"the endpoint picker {epp.distribution} {epp.version} has no metric of tokens in flight",
            fix="Use llm-d v0.10.0, or signal: queueTime",
        )
    elif scaling.tokens_per_second is None:
        yield error(
            f"autoscaling.{role}.tokensPerSecond",
            "absent",
            "tokens in flight say how long they wait only with the speed of a Pod",
            fix="Measure it (prompt tokens a second of one Pod that is never idle), or use signal: queueTime",
        )
    if epp.plugins_config_file != DEFAULT_CONFIG or DEFAULT_CONFIG in epp.plugins_custom_config:
        yield warning(
            key,
            kind,
            "is counted by the endpoint picker's plugin inflight-load-producer, and its configuration is yours",
            fix="Keep that plugin under its own name in the file",
        )


def _tells_keda(setting: Setting) -> Iterator[Finding]:
    """Where KEDA asks, and how it proves itself there."""
    autoscaling = setting.config.autoscaling
    with_keda = [role for role, scaling in _scaled(setting) if scaling.provider == "keda"]
    if with_keda and autoscaling.prometheus is None:
        yield error(
            "autoscaling.prometheus",
            "absent",
            f"KEDA scales {' and '.join(with_keda)} and is not told where to ask",
            fix="Write serverAddress, such as http://prometheus.monitoring.svc:9090",
        )
    if autoscaling.prometheus is not None and not with_keda:
        yield warning("autoscaling.prometheus", "given", "has no effect, since KEDA scales no role", fix="Remove it")
    elif (asked := autoscaling.prometheus) is not None and asked.auth_modes and asked.trigger_authentication is None:
        yield warning(
            "autoscaling.prometheus.authModes",
            asked.auth_modes,
            "says how to prove oneself, and no TriggerAuthentication says with what",
            fix="Write triggerAuthentication, or remove it",
        )


def says_how_to_ask(setting: Setting) -> Iterator[Finding]:
    """What belongs to one scaler only."""
    autoscaling = setting.config.autoscaling
    yield from _tells_keda(setting)
    for role in ROLES:
        scaling = autoscaling.of(role)
        place = f"autoscaling.{role}"
        if scaling.provider == "none":
            if given := sorted(scaling.model_fields_set - {"provider"}):
                yield warning(
                    f"{place}.provider",
                    "none",
                    f"nothing scales {role}, so what else stands here ({len(given)} keys) has no effect",
                    fix="Choose a provider, or remove the rest",
                )
            continue
        if scaling.provider == "keda" and scaling.metric_name is not None:
            yield warning(
                f"{place}.metricName",
                scaling.metric_name,
                "has no effect with KEDA, which asks itself",
                fix="Remove it",
            )
        if scaling.provider == "aibrix":
            if scaling.behavior is not None:
                yield error(
                    f"{place}.behavior",
                    "given",
                    "AIBrix has no such fields; what it makes of its own allows "
                    f"{AIBRIX_RATE} times as many or as few Pods in a minute",
                    fix="Remove it, or use provider: hpa or keda",
                )
            if (most := setting.most_pods[role]) > LARGE_COUNT:
                yield warning(
                    f"{place}.maxReplicas",
                    most,
                    f"from {LARGE_COUNT + 1} Pods on AIBrix takes more than one at a time, since it counts in percent",
                    fix="Use provider: hpa or keda for one Pod at a time",
                )


def scales_slowly(setting: Setting) -> Iterator[Finding]:
    """Behaviour made for servers that start in seconds."""
    for role, scaling in _scaled(setting):
        if scaling.behavior is None:
            continue
        place, up, down = f"autoscaling.{role}.behavior", scaling.behavior.scale_up, scaling.behavior.scale_down
        if up.pods * LONGEST_HOLD > up.period_seconds:
            yield warning(
                f"{place}.scaleUp",
                f"{up.pods} in {up.period_seconds} s",
                "adds Pods faster than those added before can show in the signal",
                fix="One Pod in 180 s is the default",
            )
        if down.stabilization_window_seconds < 300:  # noqa: PLR2004
            yield warning(
                f"{place}.scaleDown.stabilizationWindowSeconds",
                down.stabilization_window_seconds,
                "takes Pods away on a short dip, and each comes back only after a whole start",
                fix="Use 300 or more",
            )


def keeps_the_ratio(setting: Setting) -> Iterator[Finding]:
    """Bounds of prefill to decode against floors and ceilings, and whether whole Pods can keep to them."""
    autoscaling = setting.config.autoscaling
    ratio = autoscaling.ratio
    if ratio is None:
        return
    key, value = "autoscaling.ratio", f"{ratio.min:g} to {ratio.max:g}"
    if not {"prefill", "decode"} <= set(setting.roles) or setting.is_placed:
        yield error(key, value, "there are not both prefill and decode Pods to scale", fix="Remove it")
        return
    if ratio.min > ratio.max:
        yield error(key, value, "the lower bound is above the upper one", fix="Exchange them")
        return
    held = [role for role, scaling in _scaled(setting) if scaling.provider == "keda"]
    fewest, most = setting.fewest_pods, setting.most_pods
    for which, prefill, decode in (
        ("floors", fewest["prefill"], fewest["decode"]),
        ("ceilings", most["prefill"], most["decode"]),
    ):
        if decode and not ratio.min <= prefill / decode <= ratio.max:
            yield error(
                key,
                value,
                f"the {which} are {prefill} prefill and {decode} decode Pods, which is {prefill / decode:.3g}",
                fix=f"Choose {which} within the bounds, or other bounds",
            )
    if "prefill" in held and "decode" in held:
        if (creeping := _creeps(setting)) is not None:
            decode, prefill = creeping
            yield error(
                key,
                value,
                f"{decode} decode Pods call for {prefill} of prefill, and these for more than {decode} of decode: each "
                "would lift the other up to the ceilings",
                fix="Set the bounds further apart",
            )
    elif not _is_kept_anyhow(setting):
        missing = [role for role in ("prefill", "decode") if role not in held and role in autoscaling.scaled]
        who = " and ".join(missing) if missing else "a role without a scaler"
        yield warning(
            key,
            value,
            f"holds at the floors and at the ceilings only: nothing holds it between for {who}",
            fix="Use provider: keda for both roles, or floors and ceilings that keep it whatever happens",
        )


def _creeps(setting: Setting) -> tuple[int, int] | None:
    """A number of decode Pods that lifts itself through the prefill Pods it calls for."""
    ratio = setting.config.autoscaling.ratio
    assert ratio is not None  # noqa: S101  # the caller has looked
    most_prefill, most_decode = setting.most_pods["prefill"], setting.most_pods["decode"]
    for decode in range(max(1, setting.fewest_pods["decode"]), min(most_decode, 10_000)):
        prefill = min(_up(decode * ratio.min), most_prefill)
        if min(_up(prefill / ratio.max), most_decode) > decode:
            return decode, prefill
    return None


def _up(number: float) -> int:
    """Rounded up, but not for what is only an error of the machine's arithmetic."""
    return ceil(round(number, 9))


def _is_kept_anyhow(setting: Setting) -> bool:
    ratio = setting.config.autoscaling.ratio
    assert ratio is not None  # noqa: S101  # the caller has looked
    fewest, most = setting.fewest_pods, setting.most_pods
    if not fewest["decode"]:
        return False
    return ratio.min <= fewest["prefill"] / most["decode"] and most["prefill"] / fewest["decode"] <= ratio.max


def slots_of(setting: Setting, role: Role) -> int | None:
    """Slots of one Pod; None where other rules speak about what they are made of."""
    value: object = setting.in_force[role].get(SLOTS_FLAG)
    ranks = setting.parallelism.get(role)
    return value * ranks.data if is_slots(value) and ranks is not None else None


def _scaled(setting: Setting) -> Iterator[tuple[Role, RoleScalingConfig]]:
    """Roles that a scaler can have, with how they are scaled."""
    autoscaling = setting.config.autoscaling
    for role in autoscaling.scaled:
        if role in setting.roles and not setting.is_placed:
            yield role, autoscaling.of(role)


RULES: tuple[Rule, ...] = (
    rule(once(tells_its_slots), "modelserver", "recipe"),
    rule(scales_what_there_is, "modelserver", "autoscaling"),
    rule(has_bounds, "modelserver", "autoscaling"),
    rule(can_reach_its_target, "modelserver", "recipe", "autoscaling"),
    rule(gets_its_signal, "modelserver", "router", "autoscaling"),
    rule(says_how_to_ask, "modelserver", "autoscaling"),
    rule(scales_slowly, "modelserver", "autoscaling"),
    rule(keeps_the_ratio, "modelserver", "autoscaling"),
)
