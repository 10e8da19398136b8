"""What was read from the cluster before planning, as plain values, described here and filled by `cluster/facts.py`.

*Unknown* (no cluster, no permission, nothing asked) is `None` and never mistaken for *none there*.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stack.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    """

    claims: Mapping[str, ClaimFacts] | None = None
    anchor_is_known: bool = False
    anchor: AnchorFacts | None = None
    workloads: Mapping[str, WorkloadFacts] | None = None
    live_topologies: frozenset[str] | None = None
    router_leaves: bool = False
    unknown: tuple[str, ...] = field(default=())


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
        cluster_identifier: what the provider in it was made with, None when there is none.
        unknown: why it could not be read, None when it could, or nobody asked.
    """

    topologies: tuple[HeldTopology, ...] | None = None
    workloads: frozenset[str] = frozenset()
    cluster_identifier: str | None = None
    unknown: str | None = None


STATE_UNKNOWN = StateFacts()


@dataclass(frozen=True, kw_only=True)
class TrialFacts:
    """What the API server said to every planned workload in a dry run.

    Attributes:
        refused: workload name -> the API server's words, for those that it would not take.
        warned: workload name -> what the API server warns of, for those that it would take all the same.
        unknown: why it could not be asked, None when it could.
    """

    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    warned: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    unknown: str | None = None
