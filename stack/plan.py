"""Config and facts in, the whole plan out. Pure: the same input gives the same plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stack.applied import apply_defaults
from stack.budget import budget_line, sum_budget
from stack.contributions import trace_contributions
from stack.devices import plan_devices
from stack.errors import in_order
from stack.facts import FactsError
from stack.gateway import endpoint, gateway_name, plan_gateway
from stack.modelserver import SLACK_SECONDS, plan_serve_config, plan_service_account, plan_workload
from stack.monitoring import plan_monitoring
from stack.planned import ModelServerPlan, ProviderPlan, StackPlan
from stack.router import plan_router
from stack.serve import plan_serve
from stack.storage import plan_volumes, refuse_claims, warn_of_claims
from stack.topology import place, plan_topology

if TYPE_CHECKING:
    from stack.config.root import StackConfig
    from stack.facts import ClusterFacts
    from stack.rules import Accepted
    from stack.scalars import Role
    from stack.serve import RoleServe


def plan_stack(accepted: Accepted, facts: ClusterFacts) -> StackPlan:
    """Decide everything.

    Args:
        accepted: a configuration that every rule accepts, with its recipe.
        facts: what the cluster holds; unknown facts lead to a plan that says what it could not settle.

    Raises:
        FactsError: what the cluster holds forbids it.
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
        leave_seconds=recipe.termination_grace_period_seconds + SLACK_SECONDS,
        facts=facts,
    )
    serves: dict[Role, RoleServe] = {
        role: plan_serve(config, recipe, role, is_disaggregated=topology.is_disaggregated) for role in roles
    }
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
        )
        for placement in placements
    )
    router = plan_router(config, recipe, serves, is_disaggregated=topology.is_disaggregated)
    volumes = plan_volumes(config, roles, facts)
    unsettled = () if topology.unknown is None else (topology.unknown,)
    if refused := refuse_claims(config, volumes, facts):
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
                *plan_service_account(config),
                *(plan_serve_config(config, serve) for serve in serves.values()),
            ),
            workloads=workloads,
            topology=topology,
        ),
        budget=budget,
        warnings=tuple(
            map(
                str,
                in_order((*accepted.warnings, *unsettled, *topology.warnings, *warn_of_claims(config, volumes, facts))),
            )
        ),
        applied=apply_defaults(config, recipe, serves),
        outputs=_outputs(config, model=model, devices=devices, plan_parts=(volumes, workloads, topology, budget)),
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
