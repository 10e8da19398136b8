"""The model servers: what their Pods read, the topology anchor, and one Deployment per role or nodePlacement entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi

from components.objects import declare, scoped
from components.waits import beside_the_program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stack.planned import ModelServerPlan, WorkloadPlan

ZERO_UID = "00000000-0000-0000-0000-000000000000"
"""Stands for the anchor's uid in a preview in which the anchor does not exist yet."""


@dataclass(frozen=True, kw_only=True)
class ModelServersArgs:
    """The plan, what must outlive every Pod, and the waits around a roll-out.

    The waits block, are run on threads of their own, and raise `pulumi.RunError`; none runs in a preview.

    Attributes:
        before: data path and claim templates; on destroy they go after the anchor, so that draining Pods can still
            be reached.
        until_devices_are_free: before a workload is created: until no Pod of another topology holds a device.
        until_rolled_out: after a workload is as planned, by its name in the cluster: until every Pod is new and Ready.
    """

    plan: ModelServerPlan
    before: Sequence[pulumi.Resource]
    until_devices_are_free: Callable[[], None]
    until_rolled_out: Callable[[str], None]


class ModelServers(pulumi.ComponentResource):
    """In the cluster: serve ConfigMaps, ServiceAccount, the anchor that owns all workloads, the role Deployments."""

    resources: list[pulumi.CustomResource]

    def __init__(self, name: str, args: ModelServersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("servingstack:serving:ModelServers", name, None, opts)
        # The engine keeps the names of hooks in the state, so they are as permanent as a logical name.
        self._devices_free = pulumi.ResourceHook(
            f"{name}-devices-free", lambda _: beside_the_program(args.until_devices_are_free)
        )
        child = pulumi.ResourceOptions(parent=self)
        read = [declare(scoped(name, planned), planned, child) for planned in args.plan.objects]
        anchor = self._anchor(name, args, read)
        owner: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": args.plan.topology.anchor.name,
            "uid": anchor.metadata.apply(_uid),  # type: ignore[attr-defined]  # every Kubernetes object has metadata
            "blockOwnerDeletion": True,
        }
        workloads = [self._workload(name, workload, anchor, owner) for workload in args.plan.workloads]
        self.resources = [*read, anchor, *workloads]
        for planned, workload in zip(args.plan.workloads, workloads, strict=True):
            self._await_roll_out(planned.object.name, workload, args)
        self.register_outputs({"topology": args.plan.topology.key})

    def _anchor(self, name: str, args: ModelServersArgs, read: Sequence[pulumi.Resource]) -> pulumi.CustomResource:
        topology = args.plan.topology
        return declare(
            scoped(name, topology.anchor),
            topology.anchor,
            pulumi.ResourceOptions(
                parent=self,
                replacement_trigger=topology.key,
                # Not for data: at destroy the way to the Pods must stay until the last one is gone.
                depends_on=[*args.before, *read],
                custom_timeouts=pulumi.CustomTimeouts(delete=f"{topology.leave_seconds}s"),
            ),
        )

    def _workload(
        self,
        name: str,
        workload: WorkloadPlan,
        anchor: pulumi.CustomResource,
        owner: dict[str, Any],
    ) -> pulumi.CustomResource:
        timeout = f"{workload.timeout_seconds}s"
        return declare(
            scoped(name, workload.object),
            workload.object,
            pulumi.ResourceOptions(
                parent=self,
                # The cluster's garbage collection takes all workloads down in parallel when the anchor goes.
                deleted_with=anchor,
                replace_with=[anchor],
                hooks=pulumi.ResourceHookBinding(before_create=[self._devices_free]),
                custom_timeouts=pulumi.CustomTimeouts(create=timeout, update=timeout, delete=timeout),
            ),
            owners=[owner],
        )

    def _await_roll_out(self, name: str, workload: pulumi.CustomResource, args: ModelServersArgs) -> None:
        """Wait here and not in an after hook, during which the engine could do nothing else: see `components.waits`.

        Also for a workload that did not change in this update: it may still be on its way from the one before, and an
        update that ends well has to mean that the stack serves.
        """

        async def wait(_: object) -> None:
            await beside_the_program(lambda: args.until_rolled_out(name))

        if not pulumi.runtime.is_dry_run():
            workload.id.apply(wait)


def _uid(metadata: Any) -> str:
    """The anchor's uid; in a preview that would make the anchor there is none."""
    uid = metadata.get("uid")
    if uid:
        return uid
    if pulumi.runtime.is_dry_run():
        return ZERO_UID
    raise pulumi.RunError(
        "the topology anchor has no uid after it was made. Run `pulumi refresh`, then `pulumi up` again."
    )
