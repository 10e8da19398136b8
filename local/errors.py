"""What the local plane says when something is wrong: a sentence for the person at the terminal, never a traceback.

Every message names the thing, what was found and what to do. The commands print `str(error)` and end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class LocalError(Exception):
    """Something on this machine keeps the plane from doing what was asked; the text is meant for the operator."""


class ComponentDiedError(LocalError):
    """A process of the plane ended although nobody asked it to.

    Attributes:
        component: Name as `status` shows it, for instance `kube-apiserver`.
        exit_code: What the process returned; negative for a signal; None if nobody was there to see it end.
        log: The component's whole log.
        last_lines: Its last words, oldest first.
    """

    def __init__(self, component: str, *, exit_code: int | None, log: Path, last_lines: tuple[str, ...]) -> None:
        self.component = component
        self.exit_code = exit_code
        self.log = log
        self.last_lines = last_lines
        said = "\n".join(f"  | {line}" for line in last_lines) or "  | (it logged nothing)"
        super().__init__(f"{component} {describe_exit(exit_code)}. Its last lines, from {log}:\n{said}")


class DeadlineError(LocalError):
    """A condition did not come true in the time it had."""


def describe_exit(exit_code: int | None) -> str:
    """Say how a process ended, as the end of a sentence that begins with its name."""
    if exit_code is None:
        return "is gone, and nobody saw how it ended"
    if exit_code < 0:
        return f"was ended by signal {-exit_code}"
    return f"ended by itself with exit code {exit_code}"
