"""Block `routing`: the routing proxy, a native sidecar of decode Pods that fetches the prefill half of a request.

Flags and defaults: llm-d-router, `pkg/sidecar/proxy/options.go`. Decision: without an image the proxy has the version
of the endpoint picker, since the two are released together.
"""

from typing import Literal

from pydantic import Field

from stack.config.image import ImageConfig
from stack.config.resources import ResourcesConfig
from stack.scalars import ExtraFlag, Port, Strict


class ProxyConfig(Strict):
    """The routing proxy; a change restarts decode Pods only."""

    image: ImageConfig = Field(default_factory=ImageConfig, description="Image. Default: llm-d's, fitting the EPP.")
    port: Port = Field(default=8000, description="First port the proxy listens on; data-parallel rank n uses port + n.")
    model_server_port: Port = Field(
        default=8200, description="First port of the engine behind the proxy; rank n uses it + n."
    )
    kv_connector: Literal["nixlv2", "shared-storage", "sglang", "mooncake", "offloading"] = Field(
        default="nixlv2", description="How KV blocks get from prefill to decode; must fit the engine's connector."
    )
    secure: bool = Field(default=False, description="Whether the proxy serves TLS with a certificate of its own.")
    resources: ResourcesConfig = Field(
        default_factory=ResourcesConfig, description="Requests and limits of the proxy container."
    )
    extra_args: tuple[ExtraFlag, ...] = Field(default=(), description="More arguments, each `--flag=value`.")


class RoutingConfig(Strict):
    """How requests reach the engines inside a Pod."""

    proxy: ProxyConfig = Field(default_factory=ProxyConfig, description="The routing proxy of decode Pods.")
