"""The report of a run, as whoever started it finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from components.handover import hand_over
from stack.report import REPORT_FILE, from_text, make_report

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
