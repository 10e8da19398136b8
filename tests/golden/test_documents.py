"""The configuration reference and the JSON Schemas are what the models say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli.reference import reference_markdown, report_schema_json, schema_json
from tests.builders import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    ("file", "made"),
    [
        ("config.md", reference_markdown),
        ("stack-file.schema.json", schema_json),
        ("impact.schema.json", report_schema_json),
    ],
)
def test_the_document_is_current(file: str, made: Callable[[], str], agree: Callable[[Path, str], None]) -> None:
    agree(ROOT / "docs" / file, made())
