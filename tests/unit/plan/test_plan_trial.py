"""What the API server says to the workloads in a dry run decides whether anything is touched."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from stack.facts import AnchorFacts, FactsError, TrialFacts
from stack.trial import weigh_trial
from tests.builders import EMPTY_CLUSTER, plan

if TYPE_CHECKING:
    from stack.planned import StackPlan

TAKEN, UNTRIED = TrialFacts(), TrialFacts(unknown="403 Forbidden")
WAY_OUT = "It would take it all the same. Mend what it names, if that is not meant."
UNTRIED_IS_SAID = (
    "dry run: it is not known whether the API server would take the workloads: 403 Forbidden. "
    "See to it that Deployments may be patched there; a change of the topology is not made without knowing."
)
AGGREGATED: dict[str, Any] = {"replicas": {"aggregated": 1}}


def planned(*, was: dict[str, Any] | None) -> StackPlan:
    """The plan of the smallest stack in a cluster where this one runs, or none."""
    if was is None:
        return plan(EMPTY_CLUSTER)
    anchor = AnchorFacts(key=plan(modelserver=was).modelserver.topology.key, generation=1, uid="u")
    return plan(dataclasses.replace(EMPTY_CLUSTER, anchor=anchor))


@pytest.mark.parametrize("was", [None, {}, AGGREGATED], ids=["new", "the topology stays", "the topology changes"])
def test_workloads_that_would_be_taken_change_nothing_of_the_plan(was: dict[str, Any] | None) -> None:
    assert weigh_trial(planned(was=was), TAKEN) == planned(was=was)


@pytest.mark.parametrize(
    ("warned", "want"),
    [
        pytest.param({"rel-prefill": (), "rel-decode": ()}, [], id="nothing"),
        pytest.param(
            {"rel-prefill": (), "rel-decode": ("it is old",)},
            [f"Deployment rel-decode: the API server warns: it is old. {WAY_OUT}"],
            id="one",
        ),
        pytest.param(
            {"rel-prefill": ('"a" is new', "b"), "rel-decode": ("b",)},
            [
                f'Deployment rel-prefill: the API server warns: "a" is new. {WAY_OUT}',
                f"Deployment rel-prefill: the API server warns: b. {WAY_OUT}",
                f"Deployment rel-decode: the API server warns: b. {WAY_OUT}",
            ],
            id="several, each where it is said",
        ),
    ],
)
@pytest.mark.parametrize("was", [None, AGGREGATED], ids=["new", "the topology changes"])
def test_what_the_api_server_warns_of_is_a_warning_of_the_plan_and_stops_nothing(
    was: dict[str, Any] | None, warned: dict[str, tuple[str, ...]], want: list[str]
) -> None:
    before = planned(was=was)
    weighed = weigh_trial(before, TrialFacts(warned=warned))
    assert list(map(str, weighed.warnings)) == [*map(str, before.warnings), *want]
    assert weighed.refusal is None
    assert dataclasses.replace(weighed, warnings=before.warnings) == before, "nothing else"


def test_warnings_are_told_after_those_of_the_rules_and_before_the_reason_why_the_rest_was_not_tried() -> None:
    before = plan(EMPTY_CLUSTER, router={"epp": {"replicas": 2}})
    assert len(before.warnings) == 1
    weighed = weigh_trial(before, TrialFacts(warned={"rel-prefill": ("old",)}, unknown="403 Forbidden"))
    assert list(map(str, weighed.warnings)) == [
        *map(str, before.warnings),
        f"Deployment rel-prefill: the API server warns: old. {WAY_OUT}",
        UNTRIED_IS_SAID,
    ]


@pytest.mark.parametrize("was", [None, {}, AGGREGATED], ids=["new", "the topology stays", "the topology changes"])
def test_a_workload_that_would_not_be_taken_stops_everything(was: dict[str, Any] | None) -> None:
    """Also without a change of the topology: others would roll before it is come to."""
    with pytest.raises(FactsError) as caught:
        weigh_trial(planned(was=was), TrialFacts(refused={"rel-prefill": "denied: no root here."}))
    assert str(caught.value) == (
        "What is live stands in the way:\n"
        "  Deployment rel-prefill = ns/rel-prefill: the API server would not take it: denied: no root here. "
        "Nothing was changed. Mend what it names and run it again."
    )


def test_all_that_would_not_be_taken_are_told_in_order() -> None:
    trial = TrialFacts(refused={"rel-prefill-10": "ten", "rel-prefill-2": "two", "rel-decode-3": "three"})
    with pytest.raises(FactsError) as caught:
        weigh_trial(planned(was=None), trial)
    assert [problem.key for problem in caught.value.problems] == [
        "Deployment rel-decode-3",
        "Deployment rel-prefill-2",
        "Deployment rel-prefill-10",
    ]


@pytest.mark.parametrize(
    ("was", "want_refusal"),
    [
        pytest.param(AGGREGATED, UNTRIED_IS_SAID, id="the topology changes"),
        pytest.param({}, None, id="the topology stays"),
        pytest.param(None, None, id="nothing runs yet"),
    ],
)
def test_not_to_know_is_always_a_warning_and_a_refusal_only_when(
    was: dict[str, Any] | None, want_refusal: str | None
) -> None:
    before = planned(was=was)
    weighed = weigh_trial(before, UNTRIED)
    assert weighed.refusal == want_refusal
    assert list(map(str, weighed.warnings)) == [*map(str, before.warnings), UNTRIED_IS_SAID]
    assert dataclasses.replace(weighed, untried=None, warnings=before.warnings) == before, "nothing else"


def test_a_topology_that_is_not_known_is_the_first_thing_to_be_told() -> None:
    anchor = AnchorFacts(key="k", generation=1, uid="u", is_terminating=True)
    under_way = plan(dataclasses.replace(EMPTY_CLUSTER, anchor=anchor))
    weighed = weigh_trial(under_way, UNTRIED)
    assert weighed.refusal == under_way.refusal
    assert "still under way" in str(weighed.refusal)
    assert UNTRIED_IS_SAID in map(str, weighed.warnings)
