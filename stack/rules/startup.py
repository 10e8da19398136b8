"""Rules about probes and the time a start may take.

The start-up budget (initial delay + period x failures of the startup probe) is how long Kubernetes waits;
VLLM_ENGINE_READY_TIMEOUT_S is how long the engine's front end waits for its core (vLLM `vllm/envs.py`, default 600).
The shorter one decides, so the engine's must not be shorter (*Startup and readiness probes*).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from stack.rules.rule import Finding, Rule, Setting, error, rule, warning
from stack.startup import PROBES, probe_numbers, startup_budget_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT: Final = "VLLM_ENGINE_READY_TIMEOUT_S"
DEFAULT_TIMEOUT: Final = 600


def outlasts_the_engine(setting: Setting) -> Iterator[Finding]:
    """Start-up budget against the engine's own patience."""
    modelserver = setting.config.modelserver
    budget = startup_budget_seconds(setting.config, setting.recipe)
    spoken: set[str] = set()
    for role in setting.roles:
        extra = modelserver.extra_serve_env.of(role)
        if TIMEOUT in extra:
            key, value = f"modelserver.extraServeEnv.{role}.{TIMEOUT}", extra[TIMEOUT]
        else:
            key = f"modelserver.serveEnv.{TIMEOUT}"
            value = modelserver.serve_env.get(TIMEOUT, setting.recipe.env_for(role).get(TIMEOUT, DEFAULT_TIMEOUT))
        if key in spoken or not isinstance(value, str | int):
            continue
        spoken.add(key)
        seconds = int(value) if re.fullmatch(r"[0-9]{1,9}", str(value)) else None
        if seconds is None or seconds == 0:
            yield error(key, value, "is no number of seconds", fix=f"Write {budget} or more")
        elif seconds < budget:
            is_chosen = (
                TIMEOUT in extra or TIMEOUT in modelserver.serve_env or "startup" in modelserver.probes.model_fields_set
            )
            yield (error if is_chosen else warning)(
                key,
                value,
                f"is less than the start-up budget of {budget} s: {role} engines give up before their probe does",
                fix=f"Write {budget} or more, or lower modelserver.probes.startup",
            )


def ask_in_time(setting: Setting) -> Iterator[Finding]:
    """Probes whose tries overlap."""
    for probe in PROBES:
        numbers: dict[str, Any] = probe_numbers(setting.config, setting.recipe, probe)
        timeout, period = numbers["timeoutSeconds"], numbers["periodSeconds"]
        if timeout > period:
            yield warning(
                f"modelserver.probes.{probe}.timeoutSeconds",
                timeout,
                f"is longer than a period ({period} s), so a hanging server is noticed late",
                fix=f"Write {period} or less",
            )


RULES: tuple[Rule, ...] = (
    rule(outlasts_the_engine, "modelserver", "recipe"),
    rule(ask_in_time, "modelserver", "recipe"),
)
