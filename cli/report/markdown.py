"""A report as GitHub's Markdown, short enough to be read in a pull request; what is long is there to unfold."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from cli.report.course import likeliest
from stack.impact import HEADS, because, outage_line, remarks, rows, summarize
from stack.report import Verdict, headline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cli.report.course import Course
    from stack.impact import Impact
    from stack.report import Engine, Letter, Report

MARKS = {
    Verdict.NOTHING_RESTARTS: "🟢",
    Verdict.RESTARTS: "🟡",
    Verdict.OUTAGE: "🔴",
    Verdict.REFUSED: "⛔",
    Verdict.NOT_KNOWN: "⚪",
}
MOST_LETTERS, MOST_STEPS, MOST_LENGTH = 20, 24, 1500
"""Letters of a kind, rows of a table, characters of a text."""
ROOM = 60_000
"""Characters of a comment: GitHub takes 65,536, and who posts it may add some."""
CUT = "*The rest is too long for a comment; the report as JSON has all of it.*"
SPECIAL = re.compile(r"([\\`*_{}\[\]|~])")
APART = "&#8203;"
"""A space without width. Mentions are looked for in the text that is shown, so an entity for `@` would not hide one."""
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": f"@{APART}", "#": f"#{APART}", "$": "&#36;"}
"""What Markdown, HTML, GitHub's mentions and its formulas would take for theirs."""


def render_markdown(report: Report) -> str:
    """The report as Markdown."""
    text = "\n".join(_lines(report)).rstrip() + "\n"
    if len(text) <= ROOM:
        return text
    kept = text[:ROOM].rpartition("\n")[0]
    is_open = kept.count("<details>") > kept.count("</details>")
    return "\n".join([kept, *(["\n</details>"] if is_open else []), f"\n{CUT}\n"])


def plain(text: str) -> str:
    """A text in one line that shows as it is, whatever stands in it."""
    line = " ".join(_cut(text).split())
    return "".join(ENTITIES.get(letter, letter) for letter in SPECIAL.sub(r"\\\1", line))


def prose(text: str) -> str:
    """The same, where it begins a line, and what stands between backticks is code."""
    parts = re.split(r"`([^`]+)`", _cut(text))
    found = "".join(code(part) if index % 2 else _around(part) for index, part in enumerate(parts))
    return re.sub(r"^([-+=]|\d+[.)])", rf"{APART}\1", found.strip())


def _cut(text: str) -> str:
    return text if len(text) <= MOST_LENGTH else f"{text[:MOST_LENGTH]} ..."


def _around(text: str) -> str:
    """A piece of a text, with a space where it begins or ends with one."""
    return f"{' ' * text[:1].isspace()}{plain(text)}{' ' * text[-1:].isspace()}"


def code(text: str) -> str:
    """A text as code, on one line; fenced by more backticks than stand in it."""
    line = " ".join(text.split())
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence, room = "`" * (longest + 1), " " * bool(longest)
    return f"{fence}{room}{line}{room}{fence}"


def _lines(report: Report) -> Iterator[str]:
    yield f"### {MARKS[report.verdict]} {plain(report.stack)}: {plain(headline(report))}"
    yield ""
    yield f"Release {code(report.release)} in namespace {code(report.namespace)}, context {code(report.context)}"
    yield ""
    if report.impact is not None:
        yield from _impact(report.impact, report.verdict)
    yield from _letters("Refused", report.refusals)
    yield from _letters("Warnings", report.warnings)
    yield from _listed("Not known", map(prose, report.unknown))
    if report.engine is not None and report.engine.differences:
        yield from _bug(report.engine)
    if (course := likeliest(report)) is not None:
        yield from _course(course, title="How it would go" if report.refusals else "How it goes")
    if report.engine is not None and report.engine.steps:
        yield from _engine(report.engine)


def _impact(impact: Impact, verdict: Verdict) -> Iterator[str]:
    if (summary := summarize(impact)) is not None:
        yield from (prose(summary), "")
        return
    if impact.changes_nothing:
        return
    yield from _table(HEADS, rows(impact))
    listed = [*map(prose, because(impact)), *map(prose, remarks(impact))]
    if verdict not in {Verdict.OUTAGE, Verdict.RESTARTS}:
        listed.append(prose(outage_line(impact)))
    yield from (f"- {line}" for line in listed)
    yield ""


def _table(heads: Sequence[str], cells: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(map(plain, heads))} |"
    yield f"|{'---|' * len(heads)}"
    for row in cells:
        yield f"| {' | '.join(map(plain, row))} |"
    yield ""


def _letters(title: str, letters: Sequence[Letter]) -> Iterator[str]:
    return _listed(title, (_letter(letter) for letter in letters))


def _letter(letter: Letter) -> str:
    guard = f" (guard {code(letter.guard)})" if letter.guard else ""
    if letter.key is None or letter.why is None:
        return f"{prose(letter.text)}{guard}"
    value = f" = {plain(letter.value)}" if letter.value else ""
    fix = f"<br>**Way out:** {prose(letter.fix)}." if letter.fix else ""
    return f"{code(letter.key)}{value}: {prose(letter.why)}{guard}{fix}"


def _listed(title: str, lines: Iterable[str]) -> Iterator[str]:
    said = list(lines)
    if not said:
        return
    yield f"**{title}**"
    yield ""
    yield from (f"- {line}" for line in said[:MOST_LETTERS])
    if len(said) > MOST_LETTERS:
        yield f"- and {len(said) - MOST_LETTERS} more"
    yield ""


def _bug(engine: Engine) -> Iterator[str]:
    yield from _listed(
        "The engine and the impact differ: one of them is wrong, so rely on neither, and report it as a bug",
        (
            f"{code(each.workload)}: the engine: {plain(each.engine)}; the impact: {plain(each.impact)}"
            for each in engine.differences or ()
        ),
    )


def _course(course: Course, *, title: str) -> Iterator[str]:
    yield f"<details><summary>{title}</summary>\n\n{plain(course.summary)}\n"
    yield from _table(course.heads, course.steps[:MOST_STEPS])
    if len(course.steps) > MOST_STEPS:
        yield f"and {len(course.steps) - MOST_STEPS} more steps\n"
    yield "</details>\n"


def _engine(engine: Engine) -> Iterator[str]:
    counted = Counter(step.operation for step in engine.steps)
    said = ", ".join(f"{count} to {operation}" for operation, count in sorted(counted.items()))
    yield f"<details><summary>The engine: {plain(said)}</summary>\n"
    for step in engine.steps[:MOST_STEPS]:
        at = f", at {', '.join(map(code, step.paths))}" if step.paths else ""
        yield f"- {plain(step.operation)} {plain(step.kind)} {code(step.name)}{at}"
    if len(engine.steps) > MOST_STEPS:
        yield f"- and {len(engine.steps) - MOST_STEPS} more"
    yield "\n</details>\n"
