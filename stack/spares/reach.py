"""Which nodes the volumes of a Pod can be reached from: what ties it to some of them, whatever else is free.

A volume that is bound says it itself, by node affinity or by labels of its zone (kube-scheduler, plugins VolumeBinding
and VolumeZone). How many Pods or nodes may mount it at once is not looked at here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stack.spares.pods import Object, at, inside

if TYPE_CHECKING:
    from collections.abc import Mapping

ZONE_LABELS = {
    label: f"topology.kubernetes.io/{kind}"
    for kind in ("zone", "region")
    for label in (f"failure-domain.beta.kubernetes.io/{kind}", f"topology.kubernetes.io/{kind}")
}
"""Labels of volumes that name where they are, to those of nodes."""
SEVERAL = "__"
"""Between the zones of a volume that is in several."""
LATE = "WaitForFirstConsumer"


@dataclass(frozen=True, kw_only=True)
class Reach:
    """From where a claim's volume can be reached.

    Attributes:
        selectors: NodeSelectors, all of which a node has to match; none where every node will do.
        unknown: why that is not known.
    """

    selectors: tuple[Object, ...] = ()
    unknown: str | None = None


def reach_of_claims(
    names: frozenset[str],
    claims: Mapping[str, Object] | None,
    volumes: Mapping[str, Object | None],
    classes: Mapping[str, Object] | None,
) -> dict[str, Reach]:
    """From where each claim's volume can be reached. A claim that is not there yet ties nobody.

    Args:
        names: of the claims in question.
        claims: PersistentVolumeClaims of the namespace by name; None if they could not be read.
        volumes: PersistentVolumes by name; one that is missing here could not be read.
        classes: StorageClasses by name; None if they could not be read.
    """
    if claims is None:
        return dict.fromkeys(names, Reach(unknown="the claims that it mounts could not be read"))
    return {name: _reach(name, claims[name], volumes, classes) for name in sorted(names & claims.keys())}


def _reach(
    name: str, claim: Object, volumes: Mapping[str, Object | None], classes: Mapping[str, Object] | None
) -> Reach:
    volume_name: str | None = at(claim, "spec", "volumeName")
    if not volume_name:
        return _of_unbound(name, claim, classes)
    volume = volumes.get(volume_name)
    if volume is None:
        return Reach(unknown=f"the volume of claim {name} could not be read")
    affinity = at(volume, "spec", "nodeAffinity", "required")
    return Reach(selectors=(*(() if affinity is None else (affinity,)), *_zones(inside(volume, "metadata", "labels"))))


def _of_unbound(name: str, claim: Object, classes: Mapping[str, Object] | None) -> Reach:
    """It gets its volume for the first Pod that mounts it, near that Pod, unless the volume is for all nodes anyway."""
    modes: list[str] = at(claim, "spec", "accessModes") or []
    found = (classes or {}).get(at(claim, "spec", "storageClassName") or "")
    is_late = classes is None or at(found, "volumeBindingMode") == LATE
    if is_late and "ReadWriteMany" not in modes:
        return Reach(unknown=f"claim {name} has no volume yet, and gets one where its first Pod goes")
    return Reach()


def _zones(labels: Mapping[str, str]) -> list[Object]:
    """A node that says nothing of its zone will do."""
    asked = {ZONE_LABELS[label]: value.split(SEVERAL) for label, value in labels.items() if label in ZONE_LABELS}
    silent = [{"key": key, "operator": "DoesNotExist"} for key in sorted(set(ZONE_LABELS.values()))]
    return [
        {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": key, "operator": "In", "values": values}]},
                {"matchExpressions": silent},
            ]
        }
        for key, values in sorted(asked.items())
    ]
