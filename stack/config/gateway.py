"""Block `gateway`: Gateway and HTTPRoute in front of the pool; a DestinationRule only for class `istio`.

Decisions where the chart's documents are silent: the Gateway is called as the release and lies in its namespace. With
`enabled: false` neither Gateway nor route are made, and one's own HTTPRoute points at the InferencePool. Without a pool
the operator names the Service that the route leads to.
"""

from collections.abc import Mapping

from pydantic import Field

from stack.scalars import DnsLabel, DnsSubdomain, GatewayDuration, Hostname, LabelKey, Port, ServiceName, Strict


class BackendConfig(Strict):
    """A Service of the operator's, in the namespace of the stack."""

    name: ServiceName = Field(description="Name of the Service.")
    port: Port = Field(description="Port of the Service.")


class GatewayConfig(Strict):
    """The way in from outside."""

    enabled: bool = Field(default=True, description="Whether Gateway and HTTPRoute are made.")
    class_name: DnsSubdomain = Field(default="istio", description="GatewayClass; its controller must be installed.")
    name: DnsLabel | None = Field(default=None, description="Name of the Gateway. Default: the release.")
    port: Port = Field(default=80, description="Port of the listener (HTTP).")
    annotations: Mapping[LabelKey, str] = Field(
        default_factory=dict[str, str], description="Annotations of the Gateway, such as a load balancer's settings."
    )
    request_timeout: GatewayDuration = Field(
        default="300s", description="Longest time a request may take, streams included. 0s: no limit."
    )
    hostnames: tuple[Hostname, ...] = Field(
        default=(), description="Host names the route answers to. Empty: every name."
    )
    backend: BackendConfig | None = Field(
        default=None,
        description="Where the route leads with `router.inferencePool.create: false`, such as a proxy of your own that "
        "asks the endpoint picker. Without it no route is made then.",
    )
