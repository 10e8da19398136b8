"""Hands the report of a run over to whoever started it, by the file that the environment names.

The engine runs the program and passes on its log alone, so what others read by machine takes another way. A file that
cannot be written stops nobody's update.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pulumi

from stack.report import REPORT_FILE, to_text

if TYPE_CHECKING:
    from stack.report import Report


def forget_earlier_report() -> None:
    """Remove the report of an earlier run, which would be taken for that of a run that ends before it has one."""
    if (path := _wanted()) is None:
        return
    try:
        if _is_replaceable(path):
            path.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        _complain("the report of an earlier run could not be removed", error)


def hand_over(report: Report) -> None:
    """Write a report as JSON, whole or not at all, for its owner's eyes alone; nothing when nobody asked for it.

    A link stays, and its target is written. Nothing is written into what is no file: a pipe could hold the run up.
    """
    if (path := _wanted()) is None:
        return
    try:
        _write(path, to_text(report))
    except (OSError, ValueError) as error:  # the latter for text that UTF-8 can't hold
        _complain("the report could not be written", error)


def _wanted() -> Path | None:
    """Where the report belongs, behind links."""
    named = os.environ.get(REPORT_FILE)
    return Path(os.path.realpath(named)) if named else None


def _is_replaceable(path: Path) -> bool:
    return path.is_file() or not path.exists()


def _complain(what: str, error: OSError | ValueError) -> None:
    why = error.strerror if isinstance(error, OSError) else str(error).partition("\n")[0]
    pulumi.log.warn(f"{REPORT_FILE} = {os.environ[REPORT_FILE]}: {what}: {why}")


def _write(path: Path, text: str) -> None:
    if not _is_replaceable(path):
        raise OSError(errno.EEXIST, "Something that is no file is there")
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # with mode 600
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
