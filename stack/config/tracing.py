"""Block `tracing`: traces of EPP, proxy and engine to one OpenTelemetry collector, which is yours."""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from stack.errors import reject
from stack.scalars import Strict


def _endpoint(text: str) -> str:
    if not re.fullmatch(r"https?://[A-Za-z0-9.\[\]:_-]+(/[!-~]*)?", text):
        raise reject("is not the URL of a collector", fix="Write scheme, host and port, such as http://collector:4317")
    return text


Endpoint = Annotated[str, AfterValidator(_endpoint), WithJsonSchema({"type": "string", "pattern": "^https?://"})]


class CollectorConfig(Strict):
    """Where traces go."""

    endpoint: Endpoint = Field(default="http://localhost:4317", description="URL of the collector.")
    protocol: Literal["grpc", "http/protobuf"] = Field(
        default="grpc",
        description="OTLP over gRPC (usually port 4317) or HTTP (usually 4318), which only the engines speak.",
    )


_RATIO_SAMPLERS = {"traceidratio", "parentbased_traceidratio"}


class TracingConfig(Strict):
    """Tracing; a change of these keys restarts the model servers, the collector's only while it is on."""

    enabled: bool = Field(default=False, description="Whether EPP, proxy and engine send traces.")
    collector: CollectorConfig = Field(default_factory=CollectorConfig, description="The collector.")
    sampler: Literal[
        "always_on",
        "always_off",
        "traceidratio",
        "parentbased_always_on",
        "parentbased_always_off",
        "parentbased_traceidratio",
    ] = Field(
        default="parentbased_traceidratio",
        description="OpenTelemetry sampler; endpoint picker and proxy know the default only.",
    )
    sampler_arg: str = Field(default="0.1", description="Ratio from 0 to 1 for the ratio samplers, as text.")

    @model_validator(mode="after")
    def _ratio_is_a_ratio(self) -> Self:
        if self.sampler in _RATIO_SAMPLERS and not re.fullmatch(r"0?\.[0-9]+|0|1(\.0+)?|0\.", self.sampler_arg):
            raise reject("is not a ratio from 0 to 1", fix='Write a text such as "0.1"', field="samplerArg")
        return self
