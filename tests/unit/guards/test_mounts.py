"""Volumes that tie Pods to nodes, or to one at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stack.facts import Surroundings
from stack.guards.mounts import Tie, for_one_pod, kept_to, modes_of, ties
from stack.spares.pods import why_not
from tests.builders import plan
from tests.devices import node
from tests.unit.guards.scene import GOING, claim, pod

CACHE = "rel-compile-cache-decode"
OF_ONE_NODE: dict[str, Any] = {"storage": {"compileCache": {"accessModes": ["ReadWriteOnce"]}}}
ONE_EACH: dict[str, Any] = {"modelserver": {"replicas": {"prefill": 1, "decode": 1}}}


def mounting(name: str, *, on: str | None, of: str = CACHE, **over: Any) -> dict[str, Any]:
    return pod(name, on=on, spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": of}}]}, **over)


@pytest.mark.parametrize(
    ("live", "want"),
    [
        (None, {"ReadWriteOnce"}),
        (claim(CACHE, modes=("ReadWriteMany",)), {"ReadWriteMany"}),
        # The volume can more than was asked for.
        (
            claim(CACHE, modes=("ReadWriteOnce",), status={"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}),
            {"ReadWriteOnce", "ReadWriteMany"},
        ),
        # That it is for one Pod is a matter of the claim.
        (
            claim(CACHE, modes=("ReadWriteOncePod",), status={"accessModes": ["ReadWriteOnce"]}),
            {"ReadWriteOncePod"},
        ),
    ],
)
def test_the_modes_of_a_claim_are_the_live_ones_else_the_planned(live: dict[str, Any] | None, want: set[str]) -> None:
    around = Surroundings(volume_claims={} if live is None else {CACHE: live})
    assert modes_of(CACHE, plan(**OF_ONE_NODE, **ONE_EACH), around) == want


def test_the_modes_of_a_claim_from_outside_that_was_not_read_are_not_known() -> None:
    assert modes_of("model-store", plan(), Surroundings()) is None
    assert for_one_pod(plan(), Surroundings()) == {}


def test_new_pods_are_tied_to_where_pods_that_stay_mount_the_same() -> None:
    around = Surroundings(release_pods=[mounting("a", on="n1")])
    planned = plan(**OF_ONE_NODE, **ONE_EACH)
    assert ties(planned, around) == {"rel-decode": Tie(claim=CACHE, nodes=frozenset({"n1"}))}
    leaving = mounting("a", on="n1", metadata=GOING)
    waiting = mounting("a", on=None)
    other = mounting("a", on="n1", of="something-else")
    for each in (leaving, waiting, other):
        assert ties(planned, replace(around, release_pods=[each])) == {}
    assert ties(planned, replace(around, release_pods=None)) == {}
    assert ties(plan(**ONE_EACH), around) == {}, "several nodes can mount it"


EXPRESSION: dict[str, Any] = {"key": "disk", "operator": "Exists"}


@pytest.mark.parametrize(
    "affinity",
    [
        {},
        {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [EXPRESSION]},
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1", "n2"]}]},
                    ]
                }
            }
        },
    ],
)
def test_a_template_is_kept_to_nodes_or_away_from_them_beside_all_that_it_asks_already(affinity: Any) -> None:
    template: dict[str, Any] = {"spec": {"affinity": affinity, "containers": []}}
    disk = {"disk": "fast"}
    on = kept_to(template, frozenset({"n1"}))["spec"]
    away = kept_to(template, frozenset({"n1"}), away=True)["spec"]
    assert [why_not(on, node(name, labels=disk)) is None for name in ("n1", "n2")] == [True, False]
    assert [why_not(away, node(name, labels=disk)) is None for name in ("n1", "n2")] == [False, True]
    if "nodeAffinity" in affinity and "requiredDuringSchedulingIgnoredDuringExecution" in affinity["nodeAffinity"]:
        assert why_not(away, node("n3")) is not None, "neither has it a disk nor is it one of those that are named"
    assert template["spec"]["affinity"] == affinity, "the template itself stays as it is"
