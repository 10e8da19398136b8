"""Programs that declare the whole stack, or one component of it, from a configuration in a few words."""

from __future__ import annotations

import runpy
from typing import TYPE_CHECKING, Any

import pulumi
import pulumi_kubernetes as k8s

from components.serving_stack import ServingStack, ServingStackArgs
from tests.builders import ROOT, plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from stack.planned import StackPlan

NPU_AND_NIC: dict[str, Any] = {
    "requests": [
        {"name": "npu", "deviceClassName": "npu.rebellions.ai", "count": 4},
        {"name": "nic", "deviceClassName": "dranet", "count": 2},
    ],
    "constraints": [{"requests": ["npu", "nic"], "matchAttribute": "resource.kubernetes.io/numaNode"}],
}
PLANS: dict[str, StackPlan] = {
    "the smallest": plan(),
    "everything made by the stack": plan(
        devices={"claimTemplate": NPU_AND_NIC},
        storage={"model": {"kind": "pvc", "existingClaim": None}},
        router={"epp": {"replicas": 2}},
        monitoring={"enabled": True, "provider": "prometheus-operator"},
        imagePullSecrets=["registry-login"],
        rollout={"protectTopology": True},
    ),
    "entries on nodes": plan(
        modelserver={
            "nodePlacement": [{"role": role, "node": f"n{i}"} for i in (0, 1) for role in ("prefill", "decode")]
        }
    ),
    "aggregated, nothing made but what must be": plan(
        modelserver={"replicas": {"aggregated": 2}, "serviceAccountName": "theirs"},
        devices={"rdma": {"enabled": False}},
        storage={"compileCache": {"kind": "emptyDir"}},
        gateway={"enabled": False},
        router={"inferencePool": {"create": False}},
        monitoring={"enabled": True, "scraper": {"serviceAccount": {"name": "vm", "namespace": "vm"}}},
    ),
    "roles that are scaled": plan(
        autoscaling={
            "prefill": {"provider": "keda", "maxReplicas": 8, "tokensPerSecond": 9000},
            "decode": {"provider": "hpa", "minReplicas": 2, "maxReplicas": 8},
            "prometheus": {"serverAddress": "http://prometheus:9090"},
        },
    ),
    "a role that AIBrix scales": plan(
        modelserver={"replicas": {"aggregated": 2}},
        devices={"rdma": {"enabled": False}},
        autoscaling={"aggregated": {"provider": "aibrix", "maxReplicas": 8}},
    ),
}
"""Together they hold every kind of object, and every component with and without content."""


def whole_stack(
    planned: StackPlan,
    *,
    name: str | None = None,
    until_may_be_made: Callable[[str], None] = lambda _: None,
    until_rolled_out: Callable[[str], None] = lambda _: None,
    opts: pulumi.ResourceOptions | None = None,
) -> Callable[[], ServingStack]:
    """A program that declares the root component."""

    def program() -> ServingStack:
        return ServingStack(
            name or planned.release,
            ServingStackArgs(plan=planned, until_may_be_made=until_may_be_made, until_rolled_out=until_rolled_out),
            opts,
        )

    return program


def under_a_provider(planned: StackPlan) -> Callable[[], None]:
    """The whole stack under an explicit provider."""

    def program() -> None:
        provider = k8s.Provider("cluster", context="test")
        whole_stack(planned, opts=pulumi.ResourceOptions(providers=[provider]))()

    return program


def main_program() -> None:
    """The program itself, as the engine runs it."""
    runpy.run_path(str(ROOT / "__main__.py"), run_name="__main__")
