"""Block `monitoring`: scrape objects for the model servers, the EPP and the gateway."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from stack.scalars import DnsLabel, DnsSubdomain, LabelKey, LabelValue, ScrapeInterval, Strict


class ScraperAccount(Strict):
    """ServiceAccount of the scraper, which is given the right to read the EPP's metrics."""

    name: DnsSubdomain = Field(description="Name of the ServiceAccount, such as VMAgent's.")
    namespace: DnsLabel = Field(description="Its namespace.")


class ScraperConfig(Strict):
    """Who scrapes."""

    service_account: ScraperAccount = Field(description="ServiceAccount that may read the EPP's metrics.")


class MonitoringConfig(Strict):
    """Scrape objects; they touch no model server Pod."""

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
