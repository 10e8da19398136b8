"""The report of a run: its verdict, its exit codes, and its way into JSON and back."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cli.reference import report_schema_json
from stack.config.guards import GuardsConfig
from stack.errors import Problem
from stack.guards import sort_findings
from stack.guards.finding import refusal
from stack.impact import Happening, Impact, KeyChange, Outage, Start
from stack.report import (
    Difference,
    Engine,
    Report,
    Verdict,
    exit_code,
    from_text,
    headline,
    json_schema,
    to_json,
    to_text,
)
from tests.reports import impact, part, report

OUTAGE = Outage(at_most_seconds=90, about_seconds=None, start=Start.WARM, why="its only Pod leaves first")
PROBLEM = Problem(key="storage.model.size", value="1Gi", why="is below the live size", fix="Write 2Gi")
AGREES = Engine(version="3.1.0", is_refreshed=True, steps=(), differences=())


STAYS, RESTARTS, UNKNOWN = (part(each) for each in (Happening.STAYS, Happening.RESTARTS, Happening.UNKNOWN))


@pytest.mark.parametrize(
    ("found", "refusals", "want", "code"),
    [
        pytest.param(impact(STAYS), (), Verdict.NOTHING_RESTARTS, 0, id="everything stays"),
        pytest.param(impact(part(Happening.SCALES_UP)), (), Verdict.NOTHING_RESTARTS, 0, id="more Pods"),
        pytest.param(
            impact(part(Happening.CONTINUES)), (), Verdict.NOTHING_RESTARTS, 0, id="an earlier change goes on"
        ),
        pytest.param(impact(STAYS, RESTARTS), (), Verdict.RESTARTS, 10, id="one part restarts"),
        pytest.param(impact(part(Happening.GOES_BACK)), (), Verdict.RESTARTS, 10, id="it goes back"),
        pytest.param(impact(RESTARTS, outage=OUTAGE), (), Verdict.OUTAGE, 11, id="an outage"),
        pytest.param(impact(RESTARTS, UNKNOWN, outage=OUTAGE), (), Verdict.OUTAGE, 11, id="an outage at least"),
        pytest.param(impact(RESTARTS, outage=OUTAGE), (PROBLEM,), Verdict.REFUSED, 12, id="an outage, refused"),
        pytest.param(impact(STAYS), (PROBLEM,), Verdict.REFUSED, 12, id="refused although nothing restarts"),
        pytest.param(None, (PROBLEM,), Verdict.REFUSED, 12, id="refused before it was weighed"),
        pytest.param(None, (), Verdict.NOT_KNOWN, 13, id="nothing was found out"),
        pytest.param(impact(STAYS, UNKNOWN), (), Verdict.NOT_KNOWN, 13, id="one part is not known"),
        pytest.param(impact(RESTARTS, UNKNOWN), (), Verdict.NOT_KNOWN, 13, id="a restart, and perhaps an outage"),
        pytest.param(impact(STAYS, unknown=("x",)), (), Verdict.NOT_KNOWN, 13, id="something is not known"),
    ],
)
def test_the_verdict_is_the_worst_that_is_known(
    found: Impact | None, refusals: tuple[Problem, ...], want: Verdict, code: int
) -> None:
    made = report(found, refusals=refusals)
    assert made.verdict == want
    assert exit_code(made) == code
    assert exit_code(replace(made, engine=AGREES)) == code
    assert headline(made)


def test_a_report_that_the_engine_contradicts_is_an_error() -> None:
    difference = Difference(workload="rel-decode", engine="replace", impact="stays")
    assert exit_code(replace(report(impact(STAYS)), engine=replace(AGREES, differences=(difference,)))) == 1
    assert exit_code(replace(report(impact(STAYS)), engine=replace(AGREES, differences=None))) == 0


@pytest.mark.parametrize(
    ("made", "want"),
    [
        (report(impact(STAYS)), "nothing restarts"),
        (report(impact(STAYS), refusals=(PROBLEM,)), "refused for 1 reason: an update ends before anything is touched"),
        (report(impact(STAYS, RESTARTS)), "restarts decode (4 Pods); no outage"),
        (report(None), "what it does to running Pods is not known"),
        (report(impact(RESTARTS, outage=OUTAGE)), "outage, for at most 1 min 30 s: its only Pod leaves first"),
        (
            report(impact(part(Happening.CREATED), is_first_install=True)),
            "nothing of rel runs yet, so nothing restarts",
        ),
    ],
)
def test_one_line_says_what_it_comes_to(made: Report, want: str) -> None:
    assert headline(made) == want


def test_a_letter_has_its_parts_and_its_guard() -> None:
    found = refusal("volumes", "storage.model.size", "1Gi", "is below the live size", fix="Write 2Gi")
    refusals, _ = sort_findings(GuardsConfig(), [found])
    made = report(None, refusals=refusals, warnings=["a sentence.", PROBLEM])
    [letter] = made.refusals
    assert (letter.guard, letter.key, letter.value, letter.why) == (
        "volumes",
        "storage.model.size",
        "1Gi",
        "is below the live size",
    )
    assert letter.text == str(refusals[0])
    sentence, warning = made.warnings
    assert (sentence.text, sentence.key, sentence.guard) == ("a sentence.", None, None)
    assert (warning.key, warning.guard) == ("storage.model.size", None)


def test_nothing_is_said_twice() -> None:
    made = report(None, refusals=[PROBLEM], warnings=[PROBLEM, "x", "x", "y"], unknown=["y"], more_unknown=["y", "z"])
    assert [letter.text for letter in made.warnings] == ["x"]
    assert made.unknown == ("y", "z")


# --- JSON -------------------------------------------------------------------------------------------------------------


@cache
def validator() -> Draft202012Validator:
    schema: dict[str, Any] = json.loads(report_schema_json())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None, max_examples=50)
@given(st.from_type(Report))
def test_any_report_comes_back_from_json_and_is_as_the_schema_says(made: Report) -> None:
    assert from_text(to_text(made)) == made
    validator().validate(to_json(made))  # pyright: ignore[reportUnknownMemberType]  # has no types


def test_keys_are_camel_case() -> None:
    written = to_json(report(impact(RESTARTS, topology=(KeyChange(key="k", before=None, after="1"),))))
    assert written["schemaVersion"] == 1
    assert written["impact"]["parts"][0]["capacityPercent"] == 100
    assert written["impact"]["topology"] == [{"key": "k", "before": None, "after": "1", "isKnown": True}]


@pytest.mark.parametrize(
    ("over", "without"),
    [
        pytest.param({"schemaVersion": 2}, "", id="of another version"),
        pytest.param({"more": 1}, "", id="with a field that is not known"),
        pytest.param({}, "verdict", id="without a field"),
        pytest.param({"verdict": "fine"}, "", id="with another verdict"),
        pytest.param({"unknown": "text"}, "", id="with a text for a list"),
    ],
)
def test_what_is_no_report_is_refused(over: dict[str, Any], without: str) -> None:
    written = to_json(report(impact(STAYS))) | over
    written.pop(without, None)
    with pytest.raises(ValueError, match="Report"):
        from_text(json.dumps(written))


def test_the_schema_says_what_each_field_means() -> None:
    schema: dict[str, Any] = json.loads(report_schema_json())
    described = {"Report": schema, **schema["$defs"]}
    fields = {
        f"{name}.{field}": of
        for name, of_name in described.items()
        for field, of in of_name.get("properties", {}).items()
    }
    assert len(fields) > 100
    assert [name for name, of in fields.items() if not of.get("description")] == []


def test_the_schema_describes_every_kind_of_value() -> None:
    schema: dict[str, Any] = json.loads(report_schema_json())
    plain = json_schema()
    assert set(schema["$defs"]) == set(plain["$defs"])
    for name, described in {"Report": schema, **schema["$defs"]}.items():
        assert described["description"], name
        assert "Attributes:" not in described["description"], name
    assert schema["properties"]["engine"]["description"].startswith("what the engine is going to do")


def test_who_checks_reports_against_this_schema_may_go_on_when_fields_are_added() -> None:
    written: dict[str, Any] = to_json(report(impact(STAYS))) | {"more": 1}
    written["impact"]["more"] = written["impact"]["parts"][0]["more"] = 1
    validator().validate(written)  # pyright: ignore[reportUnknownMemberType]  # has no types
