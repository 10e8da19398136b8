"""What is asked of the cluster: all that the guards look at, and nothing for guards that are off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cli.stackfile import read_stack_file
from stack.facts import NOTHING_AROUND, NOTHING_READ, Wanted
from stack.guards import check_guards, references
from stack.guards.wanted import wanted
from stack.plan import plan_stack
from stack.rules import accept
from tests.builders import STACK_FILES, accepted

if TYPE_CHECKING:
    from pathlib import Path

OFF = dict.fromkeys(("volumes", "prerequisites", "names", "nodes", "serial", "devices"), "off")


def want(**blocks: Any) -> Wanted:
    taken = accepted(**blocks)
    return wanted(taken.config, plan_stack(taken, NOTHING_READ))


def test_without_guards_only_what_runs_is_looked_at() -> None:
    assert want(guards=OFF) == Wanted(namespace="ns", release="rel", release_pods=True, replica_sets=True)


@pytest.mark.parametrize(
    ("guard", "asks_for"),
    [
        ("volumes", {"storage_classes", "volume_claims"}),
        (
            "prerequisites",
            {"storage_classes", "volume_claims", "device_classes", "claim_templates", "secrets", "objects", "served"},
        ),
        ("names", {"objects"}),
        ("nodes", {"nodes"}),
        ("serial", {"rivals", "device_classes", "claim_templates"}),
        ("devices", {"nodes", "devices", "device_classes", "claim_templates"}),
    ],
)
def test_each_guard_asks_for_what_it_looks_at(guard: str, asks_for: set[str]) -> None:
    nothing, something = want(guards=OFF), want(guards=OFF | {guard: "warn"})
    fields = Wanted.__dataclass_fields__
    assert {name for name in fields if getattr(something, name) != getattr(nothing, name)} == asks_for


def test_a_stack_without_volumes_asks_for_none() -> None:
    storage = {"compileCache": {"kind": "emptyDir"}, "model": {"kind": "emptyDir", "existingClaim": None}}
    asked = want(storage=storage)
    assert not asked.volume_claims
    assert not asked.storage_classes
    assert want(storage=storage | {"modelOffload": {"enabled": True}}).storage_classes


def test_a_template_that_the_stack_makes_is_not_asked_for() -> None:
    assert want().claim_templates == {"npu-rdma"}
    own = {"requests": [{"name": "npu", "deviceClassName": "npu.rebellions.ai", "count": 4}]}
    assert want(devices={"claimTemplate": own, "rdma": {"enabled": False}}).claim_templates == frozenset()


@pytest.mark.parametrize("path", STACK_FILES, ids=lambda path: path.stem)
def test_every_secret_that_a_pod_names_is_asked_for_and_has_its_key(path: Path) -> None:
    blocks, context = read_stack_file(path.read_text(encoding="utf-8"))
    taken = accept(blocks, context=context)
    plan = plan_stack(taken, NOTHING_READ)
    pods = [references.pod_spec(manifest) for _, manifest in references.deployments(plan).values()]
    named = {
        found["secretKeyRef"]["name"]
        for pod in pods
        for container in (*pod.get("initContainers", ()), *pod["containers"])
        for entry in container.get("env", ())
        if "secretKeyRef" in (found := entry.get("valueFrom", {}))
    }
    named |= set(taken.config.image_pull_secrets)
    assert wanted(taken.config, plan).secrets == named
    assert check_guards(taken.config, plan, NOTHING_AROUND) == (), "what was not read is judged by nobody"
