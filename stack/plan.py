"""Config and facts in, the whole plan out. Pure: the same input gives the same plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stack import names
from stack.applied import apply_defaults
from stack.budget import budget_line, sum_budget
from stack.contributions import trace_contributions
from stack.autoscaling import expected_pods, plan_scaler_seats, plan_scalers, refuse_standstill
from stack.devices import plan_devices
from stack.disruption import plan_disruption_budgets
from stack.errors import in_order
from stack.facts import STATE_UNKNOWN, FactsError
from stack.gateway import endpoint, gateway_name, plan_gateway
from stack.limits import time_limits
from stack.modelserver import SLACK_SECONDS, Scaled, plan_serve_config, plan_service_account, plan_workload
from stack.monitoring import plan_monitoring, plan_watching
from stack.moves import refuse_moves
from stack.planned import ModelServerPlan, ProviderPlan, RollOutPlan, StackPlan
from stack.protection import plan_protection
from stack.router import START_SECONDS, plan_router
from stack.serve import plan_serve
from stack.storage import plan_volumes, refuse_claims, warn_of_claims
from stack.topology import order_entries, place, plan_topology

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stack.config.root import StackConfig
    from stack.facts import ClusterFacts, StateFacts
    from stack.planned import BudgetLine, ObjectPlan, ScalerPlan, TopologyPlan, WorkloadPlan
    from stack.recipes.model import Recipe
    from stack.capacity import RoleCapacity
    from stack.rules import Accepted
    from stack.scalars import Role
    from stack.serve import RoleServe


    from stack.devices import DevicesPlan
    from stack.drain import RoleDrain
def plan_stack(accepted: Accepted, facts: ClusterFacts, state: StateFacts = STATE_UNKNOWN) -> StackPlan:
    """Decide everything.

    Args:
        accepted: a configuration that every rule accepts, with its recipe.
        facts: what the cluster holds; unknown facts lead to a plan that says what it could not settle.
        state: what the engine's state holds of this stack.

    Raises:
        FactsError: what is live forbids it.
    """
    config, recipe = accepted.config, accepted.recipe
    model = config.modelserver.model or recipe.model
    roles = config.modelserver.roles()
    placements = place(config)
    devices = plan_devices(config, recipe)
    topology = plan_topology(
        config,
        placements,
        model=model,
        leave_seconds=max((serve.drain.grace for serve in serves.values()), default=0) + SLACK_SECONDS,
        facts=facts,
        state=state,
    )
    serves: dict[Role, RoleServe] = {
        role: plan_serve(config, recipe, role, is_disaggregated=topology.is_disaggregated) for role in roles
    }
    order = order_entries(config, placements, key=topology.key, facts=facts)
    held = _held_strategies(facts, state)
    workloads = tuple(
        plan_workload(
            config,
            recipe,
            placement,
            serves[placement.role],
            topology=topology,
            devices=devices,
            contributions=trace_contributions(
                config, recipe, placement, serves[placement.role], topology=topology, devices=devices
            ),
            after=order.get(names.workload(config.release, placement.role, placement.entry), ()),
            held=held.get(names.workload(config.release, placement.role, placement.entry)),
        )
        for placement in placements
    )
    router = plan_router(config, recipe, serves, is_disaggregated=topology.is_disaggregated)
    volumes = plan_volumes(config, roles, facts)
            scaled=_scaled(config, placement, topology, facts=facts, state=state),
    unsettled = () if topology.unknown is None else (topology.unknown,)
    moves = refuse_moves(config, topology, [workload.object.name for workload in workloads], facts=facts, state=state)
    if refused := (*moves, *refuse_claims(config, volumes, facts)):
    capacities: dict[Role, RoleCapacity] = {
        role: plan_capacity(serve, least_pods=config.bounds(role)[0], most_pods=config.bounds(role)[1])
        for role, serve in serves.items()
    }
    scalers = plan_scalers(config, capacities)
    drains: dict[Role, RoleDrain] = {role: serve.drain for role, serve in serves.items()}
    watched = watch_roles(config, capacities, drains, workloads, scalers)
        raise FactsError((*refused, *unsettled))
    budget = sum_budget(
        [
            *(budget_line(workload.role, workload.object.manifest, devices) for workload in workloads),
            *(budget_line("epp", o.manifest, None) for o in router if o.kind == "Deployment"),
        ]
    )
    return StackPlan(
        release=config.release,
        namespace=config.namespace,
        provider=ProviderPlan(
            context=config.context,
            cluster_identifier=config.cluster.identifier,
            version=config.cluster.provider_version,
        ),
        claims=(devices.template,) if devices.template is not None else (),
        volumes=volumes,
        router=router,
        gateway=plan_gateway(config),
        monitoring=plan_monitoring(config, serves),
        modelserver=ModelServerPlan(
            objects=(
                *plan_protection(config, topology.anchor.name),
                *plan_service_account(config),
                *(plan_serve_config(config, serve) for serve in serves.values()),
            ),
            workloads=workloads,
            topology=topology,
        ),
        budget=budget,
        roll_outs={
                *plan_disruption_budgets(config, roles),
            planned.name: planned
            for planned in (*_workload_roll_outs(config, workloads, scalers), *_router_roll_outs(config, router))
        },
        warnings=in_order((*accepted.warnings, *unsettled, *warn_of_claims(config, volumes, facts))),
            scalers=scalers,
            scaler_seats=plan_scaler_seats(config),
        applied=apply_defaults(config, recipe, serves),
        outputs=_outputs(config, model=model, devices=devices, plan_parts=(volumes, workloads, topology, budget))
        | _drain_outputs(config, recipe, serves)
        | {"capacity": _capacity_outputs(capacities), "autoscaling": _scaling_outputs(scalers)},
    )


def _held_strategies(facts: ClusterFacts, state: StateFacts) -> dict[str, Any]:
    """Strategies of the Deployments that are there, by name: as they are live, else as the engine's state has them."""
    live = {each["metadata"]["name"]: each["spec"].get("strategy") for each in facts.near.deployments or ()}
    return {**state.strategies, **live}


def _workload_roll_outs(
    config: StackConfig, workloads: tuple[WorkloadPlan, ...], scalers: tuple[ScalerPlan, ...]
) -> Iterator[RollOutPlan]:
    named = {scaler.workload: f"{scaler.object.kind.lower()} {scaler.object.name}" for scaler in scalers}
    for workload in workloads:
        yield RollOutPlan(
            name=workload.object.name,
            part=workload.role,
            selector=workload.object.manifest["spec"]["selector"]["matchLabels"],
            pods=workload.replicas,
            ready=workload.replicas,
            awaits_leave=True,
            is_owned=True,
            timeout_seconds=workload.timeout_seconds,
            patience_seconds=config.rollout.patience_seconds,
        )


def _router_roll_outs(config: StackConfig, router: tuple[ObjectPlan, ...]) -> Iterator[RollOutPlan]:
    for planned in router:
        if planned.kind == "Deployment":
            spec = planned.manifest["spec"]
            yield RollOutPlan(
                name=planned.name,
                part="epp",
                selector=spec["selector"]["matchLabels"],
                pods=spec["replicas"],
                ready=1,
                # The old one drains while the new one serves; it holds nothing that anybody waits for.
                awaits_leave=False,
                is_owned=False,
                timeout_seconds=spec["template"]["spec"]["terminationGracePeriodSeconds"] + START_SECONDS,
                patience_seconds=config.rollout.patience_seconds,
            )


def _outputs(config: StackConfig, *, model: str, devices: Any, plan_parts: tuple[Any, Any, Any, Any]) -> dict[str, Any]:
    """Plain stack outputs: where to send requests, what things are called, what is used."""
    volumes, workloads, topology, budget = plan_parts
    return {
        "endpoint": endpoint(config),
        "model": model,
        "names": {
            "gateway": gateway_name(config) if config.gateway.enabled else None,
            "workloads": [workload.object.name for workload in workloads],
            "claims": [volume.object.name for volume in volumes],
            "claimTemplate": devices.template_name,
        },
        "topology": {
            "mode": topology.mode,
            "disaggregated": topology.is_disaggregated,
            "key": topology.key,
            "generation": topology.generation,
        },
        "devices": {
            "accelerators": budget.total("accelerators"),
            "nics": budget.total("nics"),
        },
        "budget": [str(line) for line in budget.lines],
    }
def _drain_outputs(config: StackConfig, recipe: Recipe, serves: Mapping[Role, RoleServe]) -> dict[str, Any]:
    """How Pods leave, and every time limit on the way of a stream."""
    return {
        "drain": {
            role: {
                "mode": serve.drain.mode,
                "why": serve.drain.why,
                "timeoutSeconds": serve.drain.timeout,
                "graceSeconds": serve.drain.grace,
            }
            for role, serve in serves.items()
        },
        "limits": [limit.as_output() for limit in time_limits(config, recipe, serves)],
    }


            floor=workload.floor,
            scaler=named.get(workload.object.name, ""),
