"""Runs the operator's own `pulumi preview`: their project, stack, backend and environment; nothing of it is changed.

What comes of it is the program's report, by the file that the program writes, and the engine's steps, by its events. Of
those only names and property paths are kept, no values.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pulumi import automation as auto

from stack.report import REPORT_FILE, EngineStep, Report, from_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pulumi.automation.events import EngineEvent, StepEventMetadata

UNCHANGED: Final = frozenset({"same", "refresh", "read", "remove-pending-replace"})
"""Nothing happens in the cluster: the last one tidies the state up after a delete that is told beside it."""
HALVES: Final = frozenset({"create-replacement", "delete-replaced"})
"""What a replacement consists of; a delete that is no half of one is that of a resource that goes with another."""
DELETES: Final = frozenset({"delete", "delete-replaced"})
"""What takes an object away. A replacement has none where an interrupted update did that half of it before."""
HOLLOW: Final = ("preview failed", "an unhandled error occurred: program exited with non-zero exit code")
"""How errors begin that only say that there was one before."""
PROJECT_FILES: Final = ("Pulumi.yaml", "Pulumi.yml")
_COLOR: Final = re.compile(r"<\{%.*?%\}>")
"""The engine's way to write colours in events."""
_STANDARD_ERROR: Final = "\n stderr: "
"""How the Automation API sets off what a command wrote there, after all that it wrote to its standard output."""


class EngineError(Exception):
    """No preview came about; the text is what the program or the engine said."""


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What a preview said.

    Attributes:
        version: of the engine.
        stack: name of the stack.
        report: the program's; None when it ended before it had one.
        steps: what would not stay as it is.
        is_refreshed: whether the engine looked at the cluster first, where it knows of anything there.
        errors: why it failed; empty when it did not.
    """

    version: str
    stack: str
    report: Report | None
    steps: tuple[EngineStep, ...]
    is_refreshed: bool
    errors: tuple[str, ...] = ()


class _Workspace(auto.LocalWorkspace):
    """The operator's project folder, in which no other stack is selected."""

    def __init__(self, folder: Path, *, variables: Mapping[str, str], refresh: bool | None) -> None:
        super().__init__(work_dir=str(folder), env_vars=variables)
        self._refresh = refresh

    def select_stack(self, stack_name: str) -> None:
        """Leave the selection as it is: each command names the stack."""

    def serialize_args_for_op(self, stack_name: str) -> list[str]:  # noqa: ARG002  # it is the API's
        """What the project's own options don't say otherwise; the API can't turn a refresh off."""
        return [] if self._refresh is None else [f"--refresh={str(self._refresh).lower()}"]


@dataclass
class Heard:
    """What the engine says while it previews."""

    steps: list[StepEventMetadata] = field(default_factory=list["StepEventMetadata"])
    errors: list[str] = field(default_factory=list[str])

    @property
    def is_refreshed(self) -> bool:
        """Whether it looked at the cluster, or has nothing to look for."""
        return any(step.op == "refresh" for step in self.steps) or all(step.old is None for step in self.steps)

    def hear(self, event: EngineEvent) -> None:
        """Keep what matters of an event."""
        if event.resource_pre_event is not None:
            self.steps.append(event.resource_pre_event.metadata)
        said = event.diagnostic_event
        if said is not None and said.severity == "error" and not said.ephemeral:
            words = _COLOR.sub("", said.message).strip()
            if words not in self.errors and not words.startswith(HOLLOW):
                self.errors.append(words)


def preview(folder: Path, *, stack: str | None = None, refresh: bool | None = None) -> Preview:
    """Preview a stack.

    Args:
        folder: where the project is.
        stack: its name; None for the one that is selected.
        refresh: whether the engine looks at the cluster first; None leaves that to the project.

    Raises:
        EngineError: there is no engine, no project, no such stack, or somebody else is changing it.
    """
    if not any((folder / name).is_file() for name in PROJECT_FILES):
        raise EngineError(
            f"{folder} holds no Pulumi.yaml. Run the command in the project's folder, or name it by --cwd"
        )
    with tempfile.TemporaryDirectory(prefix="serving-stack-") as kept:
        written, heard = Path(kept, "report.json"), Heard()
        try:
            workspace = _Workspace(folder, variables={REPORT_FILE: str(written)}, refresh=refresh)
            name = stack or _selected(workspace)
            failed = _run(auto.Stack.select(name, workspace), heard)
        except FileNotFoundError:
            raise EngineError("pulumi is not on PATH. Install the Pulumi CLI, or put it there") from None
        except subprocess.CalledProcessError as error:
            raise EngineError(
                f"`pulumi version` ended with status {error.returncode}, so the pulumi on PATH does not work. Install "
                "the Pulumi CLI anew"
            ) from None
        except auto.InvalidVersionError as error:
            raise EngineError(str(error)) from None
        report = _read(written)
        if failed is not None and not heard.errors and report is None:
            raise EngineError(failed)
        return Preview(
            version=str(workspace.pulumi_command.version),
            stack=name,
            report=report,
            steps=read_steps(heard.steps),
            is_refreshed=heard.is_refreshed,
            errors=() if failed is None else tuple(heard.errors or [failed]),
        )


def read_steps(given: Iterable[StepEventMetadata]) -> tuple[EngineStep, ...]:
    """What changes, each replacement once, sorted by kind and name: the engine goes about it in any order.

    A replacement of which nothing is left to delete creates the object.
    """
    changing = [step for step in given if step.op not in UNCHANGED]
    replaced = {step.urn for step in changing if step.op == "replace"}
    deleted = {step.urn for step in changing if step.op in DELETES}
    steps = [
        _step(step, "create" if step.op == "replace" and step.urn not in deleted else _operation(step))
        for step in changing
        if step.op == "replace" or step.urn not in replaced or step.op not in HALVES | DELETES
    ]
    return tuple(sorted(steps, key=lambda step: (step.kind, step.namespace or "", step.name, step.operation)))


def _operation(step: StepEventMetadata) -> str:
    return "delete" if step.op in DELETES else step.op.value


def _step(step: StepEventMetadata, operation: str) -> EngineStep:
    state = step.new or step.old
    inputs: Mapping[str, Any] = (state.inputs if state is not None else None) or {}
    meta: Mapping[str, Any] = inputs.get("metadata") or {}
    is_named = step.type.startswith("kubernetes:") and "name" in meta
    # What an object that is not there any more was like is no difference.
    paths = () if operation == "create" else step.detailed_diff or step.diffs or ()
    return EngineStep(
        operation=operation,
        kind=step.type.rpartition(":")[2] if is_named else step.type,
        name=meta["name"] if is_named else step.urn.rpartition("::")[2],
        namespace=meta.get("namespace") if is_named else None,
        paths=tuple(sorted(paths)),
    )


def _selected(workspace: _Workspace) -> str:
    """Name of the stack that a plain `pulumi preview` would be about."""
    try:
        said = workspace.pulumi_command.run(["stack", "--show-name"], workspace.work_dir, workspace.env_vars)
    except auto.CommandError as error:
        raise EngineError(_words(error)) from None
    return said.stdout.strip()


def _run(stack: auto.Stack, heard: Heard) -> str | None:
    """Preview it; why that failed, None if it did not."""
    try:
        stack.preview(on_event=heard.hear, color="never", suppress_outputs=True)
    except (auto.StackNotFoundError, auto.ConcurrentUpdateError) as error:
        raise EngineError(_words(error)) from None
    except auto.CommandError as error:
        return _words(error)
    except RuntimeError as error:  # of Python's: the Automation API misses an event
        return f"the engine ended without having told all of its preview ({error}). Run it again"
    return None


def _words(error: auto.CommandError) -> str:
    """What the command wrote to its standard error, which the Automation API hands on with all else that it wrote."""
    said = str(error).rpartition(_STANDARD_ERROR)[2].strip() or str(error).strip()
    return said.removeprefix("error:").strip()


def _read(path: Path) -> Report | None:
    """The program's report.

    Raises:
        EngineError: it is of another version than this command.
    """
    with suppress(FileNotFoundError):
        try:
            return from_text(path.read_bytes())
        except ValueError as error:
            raise EngineError(
                "the program's report could not be read, so it is of another version than this command. Install the "
                f"command from the project's folder. ({str(error).splitlines()[0]})"
            ) from None
    return None
