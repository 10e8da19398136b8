"""Turns what pydantic found into letters: the key as it is written, the value, why it is refused, what to do.

Pydantic's own sentences speak of types; these speak of YAML, since that is what the operator sees. Rejections raised by
our own validators are passed on as they are.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from stack.config.secrets import hidden
from stack.config.shape import Path, annotation_at, every_key, fields_of, near_key, written
from stack.errors import EMPTY, HIDDEN, MISSING, UNKNOWN, Problem, looks_like_secret, show

_ABSENT: Final = object()
_FILL: Final = "Remove the key or fill it"


def explain(error: ErrorDetails, raw: Mapping[str, object], root: type[BaseModel]) -> tuple[Path, Problem]:
    """Write the letter for one error. `raw` is what was validated, `root` the model it was validated against."""
    path = _path_in(raw, error["loc"], is_missing=error["type"] == "missing")
    found = _value_at(raw, path)
    kind, context = error["type"], error.get("ctx", {})
    if kind == "rejected":
        return _rejection(path, raw, context)
    if kind == "missing":
        field = fields_of(annotation_at(root, path[:-1])).get(str(path[-1]))
        why = f"it is required ({_gist(field.description)})" if field and field.description else "it is required"
        return path, Problem(key=hidden(path), value=MISSING, why=why, fix="Write it")
    if kind == "extra_forbidden":
        return path, _unknown(path, root)
    if found is None or found == "":
        return path, Problem(key=hidden(path), value=EMPTY, why="the key stands there without a value", fix=_FILL)
    why, fix = _WORDS.get(kind, _in_other_words)(found, context | {"msg": error["msg"]})
    return path, Problem(key=hidden(path), value=_shown(path, found), why=why, fix=fix)


def _rejection(path: Path, raw: Mapping[str, object], context: Mapping[str, Any]) -> tuple[Path, Problem]:
    if context.get("field"):
        path = (*path, *_parts(str(context["field"])))
    found = _value_at(raw, path)
    value = HIDDEN if context.get("hide") else MISSING if found is _ABSENT else _shown(path, found)
    why, fix = str(context["why"]), str(context["fix"])
    if looks_like_secret(why) or looks_like_secret(fix):
        why, fix = "is not what this key takes", "Correct it"
    if value == EMPTY and why == EMPTY:
        why = "the key stands there without a value"
    return path, Problem(key=hidden(path), value=value, why=why, fix=fix)


def _parts(field: str) -> Path:
    return tuple(int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", field))


def _shown(path: Path, value: object) -> str:
    """Below an environment a value may be secret under any name, so text there is never shown."""
    if isinstance(value, str) and any("env" in str(part).lower() for part in path):
        return HIDDEN if value else EMPTY
    return show(value)


def _unknown(path: Path, root: type[BaseModel]) -> Problem:
    key, parent = str(path[-1]), path[:-1]
    place = written(parent) or "the stack file"
    known = list(fields_of(annotation_at(root, parent)))
    near = near_key(key, known)
    elsewhere = [other for other in every_key(root) if other[-1] == key and other != path]
    if key == "secure":
        fix = "Name a Secret of the cluster instead; the configuration holds no secret, not even an encrypted one"
    elif key == "llm-d-router-gateway":
        fix = "Write what the chart has under llm-d-router-gateway.router as serving-stack:router"
    elif near is not None:
        fix = f"Did you mean {near}?"
    elif elsewhere:
        fix = f"Did you mean {' or '.join(written(other) for other in elsewhere[:3])}?"
    else:
        fix = f"Remove it, or use one of: {', '.join(known)}"
    return Problem(
        key=hidden(path), value=UNKNOWN, why=f"{place} has no such key, and nothing is silently ignored", fix=fix
    )


def _wants_text(found: object, _: Mapping[str, Any]) -> tuple[str, str]:
    match found:
        case bool():
            return "is a boolean for YAML, and text is needed", f'Put it in quotes: "{str(found).lower()}"'
        case int() | float():
            return (
                "is a number for YAML, and text is needed",
                "Put it in quotes, exactly as it should read: YAML drops leading zeros, and the last zero of 1.10",
            )
        case _:
            return f"is {_kind(found)}, and text is needed", "Write a text"


def _wants_number(found: object, _: Mapping[str, Any]) -> tuple[str, str]:
    match found:
        case bool():
            return "is a boolean, and a whole number is needed", "Write a whole number"
        case str() if re.fullmatch(r"[0-9]{1,12}", found):
            return "is text, and a whole number is needed", f"Write it without quotes: {int(found)}"
        case float():
            return "is not a whole number", "Write a whole number"
        case _:
            return f"is {_kind(found)}, and a whole number is needed", "Write a whole number"


def _wants_switch(found: object, _: Mapping[str, Any]) -> tuple[str, str]:
    match found:
        case str() if found.lower() in {"on", "yes", "y", "true"}:
            return "is text, and true or false is needed (YAML 1.2 knows no other words)", "Write true, without quotes"
        case str() if found.lower() in {"off", "no", "n", "false"}:
            return "is text, and true or false is needed (YAML 1.2 knows no other words)", "Write false, without quotes"
        case _:
            return f"is {_kind(found)}, and true or false is needed", "Write true or false"


def _wants_map(found: object, _: Mapping[str, Any]) -> tuple[str, str]:
    return f"is {_kind(found)}, and a map of keys is needed", "Write keys below it, each with its value"


def _wants_list(found: object, _: Mapping[str, Any]) -> tuple[str, str]:
    return f"is {_kind(found)}, and a list is needed", "Write its entries below it, each after '- '"


def _one_of(found: object, context: Mapping[str, Any]) -> tuple[str, str]:
    choices = re.findall(r"'([^']*)'", str(context.get("expected", "")))
    near = near_key(found, choices) if isinstance(found, str) else None
    listed = ", ".join(choices)
    return f"is none of {listed}", f"Did you mean {near}?" if near else f"Write one of {listed}"


def _at_least(_: object, context: Mapping[str, Any]) -> tuple[str, str]:
    return f"is less than {context['ge']}", f"Write {context['ge']} or more"


def _at_most(_: object, context: Mapping[str, Any]) -> tuple[str, str]:
    return f"is more than {context['le']}", f"Write {context['le']} or less"


def _pattern(_: object, __: Mapping[str, Any]) -> tuple[str, str]:
    return "has not the form that is needed", "See the configuration reference for this key"


def _too_short(_: object, context: Mapping[str, Any]) -> tuple[str, str]:
    return f"has {context['actual_length']} entries, at least {context['min_length']} is needed", "Write an entry"


def _in_other_words(found: object, context: Mapping[str, Any]) -> tuple[str, str]:
    return f"is {_kind(found)}, which does not fit ({_lower(str(context['msg']))})", "See the configuration reference"


_WORDS: Final[Mapping[str, Callable[[object, Mapping[str, Any]], tuple[str, str]]]] = {
    "string_type": _wants_text,
    "int_type": _wants_number,
    "int_from_float": _wants_number,
    "int_parsing": _wants_number,
    "bool_type": _wants_switch,
    "model_type": _wants_map,
    "model_attributes_type": _wants_map,
    "dict_type": _wants_map,
    "mapping_type": _wants_map,
    "tuple_type": _wants_list,
    "list_type": _wants_list,
    "literal_error": _one_of,
    "greater_than_equal": _at_least,
    "less_than_equal": _at_most,
    "string_pattern_mismatch": _pattern,
    "too_short": _too_short,
}


def _kind(value: object) -> str:
    match value:
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case Mapping():
            return "a map"
        case Sequence():
            return "a list"
        case _:
            return "something else"


def _gist(description: str) -> str:
    """The first sentence of a description."""
    return _lower(re.split(r"[.;] ", description, maxsplit=1)[0])


def _lower(text: str) -> str:
    text = text.rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _path_in(raw: Mapping[str, object], loc: tuple[int | str, ...], *, is_missing: bool) -> Path:
    """The part of pydantic's location that is in the data; names of union members and `[key]` are left out."""
    path: list[str | int] = []
    here: object = raw
    for position, part in enumerate(loc):
        if isinstance(here, Mapping) and part in here:
            here = cast("Mapping[str | int, object]", here)[part]
        elif (
            isinstance(here, Sequence)
            and not isinstance(here, str)
            and isinstance(part, int)
            and part < len(cast("Sequence[object]", here))
        ):
            here = cast("Sequence[object]", here)[part]
        elif not (is_missing and position == len(loc) - 1):
            continue
        path.append(part)
    return tuple(path)


def _value_at(raw: Mapping[str, object], path: Path) -> object:
    here: object = raw
    for part in path:
        if isinstance(here, Mapping) and part in here:
            here = cast("Mapping[str | int, object]", here)[part]
        elif (
            isinstance(here, Sequence)
            and not isinstance(here, str)
            and isinstance(part, int)
            and part < len(cast("Sequence[object]", here))
        ):
            here = cast("Sequence[object]", here)[part]
        else:
            return _ABSENT
    return here
