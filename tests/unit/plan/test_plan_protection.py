"""The policy that protects the topology anchor, its expressions evaluated; the real API server has its own test."""

from __future__ import annotations

from typing import Any, cast

import celpy
import pytest
from celpy.adapter import json_to_cel

from stack.protection import plan_protection
from tests.builders import accepted

ANCHOR = "rel-topology"


def protection(**blocks: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Manifests of policy and binding."""
    config = accepted(rollout={"protectTopology": True}, **blocks).config
    policy, binding = plan_protection(config, f"{config.release}-topology")
    return policy.manifest, binding.manifest


def holds(expression: str, **variables: Any) -> bool:
    environment = cast("Any", celpy.Environment())  # its types are not complete
    program = environment.program(environment.compile(expression))
    return bool(program.evaluate({name: json_to_cel(value) for name, value in variables.items()}))


def refusals(
    *,
    operation: str,
    options: dict[str, Any] | None = None,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    namespace: dict[str, Any] | None = None,
) -> list[str]:
    """What the policy says against a request; nothing if it lets it through."""
    old = {"metadata": {"name": ANCHOR}, **(before or {})}
    variables = {
        "request": {"operation": operation, "options": options or {}},
        "object": after,
        "oldObject": old,
        "namespaceObject": {"metadata": {"name": "ns", **(namespace or {})}},
    }
    spec = protection()[0]["spec"]
    assert all(holds(condition["expression"], **variables) for condition in spec["matchConditions"])
    return [each["message"] for each in spec["validations"] if not holds(each["expression"], **variables)]


@pytest.mark.parametrize(
    ("options", "namespace", "want_refused"),
    [
        pytest.param({"propagationPolicy": "Foreground"}, {}, False, id="in the foreground, as the engine deletes"),
        pytest.param({"propagationPolicy": "Background"}, {}, True, id="in the background, as kubectl deletes"),
        pytest.param({"propagationPolicy": "Orphan"}, {}, True, id="leaving the model servers without an owner"),
        pytest.param({}, {}, True, id="without a word about what it owns"),
        pytest.param({}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, False, id="with its whole namespace"),
    ],
)
def test_deleting_the_anchor(options: dict[str, Any], namespace: dict[str, Any], want_refused: bool) -> None:
    said = refusals(operation="DELETE", options=options, namespace=namespace)
    assert len(said) == want_refused
    assert all("kubectl -n ns delete configmap rel-topology --cascade=foreground" in message for message in said)


KEY = {"data": {"key": "a"}}


@pytest.mark.parametrize(
    ("before", "after", "want_refused"),
    [
        pytest.param(KEY, {"data": {"key": "b"}}, True, id="another key"),
        pytest.param(KEY, {"data": {"key": "a", "more": "b"}}, True, id="one more entry"),
        pytest.param(KEY, {}, True, id="no data any more"),
        pytest.param({}, KEY, True, id="data where there was none"),
        pytest.param(KEY, {**KEY, "metadata": {"labels": {"a": "b"}}}, False, id="a label"),
        pytest.param({}, {}, False, id="nothing, without data"),
    ],
)
def test_changing_the_anchor(before: dict[str, Any], after: dict[str, Any], want_refused: bool) -> None:
    said = refusals(operation="UPDATE", before=before, after=after)
    assert len(said) == want_refused
    assert all("run `pulumi up`" in message for message in said)


def test_other_maps_and_other_namespaces_are_let_through() -> None:
    spec = protection()[0]["spec"]
    [condition] = spec["matchConditions"]
    assert not holds(condition["expression"], oldObject={"metadata": {"name": "rel-topology-2"}})
    selector = spec["matchConstraints"]["namespaceSelector"]
    assert selector == {"matchLabels": {"kubernetes.io/metadata.name": "ns"}}
    [rule] = spec["matchConstraints"]["resourceRules"]
    assert (rule["apiGroups"], rule["resources"]) == ([""], ["configmaps"])


def test_a_delete_of_the_whole_collection_is_looked_at_too() -> None:
    """Its request has no name, so a rule by resourceNames would not see it."""
    [rule] = protection()[0]["spec"]["matchConstraints"]["resourceRules"]
    assert "resourceNames" not in rule
    assert set(rule["operations"]) == {"UPDATE", "DELETE"}


def test_what_cannot_be_checked_is_refused_and_the_binding_puts_it_in_force() -> None:
    policy, binding = protection()
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}


def test_objects_of_the_whole_cluster_have_no_namespace_and_the_names_of_one_stack() -> None:
    policy, binding = protection(release="chat", namespace="llm")
    for manifest in (policy, binding):
        assert manifest["metadata"]["name"] == "chat.llm.topology"
        assert "namespace" not in manifest["metadata"]
        assert manifest["metadata"]["labels"]["app.kubernetes.io/instance"] == "chat"


def test_nothing_is_made_unless_it_is_asked_for() -> None:
    assert plan_protection(accepted().config, ANCHOR) == ()
    assert plan_protection(accepted(rollout={"protectTopology": False}).config, ANCHOR) == ()
