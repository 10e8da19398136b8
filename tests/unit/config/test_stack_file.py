from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.stackfile import read_stack_file
from stack.errors import ConfigError


def read(block: str) -> dict[str, Any]:
    text = "config:\n  kubernetes:context: dev\n  serving-stack:block:\n" + "".join(
        f"    {line}\n" for line in block.splitlines()
    )
    blocks, context = read_stack_file(text)
    assert context == "dev"
    found: Any = blocks["block"]
    return found


@pytest.mark.parametrize(
    ("sentence", "written", "want"),
    [
        ("a leading zero makes an octal number", "0120", 80),
        ("the octal number of YAML 1.2 as well", "0o14", 12),
        ("a leading zero before digits above 7 does not", "089", 89),
        ("underscores are left out", "1_000", 1000),
        ("hexadecimal", "0x1F", 31),
        ("a fraction of 0 is a whole number after JSON", "4.0", 4),
        ("a last zero is lost", "1.10", 1.1),
        ("an exponent", "1e3", 1000),
        ("a day is a moment", "2026-08-01", "2026-08-01 00:00:00 +0000 UTC"),
        ("a moment", "2026-08-01 10:11:12.50", "2026-08-01 10:11:12.5 +0000 UTC"),
        ("no day of any calendar is text", "2026-13-01", "2026-13-01"),
        ("on is text", "on", "on"),
        ("yes is text", "yes", "yes"),
        ("True is a boolean", "True", True),
        ("a tilde is nothing", "~", None),
        ("quotes make text", '"0120"', "0120"),
        ("a tag makes text", "!!str 12", "12"),
        ("minutes are text", "12:30", "12:30"),
        ("a version is text", "1.2.3", "1.2.3"),
    ],
)
def test_scalars_are_read_as_the_engine_reads_them(sentence: str, written: str, want: object) -> None:
    found = read(f"a: {written}")["a"]
    assert (found, type(found)) == (want, type(want)), sentence


def test_anchors_and_merges_are_resolved_and_own_keys_win() -> None:
    assert read("x: &x {a: 1, b: 2}\ny: *x\nz: {<<: *x, b: 3}") == {
        "x": {"a": 1, "b": 2},
        "y": {"a": 1, "b": 2},
        "z": {"a": 1, "b": 3},
    }


def test_what_stands_directly_at_a_key_is_text() -> None:
    text = "config:\n  serving-stack:release: 0120\n  serving-stack:recipe:\n  serving-stack:x: [1, a]\n"
    assert read_stack_file(text) == ({"release": "80", "recipe": "", "x": [1, "a"]}, None)


def test_keys_of_other_projects_are_left_alone() -> None:
    assert read_stack_file("config:\n  aws:region: eu\n  serving-stack:release: a\n") == ({"release": "a"}, None)


@pytest.mark.parametrize(
    ("sentence", "text", "words"),
    [
        ("an empty file", "", "is empty"),
        ("a list", "- a", "is no map"),
        ("no config", "environment: [a]", "no map under config"),
        (
            "a key twice",
            "config:\n  serving-stack:a:\n    b: 1\n    b: 2\n",
            "a.b: is written twice, in line 3 and line 4",
        ),
        ("a key twice with quotes", "config:\n  serving-stack:a:\n    b: 1\n    'b': 2\n", "is written twice"),
        ("an anchor that holds itself", "config:\n  serving-stack:a: &a\n    b: *a\n", "holds itself"),
        ("a reference to nothing", "config:\n  serving-stack:a: *b\n", "no YAML"),
        ("a key that is a list", "config:\n  serving-stack:a:\n    ? [x]\n    : 1\n", "a key that is no text"),
        ("no number", "config:\n  serving-stack:a:\n    b: .nan\n", "no finite number"),
    ],
)
def test_what_is_no_stack_file_is_refused_with_a_letter(sentence: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_stack_file(text)
    assert words in str(refused.value), sentence


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):  # anything else that is raised fails the test
        read_stack_file(text)
