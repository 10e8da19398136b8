"""Rows of the configuration reference: every key with its type, default and description, from the models.

How the rows are laid out as a document is decided where documents are made.
"""

import json
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel, JsonValue
from pydantic.fields import FieldInfo

from stack.config.env import FromField, FromSecret
from stack.config.root import CONTEXT_KEY, StackConfig
from stack.config.shape import fields_of, item_of, models_in, written
from stack.scalars import word_for

REQUIRED: Final = "required"
_SOURCES: Final = (FromSecret, FromField)
_WORDS: Final[Mapping[Any, str]] = {str: "text", int: "whole number", bool: "true or false", float: "number"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One key.

    Attributes:
        key: path as the operator writes it; `[]` stands for an entry of a list, `<name>` for a key of one's own.
        type: in words.
        default: as JSON, `required`, or empty when there is none to show (blocks, or what depends on other keys).
        description: what an operator needs.
        is_block: whether further keys follow below it.
    """

    key: str
    type: str
    default: str
    description: str
    is_block: bool


def reference_rows() -> tuple[Row, ...]:
    """All keys in the order of the models, blocks before what they hold."""
    return tuple(_rows(StackConfig, ()))


def _rows(model: type[BaseModel], path: tuple[str | int, ...]) -> list[Row]:
    rows: list[Row] = []
    for key, field in fields_of(model).items():
        place = (*path, key)
        below = models_in(field.annotation)
        # The sources of a variable are described once, in its type.
        entries = () if below else tuple(m for m in models_in(item_of(field.annotation)) if m not in _SOURCES)
        rows.append(
            Row(
                key=CONTEXT_KEY if place == ("context",) else written(place),
                type=_type(field.annotation, tuple(field.metadata)),
                default=_default(field),
                description=field.description or "",
                is_block=bool(below or entries),
            )
        )
        for inner in below:
            rows += _rows(inner, place)
        for inner in entries:
            rows += _rows(inner, (*place, "[]"))
    return rows


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return REQUIRED
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):  # a block is shown only where it starts with more than its own keys' defaults
        value = None if value == type(value).model_construct() else value.model_dump(by_alias=True)
    if value is None:
        return ""
    return json.dumps(list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value)


def _type(annotation: Any, metadata: tuple[Any, ...] = ()) -> str:  # noqa: PLR0911  # one return for each kind
    word = word_for(metadata)
    if word is not None:
        return word
    origin, inner = get_origin(annotation), list(get_args(annotation))
    if origin is Annotated:
        return _type(inner[0], tuple(inner[1:]))
    if origin in {Union, types.UnionType}:
        members = [member for member in inner if member is not type(None)]
        words = dict.fromkeys(_type(member) for member in members)
        return " or ".join(words)
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}" if len(inner) > 1 else str(inner[0])
    if origin is tuple:
        return f"list of {_plural(_type(inner[0]))}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"map to {_type(inner[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        keys = list(fields_of(annotation))
        return f"{{{keys[0]}}}" if annotation in _SOURCES else "block"
    if annotation is JsonValue:
        return "anything"
    return _WORDS.get(annotation, "anything")


def _plural(word: str) -> str:
    return f"{word}s" if word == "block" else word
