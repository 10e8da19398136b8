"""Has the API server try every planned workload, without effect, before anything is taken down for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.connect import NOT_FOUND, Cluster, ClusterError
from stack import labels
from stack.facts import TrialFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stack.planned import Manifest, ObjectPlan

NO_VERDICT = frozenset({401, NOT_FOUND, 408, 409, 429})
"""HTTP statuses that say nothing of the object: nobody may ask, nothing to ask, or not just now."""
FIRST_SERVER_ERROR = 500
NO_RIGHT = 'cannot patch resource "'
"""What the authorizer says; admission plugins refuse with the same status and other words."""
NO_DRY_RUN = "does not support dry run"
"""What the API server says when a webhook stands in the way that might have effects."""


def try_workloads(context: str, workloads: Sequence[ObjectPlan], *, owner: Manifest | None) -> TrialFacts:
    """What the API server says to each, as the engine would send it.

    Args:
        context: kubeconfig context.
        workloads: the planned Deployments.
        owner: owner reference that they will have, with the uid of the live anchor; None when there is no anchor yet.
            Some clusters let only those set it who may change the owner.
    """
    refused: dict[str, str] = {}
    warned: dict[str, tuple[str, ...]] = {}
    try:
        with Cluster(context) as cluster:
            for workload in workloads:
                meta = workload.manifest["metadata"]
                owned = {**meta, "ownerReferences": [owner]} if owner is not None else meta
                path = f"/apis/apps/v1/namespaces/{meta['namespace']}/deployments/{workload.name}"
                try:
                    warned[workload.name] = cluster.try_to_apply(
                        path,
                        {**workload.manifest, "metadata": owned},
                        field_manager=meta["annotations"][labels.FIELD_MANAGER],
                    )
                except ClusterError as error:
                    if not _is_verdict(error):
                        raise
                    refused[workload.name] = str(error)
    except ClusterError as error:
        return TrialFacts(refused=refused, warned=warned, unknown=None if refused else str(error))
    return TrialFacts(refused=refused, warned=warned)


def _is_verdict(error: ClusterError) -> bool:
    """Whether the object was looked at and found wanting, rather than the question refused."""
    said = str(error)
    if error.status is None or error.status >= FIRST_SERVER_ERROR or NO_RIGHT in said or NO_DRY_RUN in said:
        return False
    return error.status not in NO_VERDICT
