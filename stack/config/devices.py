"""Block `devices`: accelerators and RDMA NICs of each model server Pod, by DRA claim or by device plugin.

Decisions where the chart's documents are silent: the modes are called `dra` and `devicePlugin`; a claim template can
also be described here (`claimTemplate`), then the stack makes it, with a hash of its content in its name.
"""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from stack.errors import reject
from stack.names import DEFAULT_CLAIM_TEMPLATE
from stack.scalars import (
    AttributeName,
    DnsLabel,
    DnsSubdomain,
    ExtendedResourceName,
    NonEmpty,
    Port,
    Positive,
    Role,
    Strict,
)

MAX_REQUESTS = 32
"""Limits of one claim (Kubernetes API reference, resource.k8s.io/v1); constraints are limited like requests."""
MAX_SELECTORS = 32
MAX_DEVICES = 32
MAX_EXPRESSION = 10 * 1024

Mode = Literal["dra", "devicePlugin"]


class NpuConfig(Strict):
    """The accelerator of a Pod: NPUs, or GPUs with a recipe for those."""

    mode: Mode = Field(default="dra", description="`dra`: by claim template. `devicePlugin`: as extended resource.")
    count: Positive = Field(
        default=4, description="Devices per Pod. Only in devicePlugin mode; with DRA the claim decides."
    )
    resource_name: ExtendedResourceName | None = Field(
        default=None,
        description="Extended resource in devicePlugin mode, such as rebellions.ai/npu. Default: the recipe's.",
    )


class BasePortConfig(Strict):
    """First side-channel port of each role; data-parallel rank n uses base + n."""

    prefill: Port = Field(default=5600, description="First side-channel port of prefill Pods.")
    decode: Port = Field(default=5600, description="First side-channel port of decode Pods.")
    aggregated: Port = Field(default=5600, description="First side-channel port of aggregated Pods.")

    def of(self, role: Role) -> int:
        """The base port of one role."""
        return {"prefill": self.prefill, "decode": self.decode, "aggregated": self.aggregated}[role]


class SideChannelConfig(Strict):
    """Where the engines agree on KV transfers (NIXL)."""

    host: NonEmpty | None = Field(
        default=None,
        description="Address peers reach this Pod at. Default: the Pod's own address, right for every replica.",
    )
    base_port: BasePortConfig = Field(default_factory=BasePortConfig, description="First port of each role.")


class RdmaConfig(Strict):
    """RDMA NICs for KV transfers between prefill and decode."""

    enabled: bool = Field(
        default=True, description="Whether KV blocks travel over RDMA. Nodes must then allow unlimited memlock."
    )
    mode: Mode = Field(
        default="dra", description="`dra`: in the claim of the NPUs. `devicePlugin`: as extended resource."
    )
    count: Positive = Field(
        default=2, description="NICs per Pod. Only in devicePlugin mode; with DRA the claim decides."
    )
    resource_name: ExtendedResourceName | None = Field(
        default=None, description="Extended resource of the NICs; required in devicePlugin mode."
    )
    discovery_timeout_seconds: Positive = Field(
        default=300, description="How long a starting Pod looks for its NICs, in seconds."
    )
    side_channel: SideChannelConfig = Field(
        default_factory=SideChannelConfig, description="Address and ports of the NIXL side channel."
    )


class DeviceRequestConfig(Strict):
    """Devices of one class in the claim."""

    name: DnsLabel = Field(description="Name that constraints use, such as npu.")
    device_class_name: DnsSubdomain = Field(description="DeviceClass, such as npu.rebellions.ai or dranet.")
    count: Positive = Field(default=1, description="How many devices of the class.")
    selectors: tuple[NonEmpty, ...] = Field(
        default=(), description="CEL expressions over `device`; all must be true of each device."
    )

    @model_validator(mode="after")
    def _fits_the_api(self) -> Self:
        if len(self.selectors) > MAX_SELECTORS:
            raise reject(
                f"has {len(self.selectors)} entries, DRA takes {MAX_SELECTORS}",
                fix="Join expressions with &&",
                field="selectors",
            )
        for index, selector in enumerate(self.selectors):
            if len(selector) > MAX_EXPRESSION:
                raise reject(
                    f"has {len(selector)} characters, DRA takes {MAX_EXPRESSION}",
                    fix="Shorten the expression",
                    field=f"selectors[{index}]",
                )
        return self


class ConstraintConfig(Strict):
    """Devices of these requests must have the same value of an attribute."""

    requests: tuple[DnsLabel, ...] = Field(
        default=(), description="Names of requests. Empty: all requests of the claim."
    )
    match_attribute: AttributeName = Field(description="Attribute, in full, such as resource.kubernetes.io/numaNode.")


def _at_least_one(requests: tuple[DeviceRequestConfig, ...]) -> tuple[DeviceRequestConfig, ...]:
    if not requests:
        raise reject("claims nothing, and at least 1 request is needed", fix="Write a request")
    return requests


class ClaimTemplateConfig(Strict):
    """A ResourceClaimTemplate that the stack makes, named by its content, so that a change rolls the Pods."""

    requests: Annotated[tuple[DeviceRequestConfig, ...], AfterValidator(_at_least_one)] = Field(
        description="What each Pod claims; at least one."
    )
    constraints: tuple[ConstraintConfig, ...] = Field(default=(), description="Alignment between the requests.")

    @model_validator(mode="after")
    def _names_are_known_and_unique(self) -> Self:
        names = [request.name for request in self.requests]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise reject(
                    f"is the name of requests[{names.index(name)}] already",
                    fix="Give every request a name of its own",
                    field=f"requests[{index}].name",
                )
        return self


class DevicesConfig(Strict):
    """Devices of the model server Pods."""

    npu: NpuConfig = Field(default_factory=NpuConfig, description="Accelerators.")
    rdma: RdmaConfig = Field(default_factory=RdmaConfig, description="RDMA NICs and the NIXL side channel.")
    claim_template_name: DnsSubdomain | None = Field(
        default=None,
        description="Your own ResourceClaimTemplate. Default with DRA: npu-rdma. Excludes `claimTemplate`.",
    )
    claim_template: ClaimTemplateConfig | None = Field(
        default=None, description="ResourceClaimTemplate that the stack makes. Excludes `claimTemplateName`."
    )

    @model_validator(mode="after")
    def _template_is_given_once(self) -> Self:
        if self.claim_template is not None and self.claim_template_name is not None:
            raise reject(
                "is given together with `claimTemplate`, and a Pod claims from one template",
                fix="Remove `claimTemplateName` to have the template made, or `claimTemplate` to use your own",
                field="claimTemplateName",
            )
        return self

    def uses_claims(self) -> bool:
        """Whether Pods claim anything through DRA."""
        return self.npu.mode == "dra" or (self.rdma.enabled and self.rdma.mode == "dra")

    def referenced_template(self) -> str | None:
        """Name of the operator's claim template, or None when the stack makes it or nothing is claimed."""
        if not self.uses_claims() or self.claim_template is not None:
            return None
        return self.claim_template_name or DEFAULT_CLAIM_TEMPLATE
