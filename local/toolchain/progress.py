"""How long work shows itself: a live display on a terminal, plain lines at sensible intervals everywhere else.

Everything goes to standard error, so that what a command prints stays fit for a pipe. It knows nothing of the work.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

if TYPE_CHECKING:
    from types import TracebackType

LINE_EVERY_SECONDS = 20.0
MIB = 1 << 20


class Progress(Protocol):
    """What the toolchain tells of its work. Calls come from one thread, in this order, `tick` about once a second."""

    def begin(self, total: int) -> None:
        """There are so many tools to build."""
        ...

    def tool(self, name: str) -> None:
        """The next tool is at work."""
        ...

    def phase(self, phase: str, *, total: int | None = None) -> None:
        """The tool has entered a phase, of so many steps if that is known."""
        ...

    def advance(self, done: int, total: int | None = None) -> None:
        """So many steps of the phase are done; total where it was corrected."""
        ...

    def tick(self) -> None:
        """Time has passed."""
        ...

    def finished(self, name: str, *, version: str, seconds: float, size: int) -> None:
        """A tool is there; size in bytes."""
        ...

    def note(self, text: str) -> None:
        """Something worth a line of its own."""
        ...


class Silent:
    """Progress that nobody watches."""

    def begin(self, total: int) -> None:
        """Say nothing."""

    def tool(self, name: str) -> None:
        """Say nothing."""

    def phase(self, phase: str, *, total: int | None = None) -> None:
        """Say nothing."""

    def advance(self, done: int, total: int | None = None) -> None:
        """Say nothing."""

    def tick(self) -> None:
        """Say nothing."""

    def finished(self, name: str, *, version: str, seconds: float, size: int) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""


class Lines:
    """Progress as plain lines, for logs: each phase when it begins, then one line every so often."""

    def __init__(self, console: Console, *, every: float = LINE_EVERY_SECONDS) -> None:
        self._console = console
        self._every = every
        self._began = time.monotonic()
        self._said = self._began
        self._index = 0
        self._total = 0
        self._name = ""
        self._phase = ""
        self._done = 0
        self._steps: int | None = None

    def __enter__(self) -> Self:
        """Nothing to set up: lines need no screen."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to take down."""

    def begin(self, total: int) -> None:
        """Start counting."""
        self._began = time.monotonic()
        self._index, self._total = 0, total

    def tool(self, name: str) -> None:
        """Remember the tool; its first phase says its name."""
        self._index += 1
        self._name = name
        self._done, self._steps = 0, None

    def phase(self, phase: str, *, total: int | None = None) -> None:
        """Say it at once."""
        self._phase, self._done, self._steps = phase, 0, total
        self._say()

    def advance(self, done: int, total: int | None = None) -> None:
        """Remember it for the next line."""
        self._done = done
        if total is not None:
            self._steps = total
        self.tick()

    def tick(self) -> None:
        """Say something if nothing was said for a while."""
        if self._phase and time.monotonic() - self._said >= self._every:
            self._say()

    def finished(self, name: str, *, version: str, seconds: float, size: int) -> None:
        """Say it at once."""
        self._phase = ""
        self._print(describe_finished(name, version=version, seconds=seconds, size=size))

    def note(self, text: str) -> None:
        """Say it at once."""
        self._print(text)

    def _say(self) -> None:
        self._print(f"{self._name}: {self._phase}{describe_steps(self._done, self._steps)}")

    def _print(self, text: str) -> None:
        self._said = time.monotonic()
        where = f"[{self._index}/{self._total}] " if self._index else ""
        elapsed = f"{clock(self._said - self._began)} " if self._total else ""
        self._console.print(f"{elapsed}{where}{text}", markup=False, highlight=False, soft_wrap=True)


class Live:
    """Progress on a terminal: a bar for all tools and one for the tool at work, both with the time they took so far."""

    def __init__(self, console: Console) -> None:
        self._bars = Bars(
            TextColumn("{task.fields[where]:>7}"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[steps]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            expand=True,
        )
        self._console = console
        self._all = self._bars.add_task("toolchain", where="", steps="", visible=False)
        self._one = self._bars.add_task("", where="", steps="", visible=False)
        self._index = 0
        self._total = 0
        self._name = ""
        self._steps: int | None = None

    def __enter__(self) -> Self:
        """Take the bottom lines of the terminal."""
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give them back."""
        self._bars.stop()

    def begin(self, total: int) -> None:
        """Show the bar for all tools."""
        self._index, self._total = 0, total
        self._bars.reset(self._all, total=total, visible=total > 0)

    def tool(self, name: str) -> None:
        """Show the bar for one tool."""
        self._index += 1
        self._name, self._steps = name, None
        self._bars.reset(
            self._one, total=None, visible=True, description=name, where=f"{self._index}/{self._total}", steps=""
        )

    def phase(self, phase: str, *, total: int | None = None) -> None:
        """Name the phase beside the tool."""
        self._steps = total
        self._bars.update(
            self._one, description=f"{self._name}: {phase}", total=total, completed=0, steps=describe_steps(0, total)
        )

    def advance(self, done: int, total: int | None = None) -> None:
        """Move the tool's bar."""
        if total is not None:
            self._steps = total
        self._bars.update(self._one, completed=done, total=self._steps, steps=describe_steps(done, self._steps))

    def tick(self) -> None:
        """Draw it now; between two ticks it is drawn by itself."""
        self._bars.refresh()

    def finished(self, name: str, *, version: str, seconds: float, size: int) -> None:
        """Leave a line above the bars."""
        self._bars.update(self._all, completed=self._index)
        self._bars.update(self._one, visible=False)
        self.note(describe_finished(name, version=version, seconds=seconds, size=size))

    def note(self, text: str) -> None:
        """Leave a line above the bars."""
        self._console.print(text, markup=False, highlight=False)


def show_progress(console: Console | None = None) -> Live | Lines:
    """Choose the display that fits where standard error goes; use it in a `with` statement."""
    chosen = console or Console(stderr=True)
    return Live(chosen) if chosen.is_terminal and not chosen.is_dumb_terminal else Lines(chosen)


def describe_steps(done: int, total: int | None) -> str:
    """Write how far a phase is."""
    if total:
        return f" {done} of {total} packages"
    return f" {done} modules" if done else ""


def describe_finished(name: str, *, version: str, seconds: float, size: int) -> str:
    """Write that a tool is there, at which cost."""
    return f"{name} {version}: built in {clock(seconds)}, {size / MIB:.0f} MiB"


def clock(seconds: float) -> str:
    """Write a duration as minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
