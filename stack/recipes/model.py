"""The shape of a recipe: strict, frozen, and refusing what the planner computes or a secret would hide in.

It checks a recipe against itself (parallelism against devices, block size against the flag). Whether a recipe fits a
cluster or an operator's other settings is decided elsewhere.
"""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from math import prod
from typing import Any, Final, Literal, Self, TypeAlias

from pydantic import Field, JsonValue, model_validator

from stack.errors import reject
from stack.scalars import (
    ROLES,
    Count,
    DnsSubdomain,
    EnvName,
    ExtendedResourceName,
    FlagName,
    HttpPath,
    ImageRepository,
    ImageTag,
    LabelKey,
    LabelValue,
    NonEmpty,
    Positive,
    Quantity,
    ResourceName,
    Role,
    Size,
    Strict,
)

# The order matters: bool before int, because a Python bool is an int too. An object becomes JSON on the command line.
ArgValue: TypeAlias = bool | int | float | str | dict[str, JsonValue]
Dimension: TypeAlias = Literal["tensor", "pipeline", "data"]
DIMENSIONS: Final[tuple[Dimension, ...]] = ("tensor", "pipeline", "data")

# What the planner computes from the configuration: in a recipe it would win over the operator's ports and volumes.
PLANNED_FLAGS: Final = frozenset(
    {"data-parallel-size-local", "host", "model", "port", "served-model-name", "shutdown-timeout"}
)
PLANNED_ENV: Final = frozenset(
    {"HF_HOME", "HOME", "VLLM_CACHE_ROOT", "VLLM_NIXL_SIDE_CHANNEL_HOST", "VLLM_NIXL_SIDE_CHANNEL_PORT"}
)
SECRET_FLAGS: Final = frozenset({"api-key", "hf-token", "ssl-keyfile"})
_SECRET_ENV: Final = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY)S?$")


class Engine(Strict):
    """What runs in the container, with the versions the recipe was written for."""

    name: Literal["vllm", "vllm-rbln"] = Field(description="Serving engine, or the plugin that brings it to a device.")
    version: NonEmpty = Field(description="Version of that package.")
    vllm: NonEmpty = Field(description="vLLM version it stands on: decides which serve flags exist.")
    compiler: NonEmpty | None = Field(
        description="Compiler major.minor whose cache may be reused; null where nothing is compiled ahead of serving."
    )


class Accelerator(Strict):
    """The devices one Pod of any role takes: one claim template serves all roles."""

    type: Literal["npu", "gpu"] = Field(description="Kind of device.")
    vendor: NonEmpty = Field(description="Vendor, as it stands in the labels.")
    device_class_name: DnsSubdomain = Field(description="DeviceClass of the accelerator (DRA).")
    resource_name: ExtendedResourceName = Field(description="Extended resource of the accelerator (device plugin).")
    per_pod: Positive = Field(description="Accelerators in one Pod; every role's parallelism multiplies to it.")
    rdma_device_class_name: DnsSubdomain = Field(description="DeviceClass of the RDMA NICs (DRA).")
    rdma_per_pod: Positive = Field(description="RDMA NICs in one Pod, when RDMA is on.")


class Image(Strict):
    """Image of the model server."""

    repository: ImageRepository = Field(description="Repository, without tag.")
    tag: ImageTag = Field(description="Tag.")


class Probe(Strict):
    """An HTTP probe; times in seconds."""

    path: HttpPath = Field(description="HTTP path, asked at the model server itself and never through the proxy.")
    initial_delay_seconds: Count = Field(description="Wait before the first check.")
    period_seconds: Positive = Field(description="Time between two checks.")
    timeout_seconds: Positive = Field(description="Time one check may take.")
    failure_threshold: Positive = Field(description="Failures in a row until the probe counts as failed.")

    @property
    def budget_seconds(self) -> int:
        """Time until the probe gives up, in seconds: the initial delay plus every period."""
        return self.initial_delay_seconds + self.period_seconds * self.failure_threshold


class Probes(Strict):
    """Probes of the model server container, the same for all roles."""

    startup: Probe
    readiness: Probe
    liveness: Probe


class Resources(Strict):
    """Requests and limits of the model server container, without devices."""

    requests: Mapping[ResourceName, Quantity]
    limits: Mapping[ResourceName, Quantity]


class ServeArgs(Strict):
    """Serve flags without dashes. `true` is a bare flag, `false` takes a common flag away, an object becomes JSON."""

    common: Mapping[FlagName, ArgValue]
    prefill: Mapping[FlagName, ArgValue]
    decode: Mapping[FlagName, ArgValue]
    aggregated: Mapping[FlagName, ArgValue]

    @model_validator(mode="after")
    def _refuse_what_is_not_ours(self) -> Self:
        for block in ("common", *ROLES):
            flags: AbstractSet[str] = getattr(self, block).keys()
            for flag in sorted(flags & PLANNED_FLAGS):
                raise reject(f"{block}: {flag} is computed by the planner", fix="Take it out")
            for flag in sorted(flags & SECRET_FLAGS):
                raise reject(f"{block}: {flag} would be a secret in a recipe", fix="Take it out")
        return self


class ServeEnv(Strict):
    """Environment of the model server; values are text, as in a Pod."""

    common: Mapping[EnvName, str]
    prefill: Mapping[EnvName, str]
    decode: Mapping[EnvName, str]
    aggregated: Mapping[EnvName, str]

    @model_validator(mode="after")
    def _refuse_what_is_not_ours(self) -> Self:
        for block in ("common", *ROLES):
            names: AbstractSet[str] = getattr(self, block).keys()
            for name in sorted(names & PLANNED_ENV):
                raise reject(f"{block}: {name} is computed by the planner", fix="Take it out")
            for name in sorted(name for name in names if _SECRET_ENV.search(name)):
                raise reject(f"{block}: {name} would be a secret in a recipe", fix="Take it out")
        return self


class ShutdownTimeouts(Strict):
    """Seconds that the running requests of a role's Pod get to end when it leaves."""

    prefill: Positive
    decode: Positive
    aggregated: Positive

    def of(self, role: Role) -> int:
        """The time of one role, in seconds."""
        return {"prefill": self.prefill, "decode": self.decode, "aggregated": self.aggregated}[role]


class Recipe(Strict):
    """One model on one kind of accelerator, for all three roles."""

    name: DnsSubdomain = Field(description="Name, as `recipe` in the stack file and as the file is called.")
    model: NonEmpty = Field(description="Model id that clients address and that the engine loads.")
    engine: Engine
    accelerator: Accelerator
    image: Image
    serve_args: ServeArgs
    serve_env: ServeEnv
    probes: Probes
    resources: Resources
    shm_size: Size = Field(description="Size limit of the memory-backed volume at /dev/shm.")
    shutdown_timeout_seconds: ShutdownTimeouts = Field(
        description="How long running requests get to end when a Pod leaves; the grace period follows from it."
    )
    max_model_len: Positive = Field(description="Longest context in tokens; also the limit of prefix matching.")
    block_size: Positive = Field(description="Tokens per KV block; the endpoint picker hashes prompts in these.")
    labels: Mapping[LabelKey, LabelValue] = Field(description="Labels that describe the model server Pods.")

    def args_for(self, role: str) -> dict[str, ArgValue]:
        """Serve flags of a role: common ones first, the role's over them, `false` ones left out."""
        merged: dict[str, ArgValue] = {**self.serve_args.common, **_block(self.serve_args, role)}
        return {flag: value for flag, value in merged.items() if value is not False}

    def env_for(self, role: str) -> dict[str, str]:
        """Environment of a role: common variables first, the role's over them."""
        return {**self.serve_env.common, **_block(self.serve_env, role)}

    def parallelism(self, role: str, dimension: Dimension) -> int:
        """Ranks of a role in one dimension of parallelism; 1 where the recipe sets none."""
        ranks = self.args_for(role).get(f"{dimension}-parallel-size", 1)
        if type(ranks) is not int or ranks < 1:
            raise reject(f"{role}: {dimension}-parallel-size is not a whole number of 1 or more", fix="Correct it")
        return ranks

    def devices_per_pod(self, role: str) -> int:
        """Accelerators that a Pod of the role uses: tensor x pipeline x data parallel ranks."""
        return prod(self.parallelism(role, dimension) for dimension in DIMENSIONS)

    @model_validator(mode="after")
    def _agree_with_itself(self) -> Self:
        for role in ROLES:
            if (used := self.devices_per_pod(role)) != self.accelerator.per_pod:
                raise reject(
                    f"{role}: tensor x pipeline x data parallel size is {used}, but accelerator.perPod is "
                    f"{self.accelerator.per_pod}",
                    fix="Make them equal: one claim template serves all roles",
                )
            args = self.args_for(role)
            for flag, own, key in (
                ("block-size", self.block_size, "blockSize"),
                ("max-model-len", self.max_model_len, "maxModelLen"),
            ):
                if args.get(flag) != own:
                    raise reject(
                        f"{role}: {flag} is {args.get(flag, 'missing')}, but {key} is {own}", fix="Make them equal"
                    )
        return self


def _block(blocks: ServeArgs | ServeEnv, role: str) -> Mapping[str, Any]:
    if role not in ROLES:
        raise ValueError(f"{role!r} is no role; there are {', '.join(ROLES)}")
    return getattr(blocks, role)
