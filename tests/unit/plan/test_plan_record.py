"""What a Deployment was applied with stands in an annotation of its own: it can be read back, and restarts nothing."""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_plan_contributions import BASES, CHANGES, Change

from stack import labels
from stack.errors import ConfigError
from stack.plan import plan_stack
from stack.record import MOST_BYTES, Record, read_record, write_record
from stack.router import plan_router
from stack.serve import plan_serve
from tests.builders import EMPTY_CLUSTER, accepted, merged, plan, planned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stack.scalars import Role
    from stack.serve import RoleServe

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def annotated(text: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {labels.APPLIED: text}}}


def nested(levels: int) -> str:
    """A record with one value of lists in one another."""
    return f'{{"a": {"[" * levels}{"]" * levels}}}'


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def deployments(blocks: dict[str, Any]) -> list[dict[str, Any]]:
    whole = plan_stack(accepted(**blocks), EMPTY_CLUSTER)
    return [each.manifest for each in whole.objects() if each.kind == "Deployment"]


# --- the annotation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_every_deployment_carries_its_record_on_itself_and_not_on_its_pods(base: dict[str, Any]) -> None:
    found = deployments(base)
    assert len(found) >= 2
    for manifest in found:
        assert read_record(manifest) is not None
        assert labels.APPLIED not in manifest["spec"]["template"]["metadata"].get("annotations", {})


def test_the_record_of_a_role_is_what_its_template_was_made_from() -> None:
    for workload in plan().modelserver.workloads:
        assert read_record(workload.object.manifest) == Record(values=workload.contributions)


def test_a_stack_that_has_no_record_yet_gets_one_without_a_restart() -> None:
    """Without the annotation a manifest is what it was before there was one."""
    for manifest in deployments({}):
        before = copy.deepcopy(manifest)
        del before["metadata"]["annotations"][labels.APPLIED]
        assert before["spec"] == manifest["spec"]
        assert read_record(before) is None


def test_what_restarts_nothing_leaves_the_records_alone() -> None:
    """So that an update which changes no Deployment writes none."""
    blocks = {
        "gateway": {"port": 8080},
        "rollout": {"patienceSeconds": 60},
        "storage": {"compileCache": {"size": "1Ti"}},
    }
    assert deployments(blocks) == deployments({})


def test_a_secret_is_recorded_by_the_name_of_its_object_only() -> None:
    secret = {"secretKeyRef": {"name": "s", "key": "k"}}
    record = read_record(planned(plan(router={"epp": {"env": {"API_KEY": secret}}}), "Deployment", "rel-epp"))
    assert record is not None
    assert json.loads(record.values["router.epp.env.API_KEY"]) == secret
    assert record.values["router.epp.hfTokenSecret.name"] == '"llm-d-hf-token"'


# --- the endpoint picker's --------------------------------------------------------------------------------------------


def picker(blocks: dict[str, Any]) -> dict[str, Any]:
    return _picker(json.dumps(blocks))


@cache
def _picker(blocks: str) -> dict[str, Any]:
    """Its Deployment alone: the rest of a plan takes most of the time."""
    found = accepted(**json.loads(blocks))
    config, recipe, roles = found.config, found.recipe, found.config.modelserver.roles()
    is_disaggregated = "aggregated" not in roles
    serves: dict[Role, RoleServe] = {
        role: plan_serve(config, recipe, role, is_disaggregated=is_disaggregated) for role in roles
    }
    router = plan_router(config, recipe, serves, is_disaggregated=is_disaggregated)
    [manifest] = [each.manifest for each in router if each.kind == "Deployment"]
    return manifest


def test_the_endpoint_picker_looked_at_here_is_that_of_the_plan() -> None:
    for blocks in (BASES["the reference"], BASES["aggregated"], BASES["traced"]):
        assert picker(blocks) in deployments(blocks)


@pytest.mark.parametrize("change", CHANGES, ids=[f"{change.key} on {change.base}" for change in CHANGES])
def test_the_endpoint_picker_can_tell_why_it_restarts(change: Change) -> None:
    """Its record changes exactly when its Pod template does."""
    base = BASES[change.base]
    before, after = picker(base), picker(merged(base, change.blocks))
    restarts = before["spec"]["template"] != after["spec"]["template"]
    assert restarts == (read_record(before) != read_record(after))


PICKER_CHANGES: dict[str, dict[str, Any]] = {
    "router.epp.distribution": {"router": {"epp": {"distribution": "gaie", "version": "v1.5.0"}}},
    "router.epp.replicas": {"router": {"epp": {"replicas": 2}}},
    "router.epp.pluginsCustomConfig.a.yaml": {
        "router": {"epp": {"pluginsCustomConfig": {"a.yaml": "kind: EndpointPickerConfig\n"}}}
    },
    "router.epp.drainSeconds": {"router": {"epp": {"drainSeconds": 600}}},
    "router.epp.resources.requests.cpu": {"router": {"epp": {"resources": {"requests": {"cpu": "1"}}}}},
    "router.epp.nodeSelector": {"router": {"epp": {"nodeSelector": {"a": "b"}}}},
    "router.inferencePool.create": {"router": {"inferencePool": {"create": False}}},
    "tracing.enabled": {"tracing": {"enabled": True}},
    "imagePullSecrets": {"imagePullSecrets": ["pull"]},
    "modelserver (roles)": {"modelserver": {"replicas": {"aggregated": 1}}},
}


@pytest.mark.parametrize(("key", "blocks"), PICKER_CHANGES.items(), ids=PICKER_CHANGES)
def test_the_key_that_restarts_the_endpoint_picker_is_told(key: str, blocks: dict[str, Any]) -> None:
    if key == "router.epp.distribution":  # it can't tell prefill from decode
        blocks = merged(blocks, PICKER_CHANGES["modelserver (roles)"])
    before, after = read_record(picker({})), read_record(picker(blocks))
    assert before is not None
    assert after is not None
    assert before.mark(key) != after.mark(key)


def test_more_of_several_endpoint_pickers_restart_none() -> None:
    two, three = ({"router": {"epp": {"replicas": count}}} for count in (2, 3))
    assert picker(two)["spec"]["template"] == picker(three)["spec"]["template"]
    assert read_record(picker(two)) == read_record(picker(three))


# --- what is written can be read --------------------------------------------------------------------------------------


@given(st.dictionaries(st.text(min_size=1).filter(lambda key: not key.startswith("(")), JSON))
def test_what_is_written_is_read_again(values: Mapping[str, Any]) -> None:
    contributions = {key: canonical(value) for key, value in values.items()}
    assert read_record(annotated(write_record(contributions))) == Record(values=contributions)


def test_a_record_is_one_json_object_with_sorted_keys() -> None:
    assert write_record({"b": '"x"', "a": '{"d":1,"c":[true,null]}'}) == '{"a":{"c":[true,null],"d":1},"b":"x"}'


@pytest.mark.parametrize(
    "live",
    [
        pytest.param({}, id="no metadata"),
        pytest.param({"metadata": {}}, id="no annotations"),
        pytest.param({"metadata": {"annotations": None}}, id="null for annotations"),
        pytest.param({"metadata": {"annotations": {"other": "{}"}}}, id="another annotation"),
        pytest.param(annotated("{"), id="no JSON"),
        pytest.param(annotated("[1]"), id="no object"),
        pytest.param(annotated('{"(too large to keep)": 3}'), id="no hashes"),
        pytest.param(annotated(nested(100_000)), id="deeper than any parser goes"),
        pytest.param(annotated(nested(300)), id="deeper than any configuration, though a parser may read it"),
    ],
)
def test_what_was_not_written_here_is_not_known(live: dict[str, Any]) -> None:
    assert read_record(live) is None


def test_a_value_as_deep_as_a_configuration_may_be_is_read() -> None:
    found = read_record(annotated(nested(200)))
    assert found is not None
    assert json.loads(found.values["a"])[0][0]


def test_a_record_that_would_be_too_large_leaves_out_the_longest_values_and_says_so() -> None:
    long, longer = canonical("a" * 60_000), canonical("b" * 70_000)
    text = write_record({"long": long, "longer": longer, "short": "1"})
    assert len(text.encode()) <= MOST_BYTES == 102_400
    record = read_record(annotated(text))
    assert record is not None
    assert record.values == {"long": long, "short": "1"}
    assert record.hashes.keys() == {"longer"}
    assert record.keys == {"long", "longer", "short"}


def test_bytes_are_counted_and_not_characters() -> None:
    """A character of another alphabet takes up to four."""
    record = read_record(annotated(write_record({"a": canonical("ü" * 60_000)})))
    assert record is not None
    assert record.hashes.keys() == {"a"}


def test_a_value_that_is_not_kept_can_be_told_from_another() -> None:
    def mark(letter: str) -> str | None:
        record = read_record(annotated(write_record({"a": canonical(letter * 200_000)})))
        assert record is not None
        return record.mark("a")

    assert mark("x") == mark("x")
    assert mark("x") != mark("y")
    assert mark("x") == Record(values={"a": canonical("x" * 200_000)}).mark("a"), "kept or not, it is the same value"
    assert mark("x") is not None


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_records_of_ordinary_stacks_are_kept_whole(base: dict[str, Any]) -> None:
    for manifest in deployments(base):
        record = read_record(manifest)
        assert record is not None
        assert record.hashes == {}


def test_a_configuration_that_a_rule_refuses_is_no_test() -> None:
    """Guards the tests above: a change that could not be planned would otherwise look like one that changes nothing."""
    with pytest.raises(ConfigError):
        deployments({"modelserver": {"replicas": {"aggregated": 1, "decode": 1}}})
