from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stack.config.root import load_config
from stack.errors import ConfigError
from stack.recipes import load_recipe, recipe_names
from stack.rules import accept, check_rules
from stack.rules.cel import syntax_error
from stack.rules.strategy import resolve_surge, resolve_unavailable
from stack.serve import split_argument
from tests.builders import SMALLEST, merged, plan, planned

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FLAGS = st.sampled_from(
    [
        "data-parallel-size",
        "tensor-parallel-size",
        "max-num-seqs",
        "max-num-batched-tokens",
        "max-model-len",
        "data-parallel-rpc-port",
        "data-parallel-multi-port-external-lb",
        "kv-transfer-config",
        "kv-cache-dtype",
        "enable-chunked-prefill",
    ]
)
VALUES = st.sampled_from([0, 1, 2, 4, 10**12, -1, 1.5, True, False, "4", "x", "{", {"a": 1}, ""])
QUICK = settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow], deadline=None)


def problems_of(**over: Any) -> dict[str, str]:
    with pytest.raises(ConfigError) as refused:
        accept(merged(SMALLEST, over), context="test")
    return {problem.key: str(problem) for problem in refused.value.problems}


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_accepted_as_it_is(name: str) -> None:
    accepted = accept(merged(SMALLEST, {"recipe": name}), context="test")
    assert accepted.recipe is load_recipe(name)
    assert accepted.warnings == ()
    assert check_rules(accepted.config, accepted.recipe) == ([], [])


def test_reading_and_rules_tell_everything_in_one_run() -> None:
    told = problems_of(
        gateway={"port": "80"},
        recipe="nothing-like-it",
        modelserver={"replicas": {"prefill": 0, "decode": 0}},
        imagePullSecrets=["a", "a"],
    )
    assert set(told) == {"gateway.port", "recipe", "modelserver.replicas", "imagePullSecrets[1]"}


def test_rules_are_silent_about_blocks_that_could_not_be_read() -> None:
    told = problems_of(storage={"compileCache": {"accessModes": ["RWO"]}}, modelserver={"replicas": {"prefill": "1"}})
    assert set(told) == {"storage.compileCache.accessModes[0]", "modelserver.replicas.prefill"}


def test_a_rule_never_speaks_about_a_secret() -> None:
    told = problems_of(modelserver={"extraServeArgs": {"decode": ["--api-key=mine-1", "--api-key=mine-2"]}})
    assert set(told) == {f"modelserver.extraServeArgs.decode[{index}]" for index in (0, 1)}
    assert not [letter for letter in told.values() if "mine" in letter]


def test_check_rules_separates_what_stops_from_what_warns() -> None:
    config = load_config(
        merged(SMALLEST, {"modelserver": {"replicas": {"decode": 0}}, "monitoring": {"enabled": True}}), context="test"
    )
    errors, warnings = check_rules(config, load_recipe(config.recipe))
    assert [problem.key for problem in errors] == ["monitoring.scraper.serviceAccount"]
    assert [problem.key for problem in warnings] == ["modelserver.replicas.decode"]


def variables_of(deployment: str, *, is_traced: bool) -> set[str]:
    made = plan(modelserver={"replicas": {"aggregated": 1}}, tracing={"enabled": is_traced})
    [container] = planned(made, "Deployment", deployment)["spec"]["template"]["spec"]["containers"]
    return {entry["name"] for entry in container["env"]}


@pytest.mark.parametrize(
    ("deployment", "place"), [("rel-aggregated", "modelserver.serveEnv"), ("rel-epp", "router.epp.env")]
)
def test_every_variable_that_tracing_adds_is_refused_beside_it(deployment: str, place: str) -> None:
    added = variables_of(deployment, is_traced=True) - variables_of(deployment, is_traced=False)
    assert "OTEL_SERVICE_NAME" in added
    block: Any = dict.fromkeys(added, "mine")
    for key in reversed(place.split(".")):
        block = {key: block}
    told = problems_of(tracing={"enabled": True}, **block)
    assert set(told) == {f"{place}.{name}" for name in added}


@pytest.mark.parametrize(
    ("value", "replicas", "want_surge", "want_down"),
    [
        (0, 4, 0, 0),
        (1, 4, 1, 1),
        ("0%", 4, 0, 0),
        ("25%", 4, 1, 1),
        ("25%", 3, 1, 0),
        ("30%", 10, 3, 3),
        ("1%", 1, 1, 0),
        ("100%", 5, 5, 5),
    ],
)
def test_percentages_round_as_kubernetes_rounds_them(
    value: int | str, replicas: int, want_surge: int, want_down: int
) -> None:
    assert (resolve_surge(value, replicas), resolve_unavailable(value, replicas)) == (want_surge, want_down)


@pytest.mark.parametrize(
    ("argument", "want"),
    [
        ("--a", ("a", True)),
        ("--a=1", ("a", 1)),
        ("--a=x=y", ("a", "x=y")),
        ("--a_b.c_d=1", ("a-b.c_d", 1)),
        ("-tp=4", ("tp", 4)),
        ("--a=", ("a", "")),
        ("--a=" + "9" * 30, ("a", "9" * 30)),
    ],
)
def test_an_argument_is_split_into_flag_and_value(argument: str, want: tuple[str, object]) -> None:
    assert split_argument(argument) == want


@pytest.mark.parametrize(
    ("expression", "is_refused"),
    [
        ('device.driver == "npu.rebellions.ai"', False),
        ('device.attributes["dra.net"].rdma', False),
        ('device.attributes["npu.rebellions.ai"].productName.startsWith("RBLN-CR")', False),
        ('device.capacity["x"].memory.compareTo(quantity("40Gi")) >= 0', False),
        ('device.attributes["dra.net"].?rdma.orValue(false)', False),
        ("device.driver ==", True),
        ('device.attributes["x"', True),
        ("a b", True),
        (")", True),
    ],
)
def test_a_selector_is_refused_only_for_its_syntax(expression: str, *, is_refused: bool) -> None:
    assert (syntax_error(expression) is not None) == is_refused


@QUICK
@given(st.dictionaries(FLAGS, VALUES, max_size=4), st.dictionaries(FLAGS, VALUES, max_size=2))
def test_whatever_the_arguments_are_the_rules_end_in_letters(common: dict[str, Any], decode: dict[str, Any]) -> None:
    over = {"modelserver": {"serveArgs": {"common": common, "decode": decode}}}
    try:
        accept(merged(SMALLEST, over), context="test")
    except ConfigError as refused:
        str(refused)


@QUICK
@given(st.data())
def test_any_json_anywhere_in_a_good_stack_ends_in_letters(data: st.DataObject) -> None:
    config = load_config(merged(SMALLEST, {"monitoring": {"labels": {"a": "b"}}}), context="test")
    whole: dict[str, Any] = config.model_dump(by_alias=True, mode="json")
    place: Any = whole
    while True:
        is_map = isinstance(place, dict)
        keys: list[Any] = list(cast("dict[str, Any]", place)) if is_map else list(range(len(cast("list[Any]", place))))
        key = data.draw(st.sampled_from(keys))
        below = place[key]
        if not isinstance(below, dict | list) or not below or data.draw(st.booleans()):
            place[key] = data.draw(JSON)
            break
        place = cast("Any", below)
    context = whole.pop("context", None)
    try:
        accept(whole, context=context if isinstance(context, str) else None)
    except ConfigError as refused:
        str(refused)
