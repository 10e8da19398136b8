"""Block `storage`: compile cache, model, offload space, shared memory and scratch space of the model servers.

Decisions where the chart's documents are silent: the third kind beside `pvc` and `existingClaim` is `emptyDir`; the
model comes from an existing claim by default, since the chart's operators bring a model store with preloaded weights.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from stack.errors import reject
from stack.scalars import DnsSubdomain, MountPath, Role, Size, Strict, SubPath

AccessMode = Literal["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]
Kind = Literal["pvc", "existingClaim", "emptyDir"]


def _access_modes(modes: tuple[AccessMode, ...]) -> tuple[AccessMode, ...]:
    if not modes:
        raise reject("names no mode", fix="Write at least one, such as ReadWriteMany")
    if len(set(modes)) < len(modes):
        raise reject("names a mode twice", fix="Write each mode once")
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        raise reject(
            "combines ReadWriteOncePod with others, which Kubernetes refuses", fix="Write ReadWriteOncePod alone"
        )
    return modes


AccessModes = Annotated[tuple[AccessMode, ...], AfterValidator(_access_modes)]


class ExistingCacheClaims(Strict):
    """Claims that hold the compile cache, role by role."""

    prefill: DnsSubdomain | None = Field(default=None, description="Claim for prefill Pods.")
    decode: DnsSubdomain | None = Field(default=None, description="Claim for decode Pods.")
    aggregated: DnsSubdomain | None = Field(default=None, description="Claim for aggregated Pods.")

    def of(self, role: Role) -> str | None:
        """The claim of one role."""
        return {"prefill": self.prefill, "decode": self.decode, "aggregated": self.aggregated}[role]


class CompileCacheConfig(Strict):
    """Compiled models. One volume a role, shared by its Pods; the claims outlive the stack."""

    kind: Kind = Field(
        default="pvc",
        description="`pvc`: made and kept by the stack. `existingClaim`: yours. `emptyDir`: lost with the Pod.",
    )
    size: Size = Field(default="200Gi", description="Size with kind pvc. May grow, never shrink.")
    access_modes: AccessModes = Field(
        default=("ReadWriteMany",), description="Access modes with kind pvc. Cannot change while the claim exists."
    )
    storage_class: DnsSubdomain | None = Field(
        default=None,
        description="StorageClass with kind pvc. Default: the cluster's. Cannot change while the claim exists.",
    )
    adopt: bool = Field(
        default=False,
        description="Whether a claim that is there already under the name of kind pvc, without the label of this "
        "release, is taken over with what it holds. Otherwise it is refused.",
    )
    existing_claim: ExistingCacheClaims = Field(
        default_factory=ExistingCacheClaims, description="Claim of each role with kind existingClaim."
    )
    size_limit: Size | None = Field(default=None, description="Limit with kind emptyDir. Default: none.")
    mount_path: MountPath = Field(default="/workspace", description="Where it is mounted.")


class ModelVolumeConfig(Strict):
    """Weights. One volume for all Pods."""

    kind: Kind = Field(
        default="existingClaim",
        description="`existingClaim`: your store. `pvc`: made and kept by the stack. `emptyDir`: loaded by every Pod.",
    )
    size: Size = Field(default="500Gi", description="Size with kind pvc. May grow, never shrink.")
    access_modes: AccessModes = Field(
        default=("ReadWriteMany",), description="Access modes with kind pvc. Cannot change while the claim exists."
    )
    storage_class: DnsSubdomain | None = Field(
        default=None,
        description="StorageClass with kind pvc. Default: the cluster's. Cannot change while the claim exists.",
    )
    adopt: bool = Field(
        default=False,
        description="Whether a claim that is there already under the name of kind pvc, without the label of this "
        "release, is taken over with what it holds. Otherwise it is refused.",
    )
    existing_claim: DnsSubdomain | None = Field(
        default=None, description="Name of your claim with kind existingClaim, where it is required."
    )
    size_limit: Size | None = Field(default=None, description="Limit with kind emptyDir. Default: none.")
    mount_path: MountPath = Field(default="/models", description="Where it is mounted.")
    path: SubPath | None = Field(
        default=None, description="Folder in the volume to serve from. Default: the volume is a Hugging Face cache."
    )
    read_only: bool = Field(default=False, description="Whether it is mounted read-only.")


class ModelOffloadConfig(Strict):
    """Space for offloaded KV blocks; a volume of each Pod, deleted with it."""

    enabled: bool = Field(default=False, description="Whether Pods get the volume.")
    size: Size = Field(default="500Gi", description="Size of each Pod's volume.")
    storage_class: DnsSubdomain | None = Field(default=None, description="StorageClass. Default: the cluster's.")
    mount_path: MountPath = Field(default="/offload", description="Where it is mounted.")


class ShmConfig(Strict):
    """Shared memory of the engine at /dev/shm. Counts against the container's memory."""

    size_limit: Size | None = Field(default=None, description="Size. Default: the recipe's.")


class TmpConfig(Strict):
    """Scratch space at /tmp, since the root file system is read-only."""

    size_limit: Size = Field(default="10Gi", description="Size.")


class StorageConfig(Strict):
    """Volumes of the model servers."""

    compile_cache: CompileCacheConfig = Field(default_factory=CompileCacheConfig, description="Compile cache.")
    model: ModelVolumeConfig = Field(default_factory=ModelVolumeConfig, description="Model volume.")
    model_offload: ModelOffloadConfig = Field(default_factory=ModelOffloadConfig, description="Offload volume.")
    shm: ShmConfig = Field(default_factory=ShmConfig, description="Shared memory.")
    tmp: TmpConfig = Field(default_factory=TmpConfig, description="Scratch space.")
