"""docs/impact.md and the workflow beside it speak of what there is."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from cli.impact import Format
from cli.main import app
from stack.report import EXIT_CODES
from tests.builders import ROOT

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENT = (ROOT / "docs" / "impact.md").read_text()
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / "docs" / "examples" / "github-actions-impact.yml").read_text())
STEPS: list[dict[str, Any]] = WORKFLOW["jobs"]["impact"]["steps"]
SCHEMA: dict[str, Any] = json.loads((ROOT / "docs" / "impact.schema.json").read_text())


def script(name: str) -> str:
    """What a step of the workflow runs."""
    [found] = [step["run"] for step in STEPS if step.get("name") == name]
    return found


def test_every_exit_status_and_format_is_explained() -> None:
    for verdict, code in EXIT_CODES.items():
        assert f"| {code} | `{verdict}` |" in DOCUMENT
    for form in Format:
        assert f"| `{form}` |" in DOCUMENT


def test_every_option_is_explained() -> None:
    told = re.sub(r"\x1b\[[0-9;]*m", "", CliRunner().invoke(app, ["impact", "--help"], env={"COLUMNS": "200"}).output)
    options = set(re.findall(r"--[a-z-]+", told)) - {"--help"}
    assert len(options) >= 7
    assert {option for option in options if f"`{option}" not in DOCUMENT} == set()


def test_every_top_level_field_and_every_word_of_the_report_is_explained() -> None:
    for field in SCHEMA["properties"]:
        assert f"`{field}" in DOCUMENT, field
    for name in ("Happening", "Method", "Start"):
        for word in SCHEMA["$defs"][name]["enum"]:
            assert f"`{word}`" in DOCUMENT, word


# --- the workflow -----------------------------------------------------------------------------------------------------


def test_the_workflow_calls_the_command_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "impact.json").touch()
    command: Any = get_command(app)
    lines = re.findall(r"-m cli impact ([^|\n]*)", script("Preview"))
    taken = [command.commands["impact"].make_context("impact", shlex.split(line)).params for line in lines]
    assert [(each["form"], str(each["output"])) for each in taken] == [
        ("json", "impact.json"),
        ("markdown", "impact.md"),
        ("html", "impact.html"),
    ]
    assert [each["stack"] for each in taken] == ["$STACK", None, None]


@pytest.fixture
def runner(tmp_path: Path) -> dict[str, str]:
    """The variables of a runner, with a `gh` that knows one comment, if any, and keeps what it is asked."""
    programs = tmp_path / "bin"
    programs.mkdir()
    gh = programs / "gh"
    gh.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$*" >>{tmp_path}/asked\ncase "$*" in *--paginate*) cat {tmp_path}/known;; esac\n'
    )
    gh.chmod(0o755)
    (tmp_path / "known").touch()
    (tmp_path / "impact.md").write_text("**restarts**\n")
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "STACK": "prod",
        "COMMENTS": "repos/o/r/issues/7/comments",
        "COMMENT": "repos/o/r/issues/comments",
        "COMMIT": "c0ffee",
        "RUN": "https://example.com/runs/1",
        "PASS_ON": str(WORKFLOW["jobs"]["impact"]["env"]["PASS_ON"]),
    }


def bash(text: str, folder: Path, variables: dict[str, str]) -> int:
    """As GitHub runs a step."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text], cwd=folder, env=variables, check=False
    ).returncode


def test_the_comment_is_made_once_and_then_kept_up_to_date(tmp_path: Path, runner: dict[str, str]) -> None:
    assert bash(script("Comment"), tmp_path, runner) == 0
    assert (tmp_path / "comment.md").read_text() == "<!-- serving-stack impact prod -->\n**restarts**\n"
    (tmp_path / "known").write_text("4711\n4712\n")
    assert bash(script("Comment"), tmp_path, runner) == 0
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line for line in asked if "--paginate" not in line] == [
        "api repos/o/r/issues/7/comments --field body=@comment.md --silent",
        "api --method PATCH repos/o/r/issues/comments/4711 --field body=@comment.md --silent",
    ]


def test_a_preview_that_does_not_come_about_takes_the_place_of_an_earlier_comment(
    tmp_path: Path, runner: dict[str, str]
) -> None:
    (tmp_path / "impact.md").unlink()
    (tmp_path / "known").write_text("4711\n")
    assert bash(script("Comment"), tmp_path, runner) == 0
    written = (tmp_path / "comment.md").read_text()
    assert written.startswith("<!-- serving-stack impact prod -->\n### prod: no preview of c0ffee came about\n\n")
    assert "[Why](https://example.com/runs/1)" in written
    [comment] = [step for step in STEPS if step.get("name") == "Comment"]
    assert comment["if"] == "${{ !cancelled() }}", "even if a step before it fails"


def test_a_failing_preview_does_not_end_the_job_before_its_comment(tmp_path: Path, runner: dict[str, str]) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    kept = {"GITHUB_OUTPUT": str(tmp_path / "output"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    assert bash(script("Preview"), tmp_path, runner | kept | {"STACK": "org/project/prod"}) == 0
    assert (tmp_path / "output").read_text() == "status=1\nartifact=impact-org-project-prod\n"


def test_a_checkout_keeps_no_credentials_and_every_backend_gets_its_own() -> None:
    [checkout] = [step for step in STEPS if "checkout" in step.get("uses", "")]
    assert checkout["with"] == {"persist-credentials": False}
    given = WORKFLOW["jobs"]["impact"]["env"]
    for name in ("PULUMI_ACCESS_TOKEN", "PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE"):
        assert given[name] == f"${{{{ secrets.{name} }}}}"


def test_only_a_comment_of_its_own_is_written_over(tmp_path: Path, runner: dict[str, str]) -> None:
    assert bash(script("Comment"), tmp_path, runner) == 0
    [asked] = [line for line in (tmp_path / "asked").read_text().splitlines() if "--paginate" in line]
    assert '.user.login == "github-actions[bot]" and (.body | startswith(env.marker))' in asked


@pytest.mark.parametrize(
    ("status", "want"), [(0, 0), (10, 0), (11, 0), *((status, 1) for status in ("", 1, 2, 12, 13, 130, 137))]
)
def test_the_check_passes_on_what_was_chosen_and_nothing_else(
    tmp_path: Path, runner: dict[str, str], status: int | str, want: int
) -> None:
    assert bash(script("Verdict"), tmp_path, runner | {"STATUS": str(status)}) == want


# --- where only `pulumi install` ran ----------------------------------------------------------------------------------


def test_the_command_needs_nothing_that_pulumi_install_leaves_out() -> None:
    """Packages of the extras, which requirements.txt has not."""
    given = set(re.findall(r"^([A-Za-z0-9._-]+)==", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    advice = {"matplotlib", "numpy", "plotext"}
    extra = {"cryptography", "filelock", "hatchling", "editables", "hypothesis", "jsonschema", "pytest"} | advice
    assert extra & given == set()
    program = f"""
import importlib.util, sys
real, extra = importlib.util.find_spec, {sorted(extra)}
importlib.util.find_spec = lambda name, package=None: None if name in extra else real(name, package)
sys.modules |= dict.fromkeys(extra)  # their import fails
from typer.main import get_command
from typer.testing import CliRunner
from cli.main import app
assert CliRunner().invoke(app, ["impact", "--help"]).exit_code == 0
assert CliRunner().invoke(app, ["dev", "status"]).exit_code == 2
assert CliRunner().invoke(app, ["drain-budget", "--help"]).exit_code == 0
asked = CliRunner().invoke(app, ["drain-budget", "pyproject.toml"])
assert asked.exit_code == 1 and "pip install" in asked.output, asked.output
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
