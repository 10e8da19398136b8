"""What is said to the operator when a stack file is not right: which key, what value, why, what to do.

A `Problem` is one small letter; a `ConfigError` is the whole post, sorted by key. Nothing here reads a configuration:
the models and the rules find the problems. Nothing here ever prints a secret: every value in a letter has passed
through `show`, which hides what looks like one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from pydantic_core import PydanticCustomError

MISSING: Final = "is missing"
EMPTY: Final = "is empty"
UNKNOWN: Final = "is unknown"
HIDDEN: Final = "(not shown)"
_SHOWN_LENGTH: Final = 60

# Shapes that token issuers publish so that scanners can recognise them; each is long enough not to meet ordinary words.
_SECRET_SHAPES: Final = tuple(
    re.compile(shape)
    for shape in (
        r"\bhf_[A-Za-z0-9]{16,}",  # Hugging Face
        r"\bsk-[A-Za-z0-9_-]{16,}",  # OpenAI and those that follow its form
        r"\bgh[pousr]_[A-Za-z0-9]{20,}",  # GitHub
        r"\bgithub_pat_[A-Za-z0-9_]{20,}",
        r"\bglpat-[A-Za-z0-9_-]{16,}",  # GitLab
        r"\bxox[abprs]-[A-Za-z0-9-]{10,}",  # Slack
        r"\bpul-[0-9a-f]{32,}",  # Pulumi Cloud
        r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",  # AWS access key id
        r"\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]*",  # JSON Web Token
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
        r"\b[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]+:[^/\s@]+@",  # password inside a URL
    )
)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing the operator has to know; an error or a warning, depending on who carries it.

    `key` is the config path as the operator writes it (`modelserver.nodePlacement[0].node`). `value` is what was found,
    shortened, or one of `MISSING`, `EMPTY`, `UNKNOWN`, or empty when nothing can be shown. `why` continues the line
    after the colon. `fix` is one or more imperative
    sentences. A trailing full stop is optional in both.
    """

    key: str
    value: str
    why: str
    fix: str

    def __str__(self) -> str:
        is_said = self.value in {MISSING, EMPTY, UNKNOWN}
        found = f" {self.value}" if is_said else f" = {self.value}" if self.value else ""
        return f"{self.key}{found}: {_sentence(self.why)} {_sentence(self.fix)}"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."


class ConfigError(Exception):
    """The configuration cannot be used. Carries every problem that was found, not only the first."""

    problems: tuple[Problem, ...]

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = in_order(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        count = len(self.problems)
        head = "The stack file has a problem:" if count == 1 else f"The stack file has {count} problems:"
        return "\n".join([head, *(f"  {problem}" for problem in self.problems)])


class UnusableError(Exception):
    """What was measured, and was to be learnt from, cannot be used; the letter says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Sort by key, then by text, and say nothing twice. List positions sort as numbers: `[2]` before `[10]`."""
    return tuple(sorted(set(problems), key=lambda problem: (natural(problem.key), str(problem))))


def natural(key: str) -> tuple[tuple[int, str], ...]:
    """By what config keys are sorted: numbers in them count as such."""
    parts = re.split(r"([0-9]+)", key)
    return tuple((int(part), "") if re.fullmatch(r"[0-9]{1,9}", part) else (-1, part) for part in parts)


def reject(why: str, *, fix: str, field: str | None = None, hide: bool = False) -> PydanticCustomError:
    """Build what a validator raises. `field` names the key below the validated one that is to blame.

    `hide` keeps the value out of the letter even if it does not look like a secret.
    """
    return PydanticCustomError("rejected", "{why}", {"why": why, "fix": fix, "field": field, "hide": hide})


def looks_like_secret(text: str) -> bool:
    """Whether the text has the form of a credential: a known prefix, a JWT, a private key, a URL with password."""
    return any(shape.search(text) for shape in _SECRET_SHAPES)


def show(value: object) -> str:  # noqa: PLR0911  # one return for each kind
    """Show a value in a letter: short, on one line, as YAML would write it, and never a secret.

    Lists and maps are only counted, since what lies inside may be long or secret.
    """
    match value:
        case None:
            return EMPTY
        case str():
            if value == "":
                return EMPTY
            if looks_like_secret(value):
                return HIDDEN
            text = json.dumps(value, ensure_ascii=not value.isprintable()) if _needs_quotes(value) else value
            return text if len(text) <= _SHOWN_LENGTH else f"{text[: _SHOWN_LENGTH - 3]}..."
        case bool():
            return str(value).lower()
        case Mapping():
            count = len(cast("Mapping[object, object]", value))
            return "a map without keys" if count == 0 else f"a map of {count} key{'s' * (count > 1)}"
        case Sequence():
            count = len(cast("Sequence[object]", value))
            return "a list without entries" if count == 0 else f"a list of {count} entr{'ies' if count > 1 else 'y'}"
        case _:
            text = str(value)
            return text if len(text) <= _SHOWN_LENGTH else f"{text[: _SHOWN_LENGTH - 3]}..."


def _needs_quotes(text: str) -> bool:
    """Whether an unquoted scalar would not be read back as this text; also for anything that is not plain."""
    if not re.fullmatch(r"[\w./@%+-][\w ./:@%+=,()-]*", text) or text != text.strip():
        return True
    return re.fullmatch(r"[0-9+.-][0-9._eE+-]*|true|false|null|on|off|yes|no", text, re.IGNORECASE) is not None
