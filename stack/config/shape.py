"""Knows the keys of the configuration models: which exist below a key, and which one was probably meant.

Serves the letters about unknown keys and the reference; it looks at the models only, never at values.
"""

import re
import types
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

Path = tuple[str | int, ...]
_LONG_ENOUGH = 4


def key_of(field: FieldInfo, name: str) -> str:
    """The key as the operator writes it."""
    return field.alias or name


def models_in(annotation: Any) -> tuple[type[BaseModel], ...]:
    """Models that a value of this annotation may be: through Annotated, unions and None, but not through containers."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return models_in(get_args(annotation)[0])
    if origin in {Union, types.UnionType}:
        return tuple(model for member in get_args(annotation) for model in models_in(member))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return ()


def item_of(annotation: Any) -> Any:
    """Annotation of what a list or map of this annotation holds; None if it holds nothing."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return item_of(get_args(annotation)[0])
    if origin in {Union, types.UnionType}:
        return next((item for member in get_args(annotation) if (item := item_of(member)) is not None), None)
    if origin is tuple:
        return get_args(annotation)[0]
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return get_args(annotation)[1]
    return None


def fields_of(annotation: Any) -> dict[str, FieldInfo]:
    """Keys that a map of this annotation may have, with their fields."""
    return {key_of(field, name): field for model in models_in(annotation) for name, field in model.model_fields.items()}


def annotation_at(root: type[BaseModel], path: Path) -> Any:
    """Annotation of the value at this path; None where the models know no such place."""
    here: Any = root
    for part in path:
        known = fields_of(here)
        here = known[part].annotation if isinstance(part, str) and part in known else item_of(here)
        if here is None:
            return None
    return here


def every_key(root: type[BaseModel], path: Path = ()) -> Iterator[Path]:
    """Paths of all keys, blocks before what they hold; lists and maps of models are entered as `[]`."""
    for key, field in fields_of(root).items():
        yield (*path, key)
        inner = field.annotation if models_in(field.annotation) else item_of(field.annotation)
        for model in models_in(inner):
            below: Path = (*path, key) if models_in(field.annotation) else (*path, key, "[]")
            yield from every_key(model, below)


def near_key(wrong: str, known: list[str]) -> str | None:
    """The known key that was probably meant, if one is near; case and separators do not count."""
    plain = {re.sub(r"[^a-z0-9]", "", key.lower()): key for key in known}
    meant = re.sub(r"[^a-z0-9]", "", wrong.lower())
    found = get_close_matches(meant, list(plain), n=1, cutoff=0.7)
    if not found and len(meant) >= _LONG_ENOUGH:
        found = [key for key in plain if len(key) >= _LONG_ENOUGH and (meant.startswith(key) or key.startswith(meant))]
    return plain[found[0]] if found else None


def written(path: Path) -> str:
    """The path as the operator writes it: `modelserver.nodePlacement[0].node`; odd keys in brackets and quotes."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part == "[]":
            text += "[]"
        elif re.fullmatch(r"[\w:-]+", part):
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text
