"""What is asked of the cluster: all that the guards look at, and nothing for guards that are off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cli.stackfile import read_stack_file
from stack.config.guards import GUARD_NAMES
from stack.facts import NOTHING_AROUND, NOTHING_READ, Surroundings, Wanted
from stack.guards import check_guards, references
from stack.guards.wanted import wanted
from stack.plan import plan_stack
from stack.rules import accept
from tests.builders import STACK_FILES, accepted

if TYPE_CHECKING:
    from pathlib import Path

OFF = dict.fromkeys(GUARD_NAMES, "off")


def want(near: Surroundings = NOTHING_AROUND, starting: set[str] | None = None, **blocks: Any) -> Wanted:
    taken = accepted(**blocks)
    return wanted(taken.config, plan_stack(taken, NOTHING_READ), near, starting)


def test_without_guards_nothing_is_asked_for() -> None:
    assert want(guards=OFF) == Wanted(namespace="ns", release="rel")


@pytest.mark.parametrize(
    ("guard", "asks_for"),
    [
        ("volumes", {"storage_classes"}),
        (
            "prerequisites",
            {"storage_classes", "device_classes", "claim_templates", "secrets", "objects", "served"},
        ),
        ("names", {"objects", "scalers"}),
        ("nodes", {"nodes"}),
        (
            "quota",
            {"limits", "claim_templates", "device_classes", "resource_claims", "storage_classes", "objects", "made"},
        ),
        ("serial", {"rivals", "slices", "device_classes", "claim_templates"}),
        ("devices", {"nodes", "slices", "resource_claims", "volumes", "device_classes", "claim_templates"}),
    ],
)
def test_each_guard_asks_for_what_it_looks_at(guard: str, asks_for: set[str]) -> None:
    near = Surroundings(volume_claims={"model-store": {"spec": {"volumeName": "pv-1"}}})
    nothing, something = want(near, guards=OFF), want(near, guards=OFF | {guard: "warn"})
    fields = Wanted.__dataclass_fields__
    assert {name for name in fields if getattr(something, name) != getattr(nothing, name)} == asks_for


def test_a_stack_without_volumes_asks_for_none() -> None:
    storage = {"compileCache": {"kind": "emptyDir"}, "model": {"kind": "emptyDir", "existingClaim": None}}
    asked = want(storage=storage)
    assert not asked.storage_classes
    assert want(storage=storage | {"modelOffload": {"enabled": True}}).storage_classes


CLUSTER_WIDE = {"nodes", "slices", "resource_claims", "rivals"}


@pytest.mark.parametrize(
    ("starting", "reads"),
    [
        pytest.param(set[str](), set[str](), id="no Pod starts"),
        pytest.param({"rel-epp"}, {"nodes"}, id="the endpoint picker alone, which needs room and no devices"),
        pytest.param({"rel-decode"}, CLUSTER_WIDE, id="a role"),
        pytest.param(None, CLUSTER_WIDE, id="that is not known"),
    ],
)
def test_the_whole_cluster_is_read_only_for_pods_that_start(starting: set[str] | None, reads: set[str]) -> None:
    asked = want(starting=starting)
    assert {name for name in CLUSTER_WIDE if getattr(asked, name)} == reads
    assert asked.limits is (starting != set())


def test_of_the_volumes_only_those_are_asked_for_that_pods_mount_and_that_are_bound() -> None:
    claims: dict[str, dict[str, Any]] = {
        "model-store": {"spec": {"volumeName": "pv-1"}},
        "rel-compile-cache-decode": {"spec": {}},
        "of-others": {"spec": {"volumeName": "pv-2"}},
    }
    assert want(Surroundings(volume_claims=claims)).volumes == {"pv-1"}


def test_what_is_made_is_all_of_the_namespace_but_the_volumes() -> None:
    asked = want(monitoring={"enabled": True, "scraper": {"serviceAccount": {"name": "vm", "namespace": "other"}}})
    assert {each.kind for each in asked.made} >= {"Deployment", "ConfigMap", "InferencePool", "HTTPRoute"}
    assert {each.kind for each in asked.objects - asked.made} >= {
        "ClusterRole",
        "Namespace",
        "CustomResourceDefinition",
    }
    assert "PersistentVolumeClaim" not in {each.kind for each in asked.made}
    by_content = {each.name for each in asked.made - asked.objects}
    assert any(name.startswith("rel-serve-decode-") for name in by_content), by_content


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
