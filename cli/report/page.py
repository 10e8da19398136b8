"""A report as one page for a browser: nothing is loaded, so it can be kept, sent, and put beside a pull request."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from cli.report.course import courses
from cli.report.figure import Figure, draw_devices, draw_pods
from stack.impact import HEADS, duration, remarks, rows, summarize
from stack.report import Verdict, headline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.report.course import Course
    from stack.impact import Impact, KeyChange
    from stack.report import Report

KINDS = {
    "ready": "new, serves",
    "serving": "old, serves",
    "starting": "new, starts",
    "draining": "on its way out",
    "idle": "not Ready",
    "waiting": "new, waits for devices",
}
"""Words for the legend."""
UNKNOWN = "not known"
TITLES = {
    Verdict.NOTHING_RESTARTS: "Nothing restarts",
    Verdict.RESTARTS: "Pods restart",
    Verdict.OUTAGE: "Outage",
    Verdict.REFUSED: "Refused",
    Verdict.NOT_KNOWN: "Not known",
}


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A figure that matters, with what it is about."""

    name: str
    value: str
    beside: str = ""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A course with its figures."""

    course: Course
    pods: Figure
    devices: Figure | None


def render_html(report: Report) -> str:
    """The report as a page."""
    impact = report.impact
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            report=report,
            verdict=report.verdict.name.lower().replace("_", "-"),
            title=TITLES[report.verdict],
            headline=headline(report),
            tiles=[] if impact is None else list(_tiles(impact)),
            summary=None if impact is None else summarize(impact),
            heads=HEADS,
            rows=[] if impact is None or impact.changes_nothing or summarize(impact) else rows(impact),
            keys=[] if impact is None else list(_keys(impact)),
            remarks=[] if impact is None or summarize(impact) else remarks(impact),
            drawn=[] if impact is None else [_draw(course, impact) for course in courses(report)],
            kinds=KINDS,
            operations=_operations(report),
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cli.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["ticked"] = ticked
    return environment


def ticked(text: str) -> Markup:
    """A text in which what stands between backticks is code."""
    parts = re.split(r"`([^`]+)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else escape(part) for index, part in enumerate(parts)
    )


def _draw(course: Course, impact: Impact) -> Drawn:
    return Drawn(course=course, pods=draw_pods(course, impact), devices=draw_devices(course, impact))


def _tiles(impact: Impact) -> Iterator[Tile]:
    restarted = sum(part.new for part in impact.parts if part.restarts)
    others = [part for part in impact.parts if not part.restarts]
    more, fewer = sum(part.new for part in others), sum(part.leaving for part in others)
    beside = [f"{count} {word}" for count, word in ((more, "more start"), (fewer, "leave")) if count]
    restart = str(restarted) if impact.is_known else f"{restarted} or more" if restarted else UNKNOWN
    yield Tile(name="Pods restart", value=restart, beside=", ".join(beside))
    shares = [
        (0 if part.outage is not None else part.capacity_percent, part.part)
        for part in impact.parts
        if part.capacity_percent is not None and part.after and (part.new or part.leaving)
    ]
    if impact.outage is not None and not any(share == 0 for share, _ in shares):
        shares.append((0, "all roles"))
    if shares and (impact.is_known or min(shares)[0] < 100):  # noqa: PLR2004
        least, part = min(shares)
        yield Tile(name="least capacity", value=f"{least} %", beside=part if least < 100 else "all the time")  # noqa: PLR2004
    if impact.outage is not None:
        about = impact.outage.about_seconds
        most = duration(impact.outage.at_most_seconds)
        yield (
            Tile(name="outage, at most", value=most)
            if about is None
            else Tile(name="outage, about", value=duration(about), beside=f"at most {most}")
        )
    elif impact.parts:
        yield Tile(name="outage", value="none" if impact.is_known else UNKNOWN)
    needs = [part for part in impact.parts if part.extra_pods and part.part != "epp"]
    if needs and not impact.is_first_install:
        pods = sum(part.extra_pods for part in needs)
        said = "; ".join(dict.fromkeys(part.spare for part in needs if part.spare))
        yield Tile(name="extra Pods that need devices", value=str(pods), beside=said)


def _keys(impact: Impact) -> Iterator[tuple[KeyChange, str]]:
    """Each key with the parts that it is about."""
    parts: dict[KeyChange, list[str]] = {key: ["all roles"] for key in impact.topology}
    for part in impact.parts:
        for key in part.keys:
            if key not in impact.topology:
                parts.setdefault(key, []).append(part.part)
    return ((key, ", ".join(of)) for key, of in parts.items())


def _operations(report: Report) -> str:
    if report.engine is None:
        return ""
    counted = Counter(step.operation for step in report.engine.steps)
    return ", ".join(f"{count} to {operation}" for operation, count in sorted(counted.items())) or "nothing to change"
