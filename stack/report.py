"""What a run of the program found out about its change, as one value: the program hands it over, others show it. Pure.

`serving-stack impact` adds what the engine says and prints it as table, Markdown, JSON or HTML. No time and no machine
stands in it, so the same change on the same cluster gives the same report, in previews and updates.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import ConfigDict, TypeAdapter
from pydantic.alias_generators import to_camel

from stack.guards import GuardProblem
from stack.impact import Impact, outage_line
from stack.rollout.words import join

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stack.errors import Problem

REPORT_FILE: Final = "SERVING_STACK_REPORT"
"""Environment variable that names the file to which the program writes the report of its run."""
SCHEMA_VERSION: Final = 1
"""Goes up when a field is removed or changes its meaning; new fields may come without that."""


class Verdict(StrEnum):
    """What a change comes to, for whoever decides whether it may go on."""

    NOTHING_RESTARTS = "nothing restarts"
    RESTARTS = "restarts"
    """Pods that run are exchanged for new ones; the stack serves all the time."""
    OUTAGE = "outage"
    REFUSED = "refused"
    """An update ends before anything is touched."""
    NOT_KNOWN = "not known"
    """What happens to some Pods could not be found out, an outage among it."""


EXIT_CODES: Final[Mapping[Verdict, int]] = {
    Verdict.NOTHING_RESTARTS: 0,
    Verdict.RESTARTS: 10,
    Verdict.OUTAGE: 11,
    Verdict.REFUSED: 12,
    Verdict.NOT_KNOWN: 13,
}
"""1 and 2 are what every command says: it failed, it was called wrongly."""


@dataclass(frozen=True, kw_only=True)
class Letter:
    """Why a change is refused, or what to know all the same.

    Attributes:
        text: the whole letter, as the engine's log has it.
        key, value, why, fix: its parts, see `stack.errors.Problem`; None for one that has none.
        guard: which guard says it; None where it is none.
    """

    text: str
    key: str | None = None
    value: str | None = None
    why: str | None = None
    fix: str | None = None
    guard: str | None = None


@dataclass(frozen=True, kw_only=True)
class EngineStep:
    """What the engine is going to do to one resource; those that stay the same are left out.

    Attributes:
        operation: as the engine names it: `create`, `update`, `delete`, `replace`, `import`, ...
        kind: the Kubernetes kind, or the type of what is no Kubernetes object.
        name: the Kubernetes name, or the logical one.
        namespace: None for what has none.
        paths: where it differs.
    """

    operation: str
    kind: str
    name: str
    namespace: str | None = None
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The engine and the impact say different things about a Deployment: one of them is wrong, which is a bug.

    Attributes:
        workload: its name.
        engine: what the engine is going to do to it, in words.
        impact: what the impact says happens to its Pods, in words.
    """

    workload: str
    engine: str
    impact: str


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What the engine says of the same change.

    Attributes:
        version: of the engine.
        is_refreshed: whether it looked at the cluster first.
        steps: what it is going to do, sorted by kind and name.
        differences: empty when it agrees with the impact; None when that could not be compared.
    """

    version: str
    is_refreshed: bool
    steps: tuple[EngineStep, ...]
    differences: tuple[Difference, ...] | None


@dataclass(frozen=True, kw_only=True)
class Report:
    """A change, weighed.

    Attributes:
        schema_version: goes up when a field goes or changes its meaning.
        stack: the engine's name of the stack.
        release, namespace, context: where it is.
        verdict: what it comes to.
        impact: what it does to Pods; None when the run ended, or went on, without finding out.
        refusals: why an update with it is refused.
        warnings: what to know all the same.
        unknown: what could not be found out.
        engine: what the engine is going to do; None from the program, and where a run ended early.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel, extra="forbid", strict=True)

    schema_version: Literal[1] = SCHEMA_VERSION
    stack: str
    release: str
    namespace: str
    context: str
    verdict: Verdict
    impact: Impact | None
    refusals: tuple[Letter, ...] = ()
    warnings: tuple[Letter, ...] = ()
    unknown: tuple[str, ...] = ()
    engine: Engine | None = None


def make_report(
    *,
    stack: str,
    release: str,
    namespace: str,
    context: str,
    impact: Impact | None = None,
    refusals: Iterable[Problem | str] = (),
    warnings: Iterable[Problem | str] = (),
    unknown: Iterable[str] = (),
    more_unknown: Iterable[str] = (),
) -> Report:
    """A report with its verdict, and with everything said once."""
    refused = _letters(refusals)
    not_known = tuple(dict.fromkeys((*unknown, *more_unknown)))
    said = {*not_known, *(letter.text for letter in refused)}
    return Report(
        stack=stack,
        release=release,
        namespace=namespace,
        context=context,
        verdict=_verdict(impact, refused),
        impact=impact,
        refusals=refused,
        warnings=tuple(letter for letter in _letters(warnings) if letter.text not in said),
        unknown=not_known,
    )


def exit_code(report: Report) -> int:
    """For continuous integration: 1 when impact and engine disagree, so that one of them cannot be believed."""
    if report.engine is not None and report.engine.differences:
        return 1
    return EXIT_CODES[report.verdict]


def headline(report: Report) -> str:
    """What the change comes to, in one line."""
    impact = report.impact
    match report.verdict:
        case Verdict.REFUSED:
            return f"refused for {_count(len(report.refusals), 'reason')}: an update ends before anything is touched"
        case Verdict.OUTAGE if impact is not None:
            return outage_line(impact)
        case Verdict.RESTARTS if impact is not None:
            pods = [f"{part.part} ({_count(part.new, 'Pod')})" for part in impact.parts if part.restarts]
            return f"restarts {join(pods)}; {outage_line(impact)}"
        case Verdict.NOTHING_RESTARTS if impact is not None and impact.is_first_install:
            return f"nothing of {report.release} runs yet, so nothing restarts"
        case Verdict.NOTHING_RESTARTS:
            return "nothing restarts"
        case _:
            return "what it does to running Pods is not known"


def to_json(report: Report) -> dict[str, Any]:
    """The report as JSON-shaped data with camelCase keys."""
    return _adapter().dump_python(report, mode="json", by_alias=True)


def to_text(report: Report) -> str:
    """The report as JSON."""
    return json.dumps(to_json(report), indent=2, ensure_ascii=False) + "\n"


def from_text(text: str | bytes) -> Report:
    """The report that was written as JSON.

    Raises:
        ValueError: it is none of this version.
    """
    return _adapter().validate_json(text)


def json_schema() -> dict[str, Any]:
    """JSON Schema of a report."""
    return _adapter().json_schema(by_alias=True, mode="serialization")


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


@cache
def _adapter() -> TypeAdapter[Report]:
    return TypeAdapter(Report)


def _letters(said: Iterable[Problem | str]) -> tuple[Letter, ...]:
    return tuple(dict.fromkeys(_letter(each) for each in said))


def _letter(said: Problem | str) -> Letter:
    if isinstance(said, str):
        return Letter(text=said)
    guard = said.guard if isinstance(said, GuardProblem) else None
    return Letter(text=str(said), key=said.key, value=said.value, why=said.why, fix=said.fix, guard=guard)


def _verdict(impact: Impact | None, refusals: tuple[Letter, ...]) -> Verdict:
    """The worst that is known; what is not known may be worse than a restart."""
    if refusals:
        return Verdict.REFUSED
    if impact is None:
        return Verdict.NOT_KNOWN
    if impact.outage is not None:
        return Verdict.OUTAGE
    if not impact.is_known:
        return Verdict.NOT_KNOWN
    return Verdict.RESTARTS if impact.restarts else Verdict.NOTHING_RESTARTS
