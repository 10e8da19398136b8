"""The releases whose source was read: image, flags, and what their configuration understands.

Sources: `llm-d/llm-d-router` at tags v0.9.0 and v0.10.0 (`pkg/epp/server/options.go`, `cmd/epp/runner/runner.go`,
`pkg/epp/config/loader`, `pkg/sidecar/proxy/options.go`, `config/charts/routerlib`, release workflow), and
`kubernetes-sigs/gateway-api-inference-extension` at v1.5.0 (the same paths of the EPP, `config/charts/epplib`).
A new release is a new entry here after it was read, never a guess.
"""

from dataclasses import dataclass
from typing import Final, Literal

from stack.epp.refusal import Refusal

EppDistribution = Literal["llm-d", "gaie"]

_LOGGING_FLAGS: Final = frozenset(
    {"v", "zap-devel", "zap-encoder", "zap-log-level", "zap-stacktrace-level", "zap-time-encoding"}
)
_EPP_FLAGS: Final = _LOGGING_FLAGS | {
    "cert-path",
    "config-file",
    "config-text",
    "disable-endpoint-subset-filter",
    "enable-cert-reload",
    "enable-pprof",
    "endpoint-selector",
    "endpoint-target-ports",
    "grpc-health-port",
    "grpc-port",
    "ha-enable-leader-election",
    "health-checking",
    "metrics-endpoint-auth",
    "metrics-port",
    "metrics-staleness-threshold",
    "pool-group",
    "pool-name",
    "pool-namespace",
    "refresh-metrics-interval",
    "refresh-prometheus-metrics-interval",
    "secure-serving",
    "tracing",
}
# Deprecated in all that have them; the metric flags (`--total-queued-requests-metric` and its kin) are still defined
# but refused when set, so they are left out of every list.
_OLD_METRICS_FLAGS: Final = frozenset(
    {
        "model-server-metrics-https-insecure-skip-verify",
        "model-server-metrics-path",
        "model-server-metrics-port",
        "model-server-metrics-scheme",
    }
)
_LLM_D_FLAGS: Final = _EPP_FLAGS | {"enable-grpc-stream-metrics", "grpc-max-recv-msg-size", "grpc-max-send-msg-size"}

# Plugin types that v0.10.0 loads only with --allow-experimental-plugins (registered with StabilityAlpha there).
_ALPHA_PLUGINS: Final = frozenset(
    {
        "agent-identity",
        "burst-prefix-cache-producer",
        "dcgm-data-source",
        "dcgm-extractor",
        "disaggregatedset-rollout-screener",
        "endpoint-attribute-filter",
        "endpoint-attribute-scorer",
        "header-label-affinity-scorer",
        "header-profile-handler",
        "multicluster-approx-prefix-cache-producer",
        "multicluster-file-discovery",
        "multicluster-kv-cache-utilization-scorer",
        "multicluster-metrics-data-source",
        "multicluster-metrics-extractor",
        "multicluster-prefix-cache-scorer",
        "multicluster-queue-scorer",
        "multicluster-session-affinity-filter",
        "p2p-source-producer",
        "priority-holdback-policy",
        "priority-then-time-eviction-order-policy",
        "session-affinity-filter",
        "session-affinity-scorer",
        "sheddable-eviction-filter",
        "soft-reflective-ceiling-policy",
        "topology-affinity-filter",
        "topology-affinity-scorer",
        "topology-extractor",
        "utilization-filter",
    }
)


@dataclass(frozen=True, kw_only=True)
class EppRelease:
    """One EPP release.

    `api_versions` are those its loader decodes, the preferred one first. `alpha_plugins` need the flag
    --allow-experimental-plugins. `service_name` is the name it goes by in traces.
    """

    distribution: EppDistribution
    version: str
    image_repository: str
    flags: frozenset[str]
    api_versions: tuple[str, ...]
    can_disaggregate: bool
    parsers_key: Literal["requestHandler", "parser"]
    has_active_request_scorer: bool
    service_name: str
    alpha_plugins: frozenset[str] = frozenset()

    @property
    def title(self) -> str:
        """How an operator knows it: distribution and version."""
        return f"{self.distribution} EPP {self.version}"


@dataclass(frozen=True, kw_only=True)
class ProxyRelease:
    """One release of the routing proxy (llm-d's disaggregation sidecar)."""

    version: str
    image_repository: str
    flags: frozenset[str]
    model_server_port_flag: str
    kv_connectors: tuple[str, ...]


_LLM_D_GROUPS: Final = ("llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1")

_EPP_RELEASES: Final = (
    EppRelease(
        distribution="llm-d",
        version="v0.10.0",
        image_repository="ghcr.io/llm-d/llm-d-router-endpoint-picker",
        flags=_LLM_D_FLAGS
        | {
            "allow-experimental-plugins",
            "drain-timeout",
            "emit-endpoint-scores",
            "metrics-cert-dir",
            "metrics-client-ca-file",
            "tls-cipher-suites",
            "tls-min-version",
        },
        api_versions=_LLM_D_GROUPS,
        can_disaggregate=True,
        parsers_key="requestHandler",
        has_active_request_scorer=True,
        service_name="llm-d-router/epp",
        alpha_plugins=_ALPHA_PLUGINS,
    ),
    EppRelease(
        distribution="llm-d",
        version="v0.9.0",
        image_repository="ghcr.io/llm-d/llm-d-router-endpoint-picker",
        flags=_LLM_D_FLAGS | _OLD_METRICS_FLAGS,
        api_versions=_LLM_D_GROUPS,
        can_disaggregate=True,
        parsers_key="requestHandler",
        has_active_request_scorer=True,
        service_name="llm-d-router/epp",
    ),
    EppRelease(
        distribution="gaie",
        version="v1.5.0",
        image_repository="registry.k8s.io/gateway-api-inference-extension/epp",
        flags=_EPP_FLAGS | _OLD_METRICS_FLAGS,
        api_versions=("inference.networking.x-k8s.io/v1alpha1",),
        can_disaggregate=False,
        parsers_key="parser",
        has_active_request_scorer=False,
        service_name="gateway-api-inference-extension/epp",
    ),
)

_MORIIO_FLAGS: Final = frozenset(
    f"moriio-{name}"
    for name in (
        "decode-handshake-port",
        "decode-hosts",
        "decode-notify-port",
        "dp-size",
        "dp-size-local",
        "local-pod-ip",
        "parallel-dispatch",
        "prefill-handshake-port",
        "prefill-notify-port",
        "remote-hosts",
        "tp-size",
        "write-mode",
    )
)
_PROXY_FLAGS: Final = (
    (_LOGGING_FLAGS - {"v"})  # only the zap flags: the sidecar has no --v
    | _MORIIO_FLAGS
    | {
        "cert-path",
        "configuration",
        "configuration-file",
        "data-parallel-size",
        "decode-chunk-size",
        "ec-connector",
        "enable-prefiller-sampling",
        "enable-ssrf-protection",
        "enable-tls",
        "inference-pool",
        "kv-connector",
        "max-idle-conns-per-host",
        "mooncake-bootstrap-port",
        "pool-group",
        "port",
        "prefill-max-retries",
        "prefill-retry-backoff",
        "secure-proxy",
        "tls-insecure-skip-verify",
        "tracing",
        "vllm-port",
    }
)

_PROXY_RELEASES: Final = (
    ProxyRelease(
        version="v0.10.0",
        image_repository="ghcr.io/llm-d/llm-d-router-disagg-sidecar",
        flags=_PROXY_FLAGS
        | {
            "enable-p2p-pull",
            "metrics-port",
            "model-server-port",
            "moriio-parallel-decode-wait-timeout",
            "p2p-connector-port",
        },
        model_server_port_flag="model-server-port",
        kv_connectors=("mooncake", "nixlv2", "offloading", "sglang", "shared-storage"),
    ),
    ProxyRelease(
        version="v0.9.0",
        image_repository="ghcr.io/llm-d/llm-d-router-disagg-sidecar",
        flags=_PROXY_FLAGS
        | {
            "connector",
            "decoder-tls-insecure-skip-verify",
            "decoder-use-tls",
            "prefiller-tls-insecure-skip-verify",
            "prefiller-use-tls",
        },
        model_server_port_flag="vllm-port",
        kv_connectors=("mooncake", "nixlv2", "sglang", "shared-storage"),
    ),
)


def known_epp_versions(distribution: EppDistribution) -> tuple[str, ...]:
    """Versions of a distribution that can be rendered, newest first."""
    return tuple(release.version for release in _EPP_RELEASES if release.distribution == distribution)


def known_proxy_versions() -> tuple[str, ...]:
    """Versions of the routing proxy that can be rendered, newest first."""
    return tuple(release.version for release in _PROXY_RELEASES)


def find_epp(distribution: EppDistribution, version: str) -> EppRelease | Refusal:
    """The release of that name, or why there is none."""
    for release in _EPP_RELEASES:
        if (release.distribution, release.version) == (distribution, version):
            return release
    return Refusal(
        field="version",
        value=version,
        why=f"no {distribution} EPP of that version is known here, and flags and configuration differ between versions",
        fix=f"Use {' or '.join(known_epp_versions(distribution))}",
    )


def find_proxy(version: str) -> ProxyRelease | Refusal:
    """The release of the routing proxy of that name, or why there is none."""
    for release in _PROXY_RELEASES:
        if release.version == version:
            return release
    return Refusal(
        field="version",
        value=version,
        why="no routing proxy of that version is known here, and it stops at a flag that it does not know",
        fix=f"Use {' or '.join(known_proxy_versions())}",
    )
