"""Which Deployments start Pods, told from what was read of the release alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stack.facts import NOTHING_AROUND
from stack.guards.wanted import wanted
from stack.plan import plan_stack
from stack.weigh import foresee_starts
from tests.unit.impact.world import World, accepted, first_plan

ROLES = {"rel-prefill", "rel-decode"}


def near_of(world: World) -> Any:
    """What `cluster.facts` hands on, and nothing more."""
    around = world.around()
    return replace(
        NOTHING_AROUND,
        deployments=around.deployments,
        replica_sets=around.replica_sets,
        release_pods=around.release_pods,
        volume_claims={},
    )


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param({}, set[str](), id="nothing"),
        pytest.param({"modelserver": {"strategy": {"rollingUpdate": {"maxSurge": 2}}}}, set[str](), id="a strategy"),
        pytest.param({"modelserver": {"image": {"tag": "next"}}}, ROLES, id="an image of all roles"),
        pytest.param({"modelserver": {"replicas": {"decode": 5}}}, {"rel-decode"}, id="a Pod more"),
        pytest.param({"modelserver": {"replicas": {"decode": 1}}}, set[str](), id="fewer Pods"),
        pytest.param({"router": {"epp": {"drainSeconds": 600}}}, {"rel-epp"}, id="the endpoint picker"),
    ],
)
def test_who_starts_pods_is_known_before_the_cluster_is_read(change: dict[str, Any], want: set[str]) -> None:
    world = World.running(first_plan())
    taken = accepted(**change)
    plan = plan_stack(taken, world.facts())
    starting = foresee_starts(taken.config, plan, near_of(world), world.trial(plan))
    assert starting == want
    asked = wanted(taken.config, plan, near_of(world), starting)
    assert (asked.nodes, asked.resource_claims) == (bool(want), bool(want & ROLES))


def test_where_the_release_could_not_be_read_everything_is() -> None:
    world = World.running(first_plan())
    taken = accepted()
    plan = plan_stack(taken, world.facts())
    assert foresee_starts(taken.config, plan, NOTHING_AROUND, world.trial(plan)) is None
    assert wanted(taken.config, plan, NOTHING_AROUND, None).nodes
