"""The types of the plan: everything decided, nothing left to a component but to write it down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stack.errors import Problem

Manifest = dict[str, Any]
"""A Kubernetes object as JSON-shaped data: `apiVersion`, `kind`, `metadata`, and its body."""


@dataclass(frozen=True, kw_only=True)
class ObjectPlan:
    """One Kubernetes object.

    Attributes:
        logical_name: its identity in Pulumi's state.
        manifest: what the API server is sent.
        is_named_by_content: its name carries a hash of its content, so a change makes a new object first and removes
            the old one last; every other name is fixed, and a replacement must delete first.
    """

    logical_name: str
    manifest: Manifest
    is_named_by_content: bool = False

    @property
    def kind(self) -> str:
        """Kubernetes kind."""
        return self.manifest["kind"]

    @property
    def name(self) -> str:
        """Name in the cluster."""
        return self.manifest["metadata"]["name"]


@dataclass(frozen=True, kw_only=True)
class VolumePlan:
    """A PersistentVolumeClaim that outlives the stack.

    Attributes:
        import_id: `namespace/name` when the claim is already in the cluster and is taken over, else None.
        ignored: property paths whose changes never reach the engine, because they would replace the claim.
    """

    object: ObjectPlan
    import_id: str | None
    ignored: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RollOutPlan:
    """What has to be seen of a Deployment before it counts as rolled out.

    Attributes:
        name: of the Deployment.
        part: `prefill`, `decode`, `aggregated` or `epp`.
        selector: labels of its Pods.
        pods: Pods wanted.
        ready: Pods that must be available: all, or one where only a leader ever is.
        awaits_leave: whether the old Pods must be gone; those of model servers hold devices until then.
        is_owned: whether the topology anchor owns it, so that one with another owner is about to go.
        floor: fewest Pods where something else says how many there are, which has to bring them there; else None.
        scaler: what that is, as kubectl names it (`scaledobject rel-decode`); empty where nothing does.
        timeout_seconds: longest time the whole roll-out may take.
        patience_seconds: longest time one Pod may be stuck.
    """

    name: str
    part: str
    selector: Mapping[str, str]
    pods: int
    ready: int
    awaits_leave: bool
    is_owned: bool
    timeout_seconds: int
    patience_seconds: int
    floor: int | None = None
    scaler: str = ""


@dataclass(frozen=True, kw_only=True)
class WorkloadPlan:
    """One role Deployment.

    Attributes:
        role: prefill, decode or aggregated.
        entry: index in nodePlacement, None in replicas mode.
        object: the manifest; the component adds `metadata.ownerReferences`, since only the live anchor has a uid.
        replicas: Pods wanted. Of a role that is scaled by something else: those that it has after the update, which no
            manifest says.
        floor, most: fewest and most Pods that its scaler keeps it between; floor is None where the configuration says
            how many there are.
        ready_seconds: longest time one Pod may take from creation to Ready (start-up budget).
        leave_seconds: longest time one Pod may take to leave (grace period).
        timeout_seconds: how long the engine may wait for a create, update or delete of this workload.
        after: names of the workloads that must have rolled out before this one is changed.
        because: why its Pods are exchanged as they are, where that was chosen for this change; empty where the
            configuration says it, or nothing had to be chosen.
        contributions: config key -> effective value as canonical JSON, for every key that reaches this Pod template;
            secrets by name only. See `stack.contributions`.
    """

    object: ObjectPlan
    role: str
    entry: int | None
    replicas: int
    ready_seconds: int
    leave_seconds: int
    timeout_seconds: int
    contributions: Mapping[str, str]
    after: tuple[str, ...] = ()
    because: str = ""
    floor: int | None = None
    most: int = 0

    @property
    def is_scaled(self) -> bool:
        """Whether something else than the configuration says how many Pods there are."""
        return self.floor is not None

    @property
    def counted(self) -> Manifest:
        """Its manifest with the number of Pods, for whoever has to know what is stored in the end."""
        manifest = self.object.manifest
        return {**manifest, "spec": {"replicas": self.replicas, **manifest["spec"]}}


@dataclass(frozen=True, kw_only=True)
class ScalerPlan:
    """What decides how many Pods a role has, in the place of the configuration.

    Attributes:
        role: whose Pods.
        workload: name of their Deployment.
        provider: `hpa`, `keda` or `aibrix`.
        signal, target, unit: what it looks at, and the number for one Pod that it aims at (with `queueTime` for the
            role).
        query: PromQL that gives the signal for the whole role.
        floor, ceiling: fewest and most Pods.
    """

    object: ObjectPlan
    role: str
    workload: str
    provider: str
    signal: str
    target: float
    unit: str
    query: str
    floor: int
    ceiling: int


@dataclass(frozen=True, kw_only=True)
class TopologyPlan:
    """Which workloads exist, and the key whose change means: free every device before asking for one.

    Attributes:
        mode: `replicas` or `nodePlacement`.
        is_disaggregated: prefill and decode apart, or one aggregated role.
        key: the topology key; goes into the anchor and a label of every role Pod.
        generation: number of nodePlacement reassignments, from 1; always 1 in replicas mode.
        leave_seconds: how long the engine may wait for the anchor, and so for the last Pod, to go.
        anchor: the ConfigMap that holds the key and owns the workloads.
        seats: in replicas mode, for every role whether it has Pods. A role that loses its seat is deleted before any
            other workload changes, since an update deletes last what it drops and would hold the devices till then.
        changes: whether a live anchor has another key, so that every workload is taken down.
        leaving: what an earlier change still takes away, as `Kind name`.
        unknown: why the key could not be settled (previews go on with a guess, updates must stop); None when it is
            certain.
    """

    mode: str
    is_disaggregated: bool
    key: str
    generation: int
    anchor: ObjectPlan
    leave_seconds: int
    seats: Mapping[str, bool] = field(default_factory=dict[str, bool])
    changes: bool = False
    leaving: tuple[str, ...] = ()
    unknown: Problem | None = None

    def owner_reference(self, uid: Any) -> Manifest:
        """What every workload has in `metadata.ownerReferences`, with the uid of the live anchor."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": self.anchor.name,
            "uid": uid,
            "blockOwnerDeletion": True,
        }


@dataclass(frozen=True, kw_only=True)
class ModelServerPlan:
    """The model servers: what their Pods read, what protects their anchor, the workloads, and what scales them.

    Attributes:
        scaler_seats: for every role what scales it, `none` included. A scaler whose seat is another's is deleted before
            any workload changes, since an update deletes last what it drops and would let it undo the count till then.
    """

    objects: tuple[ObjectPlan, ...]
    workloads: tuple[WorkloadPlan, ...]
    topology: TopologyPlan
    scalers: tuple[ScalerPlan, ...] = ()
    scaler_seats: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True)
class ProviderPlan:
    """How the one explicit Kubernetes provider is made."""

    context: str
    cluster_identifier: str
    version: str | None


@dataclass(frozen=True, kw_only=True)
class BudgetLine:
    """What the Pods of one part request in total and each.

    Attributes:
        part: `prefill`, `decode`, `aggregated` or `epp`.
        pods: number of Pods.
        surge: Pods more, each with the same requests, while they are exchanged for new ones.
        least: fewest Pods, where a scaler says how many there are; `pods` then is its ceiling. None otherwise.
        cpu_millis: requested CPU of one Pod in 1/1000 cores.
        memory_bytes: requested memory of one Pod in bytes.
        accelerators: NPUs or GPUs of one Pod; None when a template of the operator decides.
        nics: RDMA NICs of one Pod; None when a template of the operator decides.
    """

    part: str
    pods: int
    cpu_millis: int
    memory_bytes: int
    accelerators: int | None
    nics: int | None
    surge: int = 0
    least: int | None = None

    def __str__(self) -> str:
        pods = str(self.pods) if self.least is None else f"{self.least} to {self.pods}"
        text = f"{self.part}: {pods} x {self.cpu_millis / 1000:g} CPU, {self.memory_bytes / 2**30:g}Gi"
        for count, what in ((self.accelerators, "accelerator"), (self.nics, "NIC")):
            text += (
                f", {what}s by template" if count is None else f", {count} {what}{'s' * (count > 1)}" if count else ""
            )
        return f"{text} (and {self.surge} more while it rolls)" if self.surge else text


@dataclass(frozen=True, kw_only=True)
class BudgetPlan:
    """Requests of all Pods of the stack, part by part."""

    lines: tuple[BudgetLine, ...]

    def total(self, field_name: str) -> int | None:
        """Sum over all Pods; None when one part is decided elsewhere."""
        values = [(line.pods, getattr(line, field_name)) for line in self.lines]
        if any(value is None for _, value in values):
            return None
        return sum(pods * value for pods, value in values)

    def __str__(self) -> str:
        return "; ".join(map(str, self.lines))


@dataclass(frozen=True, kw_only=True)
class StackPlan:
    """Everything that `pulumi up` will ask for, decided.

    Attributes:
        applied: every block of the stack file with all defaults filled in, as an operator would write it (what
            `helm get values --all` shows). See `stack.applied`.
        claims: objects that hand out devices (a managed claim template), before the workloads that name them.
        volumes: PersistentVolumeClaims, kept whatever happens to the stack.
        router: EPP and pool; gateway: Gateway, route and what class they need; monitoring: scrape objects.
        roll_outs: what has to be seen of each Deployment, by its name.
        warnings: legal but surprising settings, and what could not be found out.
        untried: why it is not known whether the API server would take the workloads; None when it would. See
            `stack.trial`.
        outputs: plain stack outputs.
    """

    release: str
    namespace: str
    provider: ProviderPlan
    claims: tuple[ObjectPlan, ...]
    volumes: tuple[VolumePlan, ...]
    router: tuple[ObjectPlan, ...]
    gateway: tuple[ObjectPlan, ...]
    monitoring: tuple[ObjectPlan, ...]
    modelserver: ModelServerPlan
    budget: BudgetPlan
    roll_outs: Mapping[str, RollOutPlan]
    warnings: tuple[Problem, ...] = ()
    untried: Problem | None = None
    applied: Mapping[str, Any] = field(default_factory=dict[str, Any])
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def ending_seconds(self) -> int:
        """Longest time that what an earlier change takes away may need, model servers and endpoint picker alike."""
        others = [roll_out.timeout_seconds for roll_out in self.roll_outs.values() if not roll_out.is_owned]
        return max(self.modelserver.topology.leave_seconds, *others)

    @property
    def refusal(self) -> str | None:
        """Why an update must not go on with this plan, which a preview shows all the same; None when it may."""
        topology = self.modelserver.topology
        # Workloads that are rejected after the others are gone leave nothing that serves.
        why = topology.unknown or (self.untried if topology.changes else None)
        return None if why is None else str(why)

    def objects(self) -> tuple[ObjectPlan, ...]:
        """Every object of the stack in the order of declaration."""
        return (
            *self.claims,
            *(volume.object for volume in self.volumes),
            *self.modelserver.objects,
            *self.router,
            *self.gateway,
            *self.monitoring,
            self.modelserver.topology.anchor,
            *(workload.object for workload in self.modelserver.workloads),
            *(scaler.object for scaler in self.modelserver.scalers),
        )
