"""Block `rollout`: how changes of running model servers go on, and what protects them meanwhile."""

from pydantic import Field

from stack.scalars import Positive, Strict


class RolloutConfig(Strict):
    """How a change goes on."""

    patience_seconds: Positive = Field(
        default=300,
        description="Seconds for which a Pod may stay unschedulable, unable to pull its image, or crashing before "
        "`pulumi up` gives up. While a Pod that leaves still holds devices that would do, this clock stands still.",
    )
    protect_topology: bool = Field(
        default=False,
        description="Whether a ValidatingAdmissionPolicy keeps the topology anchor from being deleted or changed by "
        "accident, which would take every model server down. Needs the right to make cluster-wide objects.",
    )
