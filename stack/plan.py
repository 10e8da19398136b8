"""Config and facts in, the whole plan out. Pure: the same input gives the same plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stack import names
from stack.alerts import watch_roles
from stack.applied import apply_defaults
from stack.autoscaling import expected_pods, plan_scaler_seats, plan_scalers, refuse_standstill
from stack.budget import budget_line, sum_budget
from stack.capacity import plan_capacity
from stack.contributions import trace_contributions
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
    from collections.abc import Iterable, Iterator, Mapping

    from stack.capacity import RoleCapacity
    from stack.config.root import StackConfig
    from stack.devices import DevicesPlan
    from stack.drain import RoleDrain
    from stack.facts import ClusterFacts, StateFacts
    from stack.planned import BudgetLine, ObjectPlan, ScalerPlan, TopologyPlan, WorkloadPlan
    from stack.recipes.model import Recipe
    from stack.rules import Accepted
    from stack.scalars import Role
    from stack.serve import RoleServe
    from stack.topology import Placement


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
    is_disaggregated = config.modelserver.is_disaggregated()
    serves: dict[Role, RoleServe] = {
        role: plan_serve(config, recipe, role, is_disaggregated=is_disaggregated) for role in roles
    }
    topology = plan_topology(
        config,
        placements,
        model=model,
        leave_seconds=max((serve.drain.grace for serve in serves.values()), default=0) + SLACK_SECONDS,
        facts=facts,
        state=state,
    )
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
            scaled=_scaled(config, placement, topology, facts=facts, state=state),
        )
        for placement in placements
    )
    capacities: dict[Role, RoleCapacity] = {
        role: plan_capacity(serve, bounds=config.bounds(role)) for role, serve in serves.items()
    }
    scalers = plan_scalers(config, capacities)
    drains: dict[Role, RoleDrain] = {role: serve.drain for role, serve in serves.items()}
    watched = watch_roles(config, capacities, drains, workloads, scalers)
    router = plan_router(config, recipe, serves, is_disaggregated=topology.is_disaggregated)
    volumes = plan_volumes(config, roles, facts)
    unsettled = () if topology.unknown is None else (topology.unknown,)
    moves = refuse_moves(config, topology, [workload.object.name for workload in workloads], facts=facts, state=state)
    standing = refuse_standstill(config, _staying(topology, facts))
    if refused := (*moves, *standing, *refuse_claims(config, volumes, facts)):
        raise FactsError((*refused, *unsettled))
    budget = sum_budget(
        [
            *(_budget_line(workload, devices) for workload in workloads),
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
        monitoring=(*plan_monitoring(config, serves), *plan_watching(config, watched)),
        modelserver=ModelServerPlan(
            objects=(
                *plan_protection(config, topology.anchor.name),
                *plan_service_account(config),
                *(plan_serve_config(config, serve) for serve in serves.values()),
                *plan_disruption_budgets(config, roles),
            ),
            workloads=workloads,
            topology=topology,
            scalers=scalers,
            scaler_seats=plan_scaler_seats(config),
        ),
        budget=budget,
        roll_outs={
            planned.name: planned
            for planned in (*_workload_roll_outs(config, workloads, scalers), *_router_roll_outs(config, router))
        },
        warnings=in_order((*accepted.warnings, *unsettled, *warn_of_claims(config, volumes, facts))),
        applied=apply_defaults(config, recipe, serves),
        outputs=_outputs(config, model=model, devices=devices, plan_parts=(volumes, workloads, topology, budget))
        | _drain_outputs(config, recipe, serves)
        | {"capacity": _capacity_outputs(capacities), "autoscaling": _scaling_outputs(scalers)},
    )


def _scaled(
    config: StackConfig, placement: Placement, topology: TopologyPlan, *, facts: ClusterFacts, state: StateFacts
) -> Scaled | None:
    """How many Pods a scaled role has after the update; None for a role whose number is configured.

    What is live counts as long as its Deployment stays. One that is made anew begins with one Pod, and the scaler
    brings it to its floor.
    """
    provider = config.autoscaling.of(placement.role).provider
    if provider == "none" or placement.entry is not None:
        return None
    bounds = config.bounds(placement.role)
    name = names.workload(config.release, placement.role)
    live = _staying(topology, facts).get(name)
    return Scaled(
        pods=expected_pods(provider, bounds, live=live, configured=placement.replicas),
        floor=bounds[0],
        ceiling=bounds[1],
        is_found=live is not None and state.topologies is not None and name not in state.workloads,
    )


def _staying(topology: TopologyPlan, facts: ClusterFacts) -> dict[str, int]:
    """Pods that each role Deployment which stays asks for now, by its name."""
    if topology.changes:
        return {}
    return {name: live.replicas for name, live in (facts.workloads or {}).items() if not live.is_terminating}


def _budget_line(workload: WorkloadPlan, devices: DevicesPlan) -> BudgetLine:
    """A scaled role counts with its ceiling, since nodes have to be there for it; so it says the same at any load."""
    line = budget_line(workload.role, {**workload.object.manifest, "spec": _with_most(workload)}, devices)
    return replace(line, least=workload.floor) if workload.floor != workload.most else line


def _with_most(workload: WorkloadPlan) -> dict[str, Any]:
    return {**workload.object.manifest["spec"], "replicas": workload.most}


def _capacity_outputs(capacities: Mapping[Role, RoleCapacity]) -> dict[str, Any]:
    """What dashboards, gateways and alerts outside of the stack need: slots of a Pod and of an endpoint."""
    return {
        role: {
            "slotsPerPod": capacity.slots,
            "slotsPerEndpoint": capacity.slots_per_endpoint,
            "pods": {"min": capacity.least_pods, "max": capacity.most_pods},
            "slots": {"min": capacity.least, "max": capacity.most},
        }
        for role, capacity in capacities.items()
    }


def _scaling_outputs(scalers: Iterable[ScalerPlan]) -> dict[str, Any]:
    """What scales, and the query for whoever sets up an adapter."""
    return {
        scaler.role: {
            "provider": scaler.provider,
            "signal": scaler.signal,
            "target": scaler.target,
            "query": scaler.query,
            "min": scaler.floor,
            "max": scaler.ceiling,
        }
        for scaler in scalers
    }


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
            floor=workload.floor,
            scaler=named.get(workload.object.name, ""),
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
