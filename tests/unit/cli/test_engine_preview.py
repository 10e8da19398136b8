"""What is kept of the engine's events, and what is said when no preview comes about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from pulumi.automation.events import EngineEvent

from cli.engine import EngineError, Heard, preview, read_steps
from stack.report import EngineStep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEPLOYMENT = "kubernetes:apps/v1:Deployment"
read: Callable[[Any], EngineEvent] = cast("Any", EngineEvent).from_json


def event(op: str, *, of: str = DEPLOYMENT, name: str = "decode", **more: Any) -> EngineEvent:
    """A step as the engine tells it, with something in it that is nobody's business."""
    meta = {"name": f"rel-{name}", "namespace": "ns"}
    state = {"type": of, "inputs": {"metadata": meta, "spec": {"value": "theirs alone"}}}
    metadata = {"op": op, "urn": f"urn:pulumi:prod::p::a${of}::{name}", "type": of, **more}
    metadata |= {"old" if op == "delete" else "new": state}
    return read({"sequence": 1, "timestamp": 1, "resourcePreEvent": {"metadata": metadata}})


def heard(*events: EngineEvent) -> Heard:
    found = Heard()
    for each in events:
        found.hear(each)
    return found


def said(severity: str, message: str, *, ephemeral: bool = False) -> EngineEvent:
    return read(
        {
            "sequence": 1,
            "timestamp": 1,
            "diagnosticEvent": {"severity": severity, "message": message, "ephemeral": ephemeral},
        }
    )


def test_a_step_is_kept_by_name_and_paths_and_never_with_a_value() -> None:
    diff = {"spec.replicas": {"diffKind": "update", "inputDiff": True}, "metadata.labels": {"diffKind": "add"}}
    [step] = read_steps(heard(event("update", detailedDiff=diff)).steps)
    assert step == EngineStep(
        operation="update",
        kind="Deployment",
        name="rel-decode",
        namespace="ns",
        paths=("metadata.labels", "spec.replicas"),
    )
    assert "theirs alone" not in str(step)


def test_without_a_detailed_diff_the_top_keys_stand_in() -> None:
    [step] = read_steps(heard(event("update", diffs=["spec"])).steps)
    assert step.paths == ("spec",)


def test_what_stays_is_left_out_and_a_replacement_is_one_step() -> None:
    events = [event(op) for op in ("refresh", "read", "same")]
    events += [event(op, name="prefill") for op in ("delete-replaced", "replace", "create-replacement")]
    assert [(step.operation, step.name) for step in read_steps(heard(*events).steps)] == [("replace", "rel-prefill")]


def test_what_an_interrupted_update_has_deleted_already_is_created_and_not_replaced() -> None:
    diff = {"spec.replicas": {"diffKind": "update"}}
    [step] = read_steps(heard(event("replace", detailedDiff=diff), event("create-replacement")).steps)
    assert (step.operation, step.paths) == ("create", ())


@pytest.mark.parametrize("half", ["delete-replaced", "delete"])
def test_whatever_deletes_what_is_replaced_is_part_of_the_replacement(half: str) -> None:
    steps = read_steps(heard(event(half), event("replace"), event("create-replacement")).steps)
    assert [step.operation for step in steps] == ["replace"]


def test_a_resource_that_goes_with_another_is_deleted() -> None:
    [step] = read_steps(heard(event("delete-replaced"), event("remove-pending-replace")).steps)
    assert step.operation == "delete"


def test_steps_are_sorted_whatever_the_engine_did_first() -> None:
    events = [event("delete", name="prefill"), event("create", name="decode"), event("update", of="a:b:Component")]
    steps = read_steps(heard(*events).steps)
    assert [step.name for step in steps] == ["rel-decode", "rel-prefill", "decode"]
    assert steps == read_steps(heard(*reversed(events)).steps)
    assert (steps[2].kind, steps[2].namespace) == ("a:b:Component", None), "no Kubernetes object: the logical name"


def test_it_looked_at_the_cluster_if_it_said_so_or_knows_of_nothing_there() -> None:
    old: dict[str, Any] = {"old": {"type": DEPLOYMENT, "inputs": {}}}
    assert heard(event("refresh", **old), event("same", **old)).is_refreshed
    assert not heard(event("same", **old)).is_refreshed
    assert heard(event("create")).is_refreshed


def test_errors_are_told_once_without_colours_and_without_those_that_say_nothing() -> None:
    found = heard(
        said("info", "fine"),
        said("warning", "hm"),
        said("error", "<{%reset%}>it is broken<{%reset%}>\n"),
        said("error", "it is broken"),
        said("error", "passing", ephemeral=True),
        said("error", "an unhandled error occurred: program exited with non-zero exit code: 1"),
        said("error", "preview failed"),
    )
    assert found.errors == ["it is broken"]


# --- where no preview comes about -------------------------------------------------------------------------------------


def test_a_folder_without_a_project_is_told(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"holds no Pulumi\.yaml"):
        preview(tmp_path)


def test_an_engine_that_is_not_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Pulumi.yaml").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="pulumi is not on PATH"):
        preview(tmp_path)


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Something that answers as `pulumi` does."""
    engine = folder / "bin" / "pulumi"
    engine.parent.mkdir()
    engine.write_text(f"#!/bin/sh\n{script}\n")
    engine.chmod(0o755)
    (folder / "Pulumi.yaml").touch()
    monkeypatch.setenv("PATH", f"{engine.parent}:/usr/bin:/bin")


def test_an_engine_that_is_too_old_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "echo v3.0.0")
    with pytest.raises(EngineError, match=r"minimum CLI version.*3\.0\.0"):
        preview(tmp_path)


def test_what_the_engine_says_is_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(
        tmp_path,
        monkeypatch,
        """case "$*" in version) echo v3.274.1;; *--show-name*) echo "error: no stack selected" >&2; exit 255;; esac""",
    )
    with pytest.raises(EngineError, match=r"^no stack selected$"):
        preview(tmp_path)


def test_an_engine_that_does_not_work_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "exit 3")
    with pytest.raises(EngineError, match=r"^`pulumi version` ended with status 3"):
        preview(tmp_path)


def test_an_engine_that_does_not_tell_all_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, """case "$*" in version) echo v3.274.1;; esac""")
    with pytest.raises(EngineError, match=r"^the engine ended without having told all"):
        preview(tmp_path, stack="prod")


def test_what_the_program_prints_is_not_taken_for_what_the_engine_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(
        tmp_path,
        monkeypatch,
        """case "$*" in version) echo v3.274.1;; *) echo "stderr: mine"; echo error: theirs >&2; exit 1;; esac""",
    )
    with pytest.raises(EngineError, match=r"^theirs$"):
        preview(tmp_path, stack="prod")


def test_the_engine_is_told_the_stack_and_whether_to_refresh_and_selects_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(
        tmp_path,
        monkeypatch,
        f"""case "$*" in version) echo v3.274.1;; *) echo "$*" >{tmp_path}/asked; echo error: no >&2; exit 1;; esac""",
    )
    with pytest.raises(EngineError, match=r"^no$"):
        preview(tmp_path, stack="prod", refresh=False)
    [asked] = (tmp_path / "asked").read_text().splitlines()
    assert asked.startswith("--non-interactive preview ")
    assert asked.endswith("--refresh=false --stack prod")
