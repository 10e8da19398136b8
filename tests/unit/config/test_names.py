from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from stack import names
from stack.scalars import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterator

RELEASES = st.from_regex(r"[a-z]([-a-z0-9]{0,30}[a-z0-9])?", fullmatch=True)
NAMESPACES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def workloads(release: str) -> Iterator[str]:
    for role in ROLES:
        yield names.workload(release, role)
        yield from (names.workload(release, role, entry) for entry in (0, 9, 10, 99))


def names_by_kind(release: str, namespace: str) -> dict[str, list[str]]:
    """Every name of a release, by the kind of object: names of one kind must differ, those of two kinds need not."""
    per_role = {role: {"args": role} for role in ROLES}
    return {
        "Deployment": [*workloads(release), names.epp(release)],
        "Service": [names.epp_service(release)],
        "ServiceAccount": [names.modelserver_service_account(release), names.epp_service_account(release)],
        "ConfigMap": [
            names.topology_anchor(release),
            names.epp_config_map(release, {"a": 1}),
            *(names.serve_config_map(release, role, data) for role, data in per_role.items()),
        ],
        "ResourceClaimTemplate": [names.claim_template(release, {"spec": 1})],
        "PersistentVolumeClaim": [
            names.model_cache(release),
            *(names.compile_cache(release, role) for role in ROLES),
        ],
        "Role": [names.epp_pods_role(release), names.epp_objects_role(release)],
        "ClusterRole": [
            names.epp_cluster_role(release, namespace),
            names.epp_metrics_reader(release, namespace),
        ],
        "PodMonitor": [names.scrape(release, part) for part in (*ROLES, "gateway")],
        "ServiceMonitor": [names.epp_scrape(release)],
        "Secret": [names.epp_metrics_token(release)],
        "InferencePool": [names.inference_pool(release)],
        "Gateway": [names.gateway(release)],
        "HTTPRoute": [names.http_route(release)],
        "ValidatingAdmissionPolicy": [names.topology_policy(release, namespace)],
        "DestinationRule": [names.destination_rule(release)],
    }


@given(RELEASES, NAMESPACES)
def test_every_name_of_every_release_is_valid_and_differs_from_the_others_of_its_kind(
    release: str, namespace: str
) -> None:
    for kind, found in names_by_kind(release, namespace).items():
        assert len(set(found)) == len(found), kind
        assert all(SUBDOMAIN.fullmatch(name) for name in found), kind
    labels = [*workloads(release), names.epp_service(release), names.gateway(release), names.inference_pool(release)]
    assert all(LABEL.fullmatch(name) for name in labels)


@given(RELEASES)
def test_pods_of_every_workload_keep_their_whole_name_as_host_name(release: str) -> None:
    assert all(len(name) + len("-6f7c9d8b5d-x2x4z") <= 63 for name in workloads(release))


@given(st.dictionaries(st.text(max_size=5), st.integers(), max_size=5))
def test_a_content_hash_does_not_depend_on_the_order_of_keys(content: dict[str, int]) -> None:
    backwards = dict(reversed(list(content.items())))
    assert names.content_hash(content) == names.content_hash(backwards)
    assert re.fullmatch(r"[0-9a-f]{8}", names.content_hash(content))


def test_another_content_has_another_name_and_the_old_one_comes_back() -> None:
    first, second = ({"count": count} for count in (4, 8))
    assert names.claim_template("chat", first) != names.claim_template("chat", second)
    assert names.claim_template("chat", dict(first)) == names.claim_template("chat", first)


@given(RELEASES, NAMESPACES, RELEASES, NAMESPACES)
def test_no_two_stacks_of_a_cluster_share_a_policy(release: str, namespace: str, other: str, elsewhere: str) -> None:
    is_same = (release, namespace) == (other, elsewhere)
    assert (names.topology_policy(release, namespace) == names.topology_policy(other, elsewhere)) == is_same
    assert names.topology_policy(f"{release}-{namespace}", elsewhere) != names.topology_policy(
        release, f"{namespace}-{elsewhere}"
    )


def test_names_are_those_of_the_chart() -> None:
    assert names.epp("chat") == "chat-epp"
    assert names.compile_cache("chat", "decode") == "chat-compile-cache-decode"
    assert names.model_cache("chat") == "chat-model-cache"
    assert names.inference_pool("chat") == "chat"
    assert names.epp_cluster_role("chat", "llm") == "chat-llm-epp"
    assert names.workload("chat", "prefill") == "chat-prefill"
    assert names.workload("chat", "prefill", 3) == "chat-prefill-3"


def test_an_operator_may_name_the_epp_service_and_the_gateway() -> None:
    assert names.epp_service("chat", "picker") == "picker"
    assert names.gateway("chat", "front") == "front"
