"""What was read from the cluster before planning, as plain values, described here and filled by `cluster/facts.py`.

*Unknown* (no cluster, no permission, nothing asked) is `None` and never mistaken for *none there*.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stack.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Object = dict[str, Any]
"""An object as the API server gave it, JSON-shaped."""


class FactsError(ConfigError):
    """What is live stands in the way of the plan, in previews and updates. Carries every reason."""

    def __str__(self) -> str:
        return "\n".join(["What is live stands in the way:", *(f"  {problem}" for problem in self.problems)])


@dataclass(frozen=True, kw_only=True)
class AnchorFacts:
    """The live topology anchor."""

    key: str
    generation: int
    uid: str
    is_terminating: bool = False


@dataclass(frozen=True, kw_only=True)
class WorkloadFacts:
    """A live role workload of this release: which nodePlacement entry it is, and on whose behalf it runs.

    Attributes:
        replicas: Pods it asks for.
        available: Pods that serve.
        is_placed: whether a Pod of it was ever given a node, and so devices.
        owner_uid: uid of the topology anchor it was made under; None when it has no owner.
    """

    name: str
    role: str
    entry: int | None = None
    node: str | None = None
    replicas: int = 1
    available: int = 1
    is_placed: bool = True
    owner_uid: str | None = None
    is_terminating: bool = False


@dataclass(frozen=True, kw_only=True)
class ClaimFacts:
    """A live PersistentVolumeClaim.

    Attributes:
        instance: value of its instance label, the release it belongs to; None without that label.
    """

    name: str
    instance: str | None = None
    is_terminating: bool = False


@dataclass(frozen=True, kw_only=True, order=True)
class Reference:
    """One object by name.

    Attributes:
        namespace: None for cluster-wide ones.
    """

    api_version: str
    kind: str
    name: str
    namespace: str | None = None

    @property
    def group(self) -> str:
        """API group; empty for the core one."""
        return self.api_version.rpartition("/")[0]

    @property
    def resource(self) -> str:
        """Resource of its kind, by the rules of English, which hold for every kind that is planned or looked up."""
        word = self.kind.lower()
        if word.endswith("y") and word[-2] not in "aeiou":
            return f"{word[:-1]}ies"
        return f"{word}es" if word.endswith("s") else f"{word}s"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What has to be read around a stack to judge its plan, beside what was read of the release before planning.

    Attributes:
        namespace, release: of the stack.
        nodes: whether the nodes, and the Pods that take room on them.
        slices: whether published devices.
        resource_claims: whether who holds them.
        device_classes: whether the classes.
        rivals: whether role Deployments of whoever else, and the claim templates of those that roll.
        storage_classes: whether the classes.
        limits: whether the ResourceQuotas and LimitRanges of the namespace, its Pods where those of all namespaces are
            not known, and the PriorityClasses where a quota is for some of them.
        scalers: whether the HorizontalPodAutoscalers of the namespace.
        claim_templates: names, in the namespace.
        secrets: names, in the namespace; only whether they are there is asked.
        objects: objects of which the metadata is asked.
        made: objects that the stack makes where they are not there: if one is not, quotas are asked for even though no
            Pod starts, and if a quota counts objects, those of them are looked up that are not among the others.
        volumes: names of PersistentVolumes.
        served: `group/version` of which the kinds are asked; the core group's is `v1`.
    """

    namespace: str
    release: str
    nodes: bool = False
    slices: bool = False
    resource_claims: bool = False
    device_classes: bool = False
    rivals: bool = False
    storage_classes: bool = False
    limits: bool = False
    scalers: bool = False
    claim_templates: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()
    objects: frozenset[Reference] = frozenset()
    made: frozenset[Reference] = frozenset()
    volumes: frozenset[str] = frozenset()
    served: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What is around the stack, as the API server gave it; None and absent keys are what was not asked or not answered.

    Attributes:
        nodes: every node.
        pods: Pods of all namespaces that are not over.
        release_pods: those of them in the namespace with the release's label; known also where only these may be read.
        namespace_pods: those of the namespace, read where those of all namespaces are not known.
        slices: published devices (`resource.k8s.io/v1`).
        device_classes: by name.
        resource_claims: of all namespaces.
        claim_templates: ResourceClaimTemplates of the namespace by name; a value of None is one that is not there.
        templates_elsewhere: by namespace and name, those that Deployments of others name which are rolling.
        storage_classes: by name.
        volume_claims: PersistentVolumeClaims of the namespace by name.
        volumes: PersistentVolumes by name; a value of None is one that is not there.
        quotas, limit_ranges: of the namespace.
        priority_classes: by name; read only where a quota is for some of them.
        scalers: HorizontalPodAutoscalers of the namespace.
        replica_sets: of the release.
        deployments: role Deployments of all namespaces; only those of this release where the others were not asked for
            or may not be read.
        secrets: name -> whether it is there. Nothing else of a Secret is ever read.
        objects: metadata of what was asked by name; None for what is not there.
        groups: API group -> served versions, preferred first; `""` is the core group.
        served: `group/version` -> its kinds; empty for one that is not served.
        server_version: as the API server says it, `v1.36.3`.
        unknown: what could not be read, with the reason, for the operator.
        calls: number of requests.
        size: bytes of the answers.
    """

    nodes: Sequence[Object] | None = None
    pods: Sequence[Object] | None = None
    release_pods: Sequence[Object] | None = None
    namespace_pods: Sequence[Object] | None = None
    slices: Sequence[Object] | None = None
    device_classes: Mapping[str, Object] | None = None
    resource_claims: Sequence[Object] | None = None
    claim_templates: Mapping[str, Object | None] = field(default_factory=dict[str, Object | None])
    templates_elsewhere: Mapping[tuple[str, str], Object | None] = field(
        default_factory=dict[tuple[str, str], Object | None]
    )
    storage_classes: Mapping[str, Object] | None = None
    volume_claims: Mapping[str, Object] | None = None
    volumes: Mapping[str, Object | None] = field(default_factory=dict[str, Object | None])
    quotas: Sequence[Object] | None = None
    limit_ranges: Sequence[Object] | None = None
    priority_classes: Mapping[str, Object] | None = None
    scalers: Sequence[Object] | None = None
    replica_sets: Sequence[Object] | None = None
    deployments: Sequence[Object] | None = None
    secrets: Mapping[str, bool] = field(default_factory=dict[str, bool])
    objects: Mapping[Reference, Object | None] = field(default_factory=dict[Reference, Object | None])
    groups: Mapping[str, tuple[str, ...]] | None = None
    served: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    server_version: str | None = None
    unknown: tuple[str, ...] = ()
    calls: int = 0
    size: int = 0


NOTHING_AROUND = Surroundings()


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """The cluster as this run saw it.

    Attributes:
        claims: PersistentVolumeClaims of the namespace by name, of whatever release; None when they could not be
            listed.
        anchor_is_known: whether it could be found out if there is an anchor.
        anchor: the topology anchor, None when there is none (or it is unknown).
        workloads: live role workloads by name; None when they could not be listed.
        live_topologies: topology keys of this release's Pods that are not over; None when they could not be listed.
        router_leaves: whether the endpoint picker's Deployment is being deleted.
        unknown: what could not be read, with the reason, for the operator.
        near: what was read for that, as the API server gave it: the volume claims of the namespace and the release's
            Deployments, ReplicaSets and Pods.
    """

    claims: Mapping[str, ClaimFacts] | None = None
    anchor_is_known: bool = False
    anchor: AnchorFacts | None = None
    workloads: Mapping[str, WorkloadFacts] | None = None
    live_topologies: frozenset[str] | None = None
    router_leaves: bool = False
    unknown: tuple[str, ...] = field(default=())
    near: Surroundings = NOTHING_AROUND

    @property
    def answered(self) -> bool:
        """Whether anything could be read, so that asking for more is worth the wait."""
        return self.anchor_is_known or any(
            part is not None for part in (self.claims, self.workloads, self.live_topologies)
        )


NOTHING_READ = ClusterFacts(unknown=("the cluster was not read",))


@dataclass(frozen=True, kw_only=True)
class HeldTopology:
    """A topology anchor that the engine's state has from the last update: which stack it is of.

    Attributes:
        key: its topology key.
    """

    release: str
    namespace: str
    key: str


@dataclass(frozen=True, kw_only=True)
class StateFacts:
    """What the engine's state holds of this stack, from its last update.

    Attributes:
        topologies: anchors in it, normally one, none before the first update and after a destroy; None when the state
            is not known.
        workloads: names of the role workloads in it.
        strategies: their `spec.strategy` by name, where it is known.
        cluster_identifier: what the provider in it was made with, None when there is none.
        unknown: why it could not be read, None when it could, or nobody asked.
    """

    topologies: tuple[HeldTopology, ...] | None = None
    workloads: frozenset[str] = frozenset()
    strategies: Mapping[str, Object] = field(default_factory=dict[str, Object])
    cluster_identifier: str | None = None
    unknown: str | None = None


STATE_UNKNOWN = StateFacts()


def not_known(facts: ClusterFacts, state: StateFacts) -> tuple[str, ...]:
    """What neither the cluster nor the engine's state told, and what cannot be said for that, each in words."""
    unknown = [*facts.unknown]
    if state.unknown is not None:
        unknown.append(f"the engine's state: {state.unknown}")
    if not facts.answered:
        unknown.append("what this change does to running Pods, and what stands in its way: the cluster was not read")
    return tuple(unknown)


@dataclass(frozen=True, kw_only=True)
class TrialFacts:
    """What the API server said to every planned workload in a dry run.

    Attributes:
        refused: workload name -> the API server's words, for those that it would not take.
        warned: workload name -> what the API server warns of, for those that it would take all the same.
        results: workload name -> the whole object as it would be stored, for those that it would take: with defaults,
            and with what others own in it.
        live: name -> the object as it is now, None if there is none, for those that were looked at beside the trial.
        unknown: why it could not be asked, None when it could.
    """

    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    warned: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    results: Mapping[str, Object] = field(default_factory=dict[str, Object])
    live: Mapping[str, Object | None] = field(default_factory=dict[str, Object | None])
    unknown: str | None = None


NOT_TRIED = TrialFacts(unknown="the API server was not asked")
