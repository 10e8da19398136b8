"""What was read from the cluster before planning, as plain values, described here and filled by `cluster/facts.py`.

*Unknown* (no cluster, no permission, nothing asked) is `None` and never mistaken for *none there*.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class AnchorFacts:
    """The live topology anchor."""

    key: str
    generation: int
    uid: str
    is_terminating: bool = False


@dataclass(frozen=True, kw_only=True)
class WorkloadFacts:
    """A live role workload of this release: which nodePlacement entry it is, and on whose behalf it runs."""

    name: str
    role: str
    entry: int | None = None
    node: str | None = None
    owner_uid: str | None = None
    is_terminating: bool = False


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """The cluster as this run saw it.

    Attributes:
        claims: names of the PersistentVolumeClaims in the namespace; None when they could not be listed.
        anchor_is_known: whether it could be found out if there is an anchor.
        anchor: the topology anchor, None when there is none (or it is unknown).
        workloads: live role workloads by name; None when they could not be listed.
        unknown: what could not be read, with the reason, for the operator.
    """

    claims: frozenset[str] | None = None
    anchor_is_known: bool = False
    anchor: AnchorFacts | None = None
    workloads: Mapping[str, WorkloadFacts] | None = None
    unknown: tuple[str, ...] = field(default=())


NOTHING_READ = ClusterFacts(unknown=("the cluster was not read",))
