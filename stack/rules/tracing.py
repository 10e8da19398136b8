"""Rules about traces: what endpoint picker and routing proxy, in every known release, can do less than the engines.

Sources: `llm-d/llm-d-router` v0.9.0 and v0.10.0 and `kubernetes-sigs/gateway-api-inference-extension` v1.5.0,
`pkg/common/observability/tracing/telemetry.go` (an exporter over gRPC only; one sampler, and any other falls back to it
with 0.1); vLLM `tracing`, get_span_exporter (the endpoint is used as it is). All of it is warned about and not refused:
requests are served all the same, and traces of the engines arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from stack.rules.rule import Finding, Rule, Setting, rule, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

_SAMPLER: Final = "parentbased_traceidratio"


def arrive_from_everybody(setting: Setting) -> Iterator[Finding]:
    """OTLP over HTTP, which the engines speak and nobody else."""
    tracing = setting.config.tracing
    if not tracing.enabled or tracing.collector.protocol == "grpc":
        return
    yield warning(
        "tracing.collector.protocol",
        tracing.collector.protocol,
        f"{_others(setting)} over gRPC only, so no trace of theirs arrives at an endpoint for HTTP",
        fix="Use grpc and the collector's port for it, usually 4317",
    )
    if urlsplit(tracing.collector.endpoint).path in {"", "/"}:
        yield warning(
            "tracing.collector.endpoint",
            tracing.collector.endpoint,
            "is used by the engines as it is, and collectors take traces over HTTP at a path of its own",
            fix="Add the path, usually /v1/traces",
        )


def are_sampled_alike(setting: Setting) -> Iterator[Finding]:
    """Samplers that only the engines have."""
    tracing = setting.config.tracing
    if tracing.enabled and tracing.sampler != _SAMPLER:
        yield warning(
            "tracing.sampler",
            tracing.sampler,
            f"{_others(setting)} by {_SAMPLER} only, with 0.1 when another is set",
            fix=f'Use {_SAMPLER}, with samplerArg "1" for always and "0" for never',
        )


def _others(setting: Setting) -> str:
    return "endpoint picker and routing proxy trace" if setting.is_disaggregated else "the endpoint picker traces"


RULES: tuple[Rule, ...] = (
    rule(arrive_from_everybody, "tracing", "modelserver"),
    rule(are_sampled_alike, "tracing", "modelserver"),
)
