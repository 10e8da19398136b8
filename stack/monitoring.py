"""Who scrapes what: an object per role, so that `job` differs by role, one for the EPP, one for the Gateway's proxies.

Beside them alerts (`stack.alerts`) and a dashboard (`stack.dashboard`), as objects.

The EPP's metrics need a bearer token. VictoriaMetrics' agent brings its own, and is given the right to read; for the
Prometheus Operator a token Secret of the EPP's own ServiceAccount is made (*Monitoring*).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stack import labels, names
from stack.alerts import plan_alerts
from stack.dashboard import FILE, render_dashboard
from stack.gateway import gateway_name
from stack.planned import ObjectPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stack.alerts import RoleWatch
    from stack.config.root import StackConfig
    from stack.scalars import Role
    from stack.serve import RoleServe

PROXY_METRICS: dict[str, tuple[int, str]] = {"istio": (15090, "/stats/prometheus")}
OTHER_PROXY_METRICS = (15020, "/metrics")
TOKEN_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105  # a path


def plan_monitoring(config: StackConfig, serves: Mapping[Role, RoleServe]) -> tuple[ObjectPlan, ...]:
    """The scrape objects and what they need to read; nothing while monitoring is off."""
    if not config.monitoring.enabled:
        return ()
    is_victoria = config.monitoring.provider == "victoriametrics"
    pod_kind = ("operator.victoriametrics.com/v1beta1", "VMPodScrape") if is_victoria else (_PROMETHEUS, "PodMonitor")
    planned = [
        _object(
            config,
            f"scrape-{role}",
            pod_kind,
            names.scrape(config.release, role),
            {
                "selector": {
                    "matchLabels": {labels.INSTANCE: config.release, labels.ROLE: labels.ROLE_LABEL_VALUES[role]}
                },
                "podMetricsEndpoints": [
                    {"port": f"api-{rank}", "path": "/metrics", "interval": config.monitoring.interval}
                    for rank in range(len(serve.server_ports))
                ],
            },
        )
        for role, serve in serves.items()
    ]
    planned += _epp(config, is_victoria=is_victoria)
    if config.gateway.enabled:
        port, path = PROXY_METRICS.get(config.gateway.class_name, OTHER_PROXY_METRICS)
        planned.append(
            _object(
                config,
                "scrape-gateway",
                pod_kind,
                names.scrape(config.release, "gateway"),
                {
                    "selector": {"matchLabels": {"gateway.networking.k8s.io/gateway-name": gateway_name(config)}},
                    "podMetricsEndpoints": [{"portNumber": port, "path": path, "interval": config.monitoring.interval}],
                },
            )
        )
    return tuple(planned)


_PROMETHEUS = "monitoring.coreos.com/v1"


def plan_watching(config: StackConfig, roles: Sequence[RoleWatch]) -> tuple[ObjectPlan, ...]:
    """Alert rules and dashboard; nothing while monitoring is off."""
    if not config.monitoring.enabled:
        return ()
    planned: list[ObjectPlan] = []
    if config.monitoring.rules.enabled:
        is_victoria = config.monitoring.provider == "victoriametrics"
        kind = ("operator.victoriametrics.com/v1beta1", "VMRule") if is_victoria else (_PROMETHEUS, "PrometheusRule")
        spec = {"groups": plan_alerts(config, roles)}
        planned.append(_object(config, "alert-rules", kind, names.alert_rules(config.release), spec))
    if config.monitoring.dashboard.enabled:
        planned.append(
            ObjectPlan(
                logical_name="dashboard",
                manifest={
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": labels.object_meta(
                        names.dashboard(config.release),
                        release=config.release,
                        namespace=config.namespace,
                        component="monitoring",
                        labels=dict(config.monitoring.dashboard.labels),
                    ),
                    "data": {FILE: render_dashboard(config, roles)},
                },
            )
        )
    return tuple(planned)


def _epp(config: StackConfig, *, is_victoria: bool) -> list[ObjectPlan]:
    selector = {"matchLabels": labels.common_labels(config.release, "epp")}
    endpoint: dict[str, Any] = {
        "port": "http-metrics",
        "path": "/metrics",
        "scheme": "http",
        "interval": config.monitoring.interval,
    }
    reader = names.epp_metrics_reader(config.release, config.namespace)
    rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    if is_victoria:
        scraper = config.monitoring.scraper
        assert scraper is not None  # noqa: S101  # V12 refuses VictoriaMetrics without it
        account = scraper.service_account
        kind = ("operator.victoriametrics.com/v1beta1", "VMServiceScrape")
        spec = {"selector": selector, "endpoints": [endpoint | {"bearerTokenFile": TOKEN_FILE}]}
        extra: list[ObjectPlan] = []
        subject = {"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}
    else:
        secret = config.monitoring.token_secret or names.epp_metrics_token(config.release)
        kind = (_PROMETHEUS, "ServiceMonitor")
        spec = {
            "selector": selector,
            "endpoints": [
                endpoint | {"authorization": {"type": "Bearer", "credentials": {"name": secret, "key": "token"}}}
            ],
        }
        account_name = names.epp_service_account(config.release)
        extra = [
            ObjectPlan(
                logical_name="epp-metrics-token",
                manifest={
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": labels.object_meta(
                        secret,
                        release=config.release,
                        namespace=config.namespace,
                        component="monitoring",
                        annotations={"kubernetes.io/service-account.name": account_name},
                    ),
                    "type": "kubernetes.io/service-account-token",
                },
            )
        ]
        subject = {"kind": "ServiceAccount", "name": account_name, "namespace": config.namespace}
    return [
        ObjectPlan(
            logical_name="epp-metrics-reader",
            manifest={
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": labels.object_meta(reader, release=config.release, namespace=None, component="monitoring"),
                "rules": rules,
            },
        ),
        ObjectPlan(
            logical_name="epp-metrics-reader-binding",
            manifest={
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": labels.object_meta(reader, release=config.release, namespace=None, component="monitoring"),
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": reader},
                "subjects": [subject],
            },
        ),
        *extra,
        _object(config, "scrape-epp", kind, names.epp_scrape(config.release), spec),
    ]


def _object(
    config: StackConfig, logical_name: str, kind: tuple[str, str], name: str, spec: dict[str, Any]
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
                component="monitoring",
                labels=dict(config.monitoring.labels),
            ),
            "spec": spec,
        },
    )
