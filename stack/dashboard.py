"""The Grafana dashboard: what a role can run and what it runs, how long requests wait, and how Pods come and go.

Slots are Ready Pods times the plan's slots for each, the number that targets and alerts follow as well; floors,
ceilings, drains and queue limits are drawn as lines beside what is measured. The data source is chosen in Grafana, so
the same dashboard reads Prometheus and VictoriaMetrics. Series are those of `stack.alerts`.

Source: Grafana, *Dashboard JSON model*; the sidecar of Grafana's chart loads ConfigMaps by label.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from stack.alerts import QUEUE_QUANTILE, WINDOW, resets_of
from stack.names import content_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stack.alerts import RoleWatch
    from stack.config.root import StackConfig

FILE: Final = "serving-stack.json"
SCHEMA: Final = 39
"""Version of the JSON model that Grafana 11 writes; later ones read it."""
WIDTH: Final = 24
HEIGHT: Final = 8
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

Target = tuple[str, str]
"""Legend and PromQL."""


def render_dashboard(config: StackConfig, roles: Sequence[RoleWatch]) -> str:
    """The dashboard as JSON text."""
    panels: list[dict[str, Any]] = []
    height = 0
    for watch in roles:
        height = _row(panels, f"{watch.role}: {watch.capacity.slots} slots a Pod", list(_of_role(watch)), height)
    _row(panels, "stack", list(_of_stack(config, roles)), height)
    for number, panel in enumerate(panels, start=1):
        panel["id"] = number
    dashboard = {
        "uid": f"serving-stack-{content_hash([config.namespace, config.release])}",
        "title": f"{config.namespace}/{config.release}",
        "tags": ["serving-stack"],
        "schemaVersion": SCHEMA,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}]
        },
        "panels": panels,
    }
    return json.dumps(dashboard, indent=1, sort_keys=True) + "\n"


def _row(panels: list[dict[str, Any]], title: str, found: list[dict[str, Any]], height: int) -> int:
    """Put panels of a row below what is there, three beside each other; the height reached."""
    panels.append({"type": "row", "title": title, "collapsed": False, "gridPos": _at(0, height, WIDTH, 1)})
    width, top = WIDTH // 3, height + 1
    for place, panel in enumerate(found):
        line, column = divmod(place, 3)
        panels.append(panel | {"gridPos": _at(column * width, top + line * HEIGHT, width, HEIGHT)})
    return top + -(-len(found) // 3) * HEIGHT


def _at(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(title: str, text: str, unit: str, *targets: Target) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": title,
        "description": text,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "legendFormat": legend, "expr": expr, "datasource": SOURCE}
            for place, (legend, expr) in enumerate(targets)
        ],
    }


def _of_role(watch: RoleWatch) -> Iterator[dict[str, Any]]:
    capacity, drain, scaler = watch.capacity, watch.drain, watch.scaler
    yield _panel(
        "Slots",
        f"Requests that run, and how many can: Ready Pods x {capacity.slots}.",
        "short",
        ("run", watch.running),
        ("slots", watch.slots),
        ("wait", watch.waiting),
    )
    yield _panel(
        "Time in the queue",
        "From the arrival at an engine until the request runs.",
        "s",
        ("median", watch.quantile(0.5, "vllm:request_queue_time_seconds")),
        (f"{QUEUE_QUANTILE:.0%}", watch.quantile(QUEUE_QUANTILE, "vllm:request_queue_time_seconds")),
        ("limit of the alert", f"vector({watch.queue_seconds:g})"),
    )
    bounds: list[Target] = []
    if scaler is not None:
        bounds = [("floor", f"vector({scaler.floor})"), ("ceiling", f"vector({scaler.ceiling})")]
    yield _panel(
        "Pods",
        "Wanted, Ready, and on their way out.",
        "short",
        ("wanted", watch.wanted),
        ("Ready", watch.ready),
        ("leave", f"count(kube_pod_deletion_timestamp{{{watch.pods}}})"),
        *bounds,
    )
    longest = [] if drain.mode == "off" else [(f"N = {drain.timeout} s", f"vector({drain.timeout})")]
    yield _panel(
        "Duration of requests",
        "From arrival to the last token. What is longer than N may be cut when its Pod leaves.",
        "s",
        ("median", watch.quantile(0.5, "vllm:e2e_request_latency_seconds")),
        ("99%", watch.quantile(0.99, "vllm:e2e_request_latency_seconds")),
        *longest,
    )
    yield _panel(
        "First token, and between tokens",
        "95% of requests are as fast or faster.",
        "s",
        ("first token", watch.quantile(0.95, "vllm:time_to_first_token_seconds")),
        ("between tokens", watch.quantile(0.95, "vllm:inter_token_latency_seconds")),
    )
    yield _panel(
        "KV cache",
        "Share of the blocks in use, by Pod. At 1 requests are preempted.",
        "percentunit",
        ("{{pod}}", f"max by (pod) (vllm:kv_cache_usage_perc{{{watch.pods}}})"),
    )
    if scaler is not None:
        bound = scaler.target if scaler.signal == "queueTime" else scaler.target * scaler.ceiling
        yield _panel(
            f"What the scaler looks at: {scaler.unit}",
            "At the line the role is at its ceiling, and more of it adds no Pod.",
            "short",
            ("signal", scaler.query),
            ("at the ceiling", f"vector({bound:g})"),
        )
    yield _panel(
        "Time left of Pods that leave",
        f"Until SIGKILL, of a grace period of {drain.grace} s; below 0 a Pod outstays it.",
        "s",
        ("{{pod}}", f"max by (pod) (kube_pod_deletion_timestamp{{{watch.pods}}}) - time()"),
    )


def _of_stack(config: StackConfig, roles: Sequence[RoleWatch]) -> Iterator[dict[str, Any]]:
    counter = resets_of(config)
    if counter is not None:
        yield _panel(
            "Responses that broke off",
            "As the gateway counts them.",
            "short",
            ("broke off", f"sum(increase({counter}[{WINDOW}]))"),
        )
    claims = sorted({claim for watch in roles for claim in watch.claims})
    if claims:
        matchers = f'namespace="{config.namespace}",persistentvolumeclaim=~"{"|".join(claims)}"'
        used = f"kubelet_volume_stats_used_bytes{{{matchers}}} / kubelet_volume_stats_capacity_bytes{{{matchers}}}"
        yield _panel(
            "Volumes",
            "Share in use.",
            "percentunit",
            ("{{persistentvolumeclaim}}", f"max by (persistentvolumeclaim) ({used})"),
        )
