"""JSON Schema of a stack file, for editors: completion, descriptions, and most mistakes while typing.

Made from the models, so that it cannot differ from them in keys, types, defaults and descriptions. It knows single
values only: what keys mean together is told by `pulumi preview`.
"""

from typing import Any, Final, cast

from pydantic.json_schema import models_json_schema

from stack.config.root import CONTEXT_KEY, StackConfig

PREFIX: Final = "serving-stack:"
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def stack_file_schema() -> dict[str, Any]:
    """Schema of `Pulumi.<stack>.yaml`: our keys under `config` are checked, everything of others is left alone."""
    _, whole = models_json_schema([(StackConfig, "validation")], by_alias=True)
    definitions = cast("dict[str, Any]", whole["$defs"])
    stack = cast("dict[str, Any]", definitions.pop("StackConfig"))
    keys = {
        CONTEXT_KEY if key == "context" else PREFIX + key: value
        for key, value in cast("dict[str, Any]", stack["properties"]).items()
    }
    required = [CONTEXT_KEY if key == "context" else PREFIX + key for key in cast("list[str]", stack["required"])]
    return {
        "$schema": DIALECT,
        "title": "Stack file of serving-stack",
        "type": "object",
        "required": ["config"],
        "properties": {
            "config": {
                "type": "object",
                "properties": keys,
                "required": required,
                "propertyNames": {"anyOf": [{"enum": list(keys)}, {"not": {"pattern": f"^{PREFIX}"}}]},
            }
        },
        "$defs": definitions,
    }
