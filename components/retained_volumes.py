"""PersistentVolumeClaims that outlive the stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi

from components.objects import declare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stack.planned import VolumePlan


@dataclass(frozen=True, kw_only=True)
class RetainedVolumesArgs:
    """The planned claims."""

    volumes: Sequence[VolumePlan]


class RetainedVolumes(pulumi.ComponentResource):
    """In the cluster: caches and model store. Kept at destroy, found again by the next install, never replaced."""

    resources: list[pulumi.CustomResource]

    def __init__(self, name: str, args: RetainedVolumesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("servingstack:storage:RetainedVolumes", name, None, opts)
        self.resources = [
            declare(
                volume.object.logical_name,
                volume.object,
                pulumi.ResourceOptions(
                    parent=self,
                    # On the claim itself: the engine hands it down to children, so it must not stand on a component.
                    retain_on_delete=True,
                    import_=volume.import_id,
                    ignore_changes=list(volume.ignored),
                ),
            )
            for volume in args.volumes
        ]
        self.register_outputs({"claims": [volume.object.name for volume in args.volumes]})
