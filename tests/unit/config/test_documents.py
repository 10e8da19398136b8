"""JSON Schema and reference, both made from the models."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bad_files import bad_files
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from stack.config.reference import REQUIRED, reference_rows
from stack.config.root import load_config
from stack.config.schema import stack_file_schema
from tests.builders import SMALLEST, merged

SCHEMA = stack_file_schema()
VALIDATOR: Any = Draft202012Validator(SCHEMA)


CONTEXT = "test"


def blocks(**over: Any) -> dict[str, Any]:
    return merged(SMALLEST, over)


def file_of(**over: Any) -> dict[str, Any]:
    return {
        "config": {"kubernetes:context": CONTEXT}
        | {f"serving-stack:{key}": value for key, value in blocks(**over).items()}
    }


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    json.dumps(SCHEMA)


def test_the_schema_takes_the_smallest_stack_and_what_belongs_to_others() -> None:
    smallest = file_of()
    assert list(VALIDATOR.iter_errors(smallest)) == []
    smallest["encryptionsalt"] = "v1:abc"
    smallest["config"]["aws:region"] = "eu-west-1"
    assert list(VALIDATOR.iter_errors(smallest)) == []


def test_the_schema_takes_every_default() -> None:
    whole = load_config(blocks(), context=CONTEXT).model_dump(by_alias=True, mode="json")
    context = whole.pop("context")
    config = {f"serving-stack:{key}": value for key, value in whole.items()} | {"kubernetes:context": context}
    assert [error.message for error in VALIDATOR.iter_errors({"config": config})] == []


@pytest.mark.parametrize(
    ("sentence", "over"),
    [
        ("an unknown block", {"hibernation": {}}),
        ("an unknown key", {"modelserver": {"replica": {}}}),
        ("a tag that is a number", {"modelserver": {"image": {"tag": 120}}}),
        ("a misspelt choice", {"devices": {"npu": {"mode": "plugin"}}}),
        ("a port out of range", {"gateway": {"port": 0}}),
        ("a release with capitals", {"release": "Chat"}),
    ],
)
def test_the_schema_refuses_what_an_editor_can_tell(sentence: str, over: dict[str, Any]) -> None:
    assert list(VALIDATOR.iter_errors(file_of(**over))), sentence


def test_what_the_schema_refuses_is_bad() -> None:
    """Of the bad files many are refused by the schema already; none of the good ones above is."""
    yaml: Any = YAML(typ="safe")
    texts = [bad.text for bad in bad_files() if not bad.stops_the_engine]
    refused = sum(bool(list(VALIDATOR.iter_errors(yaml.load(text)))) for text in texts[:60])
    assert refused >= 5


def test_the_reference_has_every_key_once_with_a_type_and_a_description() -> None:
    rows = reference_rows()
    keys = [row.key for row in rows]
    assert len(set(keys)) == len(keys)
    assert all(row.type and row.description for row in rows)


@pytest.mark.parametrize(
    ("key", "want_type", "want_default"),
    [
        ("release", "DNS label of at most 32 characters", REQUIRED),
        ("kubernetes:context", "text", REQUIRED),
        ("modelserver.replicas.prefill", "whole number", ""),
        ("modelserver.nodePlacement", "list of blocks", "[]"),
        ("modelserver.nodePlacement[].role", "one of prefill, decode, aggregated", REQUIRED),
        ("modelserver.strategy.rollingUpdate.maxSurge", "whole number or percentage", "1"),
        ("devices.claimTemplate.requests[].count", "whole number", "1"),
        ("storage.compileCache.size", "quantity", '"200Gi"'),
        ("gateway.requestTimeout", "duration", '"300s"'),
        ("router.epp.resources", "block", '{"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"memory": "16Gi"}}'),
        ("router.epp.env", "map to text or whole number or {secretKeyRef} or {fieldRef}", "{}"),
        ("imagePullSecrets", "list of name", "[]"),
    ],
)
def test_the_reference_says_type_and_default(key: str, want_type: str, want_default: str) -> None:
    [row] = [row for row in reference_rows() if row.key == key]
    assert (row.type, row.default) == (want_type, want_default)
