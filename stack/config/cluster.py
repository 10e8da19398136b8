"""Block `cluster`: which cluster this stack belongs to. The context itself is `kubernetes:context`, Pulumi's key."""

from pydantic import Field

from stack.scalars import NonEmpty, SemanticVersion, Strict


class ClusterConfig(Strict):
    """The cluster that the one explicit provider is made for."""

    identifier: NonEmpty = Field(description="Name you give to the cluster. It stays when address or context change.")
    provider_version: SemanticVersion | None = Field(
        default=None, description="Version of the Kubernetes provider plugin, such as 4.25.0. Default: the SDK's own."
    )
