"""`impact`: what an update would do to the Pods that run, before it does, for people and for continuous integration."""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli.agreement import compare
from cli.engine import EngineError, preview
from cli.report import render_html, render_markdown
from stack.impact import HEADS, because, outage_line, remarks, rows, summarize
from stack.report import Engine, Report, Verdict, exit_code, from_text, headline, to_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cli.engine import Preview
    from stack.report import EngineStep, Letter

complaints = Console(stderr=True, highlight=False, markup=False)
STYLES = {
    Verdict.NOTHING_RESTARTS: "green",
    Verdict.RESTARTS: "yellow",
    Verdict.OUTAGE: "red",
    Verdict.REFUSED: "red",
    Verdict.NOT_KNOWN: "magenta",
}
OUTAGE_SAID = frozenset({Verdict.RESTARTS, Verdict.OUTAGE})
"""Of these the headline says already whether something is out."""
FILE_WIDTH = 120
"""Columns of a table that is written into a file."""
NOT_COMPARED = "whether the engine agrees with this: it did not look at the cluster first, as it does with `--refresh`"
NO_CLUSTER = "`--no-refresh` plans without the cluster, and says what could not be checked."
UNREACHABLE = "unreachable cluster"
"""How the provider says that the engine can't refresh."""
A_BUG = (
    "The engine and the impact differ, so one of them is wrong and neither is to be relied on. This is a bug: please "
    "report it with the output of `serving-stack impact --format json` and of `pulumi preview --diff`."
)


class Format(StrEnum):
    """How a report is written."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"
    HTML = "html"


def impact(
    *,
    stack: Annotated[
        str | None, typer.Option("--stack", "-s", help="Stack; without it the one that is selected.")
    ] = None,
    cwd: Annotated[
        Path | None,
        typer.Option(
            "--cwd",
            "-C",
            help="The project's folder; without it the current one.",
            exists=True,
            file_okay=False,
            resolve_path=True,
        ),
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", "-f", help="For a terminal, a pull request, a program, a browser.")
    ] = Format.TABLE,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write into this file instead.", dir_okay=False, writable=True)
    ] = None,
    refresh: Annotated[
        bool | None,
        typer.Option(
            "--refresh/--no-refresh",
            help="Whether the engine looks at the cluster first; without it what Pulumi.yaml says.",
            show_default=False,
        ),
    ] = None,
    given: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Show a report that was written as JSON, without a preview.", exists=True, dir_okay=False
        ),
    ] = None,
) -> None:
    """Preview an update and say what it does to the Pods that run.

    Exit status: 0 nothing restarts, 10 Pods restart, 11 something is out meanwhile, 12 the update is refused, 13 not
    known, 1 no preview came about, or engine and impact differ, 2 wrong usage. Nothing is changed.
    """
    if given is not None and (stack, cwd, refresh) != (None, None, None):
        raise typer.BadParameter("a report is about the stack that it was made of", param_hint="--from")
    if stack is not None and not stack.strip():
        raise typer.BadParameter("names no stack; leave it out for the one that is selected", param_hint="--stack")
    if output is not None and not os.access(output, os.F_OK) and not os.access(output.parent, os.W_OK | os.X_OK):
        # The preview takes a while, and would be for nothing.
        raise typer.BadParameter(f"{output.parent} is no folder that files can be made in", param_hint="--output")
    try:
        report = _preview(cwd or Path.cwd(), stack=stack, refresh=refresh) if given is None else _read(given)
        _write(report, form, output)
    except (EngineError, OSError) as error:
        complaints.print(str(error), soft_wrap=True)
        raise typer.Exit(1) from None
    if report.engine is not None and report.engine.differences and form is not Format.TABLE:
        complaints.print(A_BUG, soft_wrap=True)
    raise typer.Exit(exit_code(report))


def _preview(folder: Path, *, stack: str | None, refresh: bool | None) -> Report:
    """The report of a preview, made now, with a sign of life on a terminal: it takes some seconds."""
    with complaints.status("pulumi preview") if complaints.is_terminal else nullcontext():
        return combine(preview(folder, stack=stack, refresh=refresh))


def _read(path: Path) -> Report:
    try:
        return from_text(path.read_bytes())
    except ValueError:
        raise EngineError(
            f"{path} is no report of this version. Make one with `serving-stack impact --format json --output {path}`"
        ) from None


def combine(previewed: Preview) -> Report:
    """The program's report with what the engine says.

    Raises:
        EngineError: the preview failed, and not because the program refuses the change.
    """
    report = previewed.report
    if report is None or (previewed.errors and not _is_refusal(report, previewed.errors)):
        why = (
            "\n".join(previewed.errors) or "the program wrote no report, so it is of another version than this command"
        )
        raise EngineError(f"{why}\n{NO_CLUSTER}" if UNREACHABLE in why else why)
    if previewed.errors:
        return report  # the engine did not come far enough to say anything
    known = report.impact if previewed.is_refreshed else None
    engine = Engine(
        version=previewed.version,
        is_refreshed=previewed.is_refreshed,
        steps=previewed.steps,
        differences=None if known is None else compare(known, previewed.steps, namespace=report.namespace),
    )
    unsure = () if previewed.is_refreshed or report.impact is None else (NOT_COMPARED,)
    return replace(report, engine=engine, unknown=(*report.unknown, *unsure))


def _is_refusal(report: Report, errors: Iterable[str]) -> bool:
    """Whether the program failed with a refusal that it handed over, and not for another reason afterwards."""
    said = [_in_one_line(error) for error in errors]
    return any(_in_one_line(letter.text) in error for letter in report.refusals for error in said)


def _in_one_line(text: str) -> str:
    """A text without anything that moves a cursor, or begins another line, in which a log would see orders."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def write(report: Report, form: Format, *, color: bool = False) -> str:
    """The report in a format; `color` says that a terminal may show it."""
    match form:
        case Format.JSON:
            return to_text(report)
        case Format.MARKDOWN:
            return render_markdown(report)
        case Format.HTML:
            return render_html(report)
        case Format.TABLE:
            console = Console(highlight=False) if color else Console(highlight=False, width=FILE_WIDTH, file=StringIO())
            with console.capture() as printed:
                print_report(console, report)
            return "".join(f"{line.rstrip()}\n" for line in printed.get().splitlines())


def print_report(console: Console, report: Report) -> None:
    """For people: what it comes to, the table, and what to know."""
    stack, place, comes_to = (escape(_in_one_line(text)) for text in (report.stack, _place(report), headline(report)))
    console.print(f"[bold]{stack}[/bold] ({place})", soft_wrap=True)
    console.print(f"[bold {STYLES[report.verdict]}]{comes_to}[/]", soft_wrap=True)
    if report.impact is not None:
        if (summary := summarize(report.impact)) is not None:
            _lines(console, [summary])
        elif not report.impact.changes_nothing:
            console.print(_table(rows(report.impact)))
            _lines(console, [*because(report.impact), *remarks(report.impact)])
            if report.verdict not in OUTAGE_SAID:
                _lines(console, [outage_line(report.impact)])
    _section(console, "Refused", _texts(report.refusals), style="red")
    _section(console, "Warnings", _texts(report.warnings), style="yellow")
    _section(console, "Not known", report.unknown, style="magenta")
    if report.engine is not None:
        _section(console, "The engine", engine_lines(report.engine, is_alone=report.impact is None))
        differences = [
            f"Deployment {each.workload}: the engine: {each.engine}; the impact: {each.impact}"
            for each in report.engine.differences or ()
        ]
        _section(console, A_BUG, differences, style="red")


def engine_lines(engine: Engine, *, is_alone: bool) -> Iterator[str]:
    """What the engine says: a line, or where nothing else is known each Deployment that it would change."""
    objects = Counter(step.operation for step in engine.steps if ":" not in step.kind)  # of Kubernetes
    counted = ", ".join(f"{count} to {operation}" for operation, count in sorted(objects.items()))
    agrees = "" if engine.differences is None else ": it agrees" if not engine.differences else ": it does not agree"
    yield f"{counted or 'nothing to change'}{agrees}"
    if is_alone:
        for step in engine.steps:
            if step.kind == "Deployment":
                yield f"{step.operation} Deployment {step.name}{_at(step)}"


def _at(step: EngineStep) -> str:
    return f", at {', '.join(step.paths)}" if step.paths else ""


def _place(report: Report) -> str:
    return f"release {report.release} in namespace {report.namespace}, context {report.context}"


def _table(cells: Iterable[Sequence[str]]) -> Table:
    table = Table(show_edge=False)
    for head in HEADS:
        table.add_column(head, overflow="fold")
    for row in cells:
        table.add_row(*(escape(_in_one_line(cell)) for cell in row))
    return table


def _section(console: Console, title: str, lines: Iterable[str], *, style: str = "") -> None:
    """A title and its lines; nothing without lines."""
    said = list(lines)
    if said:
        console.print(f"[bold {style}]{escape(title)}[/]", soft_wrap=True)
        _lines(console, said)


def _lines(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(f"  {escape(_in_one_line(line))}", soft_wrap=True)


def _texts(letters: Iterable[Letter]) -> list[str]:
    return [letter.text for letter in letters]


def _write(report: Report, form: Format, output: Path | None) -> None:
    text = write(report, form, color=output is None)
    if output is not None:
        output.write_text(text, encoding="utf-8")
        complaints.print(f"{_in_one_line(headline(report))}; written to {output}", soft_wrap=True)
        return
    # A terminal shows what it can; what is for others is UTF-8 whatever the terminal's encoding is.
    encoding = sys.stdout.encoding if form is Format.TABLE else "utf-8"
    typer.echo(text.encode(encoding, "replace"), nl=False)
