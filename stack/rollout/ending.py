"""What of an earlier change is still under way: workloads that go, and their Pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stack.rollout.pods import is_leaving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stack.rollout.departures import Departures, Overstay
    from stack.rollout.pods import Object


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What goes.

    Attributes:
        objects: anchor and Deployments, as `Kind name`.
        pods: names of their Pods, and of Pods whose Deployment has gone already.
        overstays: those of them that should have been gone.
    """

    objects: tuple[str, ...]
    pods: tuple[str, ...]
    overstays: tuple[Overstay, ...] = ()

    @classmethod
    def read(
        cls, anchor: Object | None, deployments: Sequence[Object], pods: Sequence[Object], departures: Departures
    ) -> Ending:
        """From what is there of one release.

        Args:
            anchor: the live topology anchor.
            deployments: those of the roles, and the endpoint picker's.
            pods: of both, without those that are over.
            departures: since when they leave.
        """
        staying = [deployment for deployment in deployments if not _goes(deployment, anchor)]
        objects = [f"Deployment {d['metadata']['name']}" for d in deployments if _goes(d, anchor)]
        if anchor is not None and "deletionTimestamp" in anchor["metadata"]:
            objects.insert(0, f"ConfigMap {anchor['metadata']['name']}")
        left = [pod for pod in pods if _is_anybodys(pod) and not any(selects(d, pod) for d in staying)]
        left.sort(key=lambda pod: pod["metadata"]["name"])
        return cls(
            objects=tuple(objects),
            pods=tuple(pod["metadata"]["name"] for pod in left),
            overstays=tuple(filter(None, map(departures.overstay, left))),
        )

    @property
    def is_over(self) -> bool:
        """Whether nothing goes any more."""
        return not (self.objects or self.pods)

    @property
    def is_stuck(self) -> bool:
        """Whether all that is left waits for Pods that should have been gone: objects go after their Pods."""
        return bool(self.pods) and len(self.overstays) == len(self.pods)


def selects(deployment: Object, pod: Object) -> bool:
    """Whether a Pod carries the labels that a Deployment selects by."""
    labels: dict[str, str] = pod["metadata"].get("labels", {})
    return deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()


def _goes(deployment: Object, anchor: Object | None) -> bool:
    """As `stack.topology` sees it: it is being deleted, or was made under another anchor than the live one.

    Without any owner it is none of these: garbage collection leaves it alone.
    """
    meta: Object = deployment["metadata"]
    owners = {owner["uid"] for owner in meta.get("ownerReferences", ())}
    live = set[str]() if anchor is None else {anchor["metadata"]["uid"]}
    return "deletionTimestamp" in meta or bool(owners and not owners & live)


def _is_anybodys(pod: Object) -> bool:
    """Whether somebody made it and will take it down again, unlike a Pod that was put there by hand."""
    return is_leaving(pod) or bool(pod["metadata"].get("ownerReferences"))
