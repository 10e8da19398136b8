"""Kubernetes names, a function for each, all made from the release.

What others address has a plain name; what Pods read and what cannot be changed carries a hash of its content, so that a
change makes a new object and going back finds the old one. Nothing is cut here: the release is short enough for every
name (`stack.scalars.RELEASE_LENGTH`), and `stack.rules` looks at what an operator adds to it.

The chart's names are kept where its documents state them: `<release>-epp`, `<release>-compile-cache-<role>`,
`<release>-model-cache`, pool and route `<release>`, roles `<release>-epp-sa` and `<release>-epp-non-sa`, cluster role
`<release>-<namespace>-epp`. The names of role Deployments are this program's decision: `<release>-<role>`, and
`<release>-<role>-<index>` for nodePlacement entries.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

DEFAULT_CLAIM_TEMPLATE: Final = "npu-rdma"
"""The claim template that an operator of the chart makes (*Scaling and Upgrades*, "What remains")."""

POD_SUFFIX: Final = 17
"""What a Deployment adds to its name for a Pod: `-<10 characters of the ReplicaSet>-<5 of the Pod>`."""


def content_hash(content: object) -> str:
    """Eight hexadecimal digits that stand for JSON-shaped content; the order of keys does not matter."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


# --- model servers ----------------------------------------------------------------------------------------------------


def workload(release: str, role: str, entry: int | None = None) -> str:
    """Deployment of a role, or of the nodePlacement entry with that index."""
    return f"{release}-{role}" if entry is None else f"{release}-{role}-{entry}"


def scaler(release: str, role: str) -> str:
    """What scales a role, of whatever kind: as its Deployment is called, so that the two stand together."""
    return workload(release, role)


def disruption_budget(release: str, role: str) -> str:
    """PodDisruptionBudget of a role."""
    return workload(release, role)


def serve_config_map(release: str, role: str, data: object) -> str:
    """ConfigMap with a role's serve arguments, named by its data."""
    return f"{release}-serve-{role}-{content_hash(data)}"


def modelserver_service_account(release: str) -> str:
    """ServiceAccount of the model servers."""
    return f"{release}-modelserver"


def claim_template(release: str, spec: object) -> str:
    """ResourceClaimTemplate that the stack makes, named by its spec."""
    return f"{release}-devices-{content_hash(spec)}"


def topology_anchor(release: str) -> str:
    """ConfigMap that owns the role workloads."""
    return f"{release}-topology"


def topology_policy(release: str, namespace: str) -> str:
    """ValidatingAdmissionPolicy and binding that protect the anchor; there is one set of them for the whole cluster.

    With dots, which neither part can hold: `a-b` in `c` and `a` in `b-c` must not fight for one object.
    """
    return f"{release}.{namespace}.topology"


# --- volumes ----------------------------------------------------------------------------------------------------------


def compile_cache(release: str, role: str) -> str:
    """PersistentVolumeClaim with a role's compile cache."""
    return f"{release}-compile-cache-{role}"


def model_cache(release: str) -> str:
    """PersistentVolumeClaim with the weights, when the stack makes it."""
    return f"{release}-model-cache"


# --- router -----------------------------------------------------------------------------------------------------------


def epp(release: str) -> str:
    """Deployment of the endpoint picker."""
    return f"{release}-epp"


def epp_service(release: str, given: str | None = None) -> str:
    """Service of the endpoint picker; `given` is the operator's `eppServiceName`."""
    return given or f"{release}-epp"


def epp_service_account(release: str) -> str:
    """ServiceAccount of the endpoint picker."""
    return f"{release}-epp"


def epp_config_map(release: str, data: object) -> str:
    """ConfigMap with the plugin configurations, named by its data so that a change rolls the endpoint picker."""
    return f"{release}-epp-{content_hash(data)}"


def epp_pods_role(release: str) -> str:
    """Role and RoleBinding that let the endpoint picker see Pods."""
    return f"{release}-epp-sa"


def epp_objects_role(release: str) -> str:
    """Role and RoleBinding that let the endpoint picker see pools, objectives and rewrites."""
    return f"{release}-epp-non-sa"


def epp_cluster_role(release: str, namespace: str) -> str:
    """ClusterRole and binding that let the endpoint picker check tokens of its scrapers."""
    return f"{release}-{namespace}-epp"


def inference_pool(release: str) -> str:
    """InferencePool."""
    return release


# --- gateway ----------------------------------------------------------------------------------------------------------


def gateway(release: str, given: str | None = None) -> str:
    """Gateway; `given` is the operator's `gateway.name`."""
    return given or release


def http_route(release: str) -> str:
    """HTTPRoute from the Gateway to the pool."""
    return release


def destination_rule(release: str) -> str:
    """DestinationRule that lets an Istio gateway reach the endpoint picker's self-made certificate."""
    return f"{release}-epp"


# --- monitoring -------------------------------------------------------------------------------------------------------


def scrape(release: str, part: str) -> str:
    """Scrape object of a role or of the gateway."""
    return f"{release}-{part}"


def epp_scrape(release: str) -> str:
    """Scrape object of the endpoint picker."""
    return f"{release}-epp-monitor"


def alert_rules(release: str) -> str:
    """PrometheusRule or VMRule."""
    return release


def dashboard(release: str) -> str:
    """ConfigMap with the Grafana dashboard."""
    return f"{release}-dashboard"


def epp_metrics_reader(release: str, namespace: str) -> str:
    """ClusterRole and binding that let a scraper read the endpoint picker's metrics."""
    return f"{release}-{namespace}-epp-metrics-reader"


def epp_metrics_token(release: str) -> str:
    """Secret with the token for the endpoint picker's metrics, when the operator names none."""
    return f"{release}-epp-metrics-reader"
