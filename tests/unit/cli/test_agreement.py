"""Impact and engine are held against each other: what agrees, and every way not to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cli.agreement import compare
from stack.impact import Happening, Method, WorkloadImpact
from stack.report import EngineStep
from tests.reports import impact, part
from tests.unit.impact.world import change

if TYPE_CHECKING:
    from stack.impact import Impact

IMAGE = "spec.template.spec.containers[0].image"
RECORD = 'metadata.annotations["serving-stack.dev/applied"]'


def step(operation: str, *paths: str, name: str = "rel-decode") -> EngineStep:
    return EngineStep(operation=operation, kind="Deployment", name=name, namespace="ns", paths=paths)


def one(happens: Happening, *, changed: bool | None = False, **more: Any) -> Impact:
    """One Deployment to which something happens."""
    numbers: dict[str, Any] = {
        "entry": None,
        "method": None,
        "before": 4,
        "after": 4,
        "new": 0,
        "kept": 4,
        "leaving": 0,
    }
    workload = WorkloadImpact(
        name="rel-decode", part="decode", happens=happens, is_template_changed=changed, **numbers | more
    )
    return impact(part(happens, workloads=(workload,)))


STAYS = one(Happening.STAYS)
RESTARTS = one(Happening.RESTARTS, changed=True, method=Method.ROLLING)
SCALES = one(Happening.SCALES_UP, after=6)
CREATED = one(Happening.CREATED, changed=None, before=0)
DELETED = one(Happening.DELETED, changed=None, after=0)
REMADE = one(Happening.RESTARTS, changed=True, method=Method.ALL_DOWN)


@pytest.mark.parametrize(
    ("found", "steps"),
    [
        pytest.param(STAYS, [], id="stays: the same"),
        pytest.param(STAYS, [step("update", RECORD)], id="stays: what is no template changes"),
        pytest.param(STAYS, [step("update", "spec.strategy.type")], id="stays: the strategy changes"),
        pytest.param(STAYS, [step("update", "spec.templates")], id="stays: a field that only begins like the template"),
        pytest.param(RESTARTS, [step("update", RECORD, IMAGE)], id="restarts: the template changes"),
        pytest.param(RESTARTS, [step("update", "spec")], id="restarts: the engine says no more than spec"),
        pytest.param(STAYS, [step("update", "spec")], id="stays: the engine says no more than spec"),
        pytest.param(one(Happening.RESTARTS, changed=None), [step("update", IMAGE)], id="restarts: told by keys alone"),
        pytest.param(
            one(Happening.GOES_BACK, changed=True), [step("update", IMAGE)], id="goes back: the template changes"
        ),
        pytest.param(one(Happening.CONTINUES), [], id="goes on: the same"),
        pytest.param(SCALES, [step("update", "spec.replicas")], id="scales: the number changes"),
        pytest.param(
            one(Happening.RESTARTS, changed=True, after=6), [step("update", IMAGE, "spec.replicas")], id="both"
        ),
        pytest.param(CREATED, [step("create")], id="created"),
        pytest.param(DELETED, [step("delete")], id="deleted"),
        pytest.param(REMADE, [step("replace")], id="all down first: replaced"),
        pytest.param(RESTARTS, [step("create")], id="adopted: the engine does not know what it finds"),
        pytest.param(one(Happening.UNKNOWN, changed=None), [step("replace")], id="not known: anything"),
        pytest.param(impact(part(Happening.UNKNOWN)), [step("update", IMAGE)], id="not known, not even which"),
        pytest.param(STAYS, [replace(step("update", IMAGE), kind="Gateway")], id="other kinds are not its business"),
    ],
)
def test_they_agree(found: Impact, steps: list[EngineStep]) -> None:
    assert compare(found, steps) == ()


@pytest.mark.parametrize(
    ("found", "steps", "want"),
    [
        pytest.param(
            STAYS,
            [step("update", IMAGE)],
            (f"update ({IMAGE})", "stays: its spec.template has to stay"),
            id="stays, but the template changes",
        ),
        pytest.param(
            RESTARTS,
            [],
            ("leaves it as it is", "restarts (rolling): its spec.template has to change"),
            id="restarts, but it stays the same",
        ),
        pytest.param(
            RESTARTS,
            [step("update", RECORD)],
            (f"update ({RECORD})", "restarts (rolling): its spec.template has to change"),
            id="restarts, but the template stays",
        ),
        pytest.param(
            RESTARTS,
            [step("replace")],
            ("replace", "restarts (rolling): it may only be updated"),
            id="rolls, but replaced",
        ),
        pytest.param(
            REMADE,
            [step("update", IMAGE)],
            (f"update ({IMAGE})", "restarts (all down first): it has to be replaced"),
            id="replaced, but updated",
        ),
        pytest.param(STAYS, [step("delete")], ("delete", "stays: it may only be updated"), id="stays, but deleted"),
        pytest.param(
            STAYS,
            [step("update", "spec.replicas")],
            ("update (spec.replicas)", "stays: its spec.replicas has to stay"),
            id="stays, but scaled",
        ),
        pytest.param(
            SCALES, [], ("leaves it as it is", "scales up: its spec.replicas has to change"), id="scales, but the same"
        ),
        pytest.param(CREATED, [], ("leaves it as it is", "created: it has to be created"), id="created, but not there"),
        pytest.param(DELETED, [], ("leaves it as it is", "deleted: it has to be deleted"), id="goes, but stays"),
        pytest.param(
            impact(replace(STAYS.parts[0], workloads=(replace(STAYS.parts[0].workloads[0], name="rel-prefill"),))),
            [step("delete")],
            ("delete", "does not speak of it"),
            id="a Deployment that the impact does not know",
        ),
    ],
)
def test_they_differ(found: Impact, steps: list[EngineStep], want: tuple[str, str]) -> None:
    [difference] = compare(found, steps)
    assert difference.workload == "rel-decode"
    assert (difference.engine, difference.impact) == want


@pytest.mark.parametrize("kind", ["HorizontalPodAutoscaler", "ScaledObject", "PodAutoscaler"])
def test_the_number_is_written_again_when_a_scaler_goes_even_if_it_is_the_live_one(kind: str) -> None:
    goes = replace(step("delete"), kind=kind)
    written = step("update", "spec.replicas")
    assert compare(STAYS, [goes, written]) == ()
    assert compare(STAYS, [goes]) == (), "the state had it, from before the scaler came"
    for still in (replace(goes, operation="replace"), replace(goes, name="rel-prefill")):
        [found] = compare(STAYS, [still, written])
        assert found.impact == "stays: its spec.replicas has to stay"
    [found] = compare(SCALES, [goes])
    assert found.impact == "scales up: its spec.replicas has to change", "another number has to be written"
    [found] = compare(one(Happening.STAYS, is_scaled=True), [goes, written])
    assert found.impact == "stays: its spec.replicas has to stay", "whoever comes after it has the number"


def test_more_than_one_step_for_a_deployment_is_a_difference() -> None:
    [difference] = compare(RESTARTS, [step("delete"), step("update", IMAGE)])
    assert difference.engine == f"delete and update ({IMAGE})"
    assert difference.impact == "restarts (rolling): one step is enough"


def test_a_deployment_of_another_namespace_is_another_one() -> None:
    elsewhere = replace(step("delete"), namespace="other")
    assert compare(RESTARTS, [step("update", IMAGE)], namespace="ns") == ()
    [difference] = compare(RESTARTS, [step("update", IMAGE), elsewhere], namespace="ns")
    assert (difference.engine, difference.impact) == ("delete", "does not speak of it")
    assert len(compare(RESTARTS, [replace(step("update", IMAGE), namespace="other")], namespace="ns")) == 2


def test_each_deployment_is_compared_on_its_own() -> None:
    found = change({}, {"modelserver": {"image": {"tag": "0.12.1"}}})
    both = [step("update", IMAGE, name=f"rel-{role}") for role in ("prefill", "decode")]
    assert compare(found, both) == ()
    assert [each.workload for each in compare(found, both[:1])] == ["rel-decode"]
    extra = step("update", IMAGE, name="rel-epp")
    assert [each.workload for each in compare(found, [*both, extra])] == ["rel-epp"]
