import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from stack.recipes import RecipeError, known, load_recipe, recipe_names
from stack.recipes.load import parse_recipe

GOOD: dict[str, Any] = {
    "name": "tiny",
    "model": "example/tiny",
    "engine": {"name": "vllm", "version": "0.30.0", "vllm": "0.30.0", "compiler": None},
    "accelerator": {
        "type": "gpu",
        "vendor": "nvidia",
        "deviceClassName": "gpu.nvidia.com",
        "resourceName": "nvidia.com/gpu",
        "perPod": 2,
        "rdmaDeviceClassName": "dranet",
        "rdmaPerPod": 1,
    },
    "image": {"repository": "example.org/tiny", "tag": "v1"},
    "serveArgs": {
        "common": {"block-size": 16, "max-model-len": 64, "tensor-parallel-size": 2, "enable-prefix-caching": True},
        "prefill": {},
        "decode": {"tensor-parallel-size": 1, "data-parallel-size": 2, "enable-prefix-caching": False},
        "aggregated": {"tensor-parallel-size": 1, "pipeline-parallel-size": 2},
    },
    "serveEnv": {"common": {"A": "1", "B": "1"}, "prefill": {}, "decode": {"B": "2"}, "aggregated": {}},
    "probes": {
        "startup": {
            "path": "/v1/models",
            "initialDelaySeconds": 15,
            "periodSeconds": 30,
            "timeoutSeconds": 5,
            "failureThreshold": 120,
        },
        "readiness": {
            "path": "/v1/models",
            "initialDelaySeconds": 0,
            "periodSeconds": 5,
            "timeoutSeconds": 2,
            "failureThreshold": 3,
        },
        "liveness": {
            "path": "/health",
            "initialDelaySeconds": 0,
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
    },
    "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
    "shmSize": "1Gi",
    "shutdownTimeoutSeconds": {"prefill": 30, "decode": 30, "aggregated": 30},
    "maxModelLen": 64,
    "blockSize": 16,
    "labels": {"llm-d.ai/model": "tiny"},
}


def written(change: Callable[[dict[str, Any]], object] = lambda _: None) -> str:
    raw = copy.deepcopy(GOOD)
    change(raw)
    return yaml.safe_dump(raw)


def test_a_role_lays_its_arguments_over_the_common_ones() -> None:
    recipe = parse_recipe(written())
    assert recipe.args_for("prefill") == {
        "block-size": 16,
        "max-model-len": 64,
        "tensor-parallel-size": 2,
        "enable-prefix-caching": True,
    }


def test_false_takes_a_common_argument_away_from_one_role() -> None:
    assert "enable-prefix-caching" not in parse_recipe(written()).args_for("decode")


def test_a_role_lays_its_environment_over_the_common_one() -> None:
    recipe = parse_recipe(written())
    assert recipe.env_for("decode") == {"A": "1", "B": "2"}
    assert recipe.env_for("prefill") == {"A": "1", "B": "1"}


def test_a_start_up_budget_is_the_delay_and_every_period() -> None:
    assert parse_recipe(written()).probes.startup.budget_seconds == 15 + 30 * 120


def test_a_role_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="'encode' is no role"):
        parse_recipe(written()).args_for("encode")


def test_a_recipe_cannot_be_changed() -> None:
    recipe = parse_recipe(written())
    with pytest.raises(ValidationError, match="frozen"):
        recipe.model = "example/other"  # pyright: ignore[reportAttributeAccessIssue]  # that it is refused is the test


def set_at(*path: str, value: object) -> Callable[[dict[str, Any]], object]:
    def change(raw: dict[str, Any]) -> None:
        for key in path[:-1]:
            raw = raw[key]
        raw[path[-1]] = value

    return change


def drop_at(*path: str) -> Callable[[dict[str, Any]], object]:
    def change(raw: dict[str, Any]) -> None:
        for key in path[:-1]:
            raw = raw[key]
        del raw[path[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "want_where", "want_why"),
    [
        pytest.param(set_at("colour", value="red"), "colour", "Extra inputs", id="an unknown key"),
        pytest.param(drop_at("shmSize"), "shmSize", "Field required", id="a missing key"),
        pytest.param(set_at("shm_size", value="1Gi"), "shm_size", "Extra inputs", id="a key in snake_case"),
        pytest.param(set_at("blockSize", value="16"), "blockSize", "valid integer", id="a number written as text"),
        pytest.param(set_at("image", "tag", value=1), "image.tag", "valid string", id="a tag written as a number"),
        pytest.param(
            set_at("serveEnv", "common", "C", value=1),
            "serveEnv.common.C",
            "valid string",
            id="a number in the environment",
        ),
        pytest.param(set_at("accelerator", "perPod", value=0), "accelerator.perPod", "", id="no accelerator"),
        pytest.param(set_at("shmSize", value="lots"), "shmSize", "", id="a size that is no quantity"),
        pytest.param(
            set_at("engine", "name", value="sglang"), "engine.name", "", id="an engine that is not served here"
        ),
        pytest.param(
            set_at("serveArgs", "common", "--port", value=1),
            "serveArgs.common",
            "",
            id="a flag written with its dashes",
        ),
        pytest.param(
            set_at("serveArgs", "decode", "port", value=8200),
            "serveArgs",
            "decode: port is computed by the planner",
            id="a port",
        ),
        pytest.param(
            set_at("serveArgs", "common", "api-key", value="x"),
            "serveArgs",
            "common: api-key would be a secret in a recipe",
            id="a secret as a flag",
        ),
        pytest.param(
            set_at("serveEnv", "common", "HF_TOKEN", value="x"),
            "serveEnv",
            "common: HF_TOKEN would be a secret in a recipe",
            id="a secret in the environment",
        ),
        pytest.param(
            set_at("serveEnv", "prefill", "VLLM_NIXL_SIDE_CHANNEL_PORT", value="5600"),
            "serveEnv",
            "prefill: VLLM_NIXL_SIDE_CHANNEL_PORT is computed by the planner",
            id="the side channel's port",
        ),
        pytest.param(
            set_at("accelerator", "perPod", value=4),
            "recipe",
            "prefill: tensor x pipeline x data parallel size is 2, but accelerator.perPod is 4",
            id="fewer ranks than devices",
        ),
        pytest.param(
            set_at("serveArgs", "common", "tensor-parallel-size", value=True),
            "recipe",
            "prefill: tensor-parallel-size is not a whole number",
            id="ranks that are a bare flag",
        ),
        pytest.param(
            set_at("blockSize", value=32),
            "recipe",
            "prefill: block-size is 16, but blockSize is 32",
            id="two block sizes",
        ),
        pytest.param(
            drop_at("serveArgs", "common", "max-model-len"),
            "recipe",
            "prefill: max-model-len is missing, but maxModelLen is 64",
            id="a context length that is not passed on",
        ),
    ],
)
def test_a_recipe_is_refused_for(change: Callable[[dict[str, Any]], object], want_where: str, want_why: str) -> None:
    with pytest.raises(RecipeError) as refused:
        parse_recipe(written(change))
    assert f"{want_where}" in str(refused.value)
    assert want_why in str(refused.value)


def test_all_problems_of_a_recipe_are_told_at_once() -> None:
    def change(raw: dict[str, Any]) -> None:
        raw["blockSize"] = "16"
        del raw["labels"]

    with pytest.raises(RecipeError, match=r"(?s)blockSize: .*; labels: |labels: .*; blockSize: "):
        parse_recipe(written(change))


def test_a_key_written_twice_is_refused() -> None:
    with pytest.raises(RecipeError, match="key 'name' stands twice, again in line 2"):
        parse_recipe("name: a\nname: b\n")


def test_what_is_no_yaml_is_refused() -> None:
    with pytest.raises(RecipeError, match="not YAML"):
        parse_recipe("name: [")


def test_a_recipe_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(RecipeError, match=r"no recipe 'minimax'; there are .*minimax-m2\.7-rbln"):
        load_recipe("minimax")
    assert not known("minimax")


def test_a_recipe_is_read_once() -> None:
    assert load_recipe(recipe_names()[0]) is load_recipe(recipe_names()[0])
