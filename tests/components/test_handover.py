"""The report of a run, as whoever started it finds it."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from components.handover import forget_earlier_report, hand_over
from stack.report import REPORT_FILE, from_text, make_report
from tests.builders import ROOT

if TYPE_CHECKING:
    from pathlib import Path

REPORT = make_report(stack="prod", release="rel", namespace="ns", context="c", unknown=["why"])


def test_it_is_written_whole_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = tmp_path / "report.json"
    wanted.write_text("an earlier one")
    wanted.chmod(0o644)
    monkeypatch.setenv(REPORT_FILE, str(wanted))
    hand_over(REPORT)
    assert from_text(wanted.read_bytes()) == REPORT
    assert wanted.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [wanted], "nothing is left beside it"


@pytest.mark.parametrize("value", [None, ""])
def test_nothing_is_written_when_nobody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(REPORT_FILE, raising=False)
    if value is not None:
        monkeypatch.setenv(REPORT_FILE, value)
    hand_over(REPORT)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_told_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", said.append)
    monkeypatch.setenv(REPORT_FILE, str(tmp_path / "nowhere" / "report.json"))
    hand_over(REPORT)
    [line] = said
    assert line.endswith("the report could not be written: No such file or directory")


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", said.append)
    wanted = tmp_path / "report.json"
    wanted.mkdir()
    monkeypatch.setenv(REPORT_FILE, str(wanted))
    hand_over(REPORT)
    assert len(said) == 1
    assert list(tmp_path.iterdir()) == [wanted]


def test_a_link_stays_and_its_target_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, link = tmp_path / "kept" / "report.json", tmp_path / "report.json"
    target.parent.mkdir()
    link.symlink_to(target)
    monkeypatch.setenv(REPORT_FILE, str(link))
    hand_over(REPORT)
    assert link.is_symlink()
    assert from_text(target.read_bytes()) == REPORT


def test_a_pipe_is_neither_replaced_nor_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", said.append)
    pipe = tmp_path / "report.json"
    os.mkfifo(pipe)
    monkeypatch.setenv(REPORT_FILE, str(pipe))
    forget_earlier_report()
    hand_over(REPORT)
    [line] = said
    assert line.endswith("the report could not be written: Something that is no file is there")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_text_that_no_file_can_hold_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", said.append)
    monkeypatch.setenv(REPORT_FILE, str(tmp_path / "report.json"))
    hand_over(make_report(stack="prod", release="rel", namespace="ns", context="c", unknown=["half of it: \ud800"]))
    [line] = said
    assert "the report could not be written: " in line
    assert list(tmp_path.iterdir()) == []


# --- an earlier run ---------------------------------------------------------------------------------------------------


def test_the_report_of_an_earlier_run_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = tmp_path / "report.json"
    monkeypatch.setenv(REPORT_FILE, str(wanted))
    forget_earlier_report()
    wanted.write_text("an earlier one")
    forget_earlier_report()
    assert not wanted.exists()


def test_a_report_that_cannot_be_removed_is_told_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", said.append)
    monkeypatch.setenv(REPORT_FILE, str(tmp_path / ("long" * 100)))
    forget_earlier_report()
    [line] = said
    assert line.endswith("the report of an earlier run could not be removed: File name too long")


def test_the_program_forgets_the_earlier_report_before_it_reads_anything() -> None:
    text = (ROOT / "__main__.py").read_text().partition("def main() -> None:")[2]
    assert text.index("forget_earlier_report()") < text.index("read_config()")
