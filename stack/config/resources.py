"""Requests and limits of a container."""

from collections.abc import Mapping

from pydantic import Field

from stack.scalars import Quantity, ResourceName, Strict


class ResourcesConfig(Strict):
    """What a container asks for and what it may not exceed. Devices of the model servers are not written here."""

    requests: Mapping[ResourceName, Quantity] = Field(
        default_factory=dict[str, str], description="What the scheduler reserves, for example `cpu: 4`, `memory: 8Gi`."
    )
    limits: Mapping[ResourceName, Quantity] = Field(
        default_factory=dict[str, str], description="What the container may not exceed. A CPU limit slows compilation."
    )
