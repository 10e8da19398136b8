"""Rules about endpoint picker, pool, gateway, and who watches them.

Whether the chosen release of EPP and proxy can do what is decided is known to `stack.epp`; its refusals are passed on
here under the keys that they follow from. More than one EPP is legal: one leads, the others stand by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import yaml

from stack import names
from stack.config.shape import written
from stack.epp import Refusal, epp_refusals, proxy_refusals
from stack.errors import MISSING, Problem, show
from stack.modelserver import decide_proxy
from stack.router import decide_epp
from stack.rules.rule import Finding, Rule, Setting, error, rule, warning
from stack.scalars import LABEL_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_MAX_HOSTNAMES: Final = 16
_EPP_KEYS: Final[Mapping[str, str]] = {
    "distribution": "router.epp.distribution",
    "version": "router.epp.version",
    "is_disaggregated": "router.epp.distribution",
    "has_pool": "router.inferencePool.create",
    "config_file": "router.epp.pluginsConfigFile",
    "extra_args": "router.epp.extraArgs",
    "pool_name": "release",
    "namespace": "namespace",
    "match_labels": "router.modelServers.matchLabels",
    "target_ports": "router.modelServers.targetPorts",
    "replicas": "router.epp.replicas",
    "ext_proc_port": "router.epp.extProcPort",
    "grpc_health_port": "router.epp.grpcHealthPort",
    "metrics_port": "router.epp.metricsPort",
    "tracing": "tracing.enabled",
    "drain_seconds": "router.epp.drainSeconds",
}
_PROXY_KEYS: Final[Mapping[str, str]] = {
    "kv_connector": "routing.proxy.kvConnector",
    "extra_args": "routing.proxy.extraArgs",
}


def selects_pods(setting: Setting) -> Iterator[Finding]:
    """No labels to select by (V13)."""
    if not setting.config.router.model_servers.match_labels:
        yield error(
            "router.modelServers.matchLabels",
            {},
            "the pool selects its Pods by these",
            fix="Remove the key to use the chart's label, or write a label",
        )


def asks_for_room(setting: Setting) -> Iterator[Finding]:
    """No resources of the EPP, or no requests (V14)."""
    resources = setting.config.router.epp.resources
    if not resources.requests:
        is_empty = not resources.limits
        yield error(
            "router.epp.resources" if is_empty else "router.epp.resources.requests",
            {},
            "every request passes through the endpoint picker, and without requests it is the first to starve",
            fix="Remove router.epp.resources to use the chart's, or write requests of cpu and memory",
        )


def can_be_rendered(setting: Setting) -> Iterator[Finding]:
    """What the chosen release of the EPP cannot do."""
    config = setting.config
    serves = setting.serves
    epp = config.router.epp
    in_force = epp.plugins_custom_config.get(epp.plugins_config_file)
    if in_force is not None and _no_document(in_force) is not None:
        return
    for refusal in epp_refusals(decide_epp(config, setting.recipe, serves, is_disaggregated=setting.is_disaggregated)):
        key = _EPP_KEYS.get(refusal.field, "router.epp")
        if refusal.field == "custom_config":
            key = written(("router", "epp", "pluginsCustomConfig", epp.plugins_config_file))
        if refusal.field == "extra_args" and refusal.value in epp.extra_args:
            key = f"{key}[{epp.extra_args.index(refusal.value)}]"
        yield _passed_on(key, refusal)
    if setting.is_disaggregated and "decode" in serves:
        for refusal in proxy_refusals(decide_proxy(config, serves["decode"])):
            if refusal.field in _PROXY_KEYS:  # a meeting of ports is told by the rules about ports
                key, arguments = _PROXY_KEYS[refusal.field], config.routing.proxy.extra_args
                if refusal.field == "extra_args" and refusal.value in arguments:
                    key = f"{key}[{arguments.index(refusal.value)}]"
                yield _passed_on(key, refusal)


def _passed_on(key: str, refusal: Refusal) -> Finding:
    fix = refusal.fix if refusal.follows_from is None else f"Take it out and set {_EPP_KEYS[refusal.follows_from]}"
    problem = Problem(key=key, value=show(refusal.value), why=refusal.why, fix=fix)
    return Finding(problem=problem, is_error=True)


def configures_in_yaml(setting: Setting) -> Iterator[Finding]:
    """Plugin configurations that no EPP could read; the one in force is looked at more closely elsewhere."""
    for name, text in setting.config.router.epp.plugins_custom_config.items():
        why = _no_document(text)
        if why is not None:
            yield error(
                written(("router", "epp", "pluginsCustomConfig", name)),
                "text",
                why,
                fix="Write a document of kind EndpointPickerConfig, as a block after |",
            )


def _no_document(text: str) -> str | None:
    """Why the text is no YAML map; None if it is one."""
    try:
        document: object = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: a date of no calendar
        return "is no YAML document"
    return None if isinstance(document, dict) else "is no map"


def picks_from_one_view(setting: Setting) -> Iterator[Finding]:
    """Several EPPs, of which one works."""
    replicas = setting.config.router.epp.replicas
    if replicas > 1:
        yield warning(
            "router.epp.replicas",
            replicas,
            "one EPP leads and the others stand by, so this adds availability and no throughput",
            fix="Leave it if a standby is what you want; each needs the full requests",
        )


def makes_a_way_in(setting: Setting) -> Iterator[Finding]:
    """A Gateway without a pool to send to."""
    config = setting.config
    has_pool = config.router.inference_pool.create
    if config.gateway.enabled and not has_pool and config.gateway.backend is None:
        yield warning(
            "router.inferencePool.create",
            value=False,
            why="without a pool the route has nothing to lead to: none is made, and the Gateway answers nothing",
            fix="Name a Service in gateway.backend, set gateway.enabled: false, or write a route of your own",
        )
    if config.gateway.enabled and has_pool and config.gateway.backend is not None:
        yield warning(
            "gateway.backend",
            config.gateway.backend.name,
            "has no effect with a pool, to which the route leads",
            fix="Remove it, or set router.inferencePool.create: false",
        )
    if not config.gateway.enabled and config.gateway.model_fields_set - {"enabled"}:
        given = sorted(config.gateway.model_fields_set - {"enabled"})
        yield warning(
            "gateway.enabled",
            value=False,
            why=f"the other keys of gateway have no effect ({len(given)} given)",
            fix="Remove them, or set gateway.enabled: true",
        )


def is_spoken_to_as_it_listens(setting: Setting) -> Iterator[Finding]:
    """TLS at the routing proxy, while the pool tells gateways to speak HTTP and the EPP asks for metrics over HTTP."""
    config = setting.config
    if not config.routing.proxy.secure or not setting.is_disaggregated or "decode" not in setting.roles:
        return
    if config.gateway.enabled and config.router.inference_pool.create:
        yield error(
            "routing.proxy.secure",
            value=True,
            why="has decode Pods serve TLS, and pool, route and endpoint picker speak HTTP to them, so nothing answers",
            fix="Remove it and end TLS at the gateway, or set gateway.enabled: false and bring one that speaks TLS",
        )
    else:
        yield warning(
            "routing.proxy.secure",
            value=True,
            why="has decode Pods serve TLS with a certificate of their own, and the endpoint picker reads HTTP metrics",
            fix="Have your gateway speak TLS to them, and router.epp.pluginsCustomConfig read their metrics over https",
        )


def fits_the_gateways_names(setting: Setting) -> Iterator[Finding]:
    """Names that a gateway's controller makes: `<gateway>-<class>` (Gateway API, GEP-1762)."""
    gateway = setting.config.gateway
    if not gateway.enabled:
        return
    name = names.gateway(setting.config.release, gateway.name)
    length = len(name) + 1 + len(gateway.class_name)
    if length > LABEL_LENGTH:
        yield error(
            "gateway.name",
            name,
            f"with the class {gateway.class_name} its Service has {length} characters, {LABEL_LENGTH} are allowed",
            fix=f"Write a name of at most {max(1, LABEL_LENGTH - 1 - len(gateway.class_name))} characters",
        )
    if len(gateway.hostnames) > _MAX_HOSTNAMES:
        yield error(
            "gateway.hostnames",
            f"{len(gateway.hostnames)} names",
            f"an HTTPRoute has at most {_MAX_HOSTNAMES}",
            fix="Use a wildcard such as *.example.com",
        )


def is_scraped_by_somebody(setting: Setting) -> Iterator[Finding]:
    """VictoriaMetrics without the scraper's account (V12), and keys of the other provider."""
    monitoring = setting.config.monitoring
    if not monitoring.enabled:
        return
    if monitoring.provider == "victoriametrics" and monitoring.scraper is None:
        yield Finding(
            problem=Problem(
                key="monitoring.scraper.serviceAccount",
                value=MISSING,
                why="VictoriaMetrics' agent reads the EPP's metrics with its own token, and must be given the right",
                fix="Write name and namespace of VMAgent's ServiceAccount",
            ),
            is_error=True,
        )
    if monitoring.provider == "victoriametrics" and monitoring.token_secret is not None:
        yield warning(
            "monitoring.tokenSecret",
            monitoring.token_secret,
            "has an effect with provider prometheus-operator only",
            fix="Remove it",
        )
    if monitoring.provider == "prometheus-operator" and monitoring.scraper is not None:
        yield warning(
            "monitoring.scraper",
            "given",
            "has an effect with provider victoriametrics only",
            fix="Remove it",
        )


RULES: tuple[Rule, ...] = (
    rule(selects_pods, "router"),
    rule(asks_for_room, "router"),
    rule(can_be_rendered, "router", "routing", "modelserver", "devices", "storage", "tracing", "monitoring", "recipe"),
    rule(configures_in_yaml, "router"),
    rule(picks_from_one_view, "router"),
    rule(makes_a_way_in, "router", "gateway"),
    rule(is_spoken_to_as_it_listens, "routing", "gateway", "router", "modelserver"),
    rule(fits_the_gateways_names, "release", "gateway"),
    rule(is_scraped_by_somebody, "monitoring"),
)
