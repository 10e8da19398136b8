import re
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any, cast

import pytest
from _pytest.mark.structures import ParameterSet

from stack.recipes import ArgValue, Engine, Recipe, has_flag, load_recipe, recipe_names, serve_flags
from stack.scalars import ROLES, Role

RBLN = [name for name in recipe_names() if load_recipe(name).engine.name == "vllm-rbln"]
NODE = {"npus": 4, "nics": 2}  # one NUMA node of the hardware that the reference design names


def cases(names: Iterable[str]) -> list[ParameterSet]:
    return [pytest.param(load_recipe(name), role, id=f"{name}-{role}") for name in names for role in ROLES]


CASES = cases(recipe_names())


def number(value: ArgValue | None) -> int:
    assert type(value) is int
    return value


@pytest.fixture(scope="module")
def rbln_package() -> Distribution:
    return distribution("vllm-rbln")  # a test requirement, installed without its dependencies and never imported


def environment_names(package: Distribution) -> set[str]:
    sources = [file for file in package.files or [] if file.name.endswith(".py")]
    assert sources, "the package lists no source"
    return {
        name
        for file in sources
        for name in re.findall(r"\bVLLM_RBLN_[A-Z0-9_]+\b", Path(str(file.locate())).read_text(encoding="utf-8"))
    }


def connectors(config: object) -> Iterator[dict[str, Any]]:
    """A KV connector's configuration, and those inside a MultiConnector."""
    if isinstance(config, dict):
        block = cast("dict[str, Any]", config)
        yield block
        for inner in block.get("kv_connector_extra_config", {}).get("connectors", []):
            yield from connectors(inner)


def test_the_recipes_are_those_that_are_promised() -> None:
    assert recipe_names() == ("gpt-oss-120b-nvidia", "minimax-m2.7-rbln", "qwen3-0.6b")


@pytest.mark.parametrize(("recipe", "role"), CASES)
def test_every_role_uses_the_devices_of_a_pod(recipe: Recipe, role: str) -> None:
    assert recipe.devices_per_pod(role) == recipe.accelerator.per_pod


@pytest.mark.parametrize(("recipe", "role"), CASES)
def test_the_engine_has_every_flag(recipe: Recipe, role: str) -> None:
    assert [flag for flag in recipe.args_for(role) if has_flag(recipe.engine, flag) is not True] == []


@pytest.mark.parametrize(("recipe", "role"), CASES)
def test_the_kv_cache_is_handed_over_only_where_there_are_two_roles(recipe: Recipe, role: str) -> None:
    assert ("kv-transfer-config" in recipe.args_for(role)) == (role != "aggregated")


@pytest.mark.parametrize(("recipe", "role"), CASES)
def test_a_stopping_server_is_given_time_by_a_key_and_not_by_its_flag(recipe: Recipe, role: Role) -> None:
    assert recipe.shutdown_timeout_seconds.of(role) > 0
    assert "shutdown-timeout" not in recipe.args_for(role)


@pytest.mark.parametrize("name", recipe_names())
def test_the_startup_probe_gives_up_before_the_engine_does(name: str) -> None:
    recipe = load_recipe(name)
    for role in ROLES:
        assert int(recipe.env_for(role)["VLLM_ENGINE_READY_TIMEOUT_S"]) > recipe.probes.startup.budget_seconds


@pytest.mark.parametrize("name", recipe_names())
def test_a_context_is_a_whole_number_of_blocks(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.max_model_len % recipe.block_size == 0


@pytest.mark.parametrize("name", recipe_names())
def test_a_pod_carries_the_labels_by_which_llm_d_describes_it(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.labels["llm-d.ai/engine-type"] == "vllm"
    assert recipe.labels["llm-d.ai/accelerator-variant"] == recipe.accelerator.type
    assert recipe.labels["llm-d.ai/accelerator-vendor"] == recipe.accelerator.vendor
    assert recipe.labels["llm-d.ai/model"] == recipe.model.rpartition("/")[2]


@pytest.mark.parametrize("name", RBLN)
def test_vllm_rbln_knows_every_variable_of_its_name(name: str, rbln_package: Distribution) -> None:
    recipe = load_recipe(name)
    assert rbln_package.version == recipe.engine.version
    used = {variable for role in ROLES for variable in recipe.env_for(role) if variable.startswith("VLLM_RBLN_")}
    assert used, "the recipe sets none, so this would prove nothing"
    assert used - environment_names(rbln_package) == set()


def test_the_variables_that_vllm_rbln_dropped_would_be_found(rbln_package: Distribution) -> None:
    gone = {"VLLM_RBLN_MOE_REDUCE_SCATTER", "VLLM_RBLN_SORT_BATCH"}
    assert gone.isdisjoint(environment_names(rbln_package))


@pytest.mark.parametrize("name", RBLN)
def test_vllm_rbln_stands_on_the_vllm_whose_flags_were_read(name: str, rbln_package: Distribution) -> None:
    wanted = [line for line in rbln_package.requires or [] if re.match(r"vllm\s*==", line)]
    assert wanted == [f"vllm=={load_recipe(name).engine.vllm}+cpu"]


@pytest.mark.parametrize(("recipe", "role"), cases(RBLN))
def test_vllm_rbln_accepts_the_sizes_together(recipe: Recipe, role: str, rbln_package: Distribution) -> None:
    """What `vllm_rbln/platform/vllm_impl.py` refuses at start, and the sub-block cache without a word."""
    args = recipe.args_for(role)
    sequences, tokens = number(args["max-num-seqs"]), number(args["max-num-batched-tokens"])
    assert args["enable-chunked-prefill"] is True
    assert recipe.block_size > tokens, "a sub-block is smaller than a block"
    assert recipe.block_size % tokens == 0, "and divides it"
    if recipe.parallelism(role, "data") > 1:
        assert tokens % sequences == 0
    assert sequences >= recipe.parallelism(role, "pipeline")
    source = "\n".join(
        Path(str(file.locate())).read_text(encoding="utf-8")
        for file in rbln_package.files or []
        if file.name == "kv_connector_factory.py"
    )
    for connector in connectors(args.get("kv-transfer-config")):
        assert f'"{connector["kv_connector"]}"' in source, "the plugin registers no connector of that name"


def test_the_reference_takes_what_the_vendor_names() -> None:
    recipe = load_recipe("minimax-m2.7-rbln")
    prefill, decode = recipe.args_for("prefill"), recipe.args_for("decode")
    common: dict[str, ArgValue] = {
        "block-size": 4096,
        "max-model-len": 204800,
        "max-num-batched-tokens": 512,
        "kv-cache-dtype": "fp8",
        "enable-prefix-caching": True,
        "enable-chunked-prefill": True,
        "tool-call-parser": "minimax_m2",
        "reasoning-parser": "minimax_m2",
        "enable-auto-tool-choice": True,
    }
    assert common.items() <= prefill.items()
    assert common.items() <= decode.items()
    assert {"pipeline-parallel-size": 4, "max-num-seqs": 4, "gpu-memory-utilization": 0.8}.items() <= prefill.items()
    assert {"data-parallel-size": 4, "max-num-seqs": 1, "enable-expert-parallel": True}.items() <= decode.items()
    assert "gpu-memory-utilization" not in decode, "decode keeps the engine's own"
    assert "enable-expert-parallel" not in prefill
    assert recipe.probes.startup.budget_seconds == 7200
    assert (recipe.accelerator.per_pod, recipe.accelerator.rdma_per_pod) == (NODE["npus"], NODE["nics"])


def test_the_reference_speculates_on_every_role_with_weights_of_one_revision() -> None:
    recipe = load_recipe("minimax-m2.7-rbln")
    for role in ROLES:
        speculation = recipe.args_for(role)["speculative-config"]
        assert isinstance(speculation, dict)
        assert speculation["method"] == "eagle3"
        assert re.fullmatch(r"[0-9a-f]{40}", str(speculation["revision"])), "weights of others change unless pinned"


def test_two_of_each_role_and_a_surge_of_each_fit_two_nodes_with_the_small_model() -> None:
    accelerator = load_recipe("qwen3-0.6b").accelerator
    numa_nodes = 2 * 2
    pods_per_numa_node = min(NODE["npus"] // accelerator.per_pod, NODE["nics"] // accelerator.rdma_per_pod)
    assert numa_nodes * pods_per_numa_node >= 2 + 2 + 1 + 1


def test_prefill_is_not_wider_than_decode_where_nixl_asks_so() -> None:
    recipe = load_recipe("gpt-oss-120b-nvidia")
    assert recipe.parallelism("prefill", "tensor") <= recipe.parallelism("decode", "tensor")


@pytest.mark.parametrize(
    ("flag", "want"),
    [
        pytest.param("shutdown-timeout", True, id="a flag of vLLM"),
        pytest.param("no-enable-prefix-caching", True, id="its negation"),
        pytest.param("kv-transfer-config.kv_role", True, id="one field of an object"),
        pytest.param("rbln-use-w8a8", True, id="a flag of the plugin"),
        pytest.param("shutdown-timout", False, id="a misspelt flag"),
    ],
)
def test_a_flag_is_known_or_not(flag: str, *, want: bool) -> None:
    assert has_flag(load_recipe("minimax-m2.7-rbln").engine, flag) is want


def test_a_flag_of_the_plugin_is_unknown_to_vllm_alone() -> None:
    assert has_flag(load_recipe("gpt-oss-120b-nvidia").engine, "rbln-use-w8a8") is False


def test_nothing_is_said_of_the_flags_of_an_engine_that_was_not_read() -> None:
    engine = Engine.model_validate({"name": "vllm", "version": "0.1.0", "vllm": "0.1.0", "compiler": None})
    assert serve_flags(engine) == frozenset()
    assert has_flag(engine, "shutdown-timeout") is None
