"""The model servers: what their Pods read, the topology anchor, and one Deployment per role or nodePlacement entry."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pulumi

from components.objects import declare, scoped
from components.waits import beside_the_program, rolled_out

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
        before: everything else of the stack. On destroy it goes after the anchor, so that draining Pods can still be
            reached; in an update no Pod is touched before the EPP that is to find it serves, and an object that fails
            does so while everything still runs.
        until_may_be_made: before a workload is created, with the uid of the anchor that will own it: until no Pod of
            another topology holds a device.
        until_rolled_out: after a workload is as planned, by its name in the cluster: until every Pod is new and Ready.
    """

    plan: ModelServerPlan
    before: Sequence[pulumi.Input[pulumi.Resource]]
    until_may_be_made: Callable[[str], None]
    until_rolled_out: Callable[[str], None]


class ModelServers(pulumi.ComponentResource):
    """In the cluster: serve ConfigMaps, ServiceAccount, the anchor that owns all workloads, the role Deployments."""

    resources: list[pulumi.CustomResource]
    workloads: dict[str, pulumi.CustomResource]
    """The role Deployments by their names in the cluster."""
    scaler_seats: dict[str, pulumi.ComponentResource]
    """By role, what its scaler stands on."""

    def __init__(self, name: str, args: ModelServersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("servingstack:serving:ModelServers", name, None, opts)
        # The engine keeps the names of hooks in the state, so they are as permanent as a logical name.
        self._devices_free = pulumi.ResourceHook(
            f"{name}-devices-free", lambda hook: beside_the_program(partial(args.until_may_be_made, _owner_uid(hook)))
        )
        child = pulumi.ResourceOptions(parent=self)
        read = [declare(scoped(name, planned), planned, child) for planned in args.plan.objects]
        anchor = self._anchor(name, args, read)
        # Every Kubernetes object has metadata.
        owner = args.plan.topology.owner_reference(anchor.metadata.apply(_uid))  # type: ignore[attr-defined]
        seats = {
            role: self._seat(name, role, anchor, is_taken=is_taken)
            for role, is_taken in args.plan.topology.seats.items()
        }
        self.scaler_seats = {
            role: self._scaler_seat(name, role, provider, anchor) for role, provider in args.plan.scaler_seats.items()
        }
        # By their URNs: to depend on a component means to depend on its children, and a seat has none.
        urns = [seat.urn for seat in (*seats.values(), *self.scaler_seats.values())]
        seated = pulumi.Output.all(*urns).apply(lambda _: anchor)
        self.workloads = {}
        complete: dict[str, pulumi.Output[pulumi.Resource]] = {}
        for planned in args.plan.workloads:
            after = [seated, *(complete[earlier] for earlier in planned.after)]
            workload = self._workload(name, planned, anchor, seats.get(planned.role), after=after, owner=owner)
            self.workloads[planned.object.name] = workload
            complete[planned.object.name] = rolled_out(workload, partial(args.until_rolled_out, planned.object.name))
        self.resources = [*read, anchor, *self.workloads.values()]
        self.register_outputs({"topology": args.plan.topology.key})

    def _anchor(self, name: str, args: ModelServersArgs, read: Sequence[pulumi.Resource]) -> pulumi.CustomResource:
        topology = args.plan.topology
        return declare(
            scoped(name, topology.anchor),
            topology.anchor,
            pulumi.ResourceOptions(
                parent=self,
                # Not `replacement_trigger`: an outdated state holds the key of an earlier update, and would have the
                # anchor replaced that is as wanted. What is refreshed is the data.
                replace_on_changes=["data"],
                # Not for data: at destroy the way to the Pods must stay until the last one is gone.
                depends_on=[*args.before, *read],
                custom_timeouts=pulumi.CustomTimeouts(delete=f"{topology.leave_seconds}s"),
            ),
        )

    def _seat(self, name: str, role: str, anchor: pulumi.Resource, *, is_taken: bool) -> pulumi.ComponentResource:
        """What a role's workload stands on: nothing in the cluster, but an order for the engine.

        An update deletes last what it drops. A role that is set to 0 would hold its devices until the others have
        grown, and they would wait for those devices. So its seat is replaced, and with it, first, what stood on it.
        """
        seat = pulumi.ComponentResource(
            "servingstack:serving:RoleSeat",
            f"{name}-{role}",
            None,
            pulumi.ResourceOptions(
                parent=self,
                replacement_trigger="taken" if is_taken else "empty",
                delete_before_replace=True,
                # When the topology changes as well, all workloads have gone with the anchor by then.
                depends_on=[anchor],
            ),
        )
        seat.register_outputs({})
        return seat

    def _scaler_seat(self, name: str, role: str, provider: str, anchor: pulumi.Resource) -> pulumi.ComponentResource:
        """What a role's scaler stands on: again nothing but an order.

        A scaler that is dropped would be deleted last, and until then undo the number of Pods that is written again.
        When it is exchanged for one of another kind, two would pull at one Deployment. So its seat is replaced, and
        what stood on it goes before any workload changes.
        """
        seat = pulumi.ComponentResource(
            "servingstack:serving:ScalerSeat",
            f"{name}-{role}-scaler",
            None,
            pulumi.ResourceOptions(
                parent=self,
                replacement_trigger=provider,
                delete_before_replace=True,
                depends_on=[anchor],  # as a workload: nothing is touched before all the rest is as it is to be
            ),
        )
        seat.register_outputs({})
        return seat

    def _workload(
        self,
        name: str,
        workload: WorkloadPlan,
        anchor: pulumi.Resource,
        seat: pulumi.Resource | None,
        *,
        after: Sequence[pulumi.Input[pulumi.Resource]],
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
                replace_with=[anchor] if seat is None else [anchor, seat],
                depends_on=list(after),
                # The manifest leaves it out; without this the engine would send the number of its last update.
                ignore_changes=["spec.replicas"] if "replicas" not in workload.object.manifest["spec"] else None,
                hooks=pulumi.ResourceHookBinding(before_create=[self._devices_free]),
                custom_timeouts=pulumi.CustomTimeouts(create=timeout, update=timeout, delete=timeout),
            ),
            owners=[owner],
        )


def _owner_uid(hook: pulumi.ResourceHookArgs) -> str:
    """Uid of the anchor, out of the workload that is about to be made."""
    inputs: Any = hook.new_inputs  # there are some before a creation
    return inputs["metadata"]["ownerReferences"][0]["uid"]


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
