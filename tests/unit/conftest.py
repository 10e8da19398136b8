"""For all unit tests: every letter that the program makes in them can be read, whoever joined it."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from stack.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

BAD_JOIN = re.compile(r"[a-z0-9)`]\. [a-z]|\.\.|[.,;:] ?[,;]|  |\bNone\b|\(\)|^[ .,;:]|[ ,;:]$")
"""A full stop before a small letter or another one, marks upon one another, gaps, and what stands for nothing."""
QUOTED = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"|\.\.\.")


@pytest.fixture(scope="session", autouse=True)
def letters_that_can_be_read() -> Iterator[None]:
    """What a test writes itself is no concern of this."""
    made = Problem.__init__

    def checked(self: Problem, **parts: Any) -> None:
        made(self, **parts)
        if sys._getframe(1).f_globals["__name__"].startswith("stack."):  # pyright: ignore[reportPrivateUsage]  # who makes it
            for part in (self.why, self.fix):
                assert not BAD_JOIN.search(QUOTED.sub("x", part)), f"{self.key}: {part!r}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Problem, "__init__", checked)
        yield
