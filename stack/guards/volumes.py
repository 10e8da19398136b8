"""PersistentVolumeClaims that are there: what they are against what the configuration wants, and who can mount them.

The engine never sees a difference in class or modes, since it would answer with a replacement; the API server refuses a
smaller size, and growth that the class does not allow, in the middle of an update. A claim that goes or is another's is
refused while planning (`stack.storage`), and what the configuration alone tells about modes is a rule
(`stack.rules.storage`); here the live modes of claims from outside are judged by the same rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stack.guards import references
from stack.guards.finding import GuardFinding, refusal, warning
from stack.guards.mounts import SHARED
from stack.scalars import amount
from stack.storage import block_of
from stack.version import minor_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stack.config.root import StackConfig
    from stack.facts import Object, Surroundings
    from stack.guards.finding import Idle
    from stack.planned import Manifest, StackPlan, VolumePlan, WorkloadPlan

BOUND, PENDING, LOST = "Bound", "Pending", "Lost"
LATE = "WaitForFirstConsumer"
DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
"""Annotations that make a class the default one; the first is that of today."""
TAKES_BACK = (1, 32)
"""Where a claim that was asked to grow and has not yet may be asked for less (RecoverVolumeExpansionFailure, beta)."""


def guard_volumes(config: StackConfig, plan: StackPlan, surroundings: Surroundings) -> Iterator[GuardFinding]:
    """Everything about claims that are there, and claims from outside that are not."""
    live = surroundings.volume_claims
    if live is None:
        return
    made = {volume.object.name for volume in plan.volumes}
    for volume in plan.volumes:
        if (claim := live.get(volume.object.name)) is not None:
            yield from _Made(config=config, volume=volume, live=claim, surroundings=surroundings).differences()
    for name, mounts in references.mounted_claims(plan).items():
        if name not in made:
            outside = _Outside(
                config=config,
                name=name,
                mounts=mounts,
                workloads=[workload for workload in plan.modelserver.workloads if workload.object.name in mounts],
                surges={line.part for line in plan.budget.lines if line.surge},
            )
            yield from outside.findings(live.get(name), surroundings)


@dataclass(frozen=True, kw_only=True)
class VolumeChange:
    """A claim of the stack that is made, or grows.

    Attributes:
        size: that it will have.
        class_name: its StorageClass, the cluster's default where it names none; None if it gets none.
        before: the size that it has; None if it is not there.
        is_class_known: whether that is known: classes are read for what the default is.
    """

    volume: VolumePlan
    size: str
    class_name: str | None
    before: str | None
    is_class_known: bool = True


def changes_of_volumes(
    plan: StackPlan, live: Mapping[str, Object] | None, classes: Mapping[str, Object] | None = None
) -> Iterator[VolumeChange]:
    """Claims that are made or grow; none where it is not known what is there.

    Args:
        plan: the plan.
        live: claims of the namespace by name.
        classes: StorageClasses by name; None when they are not known.
    """
    for volume in plan.volumes if live is not None else ():
        spec = volume.object.manifest["spec"]
        claim = (live or {}).get(volume.object.name)
        before = None if claim is None else _storage(claim["spec"])
        if before is None or amount(before) < amount(_storage(spec)):
            of_class = (spec if claim is None else claim["spec"]).get("storageClassName")
            takes_default = claim is None and of_class is None
            yield VolumeChange(
                volume=volume,
                size=_storage(spec),
                class_name=default_class(classes or {}) if takes_default else of_class,
                before=before,
                is_class_known=not takes_default or classes is not None,
            )


def default_class(classes: Mapping[str, Object]) -> str | None:
    """The class that a claim gets which names none: the newest of several defaults, of those the first by name."""

    def is_default(found: Object) -> bool:
        annotations: Mapping[str, str] = found["metadata"].get("annotations") or {}
        return any(annotations.get(key) == "true" for key in DEFAULT_CLASS)

    names = sorted(name for name, found in classes.items() if is_default(found))
    return max(names, key=lambda name: classes[name]["metadata"].get("creationTimestamp", ""), default=None)


# --- claims that the stack makes --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Made:
    """A claim of the stack that is there."""

    config: StackConfig
    volume: VolumePlan
    live: Object
    surroundings: Surroundings

    @property
    def name(self) -> str:
        return self.volume.object.name

    @property
    def block(self) -> str:
        return block_of(self.config, self.volume)

    @property
    def kubectl(self) -> str:
        return f"kubectl -n {self.config.namespace}"

    @property
    def wanted(self) -> Manifest:
        return self.volume.object.manifest["spec"]

    @property
    def class_name(self) -> str | None:
        """Of the live claim."""
        return self.live["spec"].get("storageClassName")

    @property
    def way_to_another(self) -> str:
        if self.block == "storage.compileCache":
            return (
                "For another claim give this one and what was compiled into it up: `pulumi destroy`, "
                f"`{self.kubectl} delete pvc {self.name}`, `pulumi up`"
            )
        return (
            "For another claim make one, copy the weights into it, and name it with storage.model.kind: existingClaim; "
            f"`{self.kubectl} delete pvc {self.name}` deletes those in this one"
        )

    def refuse(self, key: str, value: str, why: str, fix: str) -> GuardFinding:
        return refusal("volumes", f"{self.block}.{key}", value, f"claim {self.name} {why}", fix=fix)

    def differences(self) -> Iterator[GuardFinding]:
        """Class, modes, size."""
        wanted_class = self.wanted.get("storageClassName")
        if wanted_class is not None and wanted_class != self.class_name:
            has = f"has class {self.class_name}" if self.class_name else "has no class"
            back = f"Set {self.block}.storageClass to {self.class_name}. " if self.class_name else ""
            yield self.refuse(
                "storageClass",
                wanted_class,
                f"is there and {has}, which can't be changed: it would stay as it is",
                f"{back}{self.way_to_another}",
            )
        wanted_modes, live_modes = self.wanted["accessModes"], _written_modes(self.live)
        if set(wanted_modes) != set(live_modes):
            yield self.refuse(
                "accessModes",
                ", ".join(wanted_modes),
                f"is there with {', '.join(live_modes)}, which can't be changed: it would stay as it is",
                f"Set {self.block}.accessModes to [{', '.join(live_modes)}]. {self.way_to_another}",
            )
        yield from self._size()

    def _size(self) -> Iterator[GuardFinding]:
        wanted, asked = _storage(self.wanted), _storage(self.live["spec"])
        if amount(wanted) == amount(asked):
            return
        status: Object = self.live.get("status") or {}
        if status.get("phase") != BOUND:
            # The API server takes no other size before that (validation of claim updates).
            yield self.refuse(
                "size",
                wanted,
                f"is there with {asked} and is not bound, and before that its size can't be changed",
                f"Set {self.block}.size to {asked} until it is bound (`{self.kubectl} describe pvc {self.name}` says "
                f"what it waits for), or delete it, since nothing is in it: `{self.kubectl} delete pvc {self.name}`",
            )
        elif amount(wanted) > amount(asked):
            yield from self._growth(wanted, asked)
        elif not self._takes_back(wanted, status):
            yield self.refuse(
                "size",
                wanted,
                f"is there with {asked}, and a claim never shrinks: the API server would refuse it half-way through "
                "the update",
                f"Set {self.block}.size to {asked} or more. {self.way_to_another}",
            )

    def _takes_back(self, wanted: str, status: Object) -> bool:
        """Whether it was asked to grow, has not yet, and the wish may be taken back: to more than its capacity."""
        has: Object = status.get("capacity") or {}
        capacity: str | None = has.get("storage")
        version = minor_version(self.surroundings.server_version)
        return capacity is not None and amount(wanted) > amount(capacity) and version >= TAKES_BACK

    def _growth(self, wanted: str, asked: str) -> Iterator[GuardFinding]:
        """A claim grows only with a class that says so (admission plugin PersistentVolumeClaimResize)."""
        classes, stay = self.surroundings.storage_classes, f"Set {self.block}.size back to {asked}"
        if not self.class_name:
            yield self.refuse("size", wanted, f"has {asked} and no class, and without one no claim grows", stay)
        elif classes is not None and self.class_name not in classes:
            yield self.refuse(
                "size",
                wanted,
                f"has {asked}, and its class {self.class_name} is not there any more, so it can't grow",
                f"{stay}, or make StorageClass {self.class_name} again with allowVolumeExpansion: true",
            )
        elif classes is not None and not classes[self.class_name].get("allowVolumeExpansion"):
            yield self.refuse(
                "size",
                wanted,
                f"has {asked}, and its class {self.class_name} does not let it grow",
                f"{stay}; or, if the volumes of that class can grow, `kubectl patch storageclass {self.class_name} -p "
                "'{\"allowVolumeExpansion\": true}'`",
            )


def _storage(spec: Manifest) -> str:
    return spec["resources"]["requests"]["storage"]


def _written_modes(live: Object) -> list[str]:
    return live["spec"].get("accessModes") or []


# --- claims from outside ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Outside:
    """A claim of the operator that Pods mount.

    Attributes:
        mounts: by workload, whether only for reading.
        surges: parts that get Pods more while they roll.
    """

    config: StackConfig
    name: str
    mounts: Mapping[str, bool]
    workloads: list[WorkloadPlan]
    surges: set[str]

    @property
    def key(self) -> str:
        """Under which it is named."""
        storage = self.config.storage
        if storage.model.kind == "existingClaim" and storage.model.existing_claim == self.name:
            return "storage.model.existingClaim"
        given = storage.compile_cache.existing_claim
        role = next(role for role in self.config.modelserver.roles() if given.of(role) == self.name)
        return f"storage.compileCache.existingClaim.{role}"

    @property
    def kubectl(self) -> str:
        return f"kubectl -n {self.config.namespace}"

    def refuse(self, why: str, fix: str, *, said: str | None = None, idle: Idle = "warn") -> GuardFinding:
        value = self.name if said is None else said
        return refusal("volumes", self.key, value, why, fix=fix, workloads=self.mounts, idle=idle)

    def warn(self, why: str, fix: str, *, said: str | None = None) -> GuardFinding:
        value = self.name if said is None else said
        return warning("volumes", self.key, value, why, fix=fix, workloads=self.mounts)

    def findings(self, live: Object | None, surroundings: Surroundings) -> Iterator[GuardFinding]:
        """Whether it can be mounted at all, then by whom."""
        if live is None:
            yield self.refuse(
                f"there is no claim of this name in namespace {self.config.namespace}, and Pods that mount it never "
                "start",
                f"Make it, or name one of those that `{self.kubectl} get pvc` shows",
            )
            return
        status: Object = live.get("status") or {}
        phase = status.get("phase")
        if "deletionTimestamp" in live["metadata"]:
            yield self.refuse(
                "this claim is being deleted, and no new Pod can mount it",
                f"Name another claim; `{self.kubectl} describe pvc {self.name}` names the Pods that still use this one",
            )
        elif phase == LOST:
            yield self.refuse(
                f"this claim has lost its volume {live['spec'].get('volumeName', '')}, and no Pod can mount it",
                f"Bring the volume back or name another claim; see `{self.kubectl} describe pvc {self.name}`",
            )
        elif live["spec"].get("volumeMode") == "Block":
            yield self.refuse(
                "this claim is a raw block device (volumeMode Block), and Pods mount it as a folder",
                "Name a claim with volumeMode Filesystem",
            )
        else:
            if phase == PENDING and not _binds_late(live, surroundings):
                yield self.warn(
                    "this claim has no volume yet, and Pods that mount it wait for one",
                    f"See what it waits for: `{self.kubectl} describe pvc {self.name}`",
                )
            yield from self._modes(live)

    def _modes(self, live: Object) -> Iterator[GuardFinding]:
        # Those of the bound volume count, where there is one: they are what it is attached by.
        status: Object = live.get("status") or {}
        modes: list[str] = status.get("accessModes") or _written_modes(live)
        said = f"{self.name} ({', '.join(modes)})"
        if not SHARED & set(modes):
            yield from self._single(said, is_one_pod="ReadWriteOncePod" in _written_modes(live))
        elif set(modes) == {"ReadOnlyMany"} and not all(self.mounts.values()):
            is_model = self.key == "storage.model.existingClaim"
            yield self.warn(
                "this claim can only be read, and Pods mount it for writing",
                "Set storage.model.readOnly: true"
                if is_model
                else "Name a ReadWriteMany claim: what is compiled is written",
                said=said,
            )

    def _single(self, said: str, *, is_one_pod: bool) -> Iterator[GuardFinding]:
        """For one node or one Pod, against the Pods that mount it (*Scaling and Upgrades*, access modes)."""
        entries = self.config.modelserver.node_placement
        # The ceiling counts: when a scaler brings the second Pod, nobody is asked.
        pods = sum(workload.most for workload in self.workloads)
        may_come = pods > sum(workload.replicas for workload in self.workloads)
        nodes = {entries[workload.entry].node for workload in self.workloads if workload.entry is not None}
        who, shared = "Pod" if is_one_pod else "node", "Name a claim that is ReadWriteMany"
        rolling = "Set modelserver.strategy to type: RollingUpdate with maxSurge: 0, maxUnavailable: 1"
        if len(nodes) > 1:
            why = f"only one {who} can mount this claim, and the Pods that do are on {len(nodes)} nodes"
            yield self.refuse(why, shared, said=said)
        elif pods > 1 and (is_one_pod or not nodes):
            why = f"only one {who} can mount this claim, and {'up to ' * may_come}{pods} Pods do"
            yield self.refuse(why, f"{shared}, or run one Pod", said=said, idle="refuse" if may_come else "warn")
        elif self.surges.isdisjoint(workload.role for workload in self.workloads):
            return
        elif is_one_pod:
            yield self.refuse(
                "only one Pod can mount this claim, and a rolling update starts the new Pod before the old one leaves",
                f"{rolling}, or type: Recreate",
                said=said,
            )
        else:
            yield self.warn(
                "only one node can mount this claim, and a rolling update starts the new Pod first, which on another "
                "node can't mount it",
                f"{rolling}, or use a ReadWriteMany claim",
                said=said,
            )


def _binds_late(live: Object, surroundings: Surroundings) -> bool:
    """Whether its class waits for a Pod; also where that is not known."""
    if surroundings.storage_classes is None:
        return True
    found = surroundings.storage_classes.get(live["spec"].get("storageClassName") or "")
    return found is not None and found.get("volumeBindingMode") == LATE
