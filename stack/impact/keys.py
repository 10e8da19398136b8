"""From what to what the values of config keys change, in the operator's words.

What a live Deployment was applied with is in its record (`stack.record`), what it is to be in that of the plan.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stack.errors import HIDDEN, looks_like_secret, natural
from stack.impact.model import KeyChange
from stack.record import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stack.record import Record

SHOWN_LENGTH = 60
CONTEXT = 12
"""Characters that two long values have in common and that are shown before the first in which they differ."""


@dataclass(frozen=True, kw_only=True)
class Delta:
    """One key with another value than before.

    Attributes:
        before, after: as canonical JSON; None where it had none or has none any more.
        is_known: whether both values are known; False if one was too large to keep.
    """

    key: str
    before: str | None
    after: str | None
    is_known: bool = True


def compare(before: Record, after: Record) -> tuple[Delta, ...]:
    """Every key whose value differs, in order; positions in lists count as numbers."""
    differ = [key for key in before.keys | after.keys if before.mark(key) != after.mark(key)]
    return tuple(
        Delta(
            key=key,
            before=before.values.get(key),
            after=after.values.get(key),
            is_known=key not in before.hashes and key not in after.hashes,
        )
        for key in sorted(differ, key=natural)
    )


def in_words(deltas: Iterable[Delta]) -> tuple[KeyChange, ...]:
    """As they are shown: short, and never a secret."""
    return tuple(_in_words(delta) for delta in deltas)


def number_of_pods(key: str, before: int, after: int) -> KeyChange:
    """A key that says how many Pods there are."""
    return KeyChange(key=key, before=str(before), after=str(after))


def _in_words(delta: Delta) -> KeyChange:
    before, after = (None if value is None else _text(value) for value in (delta.before, delta.after))
    if before is not None and after is not None and max(len(before), len(after)) > SHOWN_LENGTH:
        skip = _common(before, after) - CONTEXT
        if skip > CONTEXT:
            before, after = f"...{before[skip:]}", f"...{after[skip:]}"
    return KeyChange(key=delta.key, before=_short(before), after=_short(after), is_known=delta.is_known)


def _text(value: str) -> str:
    """A value of the record on one line; texts without quotation marks, since most are names."""
    decoded: object = json.loads(value)
    if looks_like_secret(value):
        return HIDDEN
    return decoded if isinstance(decoded, str) and decoded and decoded.isprintable() else canonical_json(decoded)


def _short(text: str | None) -> str | None:
    return text if text is None or len(text) <= SHOWN_LENGTH else f"{text[: SHOWN_LENGTH - 3]}..."


def _common(one: str, other: str) -> int:
    """Characters that both begin with."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
