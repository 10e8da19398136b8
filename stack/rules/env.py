"""Rules about environment variables: what the stack sets itself, and what contradicts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stack.rules.rule import Finding, Rule, Setting, error, rule, warning
from stack.scalars import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stack.config.env import Environment

_COMPUTED: Final[Mapping[str, str]] = {
    "VLLM_NIXL_SIDE_CHANNEL_HOST": "devices.rdma.sideChannel.host",
    "VLLM_NIXL_SIDE_CHANNEL_PORT": "devices.rdma.sideChannel.basePort",
}
_TRACING: Final[Mapping[str, str]] = {
    "OTEL_SERVICE_NAME": "the stack itself",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "tracing.collector.endpoint",
    "OTEL_TRACES_EXPORTER": "the stack itself",
    "OTEL_TRACES_SAMPLER": "tracing.sampler",
    "OTEL_TRACES_SAMPLER_ARG": "tracing.samplerArg",
}
_TRACING_OF_THE_ENGINES: Final = _TRACING | {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "tracing.collector.protocol"}
_TRACING_OF_THE_EPP: Final = _TRACING | {
    "OTEL_RESOURCE_ATTRIBUTES": "the stack itself",
    "OTEL_RESOURCE_ATTRIBUTES_NODE_NAME": "the stack itself",
    "OTEL_RESOURCE_ATTRIBUTES_POD_NAME": "the stack itself",
}
_OF_THE_EPP: Final[Mapping[str, str]] = {"NAMESPACE": "the stack itself", "POD_NAME": "the stack itself"}


def _environments(setting: Setting) -> list[tuple[str, Environment]]:
    modelserver = setting.config.modelserver
    extra = modelserver.extra_serve_env
    return [
        ("modelserver.serveEnv", modelserver.serve_env),
        *((f"modelserver.extraServeEnv.{role}", extra.of(role)) for role in ROLES),
    ]


def are_not_computed(setting: Setting) -> Iterator[Finding]:
    """Variables of the engines that the stack sets."""
    computed = _COMPUTED | (_TRACING_OF_THE_ENGINES if setting.config.tracing.enabled else {})
    for place, environment in _environments(setting):
        for name in sorted(environment.keys() & computed.keys()):
            yield _taken(f"{place}.{name}", computed[name])


def of_the_epp_are_not_computed(setting: Setting) -> Iterator[Finding]:
    """Variables of the endpoint picker that the stack sets."""
    computed = _OF_THE_EPP | (_TRACING_OF_THE_EPP if setting.config.tracing.enabled else {})
    for name in sorted(setting.config.router.epp.env.keys() & computed.keys()):
        yield _taken(f"router.epp.env.{name}", computed[name])


def _taken(key: str, where: str) -> Finding:
    fix = "Remove it" if where == "the stack itself" else f"Remove it, and set {where}"
    return error(key, "given", f"is set by {where}", fix=fix)


def give_the_token_once(setting: Setting) -> Iterator[Finding]:
    """HF_TOKEN beside the key that is made for it."""
    config = setting.config
    places = [
        (place, environment, "modelserver.hfTokenSecret", config.modelserver.hf_token_secret)
        for place, environment in _environments(setting)
    ]
    places.append(
        ("router.epp.env", config.router.epp.env, "router.epp.hfTokenSecret", config.router.epp.hf_token_secret)
    )
    for place, environment, key, secret in places:
        if "HF_TOKEN" in environment and secret is not None:
            yield error(
                f"{place}.HF_TOKEN",
                "given",
                f"is set from {key} already (Secret {secret.name})",
                fix=f"Write the Secret under {key}, or set {key}: null to use this one",
            )


def keeps_the_cache_in_its_volume(setting: Setting) -> Iterator[Finding]:
    """A cache root outside the compile cache, so that every start compiles again."""
    mount = setting.config.storage.compile_cache.mount_path
    for place, environment in _environments(setting):
        root = environment.get("VLLM_CACHE_ROOT")
        if isinstance(root, str) and root != mount and not root.startswith(f"{mount}/"):
            yield warning(
                f"{place}.VLLM_CACHE_ROOT",
                root,
                f"lies outside the compile cache at {mount}, so every start compiles again",
                fix=f"Remove it, or write a path below {mount}",
            )


RULES: tuple[Rule, ...] = (
    rule(are_not_computed, "modelserver", "tracing"),
    rule(of_the_epp_are_not_computed, "router", "tracing"),
    rule(give_the_token_once, "modelserver", "router"),
    rule(keeps_the_cache_in_its_volume, "modelserver", "storage"),
)
