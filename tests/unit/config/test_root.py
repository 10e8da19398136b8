from __future__ import annotations

import copy
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stack.config.modelserver import ModelServerConfig
from stack.config.root import StackConfig, load_config, read_config
from stack.errors import ConfigError, Problem
from tests.builders import SMALLEST, merged

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from([field.alias or name for name, field in StackConfig.model_fields.items()])
QUICK = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)


CONTEXT = "test"


def blocks(**over: Any) -> dict[str, Any]:
    return merged(SMALLEST, over)


def load(**over: Any) -> StackConfig:
    return load_config(blocks(**over), context=CONTEXT)


def test_the_smallest_stack_is_the_charts_reference() -> None:
    config = load()
    assert config.recipe == "minimax-m2.7-rbln"
    assert config.context == "test"
    assert config.modelserver.effective_replicas() == {"prefill": 4, "decode": 4, "aggregated": 0}
    numbers = config.modelserver.strategy.rolling_update
    assert numbers is not None
    assert (numbers.max_surge, numbers.max_unavailable) == (1, 0)
    assert config.storage.compile_cache.size == "200Gi"
    assert config.storage.compile_cache.access_modes == ("ReadWriteMany",)
    assert config.devices.referenced_template() == "npu-rdma"
    assert config.router.epp.resources.requests == {"cpu": "4", "memory": "8Gi"}
    assert config.router.epp.resources.limits == {"memory": "16Gi"}
    assert config.gateway.class_name == "istio"
    assert not config.monitoring.enabled


@pytest.mark.parametrize(
    ("sentence", "modelserver", "want"),
    [
        ("nothing given", {}, (4, 4, 0)),
        ("one of the two given alone", {"replicas": {"prefill": 2}}, (2, 4, 0)),
        ("a role at 0", {"replicas": {"prefill": 0}}, (0, 4, 0)),
        ("aggregated turns the others off", {"replicas": {"aggregated": 3}}, (0, 0, 3)),
        ("aggregated at 0 changes nothing", {"replicas": {"aggregated": 0}}, (4, 4, 0)),
        ("aggregated beside a given role", {"replicas": {"aggregated": 3, "decode": 1}}, (0, 1, 3)),
        ("nodePlacement turns replicas off", {"nodePlacement": [{"role": "decode", "node": "a"}]}, (0, 0, 0)),
        (
            "nodePlacement beside a given role",
            {"nodePlacement": [{"role": "decode", "node": "a"}], "replicas": {"prefill": 1}},
            (1, 0, 0),
        ),
    ],
)
def test_replicas_that_are_not_given_follow_from_the_rest(
    sentence: str, modelserver: dict[str, Any], want: tuple[int, int, int]
) -> None:
    counts = load(modelserver=modelserver).modelserver.effective_replicas()
    assert (counts["prefill"], counts["decode"], counts["aggregated"]) == want, sentence


def test_pods_are_counted_in_both_modes_and_roles_keep_their_order() -> None:
    placed = load(
        modelserver={"nodePlacement": [{"role": role, "node": "a"} for role in ("decode", "prefill", "decode")]}
    ).modelserver
    assert placed.pods() == {"prefill": 1, "decode": 2, "aggregated": 0}
    assert placed.roles() == ("prefill", "decode")


def test_recreate_has_no_rolling_update() -> None:
    assert load(modelserver={"strategy": {"type": "Recreate"}}).modelserver.strategy.rolling_update is None


@pytest.mark.parametrize(
    ("sentence", "devices", "want"),
    [
        ("the default", {}, "npu-rdma"),
        ("a template of one's own", {"claimTemplateName": "mine"}, "mine"),
        ("a managed template", {"claimTemplate": {"requests": [{"name": "a", "deviceClassName": "b"}]}}, None),
        ("nothing is claimed", {"npu": {"mode": "devicePlugin"}, "rdma": {"enabled": False}}, None),
        ("NICs alone are claimed", {"npu": {"mode": "devicePlugin"}}, "npu-rdma"),
    ],
)
def test_the_referenced_claim_template_follows_from_the_modes(
    sentence: str, devices: dict[str, Any], want: str | None
) -> None:
    assert load(devices=devices).devices.referenced_template() == want, sentence


def test_values_are_kept_as_written_and_numbers_become_quantities() -> None:
    config = load(
        modelserver={
            "serveEnv": {"A": 9600, "B": "x", "C": {"fieldRef": {"fieldPath": "status.podIP"}}},
            "resources": {"requests": {"cpu": 4, "memory": 0.5}},
            "serveArgs": {"common": {"kv-transfer-config": {"kv_role": "kv_both"}, "seed": 1, "x": False}},
        }
    ).modelserver
    assert config.serve_env["A"] == 9600
    assert config.serve_env["B"] == "x"
    assert config.resources is not None
    assert config.resources.requests == {"cpu": "4", "memory": "0.5"}
    assert config.serve_args.common == {"kv-transfer-config": {"kv_role": "kv_both"}, "seed": 1, "x": False}


def test_null_means_no_token() -> None:
    config = load(modelserver={"hfTokenSecret": None})
    assert config.modelserver.hf_token_secret is None
    assert config.router.epp.hf_token_secret is not None


def test_a_config_cannot_be_changed_and_says_again_what_it_read() -> None:
    config = load(modelserver={"replicas": {"prefill": 2}}, imagePullSecrets=["regcred"])
    with pytest.raises(ValueError, match="frozen"):
        config.release = "other"  # type: ignore[misc]  # that is what is tried
    again = config.model_dump(by_alias=True, mode="json")
    context = again.pop("context")
    assert load_config(again, context=context) == config


def test_a_broken_block_leaves_the_others_readable() -> None:
    reading = read_config(blocks(gateway={"port": "80"}, release="Chat"), context=CONTEXT)
    assert reading.broken == {"gateway", "release"}
    assert reading.config.namespace == "ns"
    assert reading.config.storage.model.existing_claim == "model-store"


def test_the_order_of_blocks_changes_nothing() -> None:
    forwards = blocks(gateway={"port": "80"}, release="Chat", drain={})
    backwards = dict(reversed(list(forwards.items())))
    assert read_config(forwards, context=None) == read_config(backwards, context=None)


@QUICK
@given(st.dictionaries(NAMES | st.text(max_size=6), JSON, max_size=4), st.none() | st.text(max_size=5))
def test_whatever_arrives_is_read_or_refused_with_letters(raw: dict[str, Any], context: str | None) -> None:
    before = copy.deepcopy(raw)
    letters = letters_of(raw, context)
    assert all(problem.key and problem.why and problem.fix for problem in letters)
    assert repr(raw) == repr(before)


@QUICK
@given(st.data())
def test_any_json_anywhere_in_a_good_stack_is_read_or_refused_with_letters(data: st.DataObject) -> None:
    placed = load(modelserver={"nodePlacement": [{"role": "decode", "node": "a"}]})
    whole = placed.model_dump(by_alias=True, mode="json")
    spoil(data, whole, JSON)
    context = whole.pop("context", None)
    letters_of(whole, context if isinstance(context, str) else None)


def spoil(data: st.DataObject, whole: dict[str, Any], values: st.SearchStrategy[Any]) -> None:
    """Put any value at any place of the configuration."""
    place: Any = whole
    while True:
        is_map = isinstance(place, dict)
        keys: list[Any] = list(cast("dict[str, Any]", place)) if is_map else list(range(len(cast("list[Any]", place))))
        key = data.draw(st.sampled_from(keys))
        below = place[key]
        if not isinstance(below, dict | list) or not below or data.draw(st.booleans()):
            place[key] = data.draw(values)
            return
        place = cast("Any", below)


def letters_of(raw: dict[str, Any], context: str | None) -> tuple[Problem, ...]:
    """The letters, none if it is read; anything else that is raised fails the test."""
    try:
        load_config(raw, context=context)
    except ConfigError as refused:
        return refused.problems
    return ()


def test_python_code_may_use_its_own_spelling() -> None:
    assert ModelServerConfig(service_account_name="mine").service_account_name == "mine"
