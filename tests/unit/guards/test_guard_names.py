"""Names that are taken, and Pods that would be taken for the stack's."""

from __future__ import annotations

from typing import Any

import pytest

from stack import labels
from stack.guards.wanted import fixed_names
from tests.unit.guards.scene import GOING, pod, scene

OURS = labels.common_labels("rel")


def test_names_that_nobody_has_or_the_release_has_are_in_nobodys_way() -> None:
    whole = scene()
    assert whole.findings() == ()
    ours = {reference: {"labels": OURS | {"more": "x"}} for reference in fixed_names(whole.plan)}
    assert whole.but(objects=whole.around.objects | ours).findings() == ()  # pyright: ignore[reportOperatorIssue]


@pytest.mark.parametrize(
    ("live", "want"),
    [
        ({}, "it has none of another owner either"),
        (OURS | {labels.INSTANCE: "chat"}, "it has app.kubernetes.io/instance=chat"),
        (OURS | {labels.MANAGED_BY: "Helm"}, "it has app.kubernetes.io/managed-by=Helm"),
        ({labels.INSTANCE: "rel"}, "it has none of another owner either"),
    ],
)
def test_a_name_that_is_taken_is_refused(live: dict[str, str], want: str) -> None:
    whole = scene()
    for reference in fixed_names(whole.plan):
        found = whole.but(objects={**whole.around.objects, reference: {"labels": live}}).only()
        assert found.is_refusal
        assert found.problem.key == f"{reference.kind} {reference.name}"
        assert want in found.problem.why
        assert ("uninstall that first" in found.problem.fix) == ("Helm" in live.values())


def test_the_commands_name_the_kind_so_that_no_other_is_meant() -> None:
    """There are Gateways of Istio too."""
    whole = scene()
    [gateway] = [each for each in fixed_names(whole.plan) if each.kind == "Gateway"]
    fix = whole.but(objects={**whole.around.objects, gateway: {}}).only().problem.fix
    assert "`kubectl -n ns get gateway.gateway.networking.k8s.io rel -o yaml`" in fix
    assert "label gateway.gateway.networking.k8s.io rel --overwrite app.kubernetes.io/instance=rel" in fix


def test_names_by_content_and_volumes_are_judged_elsewhere() -> None:
    whole = scene(storage={"model": {"kind": "pvc", "existingClaim": None}})
    found = {(each.kind, each.name) for each in fixed_names(whole.plan)}
    every = {(each.kind, each.name) for each in whole.plan.objects()}
    left_out = every - found
    assert {kind for kind, _ in left_out} == {"PersistentVolumeClaim", "ConfigMap"}
    assert ("ConfigMap", "rel-topology") in found


@pytest.mark.parametrize(
    ("live", "is_strange"),
    [
        pytest.param(pod("p", "rel-decode"), False, id="of the role's Deployment"),
        pytest.param(pod("p", "rel-decode-3"), False, id="of an entry, in the other mode"),
        pytest.param(pod("p", "rel-aggregated"), False, id="of a role that goes"),
        pytest.param(pod("p", None), True, id="made by hand"),
        pytest.param(pod("p", "rel-decode-canary"), True, id="of a canary beside it"),
        pytest.param(
            pod("p", "rel-decode", metadata={"labels": {"pod-template-hash": "other"}}), True, id="no such hash"
        ),
        pytest.param(pod("p", None, metadata=GOING), False, id="made by hand, and it leaves"),
        pytest.param(
            pod(
                "p", None, metadata={"ownerReferences": [{"kind": "Job", "name": "rel-decode-abc", "controller": True}]}
            ),
            True,
            id="of a Job",
        ),
        pytest.param(
            pod("p", None, metadata={"labels": {"app.kubernetes.io/component": "load-test"}}),
            False,
            id="of the release, but nothing selects it",
        ),
        pytest.param(
            pod(
                "p",
                None,
                metadata={
                    "labels": {"app.kubernetes.io/component": "x", "llm-d.ai/inference-serving": "true"},
                },
            ),
            True,
            id="only the pool would select it",
        ),
    ],
)
def test_a_pod_of_somebody_else(live: dict[str, Any], is_strange: bool) -> None:
    found = scene().but(release_pods=[live]).letters()
    assert found == ["refuses Pod p"] * is_strange


def test_strangers_of_one_kind_are_told_together() -> None:
    found = scene().but(release_pods=[pod(f"p{index}", None) for index in range(5)]).only()
    assert found.problem.key == "Pod p0, p1, p2 and 2 more"
    assert "Deployment rel-decode would select them" in found.problem.why
    assert "kubectl -n ns label pod p0 app.kubernetes.io/instance-" in found.problem.fix
