"""The example reports are reports of this version, and the images show them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from cli.report import render_html, render_markdown
from docs.images.screenshots import SHOTS, draw_terminal
from stack.report import from_text, to_text
from tests.builders import ROOT

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = sorted((ROOT / "docs" / "examples").glob("impact-*.json"))
IMAGES = ROOT / "docs" / "images"
SCHEMA: dict[str, Any] = json.loads((ROOT / "docs" / "impact.schema.json").read_text())
MOST_BYTES = 300_000


def test_every_example_has_its_images() -> None:
    assert [example.stem for example in EXAMPLES] == sorted(SHOTS)
    made = {path.name for path in IMAGES.iterdir() if path.suffix in {".png", ".svg"}}
    assert made == {f"{name}{suffix}" for name in SHOTS for suffix in (".png", ".svg")}
    assert all(path.stat().st_size < MOST_BYTES for path in IMAGES.iterdir() if path.is_file())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_a_report_of_this_version(example: Path) -> None:
    text = example.read_text()
    Draft202012Validator(SCHEMA).validate(json.loads(text))  # pyright: ignore[reportUnknownMemberType]  # no types
    made = from_text(text)
    assert to_text(made) == text
    assert example.stem == f"impact-{made.verdict}"
    assert render_markdown(made)
    assert render_html(made)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_image_of_the_terminal_is_what_the_command_prints_now(example: Path) -> None:
    svg = (IMAGES / f"{example.stem}.svg").read_text()
    assert svg == draw_terminal(from_text(example.read_text())), "if that is intended: make screenshots"
    assert "http" not in svg.replace("http://www.w3.org/", "")
