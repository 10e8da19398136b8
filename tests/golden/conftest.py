"""`--rewrite` writes the golden files anew; without it a difference fails."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write golden files anew; review the diff")


@pytest.fixture
def is_rewriting(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written."""
    return bool(request.config.getoption("--rewrite", default=False))


@pytest.fixture
def agree(is_rewriting: bool) -> Callable[[Path, str], None]:
    """Compare a file with what it should hold, or write it."""

    def agree(path: Path, text: str) -> None:
        if is_rewriting:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        there = path.read_text(encoding="utf-8") if path.exists() else ""
        difference = difflib.unified_diff(
            there.splitlines(keepends=True), text.splitlines(keepends=True), path.name, "now", n=2
        )
        assert there == text, "if intended: make golden, then review the diff\n" + "".join(difference)

    return agree
