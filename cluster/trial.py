"""Has the API server try every planned workload, without effect, before anything is taken down for it.

What it answers is what it would store, so it also tells whether Pods would restart: see `stack.impact`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cluster.connect import NOT_FOUND, Cluster, ClusterError
from stack import labels
from stack.facts import TrialFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.connect import Object
    from stack.planned import Manifest, ObjectPlan

NO_VERDICT = frozenset({401, NOT_FOUND, 408, 409, 429})
"""HTTP statuses that say nothing of the object: nobody may ask, nothing to ask, or not just now."""
FIRST_SERVER_ERROR = 500
NO_RIGHT = 'cannot patch resource "'
"""What the authorizer says; admission plugins refuse with the same status and other words."""
NO_DRY_RUN = "does not support dry run"
"""What the API server says when a webhook stands in the way that might have effects."""
OTHER_SELECTOR = ("spec.selector", "field is immutable")
"""What the API server says to a Deployment whose selector changes. The endpoint picker's is replaced by the engine."""


def try_workloads(
    context: str,
    workloads: Sequence[ObjectPlan],
    *,
    owner: Manifest | None,
    others: Sequence[ObjectPlan] = (),
) -> TrialFacts:
    """What the API server says to each, as the engine would send it.

    Args:
        context: kubeconfig context.
        workloads: the planned Deployments of the roles.
        owner: owner reference that they will have, with the uid of the live anchor; None when there is no anchor yet.
            Some clusters let only those set it who may change the owner.
        others: planned Deployments that the anchor does not own; they are tried last, and read as they are live. Where
            one of them can't be tried, only that is not known.
    """
    said = _Said()
    try:
        with Cluster(context) as cluster:
            for workload in workloads:
                _try(cluster, workload, said, owner=owner)
            for other in others:
                _look_at(cluster, other, said)
    except ClusterError as error:
        return said.facts(unknown=None if said.refused else str(error))
    return said.facts()


@dataclass(kw_only=True)
class _Said:
    """What was answered so far."""

    refused: dict[str, str] = field(default_factory=dict[str, str])
    warned: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    results: dict[str, Object] = field(default_factory=dict[str, "Object"])
    live: dict[str, Object | None] = field(default_factory=dict[str, "Object | None"])

    def facts(self, *, unknown: str | None = None) -> TrialFacts:
        return TrialFacts(
            refused=self.refused, warned=self.warned, results=self.results, live=self.live, unknown=unknown
        )


def _try(
    cluster: Cluster, workload: ObjectPlan, said: _Said, *, owner: Manifest | None, is_replaceable: bool = False
) -> None:
    """Raises ClusterError if nobody can tell."""
    meta = workload.manifest["metadata"]
    owned = {**meta, "ownerReferences": [owner]} if owner is not None else meta
    try:
        said.results[workload.name], said.warned[workload.name] = cluster.try_to_apply(
            _path(workload),
            {**workload.manifest, "metadata": owned},
            field_manager=meta["annotations"][labels.FIELD_MANAGER],
        )
    except ClusterError as error:
        if not _is_verdict(error):
            raise
        if not (is_replaceable and all(words in str(error) for words in OTHER_SELECTOR)):
            said.refused[workload.name] = str(error)


def _look_at(cluster: Cluster, other: ObjectPlan, said: _Said) -> None:
    try:
        said.live[other.name] = cluster.find(_path(other))
        _try(cluster, other, said, owner=None, is_replaceable=True)
    except ClusterError:
        return  # nothing hangs on it but the forecast, which then says that it does not know


def _path(workload: ObjectPlan) -> str:
    return f"/apis/apps/v1/namespaces/{workload.manifest['metadata']['namespace']}/deployments/{workload.name}"


def _is_verdict(error: ClusterError) -> bool:
    """Whether the object was looked at and found wanting, rather than the question refused."""
    said = str(error)
    if error.status is None or error.status >= FIRST_SERVER_ERROR or NO_RIGHT in said or NO_DRY_RUN in said:
        return False
    return error.status not in NO_VERDICT
