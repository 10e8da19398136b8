"""Documents made from the models: the configuration reference, and the JSON Schema for editors."""

from __future__ import annotations

import json
import re
from itertools import groupby
from typing import Any

from pydantic.alias_generators import to_camel

from stack.config.reference import Row, reference_rows
from stack.config.schema import stack_file_schema
from stack.report import json_schema

HEAD = """\
# Configuration reference

Made from the models by `make golden`; do not edit. Every key stands in `Pulumi.<stack>.yaml` under `config:`, its first
word with the project before it: `modelserver.image.tag` is `tag` below `image` below `serving-stack:modelserver`.
Unknown keys are refused.

Editors complete and check stack files with [`stack-file.schema.json`](stack-file.schema.json), for example through a
first line `# yaml-language-server: $schema=docs/stack-file.schema.json`.
"""


def reference_markdown() -> str:
    """The whole reference: a section a block, a table row a key."""
    sections = [HEAD]
    for block, rows in groupby(reference_rows(), key=lambda row: row.key.partition(".")[0]):
        sections.append(_section(block, list(rows)))
    return "\n".join(sections)


def schema_json() -> str:
    """The JSON Schema of a stack file as text."""
    return _text(stack_file_schema())


def report_schema_json() -> str:
    """The JSON Schema of what `serving-stack impact --format json` prints, as text."""
    schema: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema", **json_schema()}
    for described in (schema, *schema["$defs"].values()):
        described.pop("additionalProperties", None)  # a later version may have more
        _describe_fields(described)
    return _text(schema)


def _describe_fields(described: dict[str, Any]) -> None:
    """Move what a docstring says of each field to the field."""
    text, _, below = described.get("description", "").partition("\n\nAttributes:\n")
    if not below:
        return
    described["description"] = " ".join(text.split())
    for entry in re.split(r"\n(?= {4}\w)|(?<=\.) (?=\w+(?:, \w+)*: )", below):
        names, _, meaning = entry.strip().partition(": ")
        for name in names.split(", "):
            words = " ".join(meaning.split()).replace("None", "null").replace("False", "false")
            described["properties"][to_camel(name)]["description"] = words


def _text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _section(block: str, rows: list[Row]) -> str:
    lines = [f"## {block}", ""]
    head = rows[0]
    if head.is_block:
        lines += [head.description, ""]
        rows = rows[1:]
    lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
    lines += [
        " | ".join(["", f"`{row.key}`", _cell(row.type), _code(row.default), _cell(row.description), ""]).strip()
        for row in rows
    ]
    return "\n".join([*lines, ""])


def _code(text: str) -> str:
    return f"`{_cell(text)}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
