"""The impact table, which Pods there are: replicas, and what frees every device before a new Pod asks for one.

Better than the chart throughout: what needs uninstall, wait and install there is one update here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from stack.impact import Method
from tests.builders import merged
from tests.e2e.bench import ENTRIES, PLACED, is_ready
from tests.e2e.impact import EPP, cell, deployment, see, start, templates, volumes
from tests.e2e.prediction import as_foreseen
from tests.e2e.record import record

if TYPE_CHECKING:
    from collections.abc import Callable

    from stack.impact import Impact
    from tests.e2e.bench import Bench, Preview

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("impact-topology")]
ANCHOR = "ConfigMap/rel-topology"
SPLIT = {"prefill": 1, "decode": 2}
ROLES = ("prefill", "decode", "aggregated")
ROLES_KEY = "modelserver (roles)"
OWN_PICKER = {"epp": {"distribution": "llm-d", "version": "v0.10.0"}}
ANOTHER_PICKER = cell(
    "router.epp",
    {"distribution": "gaie", "version": "v1.5.0"},
    EPP,
    changes=frozenset({"ConfigMap/rel-epp-*"}),
    because=frozenset(f"router.epp.{of}" for of in ("distribution", "version", "image.repository", "image.tag")),
)
"""It can't tell prefill from decode, so there are none then."""
LARGE = {
    "recipe": "minimax-m2.7-rbln",
    "devices": {
        "claimTemplate": {
            "requests": [
                {"name": "npu", "deviceClassName": "npu.rebellions.ai", "count": 4},
                {"name": "nic", "deviceClassName": "dranet", "count": 2},
            ]
        }
    },
}
"""Another recipe, with what it needs."""
MORE_AND_OTHER = {"modelserver": {"replicas": {"decode": 3}, "image": {"tag": "next"}}}


@pytest.fixture(scope="module")
def live(module_bench_of: Callable[[str], Bench]) -> Bench:
    return start(module_bench_of("small"))


@pytest.fixture(scope="module", autouse=True)
def were(live: Bench) -> set[tuple[str, str]]:
    """Pod templates at the beginning."""
    return templates(live)


def switch(live: Bench, *because: str, **blocks: Any) -> Preview:
    """Change what frees every device: all Pods are new, the old ones gone before the first new one, volumes as before.

    What its preview said; it named these keys as the reason.
    """
    before, kept = live.parts(), volumes(live)
    live.change(**blocks)
    foreseen = live.foresee()
    assert ANCHOR in foreseen.objects["replace"]
    impact = impact_of(foreseen)
    assert tuple(key.key for key in impact.topology) == because
    assert all(part.method is Method.ALL_DOWN for part in impact.parts if part.part != "epp" and part.after)
    with as_foreseen(live, foreseen.report), record(live, "v1/pods") as seen:
        live.up()
    gone, new = seen.ended("v1/pods", *ROLES), seen.begun("v1/pods", *ROLES)
    assert len(gone) == sum(len(before[role]) for role in ROLES)
    assert gone[-1].until < new[0].since, "every device is free before the first new Pod asks for one"
    assert len(new) == len(live.pods()), "none is made twice"
    assert all(is_ready(pod) for pod in live.pods())
    assert kept.items() <= volumes(live).items()
    return foreseen


def impact_of(foreseen: Preview) -> Impact:
    """What a preview says that the change does to Pods."""
    assert foreseen.report is not None
    assert foreseen.report.impact is not None
    return foreseen.report.impact


def keys_of(foreseen: Preview) -> dict[str, set[str]]:
    """Keys that a preview names as the reason, by part."""
    return {part.part: {key.key for key in part.keys} for part in impact_of(foreseen).parts if part.keys}


def nodes_of(live: Bench) -> list[tuple[str, str]]:
    """Entry and node of every role Pod."""
    return sorted(
        (pod["metadata"]["labels"]["serving-stack.dev/entry"], pod["spec"]["nodeName"]) for pod in live.pods()
    )


def scale(live: Bench, role: str, count: int) -> None:
    """Give a role more or fewer Pods: those that stay are the same, as are all others."""
    before = live.parts()
    live.change(modelserver={"replicas": {role: count}})
    foreseen = live.foresee()
    assert foreseen.objects == {"update": {deployment(role)}}
    assert keys_of(foreseen) == {role: {f"modelserver.replicas.{role}"}}
    with as_foreseen(live, foreseen.report):
        live.up()
    after = live.parts()
    assert len(after[role]) == count
    assert after[role] > before[role] or after[role] < before[role]
    others = before.by_part.keys() - {role}
    assert {part: after[part] for part in others} == {part: before[part] for part in others}


@pytest.mark.parametrize(
    ("role", "counts"),
    [
        pytest.param("prefill", (2, 1), id="modelserver.replicas.prefill"),
        pytest.param("decode", (3, 2), id="modelserver.replicas.decode"),
    ],
)
def test_more_and_fewer_replicas_leave_the_pods_that_stay_alone(
    live: Bench, role: str, counts: tuple[int, int]
) -> None:
    for count in counts:
        scale(live, role, count)


def test_another_number_of_replicas_and_another_template_in_one_change(live: Bench) -> None:
    """Kubernetes gives the number to the old Pods first, and then exchanges them all."""
    split(live)
    previous = live.blocks
    for blocks, count in ((merged(previous, MORE_AND_OTHER), 3), (previous, 2)):
        before = live.parts()
        live.write(**blocks)
        with as_foreseen(live):
            live.up()
        assert live.parts().counts == before.counts | {"decode": count}
        assert live.parts().new_since(before) == {"prefill", "decode"}


@pytest.mark.parametrize(
    ("role", "other"),
    [
        pytest.param("prefill", "decode", id="modelserver.replicas.prefill"),
        pytest.param("decode", "prefill", id="modelserver.replicas.decode"),
    ],
)
def test_a_role_at_0_loses_its_deployment_and_finds_its_volume_again(live: Bench, role: str, other: str) -> None:
    before, kept, count = live.parts(), volumes(live), live.blocks["modelserver"]["replicas"][role]
    cache = f"PersistentVolumeClaim/rel-compile-cache-{role}"
    of_role = {deployment(role), f"ConfigMap/rel-serve-{role}-*", f"PodDisruptionBudget/rel-{role}"}
    live.change(modelserver={"replicas": {role: 0}})
    foreseen = live.foresee()
    assert foreseen.objects == {"delete": of_role | {cache}}
    assert keys_of(foreseen) == {role: {f"modelserver.replicas.{role}"}}
    with as_foreseen(live, foreseen.report):
        live.up()
    without = live.parts()
    assert without.by_part == {part: uids for part, uids in before.by_part.items() if part != role}
    assert volumes(live) == kept

    live.change(modelserver={"replicas": {role: count}})
    foreseen = live.foresee()
    assert foreseen.objects == {"create": of_role, "import": {cache}}
    assert keys_of(foreseen) == {role: {f"modelserver.replicas.{role}"}}
    with as_foreseen(live, foreseen.report):
        live.up()
    again = live.parts()
    assert len(again[role]) == count
    assert again[other] == before[other]
    assert again["epp"] == before["epp"]
    assert volumes(live) == kept


def placed(live: Bench) -> None:
    """Into nodePlacement mode, if it is not there."""
    if not live.blocks["modelserver"].get("nodePlacement"):
        live.change(modelserver=PLACED)
        live.up()


def split(live: Bench) -> None:
    """Into replicas mode, if it is not there."""
    if live.blocks["modelserver"].get("nodePlacement"):
        live.change(modelserver={"replicas": SPLIT, "nodePlacement": []})
        live.up()


def test_a_mode_switch(live: Bench) -> None:
    split(live)
    epp = live.parts()["epp"]
    assert switch(live, "modelserver (mode)", modelserver=PLACED).objects == {
        "replace": {ANCHOR},
        "create": {f"Deployment/rel-{entry['role']}-{index}" for index, entry in enumerate(ENTRIES)},
        "delete": {deployment("prefill"), deployment("decode")},
    }
    assert nodes_of(live) == [("0", "npu-0"), ("1", "npu-0"), ("2", "npu-1"), ("3", "npu-1")]
    assert live.parts()["epp"] == epp
    assert live.preview() == {}


def test_an_entry_at_the_end_of_the_placement_touches_no_other(live: Bench) -> None:
    placed(live)
    before, entries = live.parts(), live.blocks["modelserver"]["nodePlacement"]
    last = f"Deployment/rel-decode-{len(entries)}"
    live.change(modelserver={"nodePlacement": [*entries, {"role": "decode", "node": "npu-0"}]})
    foreseen = live.foresee()
    assert foreseen.objects == {"create": {last}}
    assert keys_of(foreseen) == {"decode": {f"modelserver.nodePlacement[{len(entries)}]"}}
    with as_foreseen(live, foreseen.report):
        live.up()
    appended = live.parts()
    assert appended["prefill"] == before["prefill"]
    assert appended["decode"] > before["decode"]

    live.change(modelserver={"nodePlacement": entries})
    foreseen = live.foresee()
    assert foreseen.objects == {"delete": {last}}
    assert keys_of(foreseen) == {"decode": {f"modelserver.nodePlacement[{len(entries)}]"}}
    with as_foreseen(live, foreseen.report):
        live.up()
    assert live.parts() == before


def test_a_reorder_of_the_placement_is_a_reassignment(live: Bench) -> None:
    placed(live)
    generation = live.outputs()["topology"]["generation"]
    moved = (f"modelserver.nodePlacement[{index}]" for index in range(len(ENTRIES)))
    switch(live, *moved, modelserver={"nodePlacement": ENTRIES[::-1]})
    assert nodes_of(live) == [("0", "npu-1"), ("1", "npu-1"), ("2", "npu-0"), ("3", "npu-0")]
    assert live.outputs()["topology"]["generation"] == generation + 1
    assert live.preview() == {}, "a reorder is told from what runs, and that is as wanted now"


def test_a_mode_switch_back(live: Bench, were: set[tuple[str, str]]) -> None:
    placed(live)
    switch(live, "modelserver (mode)", modelserver={"replicas": SPLIT, "nodePlacement": []})
    assert templates(live) == were
    assert live.preview() == {}


def test_aggregated_and_back(live: Bench, were: set[tuple[str, str]]) -> None:
    """The endpoint picker restarts as well, before them: its plugins have no prefill and decode to tell apart."""
    split(live)
    epp = live.parts()["epp"]
    aggregated = {"replicas": {"prefill": 0, "decode": 0, "aggregated": 2}}
    foreseen = switch(live, ROLES_KEY, modelserver=aggregated).objects
    assert foreseen["replace"] == {ANCHOR}
    assert foreseen["create"] >= {deployment("aggregated"), "ConfigMap/rel-serve-aggregated-*", "ConfigMap/rel-epp-*"}
    assert foreseen["delete"] >= {deployment("prefill"), deployment("decode"), "ConfigMap/rel-epp-*"}
    assert deployment("epp") in foreseen["update"]
    assert live.parts().counts == {"aggregated": 2, "epp": 1}
    assert live.parts()["epp"].isdisjoint(epp)

    scale(live, "aggregated", 3)
    scale(live, "aggregated", 2)

    see(live, ANOTHER_PICKER)

    switch(live, ROLES_KEY, modelserver={"replicas": SPLIT | {"aggregated": 0}}, router=OWN_PICKER)
    assert templates(live) == were
    assert live.preview() == {}


def test_another_model_and_back(live: Bench, were: set[tuple[str, str]]) -> None:
    split(live)
    foreseen = switch(live, "modelserver.model", modelserver={"model": "Qwen/Qwen3-1.7B"})
    assert foreseen.objects["replace"] == {ANCHOR, deployment("prefill"), deployment("decode")}
    switch(live, "modelserver.model", modelserver={"model": None})
    assert templates(live) == were
    assert live.preview() == {}


def test_another_recipe_with_another_model(live: Bench) -> None:
    """The last one here, since nothing goes back from it."""
    split(live)
    epp = live.parts()["epp"]
    foreseen = switch(live, "modelserver.model", **LARGE)
    assert foreseen.objects["replace"] == {ANCHOR, deployment("prefill"), deployment("decode")}
    keys = keys_of(foreseen)
    assert keys["epp"] == {"recipe"}, "it counts in other blocks"
    assert all({"recipe", "devices.claimTemplate"} <= keys[role] for role in SPLIT)
    assert live.parts()["epp"].isdisjoint(epp)
    assert live.preview() == {}
