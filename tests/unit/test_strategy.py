"""`modelserver.strategy.type: auto`: what it chooses, when it chooses at all, and what is said of a role that stops."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.facts import NOTHING_READ, StateFacts, Surroundings
from stack.impact import Happening
from stack.plan import plan_stack
from tests.builders import accepted, merged, plan
from tests.unit.guards.changing import BASE, IMAGE, cordoned, spares, warned, weigh
from tests.unit.guards.scene import claim
from tests.unit.guards.test_guard_quota import quota, weighed
from tests.unit.impact.world import first_plan

if TYPE_CHECKING:
    from stack.impact import PartImpact
    from stack.planned import StackPlan
    from stack.weigh import Weighed
    from tests.unit.guards.changing import Blocks
    from tests.unit.impact.world import World

SURGE = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
IN_TURN = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
RECREATE = {"type": "Recreate"}
HALF_A_MINUTE: Blocks = {
    "drain": {
        "routerDelaySeconds": 5,
        "shutdownTimeoutSeconds": dict.fromkeys(("prefill", "decode", "aggregated"), 10),
        "marginSeconds": 15,
        "kvPullSeconds": 0,
    }
}
"""The grace period of every role."""
AUTO: Blocks = merged(BASE, {"modelserver": {"strategy": {"type": "auto"}}, **HALF_A_MINUTE})


def with_pods(prefill: int = 0, decode: int = 0, aggregated: int = 0, allow: tuple[str, ...] = ()) -> Blocks:
    """Strategy auto with so many Pods, and roles that may stop."""
    replicas = {"prefill": prefill, "decode": decode, "aggregated": aggregated}
    return merged(AUTO, {"modelserver": {"replicas": replicas, "strategy": {"allowOutage": list(allow)}}})


def strategies(of: StackPlan) -> dict[str, Any]:
    """Strategies by Deployment, without the release."""
    return {
        workload.object.name.removeprefix("rel-"): workload.object.manifest["spec"]["strategy"]
        for workload in of.modelserver.workloads
    }


def part(weighed: Weighed, role: str) -> PartImpact:
    [found] = [each for each in weighed.impact.parts if each.part == role]
    return found


# --- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "published", "want", "why"),
    [
        pytest.param(
            with_pods(2, 2),
            6,
            {"prefill": SURGE, "decode": SURGE},
            {"prefill": "devices are spare", "decode": "devices are spare"},
            id="several replicas and spares for each role",
        ),
        pytest.param(
            with_pods(2, 2),
            5,
            {"prefill": SURGE, "decode": IN_TURN},
            {"prefill": "devices are spare", "decode": "no devices are spare for one Pod more"},
            id="several replicas and spares for one role: the first one has them",
        ),
        pytest.param(
            with_pods(2, 2),
            4,
            {"prefill": IN_TURN, "decode": IN_TURN},
            {"prefill": "no devices are spare for one Pod more, so an old one leaves first, and one replica is short"},
            id="several replicas and no spares",
        ),
        pytest.param(
            with_pods(2, 1),
            4,
            {"prefill": IN_TURN, "decode": SURGE},
            {"prefill": "no devices are spare", "decode": "of a single replica the new Pod has to be Ready before"},
            id="a single replica has spares before those that can do without",
        ),
        pytest.param(
            with_pods(2, 1),
            5,
            {"prefill": SURGE, "decode": SURGE},
            {"prefill": "devices are spare"},
            id="a single replica and several, with spares for both",
        ),
        pytest.param(
            with_pods(1, 1, allow=("prefill", "decode")),
            3,
            {"prefill": SURGE, "decode": IN_TURN},
            {"prefill": "nothing has to stop", "decode": "allowOutage has decode"},
            id="two that may stop, and spares for one",
        ),
        pytest.param(
            with_pods(1, 1, allow=("prefill",)),
            3,
            {"prefill": IN_TURN, "decode": SURGE},
            {"prefill": "allowOutage has prefill", "decode": "of a single replica"},
            id="one may stop and the other not, so that has the spares",
        ),
        pytest.param(
            with_pods(1, 2, allow=("prefill",)),
            3,
            {"prefill": IN_TURN, "decode": IN_TURN},
            {"prefill": "allowOutage has prefill"},
            id="what another role gives back meanwhile is no spare for one that may stop",
        ),
    ],
)
def test_it_chooses_by_replicas_and_spare_devices(
    before: Blocks, published: int, want: dict[str, Any], why: dict[str, str]
) -> None:
    weighed = weigh(before, IMAGE, published=published)
    assert weighed.refusals == weighed.warnings == ()
    assert strategies(weighed.plan) == want
    for role, words in why.items():
        [note] = part(weighed, role).notes
        numbers = want[role]["rollingUpdate"]
        chosen = f"auto chose maxSurge {numbers['maxSurge']}, maxUnavailable {numbers['maxUnavailable']}: "
        assert note.startswith(chosen)
        assert words in note
        assert note in weighed.table


@pytest.mark.parametrize("live", [1, 3])
@pytest.mark.parametrize(
    ("floor", "published", "want"),
    [
        pytest.param(1, 3, SURGE, id="a floor of one Pod, which must not leave before the new one is Ready"),
        pytest.param(2, 3, IN_TURN, id="a floor of two, and nothing spare"),
        pytest.param(2, 9, SURGE, id="a floor of two, and spares"),
    ],
)
def test_of_a_scaled_role_the_floor_counts_and_not_what_the_load_made_of_it(
    live: int, floor: int, published: int, want: dict[str, Any]
) -> None:
    scaled: Blocks = {"aggregated": {"provider": "hpa", "minReplicas": floor, "maxReplicas": 3}}
    count = max(live, floor)

    def load(world: World) -> None:
        world.deployments["rel-aggregated"]["spec"]["replicas"] = count
        there = [each for each in world.pods if each["metadata"]["name"].startswith("rel-aggregated")]
        for each in there:
            world.pods.remove(each)
        world.replica_sets[:] = [
            each for each in world.replica_sets if not each["metadata"]["name"].startswith("rel-aggregated")
        ]
        world.give("rel-aggregated", world.deployments["rel-aggregated"]["spec"]["template"], count)

    before = merged(with_pods(aggregated=1), {"autoscaling": scaled})
    spare = 0 if published == 3 else published
    weighed = weigh(before, IMAGE, published=count + spare, meanwhile=load)
    assert strategies(weighed.plan) == {"aggregated": want}


def test_with_spares_no_capacity_is_lost_and_without_them_one_replica() -> None:
    assert part(weigh(with_pods(aggregated=2), IMAGE, published=3), "aggregated").capacity_percent == 100
    assert part(weigh(with_pods(aggregated=2), IMAGE, published=2), "aggregated").capacity_percent == 50


def test_pods_that_are_added_have_spares_before_a_surge() -> None:
    """Prefill restarts and decode grows: 4 hold 4, one comes, and what is left is for a surge."""
    change = merged(
        {"modelserver": {"extraServeEnv": {"prefill": {"A": "1"}}}}, {"modelserver": {"replicas": {"decode": 3}}}
    )
    for published, want in ((5, IN_TURN), (6, SURGE)):
        weighed = weigh(with_pods(2, 2), change, published=published)
        assert weighed.refusals == ()
        assert strategies(weighed.plan)["prefill"] == want


def test_a_single_replica_without_spares_is_refused_with_both_ways_out() -> None:
    weighed = weigh(with_pods(aggregated=1), IMAGE, published=1)
    [letter] = weighed.refusals
    assert (letter.key, letter.value) == ("modelserver.strategy", "auto")
    assert "cannot fit" in letter.why
    assert letter.fix.startswith("Free as many devices: ")
    assert "or allow an outage by name: modelserver.strategy.allowOutage: [aggregated]" in letter.fix
    assert spares(weighed)["aggregated"] == "not free"


def test_who_may_stop_already_is_not_asked_for_again() -> None:
    """What prefill gives back decode may have, if it gets it before prefill does."""
    [letter] = weigh(with_pods(1, 1), IMAGE, published=2).refusals
    assert "modelserver.strategy.allowOutage: [prefill, decode]" in letter.fix
    weighed = weigh(with_pods(1, 1, allow=("prefill",)), IMAGE, published=2)
    assert weighed.refusals == ()
    [letter] = weighed.warnings
    assert "they fit once Pods of prefill have left" in letter.why
    assert "modelserver.strategy.allowOutage: [decode]" in letter.fix


def test_an_allowed_outage_is_shown_and_goes_through() -> None:
    weighed = weigh(with_pods(aggregated=1, allow=("aggregated",)), IMAGE, published=1)
    assert weighed.refusals == weighed.warnings == ()
    assert strategies(weighed.plan) == {"aggregated": IN_TURN}
    assert weighed.impact.outage is not None
    assert "outage, for at most 10 min 35 s: maxUnavailable lets all Pods go at once (1 of 1)" in weighed.table
    assert "auto chose maxSurge 0, maxUnavailable 1" in weighed.table


def test_an_allowed_outage_that_is_not_needed_is_none() -> None:
    weighed = weigh(with_pods(aggregated=1, allow=("aggregated",)), IMAGE, published=2)
    assert strategies(weighed.plan) == {"aggregated": SURGE}
    assert weighed.impact.outage is None


@pytest.mark.parametrize("missing", ["slices", "resource_claims", "nodes", "pods"])
def test_what_is_not_known_counts_as_not_spare_but_stops_no_single_replica(missing: str) -> None:
    weighed = weigh(
        with_pods(1, 2), IMAGE, published=20, seen=lambda surroundings: replace(surroundings, **{missing: None})
    )
    assert strategies(weighed.plan) == {"prefill": SURGE, "decode": IN_TURN}
    assert weighed.refusals == ()
    assert [letter.key for letter in warned(weighed)] == ["modelserver.strategy"]
    assert "whether devices are spare for one Pod more is not known" in part(weighed, "decode").notes[0]


def test_a_single_replica_that_may_stop_does_not_where_nothing_is_known() -> None:
    before = with_pods(aggregated=1, allow=("aggregated",))
    weighed = weigh(before, IMAGE, published=1, seen=lambda surroundings: replace(surroundings, slices=None))
    assert strategies(weighed.plan) == {"aggregated": SURGE}
    [note] = part(weighed, "aggregated").notes
    assert "whether devices are spare for one Pod more is not known" in note
    assert "nothing has to stop" not in note


def test_a_quota_that_could_not_be_read_is_no_room() -> None:
    """Nor is it taken for full: who may stop does not for that."""
    asked = {"guards": {"quota": "enforce"}}
    weighed = weigh(merged(with_pods(1, 2, allow=("prefill",)), asked), IMAGE, published=9)
    assert strategies(weighed.plan) == {"prefill": SURGE, "decode": IN_TURN}
    assert "whether the namespace's quota leaves room for one Pod more is not known" in part(weighed, "decode").notes[0]
    weighed = weigh(
        merged(with_pods(1, 2), asked), IMAGE, published=9, seen=lambda seen: replace(seen, quotas=[], limit_ranges=[])
    )
    assert strategies(weighed.plan)["decode"] == SURGE


@pytest.mark.parametrize("held", [SURGE, IN_TURN, RECREATE])
def test_where_no_strategy_helps_none_is_chosen(held: dict[str, Any]) -> None:
    """The node of all Pods takes no new ones."""
    weighed = weigh(with_pods(1, 2, allow=("prefill",)), IMAGE, published=9, meanwhile=live(held), seen=cordoned)
    assert [letter.key for letter in weighed.refusals] == ["devices"]
    assert strategies(weighed.plan) == {"prefill": held, "decode": held}
    assert not any(part.notes for part in weighed.impact.parts)


def test_a_guard_that_is_off_looks_for_no_spares() -> None:
    weighed = weigh(merged(with_pods(1, 2), {"guards": {"devices": "off"}}), IMAGE, published=20)
    assert strategies(weighed.plan) == {"prefill": SURGE, "decode": IN_TURN}
    assert weighed.refusals == weighed.warnings == ()


def test_a_claim_that_grows_is_rolled_as_its_last_step_allows() -> None:
    """Two hold one each, and ask for two: with 4 there is a first surge, and no second one."""
    larger: Blocks = {
        "modelserver": {"serveArgs": {"common": {"tensor-parallel-size": 2}}},
        "devices": {
            "claimTemplate": {"requests": [{"name": "npu", "deviceClassName": "npu.rebellions.ai", "count": 2}]}
        },
    }
    for published, want in ((4, IN_TURN), (6, SURGE)):
        weighed = weigh(with_pods(aggregated=2), larger, published=published)
        assert weighed.refusals == ()
        assert strategies(weighed.plan) == {"aggregated": want}


def test_a_quota_of_which_it_is_not_known_what_is_used_is_no_room() -> None:
    """It is warned of under the quota's name, and is no more room than one that could not be read."""
    found = weighed(IMAGE, quota({"pods": "9"}, {}), base=with_pods(1, 2, allow=("prefill",)))
    assert strategies(found.plan) == {"prefill": SURGE, "decode": IN_TURN}, "who may stop does not for that"
    assert "whether the namespace's quota leaves room for one Pod more is not known" in part(found, "decode").notes[0]
    assert found.refusals == ()


def test_a_quota_without_room_counts_as_no_spare() -> None:
    """All Pods of the stack are as many as the quota allows, the endpoint picker's included."""
    found = weighed(IMAGE, quota({"pods": "5"}, {"pods": "5"}), base=with_pods(2, 2))
    assert found.refusals == ()
    assert strategies(found.plan) == {"prefill": IN_TURN, "decode": IN_TURN}
    assert "the namespace's quota leaves no room for one Pod more" in part(found, "decode").notes[0]
    [letter] = weighed(IMAGE, quota({"pods": "2"}, {"pods": "2"}), base=with_pods(aggregated=1)).refusals
    assert letter.fix.startswith("Allow an outage by name (modelserver.strategy.allowOutage)")
    found = weighed(IMAGE, quota({"pods": "2"}, {"pods": "2"}), base=with_pods(aggregated=1, allow=("aggregated",)))
    assert found.refusals == ()
    assert strategies(found.plan) == {"aggregated": IN_TURN}


@given(
    prefill=st.integers(1, 3),
    decode=st.integers(1, 3),
    spare=st.integers(0, 3),
    allow=st.sets(st.sampled_from(["prefill", "decode"])),
    grow=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_whatever_is_spare_no_surge_hangs_and_no_role_stops_unasked(
    prefill: int, decode: int, spare: int, allow: set[str], *, grow: bool
) -> None:
    """Each Pod takes one device of one node, so counting them is all there is to it."""
    before = with_pods(prefill, decode, allow=tuple(sorted(allow)))
    more = {"replicas": {"decode": decode + 1}} if grow else {}
    found = weigh(before, merged(IMAGE, {"modelserver": more}), published=prefill + decode + spare)
    pods = {"prefill": prefill, "decode": decode + grow}
    chosen = strategies(found.plan)
    if grow and not spare:
        assert found.refusals, "where all Pods together find no place, no strategy helps"
        return
    surging = {role for role in pods if chosen[role] == SURGE}
    must = {role for role, count in pods.items() if count == 1 and role not in allow}
    assert must <= surging, "a single replica that nobody allowed to stop does not"
    assert all(chosen[role] in (SURGE, IN_TURN) for role in pods)
    asked = len(surging) + grow
    if surging - must:
        assert asked <= spare, "more than what has no choice is only asked for where it is there"
    if pods.keys() - surging:
        assert asked + 1 > spare, "what is spare is used"
    if surging == must and asked > spare and len(must) == len(pods):
        assert found.refusals
    for each in found.impact.parts:
        if each.outage is not None:
            assert each.part in allow


# --- when it chooses at all -------------------------------------------------------------------------------------------


def live(strategy: dict[str, Any]) -> Any:
    """Every role Deployment has this strategy."""

    def change(world: World) -> None:
        for name, deployment in world.deployments.items():
            if name != "rel-epp":
                deployment["spec"]["strategy"] = strategy

    return change


@pytest.mark.parametrize("strategy", [SURGE, IN_TURN, RECREATE, merged(SURGE, {"rollingUpdate": {"maxSurge": "50%"}})])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({}, id="nothing changes"),
        pytest.param({"modelserver": {"replicas": {"decode": 3}}}, id="a role grows"),
        pytest.param({"modelserver": {"replicas": {"decode": 1}}}, id="a role shrinks"),
        pytest.param({"gateway": {"port": 8080}}, id="something else changes"),
    ],
)
def test_who_does_not_restart_keeps_the_strategy_it_has(strategy: dict[str, Any], change: Blocks) -> None:
    weighed = weigh(with_pods(2, 2), change, published=20, meanwhile=live(strategy))
    assert strategies(weighed.plan) == {"prefill": strategy, "decode": strategy}
    assert not any(part.notes for part in weighed.impact.parts)


def test_only_the_role_that_restarts_gets_another() -> None:
    change = {"modelserver": {"extraServeEnv": {"decode": {"A": "1"}}}}
    weighed = weigh(with_pods(2, 2), change, published=20, meanwhile=live(IN_TURN))
    assert strategies(weighed.plan) == {"prefill": IN_TURN, "decode": SURGE}


@pytest.mark.parametrize(("change", "happens"), [({}, Happening.GOES_BACK), (IMAGE, Happening.CONTINUES)])
def test_a_roll_out_that_did_not_end_goes_on_or_back_as_it_began(change: Blocks, happens: Happening) -> None:
    before = with_pods(2, 2)

    def half_way(world: World) -> None:
        world.roll(first_plan(**merged(before, IMAGE)), "rel-decode", taken=1, given=1)
        world.deployments["rel-decode"]["spec"]["strategy"] = IN_TURN

    weighed = weigh(before, change, published=20, meanwhile=half_way)
    assert part(weighed, "decode").happens is happens
    assert strategies(weighed.plan)["decode"] == IN_TURN


def test_what_is_new_has_what_stops_it_least() -> None:
    assert strategies(plan(**with_pods(1, 2))) == {"prefill": SURGE, "decode": IN_TURN}
    weighed = weigh(with_pods(2, 2), {"modelserver": {"replicas": {"prefill": 0}}}, published=20)
    assert strategies(weighed.plan) == {"decode": IN_TURN}
    aggregated = {"modelserver": {"replicas": {"prefill": 0, "decode": 0, "aggregated": 2}}}
    weighed = weigh(with_pods(2, 2), aggregated, published=20, meanwhile=live(SURGE))
    assert strategies(weighed.plan) == {"aggregated": IN_TURN}


def test_another_model_makes_every_deployment_anew() -> None:
    change = {"modelserver": {"model": "Qwen/Qwen3-1.7B"}}
    weighed = weigh(with_pods(1, 2), change, published=20, meanwhile=live(RECREATE))
    assert strategies(weighed.plan) == {"prefill": SURGE, "decode": IN_TURN}


def test_entries_of_node_placement_are_recreated_and_nothing_is_said_of_it() -> None:
    places = [{"role": role, "node": "n1"} for role in ("prefill", "decode")]
    placed = merged(AUTO, {"modelserver": {"replicas": {"prefill": 0, "decode": 0}, "nodePlacement": places}})
    weighed = weigh(placed, IMAGE, published=2)
    assert strategies(weighed.plan) == {"prefill-0": RECREATE, "decode-1": RECREATE}
    assert "auto" not in weighed.table


def test_without_a_cluster_it_is_what_the_engine_holds() -> None:
    """The engine gives numbers back with a fraction."""
    held = StateFacts(
        strategies={
            "rel-prefill": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1.0, "maxUnavailable": 0.0}},
            "rel-decode": RECREATE,
        }
    )
    assert strategies(plan_stack(accepted(**with_pods(2, 2)), NOTHING_READ, held)) == {
        "prefill": SURGE,
        "decode": RECREATE,
    }
    explicit = merged(BASE, {"modelserver": {"strategy": IN_TURN}})
    assert strategies(plan_stack(accepted(**explicit), NOTHING_READ, held)) == {"prefill": IN_TURN, "decode": IN_TURN}


def test_what_is_live_counts_more_than_what_the_engine_holds() -> None:
    near = Surroundings(
        deployments=[{"metadata": {"name": "rel-decode", "namespace": "ns"}, "spec": {"strategy": SURGE}}]
    )
    held = StateFacts(strategies={"rel-decode": RECREATE})
    found = plan_stack(accepted(**with_pods(2, 2)), replace(NOTHING_READ, near=near), held)
    assert strategies(found)["decode"] == SURGE


def test_what_depends_on_the_strategy_follows() -> None:
    [line] = [line for line in weigh(with_pods(2, 2), IMAGE, published=6).plan.budget.lines if line.part == "prefill"]
    assert line.surge == 1
    planned = weigh(with_pods(2, 2), IMAGE, published=4).plan
    assert [line.surge for line in planned.budget.lines if line.part != "epp"] == [0, 0]
    assert planned.outputs["budget"] == [str(line) for line in planned.budget.lines]


def test_a_surge_that_waits_in_vain_is_told_what_helps_now() -> None:
    """What was spare when it began is not any more, and an outage that is allowed now would not be asked for."""
    before = with_pods(aggregated=1)

    def waiting(world: World) -> None:
        world.roll(first_plan(**merged(before, IMAGE)), "rel-aggregated", taken=0, given=1, placed=False, ready=False)

    found = weigh(before, IMAGE, published=1, meanwhile=waiting)
    assert part(found, "aggregated").happens is Happening.CONTINUES
    assert strategies(found.plan) == {"aggregated": SURGE}
    assert found.refusals == ()
    [letter] = found.warnings
    assert "cannot fit" in letter.why
    assert "or put the previous configuration back; or set type: RollingUpdate with maxSurge: 0" in letter.fix
    assert "allowOutage" not in letter.fix


def test_an_outage_is_offered_only_for_what_is_chosen_anew() -> None:
    """Prefill goes on with one more Pod, for which there is no device, while decode grows into what is free."""
    before = with_pods(1, 2)
    env = {"modelserver": {"extraServeEnv": {"prefill": {"A": "1"}}}}

    def waiting(world: World) -> None:
        world.roll(first_plan(**merged(before, env)), "rel-prefill", taken=0, given=1, placed=False, ready=False)

    change = merged(env, {"modelserver": {"replicas": {"decode": 3}}})
    found = weigh(before, change, published=4, meanwhile=waiting)
    assert part(found, "prefill").happens is Happening.CONTINUES
    [letter] = found.refusals
    assert letter.key == "modelserver.strategy"
    assert "allowOutage" not in letter.fix
    assert "or put the previous configuration back; or set type: RollingUpdate with maxSurge: 0" in letter.fix


def test_an_outage_of_a_strategy_that_goes_on_is_told_where_nobody_allowed_it() -> None:
    before = with_pods(aggregated=2)

    def gone(world: World) -> None:
        world.roll(first_plan(**merged(before, IMAGE)), "rel-aggregated", taken=0, given=0)
        world.deployments["rel-aggregated"]["spec"]["strategy"] = RECREATE

    found = weigh(before, IMAGE, published=4, meanwhile=gone)
    assert part(found, "aggregated").outage is not None
    [letter] = found.warnings
    assert (letter.key, letter.value) == ("modelserver.strategy", "auto")
    assert letter.why.startswith("aggregated serves nothing for ")


def test_allowing_an_outage_of_several_replicas_changes_nothing() -> None:
    keys = [letter.key for letter in accepted(**with_pods(1, 3, allow=("prefill", "decode"))).warnings]
    assert "modelserver.strategy.allowOutage[1]" in keys
    assert "modelserver.strategy.allowOutage[0]" not in keys


# --- volumes for one node or one Pod ----------------------------------------------------------------------------------


def cache(mode: str) -> Blocks:
    """A compile cache with this access mode."""
    storage = {"compileCache": {"accessModes": [mode]}, "model": {"kind": "pvc", "existingClaim": None}}
    return {"storage": storage, "guards": {"volumes": "enforce"}}


@pytest.mark.parametrize(
    ("published", "elsewhere", "refused", "spare"),
    [
        pytest.param(2, {}, False, "free", id="a spare on the node of the Pod"),
        pytest.param(1, {"n2": 4}, True, "not free", id="spares on another node alone"),
        pytest.param(2, {"n2": 4}, False, "free for some placements only", id="spares here and there"),
    ],
)
def test_a_volume_for_one_node_needs_the_spare_where_its_pod_runs(
    published: int, elsewhere: dict[str, int], spare: str, *, refused: bool
) -> None:
    before = merged(with_pods(aggregated=1), cache("ReadWriteOnce"))
    weighed = weigh(before, IMAGE, published=published, elsewhere=elsewhere)
    assert strategies(weighed.plan) == {"aggregated": SURGE}
    assert spares(weighed)["aggregated"] == spare
    assert bool(weighed.refusals) is refused
    if refused:
        [letter] = weighed.refusals
        assert (
            "claim rel-compile-cache-aggregated is for one node, which is n1 as long as the old Pod has it"
            in letter.why
        )
    elif elsewhere:
        [letter] = warned(weighed)
        assert "there its new Pod can't mount claim rel-compile-cache-aggregated" in letter.why


def test_a_pod_that_leaves_first_may_go_where_the_spares_are() -> None:
    before = merged(with_pods(aggregated=1, allow=("aggregated",)), cache("ReadWriteOnce"))
    weighed = weigh(before, IMAGE, published=1, elsewhere={"n2": 4})
    assert strategies(weighed.plan) == {"aggregated": IN_TURN}
    assert weighed.refusals == weighed.warnings == ()


@pytest.mark.parametrize("shared", ["ReadWriteMany", "ReadOnlyMany"])
def test_a_volume_for_several_nodes_ties_nobody(shared: str) -> None:
    before = merged(with_pods(aggregated=1), cache("ReadWriteOnce"))
    seen = {"rel-compile-cache-aggregated": claim("rel-compile-cache-aggregated", modes=("ReadWriteOnce", shared))}
    weighed = weigh(
        merged(before, {"guards": {"volumes": "off"}}),
        IMAGE,
        published=1,
        elsewhere={"n2": 1},
        seen=lambda surroundings: replace(surroundings, volume_claims=seen, volumes={"": {}}),
    )
    assert weighed.refusals == ()


def test_a_volume_for_one_pod_leaves_recreate_alone_and_that_must_be_allowed() -> None:
    before = merged(with_pods(aggregated=1), cache("ReadWriteOncePod"))
    weighed = weigh(before, IMAGE, published=9)
    assert strategies(weighed.plan) == {"aggregated": RECREATE}
    [letter] = weighed.refusals
    assert (letter.key, letter.value) == ("modelserver.strategy", "auto")
    assert "one Pod alone can mount claim rel-compile-cache-aggregated, so aggregated stops" in letter.why
    assert "allowOutage: [aggregated]" in letter.fix
    assert "`guards.volumes: warn` lets it pass" in letter.fix

    unguarded = merged(before, {"guards": {"volumes": "off"}})
    weighed = weigh(unguarded, IMAGE, published=9)
    assert weighed.refusals == ()
    [letter] = weighed.warnings
    assert letter.why.startswith("aggregated serves nothing for ")
    assert "allowOutage: [aggregated]" in letter.fix

    allowed = merged(with_pods(aggregated=1, allow=("aggregated",)), cache("ReadWriteOncePod"))
    weighed = weigh(allowed, IMAGE, published=1)
    assert strategies(weighed.plan) == {"aggregated": RECREATE}
    assert weighed.refusals == weighed.warnings == ()
    assert weighed.impact.outage is not None
    assert strategies(plan(**allowed)) == {"aggregated": RECREATE}


def test_a_claim_from_outside_for_one_pod_is_found_when_the_role_is_new() -> None:
    outside = {"storage": {"model": {"kind": "existingClaim", "existingClaim": "store"}}}
    before = merged(with_pods(1, 1), outside)
    seen = {"store": claim("store", modes=("ReadWriteOncePod",))}
    weighed = weigh(
        before,
        {"modelserver": {"replicas": {"prefill": 0, "decode": 0, "aggregated": 1}}},
        published=4,
        seen=lambda surroundings: replace(surroundings, volume_claims=seen),
    )
    assert strategies(weighed.plan) == {"aggregated": RECREATE}
    assert weighed.refusals == ()


# --- strategies that somebody wrote -----------------------------------------------------------------------------------


def test_recreate_is_warned_of_with_its_outage() -> None:
    weighed = weigh(merged(BASE, {"modelserver": {"strategy": RECREATE}}), IMAGE, published=3)
    assert weighed.refusals == ()
    assert [(letter.key, letter.value) for letter in weighed.warnings] == [
        ("modelserver.strategy.type", "Recreate")
    ] * 2
    decode, prefill = sorted(weighed.warnings, key=lambda letter: "decode" not in letter.why)
    assert decode.why.startswith("all 2 decode Pods leave before a new one is Ready: decode serves nothing for ")
    assert prefill.why.startswith("the only prefill Pod leaves before a new one is Ready")
    outage = part(weighed, "decode").outage
    assert outage is not None
    assert "at most" in decode.why
    assert "maxSurge: 0 and maxUnavailable: 1" in decode.fix
    assert "maxSurge: 0" not in prefill.fix


def test_recreate_is_right_for_a_volume_for_one_pod() -> None:
    before = merged(
        merged(BASE, cache("ReadWriteOncePod")),
        {"modelserver": {"strategy": RECREATE, "replicas": {"prefill": 0, "decode": 0, "aggregated": 1}}},
    )
    weighed = weigh(before, IMAGE, published=1)
    assert weighed.refusals == weighed.warnings == ()


def test_a_single_replica_that_may_be_unavailable_is_warned_of_with_its_outage() -> None:
    weighed = weigh(merged(BASE, {"modelserver": {"strategy": IN_TURN}}), IMAGE, published=3)
    [letter] = weighed.warnings
    assert letter.key == "modelserver.strategy.rollingUpdate.maxUnavailable"
    assert letter.why.startswith(
        "the only prefill Pod leaves before a new one is Ready: prefill serves nothing for at most"
    )


def test_who_restarts_nothing_is_warned_of_nothing() -> None:
    assert weigh(merged(BASE, {"modelserver": {"strategy": RECREATE}}), {}, published=3).warnings == ()
