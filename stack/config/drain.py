"""Block `drain`: how model servers leave. Preview and update derive everything else from it, see `stack.drain`.

A grace period, a hook and a serve argument that have to fit one another are nothing to be written by hand, so there are
no keys for them; what an answer may take, and how fast the router follows, only the operator knows.
"""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, WithJsonSchema

from stack.errors import reject
from stack.scalars import NonEmpty, Role, Strict

MAX_SECONDS = 86_400
"""A day. Kubernetes counts the grace period and a Deployment's deadline, which has to hold it, in 32 bits."""

LEAST_MARGIN: Final = 10
"""The hook starts a moment after the clock of the grace period; ranks behind a supervisor get 5 s more than N (vLLM
`vllm/entrypoints/openai/dp_supervisor.py`); and an engine needs a moment to end."""

Mode: TypeAlias = Literal["auto", "native", "idle", "off"]
Seconds: TypeAlias = Annotated[int, Field(ge=1, le=MAX_SECONDS)]


def _outlasts_the_engine(seconds: int) -> int:
    if not LEAST_MARGIN <= seconds <= MAX_SECONDS:
        raise reject(
            f"lies outside {LEAST_MARGIN} to {MAX_SECONDS}, and below that SIGKILL meets engines that still drain: the "
            "hook starts late, and a supervisor gives its ranks 5 s more than they ask for",
            fix=f"Write {LEAST_MARGIN} or more; 30 is the default",
        )
    return seconds


Margin: TypeAlias = Annotated[
    int,
    AfterValidator(_outlasts_the_engine),
    WithJsonSchema({"type": "integer", "minimum": LEAST_MARGIN, "maximum": MAX_SECONDS}),
]
SecondsOrNone: TypeAlias = Annotated[int, Field(ge=0, le=MAX_SECONDS)]


class RoleSecondsConfig(Strict):
    """A time for each role."""

    prefill: Seconds | None = Field(default=None, description="Seconds, for prefill Pods. 1 to 86400.")
    decode: Seconds | None = Field(default=None, description="Seconds, for decode Pods. 1 to 86400.")
    aggregated: Seconds | None = Field(default=None, description="Seconds, for aggregated Pods. 1 to 86400.")

    def of(self, role: Role) -> int | None:
        """The time of one role, in seconds; None where none is given."""
        return {"prefill": self.prefill, "decode": self.decode, "aggregated": self.aggregated}[role]


class DrainConfig(Strict):
    """How model servers leave."""

    mode: Mode = Field(
        default="auto",
        description="`native`: the engine ends its requests itself (`--shutdown-timeout`, vLLM 0.18 and later). "
        "`idle`: the Pod waits before SIGTERM until nothing runs or waits. `off`: every running stream is cut. "
        "`auto`: `native` where it works, else `idle`.",
    )
    engine_version: NonEmpty | None = Field(
        default=None,
        description="vLLM version in an image of your own, for `auto`. Default: the recipe's; where the engine is vLLM "
        "itself and `modelserver.image` is written, what its tag says, and if it says nothing, `auto` is `idle`.",
    )
    shutdown_timeout_seconds: RoleSecondsConfig = Field(
        default_factory=RoleSecondsConfig,
        description="Longest time that running requests get to end (N). Default: the recipe's. `serving-stack "
        "drain-budget` finds it from the durations of your own requests.",
    )
    router_delay_seconds: SecondsOrNone = Field(
        default=20,
        description="Seconds from the deletion of a Pod until router and Services surely send it nothing new. 0 to "
        "86400.",
    )
    margin_seconds: Margin = Field(
        default=30,
        description="Seconds from the end of the drain to SIGKILL, for a hook that starts late and for the engine to "
        "end. 10 to 86400.",
    )
    kv_pull_seconds: SecondsOrNone | None = Field(
        default=None,
        description="Seconds that decode Pods get to pull the blocks of the last prompts from a prefill Pod that "
        "leaves. Default: 30, or the lease on those blocks where it is shorter.",
    )
    longest_request_seconds: RoleSecondsConfig = Field(
        default_factory=RoleSecondsConfig,
        description="Longest request seen, as `serving-stack drain-budget` prints it. Time limits on a stream's way "
        "are held against it, and `router.epp.drainSeconds`, unless it is written, is no less for decode and "
        "aggregated. Nothing of the model servers follows from it.",
    )
