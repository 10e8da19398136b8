"""Whether a CEL expression is one, as far as the library knows the language.

The API server compiles a selector when the claim template is created and refuses it then; this finds plain mistakes
before. Kubernetes allows optional fields (`a.?b`), which the library cannot parse: such expressions are left to it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any


def syntax_error(expression: str) -> str | None:
    """What is wrong with the expression's syntax, in a few words; None if nothing, or if it cannot be told."""
    if re.search(r"\.\?|\[\?", expression):
        return None
    from celpy.celparser import CELParseError  # noqa: PLC0415  # takes 0.2 s, and most configurations have no expression

    try:
        _environment().compile(expression)
    except CELParseError as problem:
        line, column = getattr(problem, "line", None), getattr(problem, "column", None)
        return f"stops making sense at character {column}" if line == 1 and column else "is not complete"
    except Exception:  # noqa: BLE001  # the parser's own limits (depth) are no fault of the expression
        return None
    return None


@cache
def _environment() -> Any:
    import celpy  # noqa: PLC0415

    return celpy.Environment()
