"""Block `monitoring`: scrape objects for the model servers, the EPP and the gateway, alerts, and a dashboard."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from stack.scalars import DnsLabel, DnsSubdomain, LabelKey, LabelValue, NonEmpty, ScrapeInterval, Strict

QueueSeconds = Annotated[float, Field(gt=0, le=86_400)]
Percent = Annotated[int, Field(ge=1, le=99)]


class ScraperAccount(Strict):
    """ServiceAccount of the scraper, which is given the right to read the EPP's metrics."""

    name: DnsSubdomain = Field(description="Name of the ServiceAccount, such as VMAgent's.")
    namespace: DnsLabel = Field(description="Its namespace.")


class ScraperConfig(Strict):
    """Who scrapes."""

    service_account: ScraperAccount = Field(description="ServiceAccount that may read the EPP's metrics.")


class RulesConfig(Strict):
    """Alerts. Their thresholds follow slots, ceilings and drains; what the stack cannot know is here."""

    enabled: bool = Field(
        default=True,
        description="Whether a PrometheusRule or VMRule is made with the scrape objects. Several alerts read series of "
        "kube-state-metrics and of the kubelets.",
    )
    queue_seconds: QueueSeconds | None = Field(
        default=None,
        description="Seconds in the engine's queue that 19 of 20 requests must stay below. Default: `queueSeconds` of "
        "the role's scaler, else 1.",
    )
    volume_free_percent: Percent = Field(
        default=10, description="Free space of a volume, in percent, below which it counts as nearly full."
    )
    runbook_url: NonEmpty | None = Field(
        default=None,
        description="Address under which docs/alerts.md is read, for the annotation `runbook_url`. Default: none, and "
        "the annotation `runbook` names the document.",
    )


class DashboardConfig(Strict):
    """A Grafana dashboard in a ConfigMap."""

    enabled: bool = Field(default=True, description="Whether it is made with the scrape objects.")
    labels: Mapping[LabelKey, LabelValue] = Field(
        default_factory=lambda: {"grafana_dashboard": "1"},
        description='Labels by which Grafana\'s sidecar finds it. Default: grafana_dashboard: "1".',
    )


class MonitoringConfig(Strict):
    """Scrape objects, alerts and a dashboard; they touch no model server Pod."""

    enabled: bool = Field(default=False, description="Whether scrape objects are made. The operator's CRDs must exist.")
    provider: Literal["victoriametrics", "prometheus-operator"] = Field(
        default="victoriametrics", description="Which operator reads them."
    )
    interval: ScrapeInterval = Field(default="10s", description="Time from one scrape to the next.")
    labels: Mapping[LabelKey, LabelValue] = Field(
        default_factory=dict[str, str], description="Labels of the scrape objects, as the operator selects them."
    )
    scraper: ScraperConfig | None = Field(
        default=None, description="Who scrapes; required with VictoriaMetrics, which brings a token of its own."
    )
    token_secret: DnsSubdomain | None = Field(
        default=None,
        description="Name of the token Secret made for Prometheus Operator. Default: `<release>-epp-metrics-reader`.",
    )
    rules: RulesConfig = Field(default_factory=RulesConfig, description="Alerts.")
    dashboard: DashboardConfig = Field(default_factory=DashboardConfig, description="Grafana dashboard.")
