"""`serving-stack impact`: what it prints, where to, and its exit status. The engine's preview is given."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

from cli.engine import EngineError, Preview
from cli.impact import A_BUG, NO_CLUSTER, NOT_COMPARED, Format, combine
from cli.impact import impact as command
from cli.main import app
from stack.errors import Problem
from stack.impact import HEADS, Happening
from stack.report import EngineStep, Verdict, from_text, to_text
from tests.builders import ROOT
from tests.reports import impact, part, report
from tests.unit.impact.world import change

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

    from stack.report import Report

IMAGE = change({}, {"modelserver": {"image": {"tag": "0.12.1"}}})
ROLES = ("prefill", "decode")
RESTARTS = tuple(
    EngineStep(
        operation="update",
        kind="Deployment",
        name=f"rel-{role}",
        namespace="ns",
        paths=("spec.template.spec.containers[0].image",),
    )
    for role in ROLES
)
REFUSED = report(IMAGE, refusals=[Problem(key="k", value="v", why="no room", fix="Make some")])
SAID = "Refused before anything was touched:\n  k = v: no room. Make some."
UNREACHABLE = "Preview failed: failed to read resource state due to unreachable cluster"


def previewed(found: Report | None, steps: tuple[EngineStep, ...] = RESTARTS, **more: Any) -> Preview:
    given: dict[str, Any] = {"version": "3.274.1", "stack": "prod", "is_refreshed": True} | more
    return Preview(report=found, steps=steps, **given)


def run(monkeypatch: pytest.MonkeyPatch, found: Preview | EngineError, *arguments: str) -> Result:
    """The command, in the project's folder, with what the engine's preview gives."""

    def preview(_folder: Path, **_how: Any) -> Preview:
        if isinstance(found, EngineError):
            raise found
        return found

    monkeypatch.setattr("cli.impact.preview", preview)
    monkeypatch.setenv("COLUMNS", "200")
    return CliRunner().invoke(app, ["impact", "--cwd", str(ROOT), *arguments])


# --- exit status ------------------------------------------------------------------------------------------------------

STAYS = report(impact(part(Happening.STAYS)))


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(previewed(STAYS, ()), 0, id="nothing restarts"),
        pytest.param(previewed(report(IMAGE)), 10, id="Pods restart"),
        pytest.param(previewed(REFUSED, (), errors=(SAID,)), 12, id="refused"),
        pytest.param(
            previewed(REFUSED, errors=("a provider failed",)), 1, id="refused by an update, but the preview fails later"
        ),
        pytest.param(previewed(report(None)), 13, id="not known"),
        pytest.param(previewed(report(IMAGE), ()), 1, id="engine and impact differ"),
        pytest.param(previewed(None, (), errors=("The stack file has a problem",)), 1, id="a bad stack file"),
        pytest.param(previewed(STAYS, (), errors=("a provider failed",)), 1, id="the preview fails later"),
        pytest.param(previewed(None), 1, id="a program without reports"),
        pytest.param(EngineError("no stack selected"), 1, id="no preview"),
    ],
)
def test_the_exit_status_says_what_it_comes_to(
    monkeypatch: pytest.MonkeyPatch, found: Preview | EngineError, want: int
) -> None:
    result = run(monkeypatch, found)
    assert result.exit_code == want, result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["--format", "pdf"],
        ["--cwd", "/nowhere"],
        ["--what"],
        ["--output", "/"],
        ["--output", "/nowhere/report"],
        ["--stack", ""],
        ["--from", "/"],
    ],
)
def test_wrong_usage_is_told_apart_and_before_anything_is_done(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    result = run(monkeypatch, EngineError("it was asked"), *arguments)
    assert result.exit_code == 2
    assert "it was asked" not in result.output


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (previewed(None, (), errors=("The stack file has a problem:\n  k = v: why. Fix.",)), "  k = v: why. Fix."),
        (previewed(None, (), errors=(UNREACHABLE,)), NO_CLUSTER),
        (EngineError("no stack selected"), "no stack selected"),
    ],
)
def test_what_went_wrong_is_told_in_its_own_words_and_not_as_output(
    monkeypatch: pytest.MonkeyPatch, found: Preview | EngineError, want: str
) -> None:
    result = run(monkeypatch, found)
    assert want in result.stderr.splitlines()
    assert result.stdout == ""


# --- formats ----------------------------------------------------------------------------------------------------------


def test_the_table_has_the_columns_and_the_words_of_a_plain_preview(monkeypatch: pytest.MonkeyPatch) -> None:
    told = run(monkeypatch, previewed(report(IMAGE))).stdout
    for head in HEADS:
        assert head in told
    assert "restarts prefill (4 Pods), decode (4 Pods); no outage" in told
    assert "because of modelserver.image.tag: " in told
    assert "2 to update: it agrees" in told
    assert told.count("no outage") == 1, "the headline says it"


def test_a_refusal_is_told_with_its_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    told = run(monkeypatch, previewed(REFUSED, (), errors=(SAID,))).stdout
    assert "refused for 1 reason" in told
    assert "k = v: no room. Make some." in told
    assert "The engine" not in told, "it did not come far enough"


def test_where_nothing_is_known_the_engine_says_which_deployments_it_would_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = run(monkeypatch, previewed(report(None, unknown=["the cluster: no"]), is_refreshed=False))
    assert "Not known\n  the cluster: no\n" in result.stdout
    assert "update Deployment rel-decode, at spec.template.spec.containers[0].image" in result.stdout


def test_brackets_in_a_letter_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    made = report(None, warnings=["modelserver.nodePlacement[0].node = [red]x: why"], unknown=["[bold]"])
    told = run(monkeypatch, previewed(made, ())).stdout
    assert "modelserver.nodePlacement[0].node = [red]x: why" in told
    assert "  [bold]\n" in told


def test_a_letter_begins_no_line_and_moves_no_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = "one\n::error::two\x1b[2J\x07three"
    made = report(IMAGE, warnings=[f"and {odd}"], unknown=[odd])
    made = replace(made, stack=odd, release=odd)
    told = run(monkeypatch, previewed(made)).stdout
    assert told.count("one ::error::two [2J three") == 4
    assert "\x1b" not in told


def test_json_is_the_report_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, previewed(report(IMAGE)), "--format", "json")
    assert from_text(result.stdout) == combine(previewed(report(IMAGE)))
    assert json.loads(result.stdout)["engine"]["differences"] == []
    assert result.stderr == ""


@pytest.mark.parametrize(("form", "want"), [("markdown", "|"), ("html", "<html")])
def test_other_formats_are_rendered(monkeypatch: pytest.MonkeyPatch, form: str, want: str) -> None:
    result = run(monkeypatch, previewed(report(IMAGE)), "--format", form)
    assert result.exit_code == 10
    assert want in result.stdout


def test_a_file_takes_the_report_and_the_terminal_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    result = run(monkeypatch, previewed(report(IMAGE)), "--output", str(file))
    assert result.exit_code == 10
    assert result.stdout == ""
    assert result.stderr == f"restarts prefill (4 Pods), decode (4 Pods); no outage; written to {file}\n"
    assert "because of modelserver.image.tag" in file.read_text()
    assert "\x1b" not in file.read_text(), "a file has no colours"


def test_a_file_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = run(monkeypatch, previewed(STAYS, ()), "--output", str(tmp_path / ("long" * 100)))
    assert result.exit_code == 1
    assert "File name too long" in result.stderr


@pytest.mark.parametrize("form", Format)
def test_a_terminal_that_knows_few_letters_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: Format
) -> None:
    file, kept = tmp_path / "report.json", io.BytesIO()
    terminal = io.TextIOWrapper(kept, encoding="latin-1")  # which knows few letters
    file.write_text(to_text(report(IMAGE, unknown=["→ ⛔"])), encoding="utf-8")
    monkeypatch.setattr("sys.stdout", terminal)
    with pytest.raises(typer.Exit):
        command(given=file, form=form)
    terminal.flush()
    if form is Format.TABLE:
        assert b"restarts prefill" in kept.getvalue()
    else:
        assert "→ ⛔" in kept.getvalue().decode()


# --- the engine -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["table", "json", "markdown", "html"])
def test_a_difference_is_told_as_a_bug_in_every_format(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    result = run(monkeypatch, previewed(report(IMAGE), RESTARTS[:1]), "--format", form)
    assert A_BUG in result.output.replace("\n", " ")
    assert "rel-decode" in result.stdout


def test_an_engine_that_did_not_look_at_the_cluster_is_not_compared() -> None:
    made = combine(previewed(report(IMAGE), (), is_refreshed=False))
    assert made.engine is not None
    assert made.engine.differences is None
    assert made.unknown == (NOT_COMPARED,)
    assert made.verdict is Verdict.RESTARTS


def test_where_the_program_knows_nothing_there_is_nothing_to_compare() -> None:
    made = combine(previewed(report(None)))
    assert made.engine is not None
    assert made.engine.differences is None
    assert made.unknown == ()


def test_a_preview_that_goes_on_although_an_update_is_refused_says_what_the_engine_would_do() -> None:
    made = combine(previewed(REFUSED))
    assert made.engine is not None
    assert made.engine.steps == RESTARTS


def test_what_is_asked_of_the_engine_is_what_was_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []

    def preview(folder: Path, **how: Any) -> Preview:
        asked.append((folder, how))
        return previewed(STAYS, ())

    monkeypatch.setattr("cli.impact.preview", preview)
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    for arguments in ([], ["-s", "prod", "-C", str(ROOT), "--no-refresh"], ["--refresh"]):
        assert runner.invoke(app, ["impact", *arguments]).exit_code == 0
    assert asked == [
        (tmp_path, {"stack": None, "refresh": None}),
        (ROOT, {"stack": "prod", "refresh": False}),
        (tmp_path, {"stack": None, "refresh": True}),
    ]


# --- a report that is there already -----------------------------------------------------------------------------------


def test_a_written_report_is_shown_again_without_a_preview(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    assert run(monkeypatch, previewed(report(IMAGE)), "-f", "json", "-o", str(file)).exit_code == 10
    again = CliRunner().invoke(app, ["impact", "--from", str(file), "-f", "json"])
    assert again.exit_code == 10
    assert again.stdout == file.read_text()


def test_what_is_no_report_is_told(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text('{"schemaVersion": 99}')
    result = CliRunner().invoke(app, ["impact", "--from", str(file)])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{file} is no report of this version.")


def test_a_written_report_is_of_no_other_stack(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.touch()
    for more in (["--stack", "prod"], ["--refresh"]):
        assert CliRunner().invoke(app, ["impact", "--from", str(file), *more]).exit_code == 2


def test_a_written_report_is_of_no_other_folder(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(to_text(STAYS))
    assert CliRunner().invoke(app, ["impact", "--from", str(file)]).exit_code == 0
    assert CliRunner().invoke(app, ["impact", "--from", str(file), "--cwd", str(ROOT)]).exit_code == 2
