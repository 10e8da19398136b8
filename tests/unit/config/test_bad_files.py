from __future__ import annotations

from collections import Counter

import pytest
from bad_files import BadFile, bad_files

from cli.stackfile import read_stack_file
from stack.errors import ConfigError, Problem
from stack.rules import accept

FILES = bad_files()
SECRETS = (
    "very-secret",
    "hunter2",
    "12345678",
    "my-own-key",
    "hf_aBc",
    "sk-abc",
    "eyJ",
    "MIIE",
    "pass@",
    "AKIA",
    "ghp_",
)


@pytest.mark.parametrize("bad", FILES, ids=[bad.path.stem for bad in FILES])
def test_every_mistake_in_the_file_is_told_and_nothing_else(bad: BadFile) -> None:
    problems = problems_of(bad)
    assert Counter(p.key for p in problems) == Counter(e.key for e in bad.expected), "\n".join(map(str, problems))
    for expected in bad.expected:
        letters = [str(problem) for problem in problems if problem.key == expected.key]
        assert any(all(word in letter for word in expected.words) for letter in letters), letters


def problems_of(bad: BadFile) -> tuple[Problem, ...]:
    try:
        blocks, context = read_stack_file(bad.text)
    except ConfigError as stopped:
        if not bad.stops_the_engine:
            pytest.fail(f"the engine reads this file, our reader does not: {stopped}")
        return stopped.problems
    assert not bad.stops_the_engine, "our reader lets through what the engine stops"
    with pytest.raises(ConfigError) as found:
        accept(blocks, context=context)
    return found.value.problems


def test_there_are_at_least_a_hundred_files() -> None:
    assert len(FILES) >= 100


@pytest.mark.parametrize(
    "bad", [bad for bad in FILES if bad.path.stem.startswith("secret-")], ids=lambda bad: bad.path.stem
)
def test_no_letter_echoes_a_secret(bad: BadFile) -> None:
    written = [secret for secret in SECRETS if secret in bad.text]
    assert written, "the file holds none of the secrets that this test knows"
    assert not [secret for secret in written if secret in str(ConfigError(problems_of(bad)))]
