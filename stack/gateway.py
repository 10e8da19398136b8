"""The way in: Gateway, HTTPRoute, and what the Gateway's class needs besides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stack import labels, names
from stack.planned import ObjectPlan

if TYPE_CHECKING:
    from stack.config.root import StackConfig

GATEWAY_API = "gateway.networking.k8s.io"
POOL_GROUP = "inference.networking.k8s.io"


def gateway_name(config: StackConfig) -> str:
    """The Gateway's name: the operator's, else the release's."""
    return names.gateway(config.release, config.gateway.name)


def endpoint(config: StackConfig) -> str | None:
    """In-cluster base URL of the API; None without a Gateway.

    Istio names the Service of a Gateway it runs `<gateway>-<class>` (Istio, "Kubernetes Gateway API", automated
    deployment); the other classes known here name it like the Gateway.
    """
    gateway = config.gateway
    if not gateway.enabled:
        return None
    name = gateway_name(config)
    service = f"{name}-{gateway.class_name}" if gateway.class_name == "istio" else name
    return f"http://{service}.{config.namespace}.svc.cluster.local:{gateway.port}/v1"


def plan_gateway(config: StackConfig) -> tuple[ObjectPlan, ...]:
    """Gateway, HTTPRoute to the pool, and for class `istio` the DestinationRule that lets it reach the EPP over TLS."""
    gateway = config.gateway
    if not gateway.enabled:
        return ()
    planned = [
        _object(
            config,
            "gateway",
            (f"{GATEWAY_API}/v1", "Gateway"),
            gateway_name(config),
            {
                "gatewayClassName": gateway.class_name,
                "listeners": [
                    {
                        "name": "http",
                        "port": gateway.port,
                        "protocol": "HTTP",
                        "allowedRoutes": {"namespaces": {"from": "Same"}},
                    }
                ],
            },
            annotations=dict(gateway.annotations),
        )
    ]
    if (backend := _backend(config)) is not None:
        planned.append(
            _object(
                config,
                "route",
                (f"{GATEWAY_API}/v1", "HTTPRoute"),
                names.http_route(config.release),
                _route(config, backend),
            )
        )
    if gateway.class_name == "istio":
        host = f"{names.epp_service(config.release, config.epp_service_name)}.{config.namespace}.svc.cluster.local"
        planned.append(
            _object(
                config,
                "epp-destination-rule",
                ("networking.istio.io/v1", "DestinationRule"),
                names.destination_rule(config.release),
                # The EPP serves a certificate it made itself at start.
                {"host": host, "trafficPolicy": {"tls": {"mode": "SIMPLE", "insecureSkipVerify": True}}},
            )
        )
    return tuple(planned)


def _backend(config: StackConfig) -> dict[str, Any] | None:
    """What the route leads to: the pool, else what the operator names, else nothing."""
    if config.router.inference_pool.create:
        return {"group": POOL_GROUP, "kind": "InferencePool", "name": names.inference_pool(config.release)}
    given = config.gateway.backend
    return None if given is None else {"group": "", "kind": "Service", "name": given.name, "port": given.port}


def _route(config: StackConfig, backend: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "parentRefs": [{"group": GATEWAY_API, "kind": "Gateway", "name": gateway_name(config)}],
        "rules": [
            {
                "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                "backendRefs": [backend],
                "timeouts": {"request": config.gateway.request_timeout},
            }
        ],
    }
    if config.gateway.hostnames:
        spec["hostnames"] = list(config.gateway.hostnames)
    return spec


def _object(
    config: StackConfig,
    logical_name: str,
    kind: tuple[str, str],
    name: str,
    spec: dict[str, Any],
    *,
    annotations: dict[str, str] | None = None,
) -> ObjectPlan:
    api_version, kind_name = kind
    return ObjectPlan(
        logical_name=logical_name,
        manifest={
            "apiVersion": api_version,
            "kind": kind_name,
            "metadata": labels.object_meta(
                name,
                release=config.release,
                namespace=config.namespace,
                component="gateway",
                annotations=annotations,
            ),
            "spec": spec,
        },
    )
