"""Reads a `Pulumi.<stack>.yaml` to the same values that Pulumi's own parser makes of it.

For commands that look into a file without an engine: examples, pre-checks, editing. `pulumi up` uses what the engine
made of it. The differences between YAML 1.2 and the engine's parser (yaml.v3, with some of YAML 1.1) are imitated:
`0120` is octal, `1_000` a number, `2026-08-01` a time as Go writes it, a decimal number without fraction a whole one,
what stands directly at a config key is the text of its value, and a key without a project is the project's own. Keys
written twice are refused, by the engine too. A test compares both readings on the real engine.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

from stack.config.root import CONTEXT_KEY
from stack.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

Node = Any
"""A node of ruamel's, which has no types: `id` is mapping, sequence or scalar."""
PROJECT: Final = "serving-stack"
_FILE: Final = "the stack file"
_DEPTH: Final = 60
_INT: Final = re.compile(r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|[1-9][0-9_]*|0)")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?")
_TIME: Final = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{1,2}-[0-9]{1,2})"
    r"(?:[Tt ](?P<time>[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]+)?)(?P<zone>Z|[+-][0-9:]+)?)?"
)


def read_stack_file(text: str) -> tuple[dict[str, object], str | None]:
    """Return what the engine would hand to the program: a value for each `serving-stack:<block>`, and the context.

    Raises:
        ConfigError: the text is not YAML, writes a key twice, or is no stack file.
    """
    config = _mapping_at(_compose(text), "config")
    blocks: dict[str, object] = {}
    context: str | None = None
    for key, node in config:
        namespace, colon, name = key.partition(":")
        if not colon:
            namespace, name = PROJECT, key
        if namespace == PROJECT:
            blocks[name] = _top(node, name)
        elif key == CONTEXT_KEY:
            value = _top(node, key)
            context = value if isinstance(value, str) else None
    return blocks, context


def _compose(text: str) -> Node:
    yaml: Any = YAML(typ="safe", pure=True)
    try:
        return yaml.compose(text)
    except MarkedYAMLError as error:
        details: Any = error
        mark = details.problem_mark or details.context_mark
        line = f" in line {mark.line + 1}" if mark is not None else ""
        raise _refuse(_FILE, f"is no YAML: {details.problem or details.context}{line}", fix="Correct it") from None
    except Exception as error:  # ruamel raises several of its own for odd characters  # noqa: BLE001
        raise _refuse(_FILE, f"is no YAML ({type(error).__name__})", fix="Correct it") from None


def _mapping_at(root: Node, key: str) -> list[tuple[str, Node]]:
    if root is None:
        raise _refuse(_FILE, "is empty", fix=f"Write {key}: with the keys of the stack below it")
    if root.id != "mapping":
        raise _refuse(_FILE, "is no map", fix=f"Write {key}: with the keys of the stack below it")
    found = dict(_pairs(root, ""))
    node = found.get(key)
    if node is None or node.id != "mapping":
        raise _refuse(_FILE, f"has no map under {key}", fix=f"Write {key}: with the keys of the stack below it")
    return list(_pairs(node, ""))


def _pairs(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    """Keys and values of a map; each key once, merged maps (`<<`) after its own."""
    lines: dict[str, int] = {}
    merged: list[tuple[str, Node]] = []
    for key_node, value_node in node.value:
        if key_node.id != "scalar":
            raise _refuse(path or _FILE, "has a key that is no text", fix="Write a plain word before the colon")
        if key_node.value == "<<" and key_node.style is None:
            sources = value_node.value if value_node.id == "sequence" else [value_node]
            for source in sources:
                if source.id != "mapping":
                    raise _refuse(path or _FILE, "merges something that is no map", fix="Merge an anchor of a map")
                merged += _pairs(source, path)
            continue
        key = _key(key_node)
        line = int(key_node.start_mark.line) + 1
        if key in lines:
            raise _refuse(
                _join(path, key), f"is written twice, in line {lines[key]} and line {line}", fix="Remove one of the two"
            )
        lines[key] = line
        yield key, value_node
    for key, value in merged:
        if key not in lines:
            lines[key] = 0
            yield key, value


def _key(node: Node) -> str:
    value = _scalar(node, "")
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)


def _top(node: Node, path: str) -> object:
    """What stands directly at a config key: the engine takes every scalar as text, nothing as empty text."""
    if node.id != "scalar":
        return _value(node, path, 0)
    match _scalar(node, path):
        case None:
            return ""
        case bool() as value:
            return str(value).lower()
        case int() | float() as value:
            return _number_text(value)
        case value:
            return str(value)


def _number_text(value: int | float) -> str:  # noqa: PYI041  # which of the two matters
    """A number as the engine writes it: like JSON in Go, with an exponent only below 1e-6 and from 1e21 on."""
    if isinstance(value, int):
        return str(value)
    if value and not 1e-6 <= abs(value) < 1e21:  # noqa: PLR2004
        return re.sub(r"e([+-])0*", r"e\1", repr(value))
    return f"{Decimal(repr(value)):f}"


def _value(node: Node, path: str, depth: int) -> object:
    if depth > _DEPTH:
        raise _refuse(path, "is nested deeper than any configuration", fix="Look for an anchor that holds itself")
    match node.id:
        case "mapping":
            return {key: _value(item, _join(path, key), depth + 1) for key, item in _pairs(node, path)}
        case "sequence":
            return [_value(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(node.value)]
        case _:
            return _scalar(node, path)


def _scalar(node: Node, path: str) -> Any:
    text = str(node.value)
    tag = str(node.tag) if node.tag else ""
    if node.style is not None or tag.endswith(":str"):
        return text
    if text in {"", "~", "null", "Null", "NULL"}:
        return None
    if text in {"true", "True", "TRUE", "false", "False", "FALSE"}:
        return text.lower() == "true"
    if re.fullmatch(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", text):
        raise _refuse(path, "is no finite number", fix="Write a number, or quote it")
    if _INT.fullmatch(text):
        number = _int(text.replace("_", ""))
        return number if -(2**63) <= number < 2**64 else float(number)
    if _FLOAT.fullmatch(text):
        number = float(text.replace("_", ""))
        return int(number) if math.isfinite(number) and number.is_integer() and abs(number) < 1e21 else number  # noqa: PLR2004
    return _time(text) or text


def _int(text: str) -> int:
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text.lstrip("+"))
    is_old_octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
    return sign * (int(digits, 8) if is_old_octal else int(digits, 0))


def _time(text: str) -> str | None:
    """The text that the engine makes of a time, as Go prints it; None if the text is none."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    year, month, day = (int(part) for part in found["date"].split("-"))
    hour, minute, second = (found["time"] or "0:0:0").split(":")
    whole, _, fraction = second.partition(".")
    try:
        moment = datetime(year, month, day, int(hour), int(minute), int(whole), tzinfo=UTC)
    except ValueError:
        return None
    fraction = fraction.rstrip("0")
    zone = found["zone"]
    offset = "+0000 UTC" if zone in {None, "Z"} else " ".join([zone.replace(":", "")] * 2)
    return f"{moment:%Y-%m-%d %H:%M:%S}{'.' + fraction if fraction else ''} {offset}"


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _refuse(key: str, why: str, *, fix: str) -> ConfigError:
    return ConfigError([Problem(key=key, value="", why=why, fix=fix)])
