"""Hands the report of a run over to whoever started it, by the file that the environment names.

The engine runs the program and passes on its log alone, so what others read by machine takes another way. A file that
cannot be written stops nobody's update.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pulumi

from stack.report import REPORT_FILE, to_text

if TYPE_CHECKING:
    from stack.report import Report


def hand_over(report: Report) -> None:
    """Write a report as JSON, whole or not at all, for its owner's eyes alone; nothing when nobody asked for it."""
    wanted = os.environ.get(REPORT_FILE)
    if not wanted:
        return
    try:
        _write(Path(wanted), to_text(report))
    except OSError as error:
        pulumi.log.warn(f"{REPORT_FILE} = {wanted}: the report could not be written: {error.strerror}")


def _write(path: Path, text: str) -> None:
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # with mode 600
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
