from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.config.secrets import names_a_secret
from stack.errors import EMPTY, HIDDEN, MISSING, ConfigError, Problem, in_order, looks_like_secret, show


def problem(key: str = "gateway.port", value: str = "0", why: str = "is no port", fix: str = "Write one") -> Problem:
    return Problem(key=key, value=value, why=why, fix=fix)


@pytest.mark.parametrize(
    ("letter", "want"),
    [
        (problem(), "gateway.port = 0: is no port. Write one."),
        (problem(why="is no port.", fix="Write one."), "gateway.port = 0: is no port. Write one."),
        (problem(value=MISSING), "gateway.port is missing: is no port. Write one."),
        (problem(value=EMPTY), "gateway.port is empty: is no port. Write one."),
        (problem(value=""), "gateway.port: is no port. Write one."),
        (problem(fix="Did you mean 80?"), "gateway.port = 0: is no port. Did you mean 80?"),
    ],
)
def test_a_letter_says_key_value_reason_and_remedy(letter: Problem, want: str) -> None:
    assert str(letter) == want


def test_letters_are_sorted_by_key_with_positions_as_numbers_and_told_once() -> None:
    keys = ["b[10].x", "a", "b[2].x", "b[2]", "a"]
    assert [p.key for p in in_order(map(problem, keys))] == ["a", "b[2]", "b[2].x", "b[10].x"]


def test_an_error_shows_every_letter_on_its_own_line() -> None:
    text = str(ConfigError([problem("b"), problem("a")]))
    assert text.splitlines()[0] == "The stack file has 2 problems:"
    assert [line.split(" = ")[0] for line in text.splitlines()[1:]] == ["  a", "  b"]


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (None, EMPTY),
        ("", EMPTY),
        (True, "true"),
        (4, "4"),
        ("v1", "v1"),
        ("80", '"80"'),
        ("on", '"on"'),
        ("a\nb", '"a\\nb"'),
        (" a", '" a"'),
        ([], "a list without entries"),
        ([1], "a list of 1 entry"),
        ((1, 2), "a list of 2 entries"),
        ({}, "a map without keys"),
        ({"a": 1}, "a map of 1 key"),
        ("hf_abcdefghijklmnopqrst", HIDDEN),
    ],
)
def test_a_value_is_shown_as_it_would_be_written(value: object, want: str) -> None:
    assert show(value) == want


@given(st.text(max_size=100))
def test_a_shown_text_is_one_short_line(text: str) -> None:
    shown = show(text)
    assert len(shown.splitlines()) <= 1
    assert len(shown) <= 60


@pytest.mark.parametrize(
    "text",
    [
        "hf_abcdefghijklmnopqrst",
        "Bearer eyJhbGciOi.eyJzdWIiOi.c2ln",
        "github_pat_11ABCDEFG0123456789abc",
        "glpat-abcdefghij0123456789",
        "xoxb-1234567890-abcdef",
        "AKIAIOSFODNN7EXAMPLE",
        "-----BEGIN RSA PRIVATE KEY-----",
        "postgres://user:pass@db/x",
        "pul-" + "0" * 40,
    ],
)
def test_what_has_the_form_of_a_credential_is_taken_for_one(text: str) -> None:
    assert looks_like_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        "hf_hub",
        "sk-learn",
        "MiniMaxAI/MiniMax-M2.7",
        "http://collector:4317",
        "ghcr.io/llm-d/x",
        "a@b",
        "llm-d-hf-token",
    ],
)
def test_ordinary_text_is_not_taken_for_a_credential(text: str) -> None:
    assert not looks_like_secret(text)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("HF_TOKEN", True),
        ("api-key", True),
        ("api_key", True),
        ("dbPassword", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("CREDENTIALS", True),
        ("MAX_TOKENS", False),
        ("max-num-batched-tokens", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("tokenizer", False),
        ("HF_TOKEN_PATH", False),
        ("ssl-keyfile", False),
        ("KEYBOARD", False),
        ("EOS_TOKEN_ID", False),
        ("", False),
    ],
)
def test_names_of_secrets_are_told_from_others(name: str, *, want: bool) -> None:
    assert names_a_secret(name) is want
