from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from stack import labels
from stack.facts import NOTHING_READ
from stack.plan import plan_stack
from stack.rules import Accepted
from tests.builders import accepted, container, kinds, plan, planned, pod, template

if TYPE_CHECKING:
    from pathlib import Path

    from stack.planned import StackPlan

PLACED: dict[str, Any] = {
    "nodePlacement": [
        {"role": "prefill", "node": "n1"},
        {"role": "decode", "node": "n1"},
        {"role": "decode", "node": "n2"},
    ]
}
DIGEST = f"sha256:{'0a' * 32}"


def deployments(whole: StackPlan) -> dict[str, dict[str, Any]]:
    return {w.object.name: w.object.manifest for w in whole.modelserver.workloads}


# --- selectors and labels ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "modelserver",
    [
        pytest.param({}, id="replicas"),
        pytest.param(PLACED, id="nodePlacement"),
        pytest.param({"replicas": {"aggregated": 1}}, id="aggregated"),
    ],
)
def test_selectors_hold_release_and_role_and_their_pods_carry_them(modelserver: dict[str, Any]) -> None:
    for manifest in deployments(plan(modelserver=modelserver)).values():
        selector = manifest["spec"]["selector"]["matchLabels"]
        assert selector.items() <= manifest["spec"]["template"]["metadata"]["labels"].items()
        assert selector["app.kubernetes.io/instance"] == "rel"
        assert selector["app.kubernetes.io/component"] in {"prefill", "decode", "aggregated"}
        assert selector.keys() <= {labels.INSTANCE, labels.COMPONENT, labels.ENTRY}, "they can never change"


def test_no_two_workloads_select_the_same_pods() -> None:
    for modelserver in ({}, PLACED):
        found = deployments(plan(modelserver=modelserver))
        for name, manifest in found.items():
            selector = manifest["spec"]["selector"]["matchLabels"]
            matching = [
                other
                for other, it in found.items()
                if selector.items() <= it["spec"]["template"]["metadata"]["labels"].items()
            ]
            assert matching == [name]


def test_a_new_version_or_topology_leaves_selectors_alone() -> None:
    before, after = (
        {name: m["spec"]["selector"] for name, m in deployments(plan(modelserver=modelserver)).items()}
        for modelserver in ({}, {"image": {"tag": "9.9.9"}, "model": "other/model"})
    )
    assert before == after


@pytest.mark.parametrize(
    ("role", "modelserver", "want_label"),
    [
        pytest.param("prefill", {}, "prefill", id="prefill"),
        pytest.param("decode", {}, "decode", id="decode"),
        pytest.param("aggregated", {"replicas": {"aggregated": 1}}, "prefill-decode", id="both in one"),
    ],
)
def test_the_role_label_is_one_that_the_epps_filters_know(
    role: str, modelserver: dict[str, Any], want_label: str
) -> None:
    assert template(plan(modelserver=modelserver), role)["metadata"]["labels"]["llm-d.ai/role"] == want_label


def test_pods_carry_the_labels_of_the_recipe_and_of_the_pool() -> None:
    pool = {"matchLabels": {"example.com/pool": "one"}}
    found = template(plan(router={"modelServers": pool}), "prefill")["metadata"]["labels"]
    assert found["llm-d.ai/model"] == "MiniMax-M2.7"
    assert found["llm-d.ai/accelerator-vendor"] == "rebellions"
    assert found["example.com/pool"] == "one"


def test_overrides_add_labels_and_annotations_to_their_role_alone() -> None:
    added = {"labels": {"team": "chat"}, "annotations": {"note": "hello"}}
    whole = plan(modelserver={"podOverrides": {"decode": added}})
    decode, prefill = (template(whole, role)["metadata"] for role in ("decode", "prefill"))
    assert (decode["labels"]["team"], decode["annotations"]["note"]) == ("chat", "hello")
    assert "team" not in prefill["labels"]
    assert "note" not in prefill["annotations"]


def test_no_override_takes_away_what_selectors_pool_and_epp_rely_on() -> None:
    """The rules refuse such overrides; should one ever pass them, the plan still stands."""
    reserved = (labels.INSTANCE, labels.COMPONENT, labels.ROLE, labels.TOPOLOGY, "llm-d.ai/inference-serving")
    found = accepted()
    override = found.config.modelserver.pod_overrides.decode.model_copy(
        update={"labels": dict.fromkeys(reserved, "taken"), "annotations": {labels.ACTIVE_PORTS: "1"}}
    )
    overrides = found.config.modelserver.pod_overrides.model_copy(update={"decode": override})
    modelserver = found.config.modelserver.model_copy(update={"pod_overrides": overrides})
    config = found.config.model_copy(update={"modelserver": modelserver})
    taken = plan_stack(Accepted(config=config, recipe=found.recipe, warnings=()), NOTHING_READ)
    assert template(taken, "decode")["metadata"] == template(plan(), "decode")["metadata"]


# --- image, accounts, security ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "want_image"),
    [
        pytest.param({}, "repo.rebellions.ai/rebellions/rbln-serve:0.12.0", id="the recipe's"),
        pytest.param({"tag": "0.12.1"}, "repo.rebellions.ai/rebellions/rbln-serve:0.12.1", id="another tag"),
        pytest.param({"repository": "mirror.example/rbln"}, "mirror.example/rbln:0.12.0", id="a mirror"),
        pytest.param(
            {"digest": DIGEST},
            f"repo.rebellions.ai/rebellions/rbln-serve@{DIGEST}",
            id="a digest, without the recipe's tag",
        ),
        pytest.param(
            {"repository": "mirror.example/rbln", "digest": DIGEST}, f"mirror.example/rbln@{DIGEST}", id="both"
        ),
    ],
)
def test_the_image_is(image: dict[str, str], want_image: str) -> None:
    spec = pod(plan(modelserver={"image": image}), "prefill")
    assert container(spec)["image"] == container(spec, "rdma-discovery")["image"] == want_image


@pytest.mark.parametrize(
    ("image", "want_image"),
    [
        pytest.param({}, "ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.10.0", id="the EPP's version"),
        pytest.param({"tag": "v0.9.0"}, "ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.9.0", id="another tag"),
        pytest.param({"digest": DIGEST}, f"ghcr.io/llm-d/llm-d-router-disagg-sidecar@{DIGEST}", id="a digest"),
    ],
)
def test_the_image_of_the_routing_proxy_is(image: dict[str, str], want_image: str) -> None:
    assert container(pod(plan(routing={"proxy": {"image": image}}), "decode"), "routing-proxy")["image"] == want_image


def test_the_proxy_is_a_native_sidecar_that_starts_after_the_check_and_outlives_the_engine() -> None:
    init = pod(plan(), "decode")["initContainers"]
    assert [(c["name"], c.get("restartPolicy")) for c in init] == [
        ("rdma-discovery", None),
        ("routing-proxy", "Always"),
    ]


def test_the_proxys_resources_are_written_in_the_api_servers_form() -> None:
    resources = {"requests": {"cpu": "1000m", "memory": "1024Mi"}}
    proxy = container(pod(plan(routing={"proxy": {"resources": resources}}), "decode"), "routing-proxy")
    assert proxy["resources"] == {"requests": {"cpu": "1", "memory": "1Gi"}}
    assert "resources" not in container(pod(plan(), "decode"), "routing-proxy")


def test_pods_run_as_the_images_user_with_a_read_only_root_and_no_capability() -> None:
    for role in ("prefill", "decode"):
        spec = pod(plan(), role)
        assert spec["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 2000,
            "runAsGroup": 0,
            "fsGroup": 2000,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        for found in (*spec["containers"], *spec["initContainers"]):
            assert found["securityContext"] == {
                "runAsNonRoot": True,
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            }


def test_security_overrides_reach_the_engine_of_their_role_and_its_check_and_no_sidecar() -> None:
    override = {"podSecurityContext": {"fsGroup": 1600}, "securityContext": {"readOnlyRootFilesystem": False}}
    whole = plan(modelserver={"podOverrides": {"decode": override}})
    spec = pod(whole, "decode")
    assert (spec["securityContext"]["fsGroup"], spec["securityContext"]["runAsUser"]) == (1600, 2000)
    assert container(spec)["securityContext"]["readOnlyRootFilesystem"] is False
    assert container(spec, "rdma-discovery")["securityContext"] == container(spec)["securityContext"], (
        "it must find what the engine will find"
    )
    assert container(spec, "routing-proxy")["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod(whole, "prefill") == pod(plan(), "prefill")


def test_in_a_pod_of_root_the_proxy_stays_the_stacks_user() -> None:
    root = {"runAsUser": 0, "runAsNonRoot": False}
    override = {"podSecurityContext": root, "securityContext": {"runAsNonRoot": False}}
    spec = pod(plan(modelserver={"podOverrides": {"decode": override}}), "decode")
    proxy = container(spec, "routing-proxy")["securityContext"]
    assert (proxy["runAsUser"], proxy["runAsNonRoot"]) == (2000, True)
    assert "runAsUser" not in container(pod(plan(), "decode"), "routing-proxy")["securityContext"], "the Pod says it"


PRIVILEGED: dict[str, Any] = {
    "podSecurityContext": {"runAsUser": 0, "runAsNonRoot": False},
    "securityContext": {"runAsNonRoot": False, "privileged": True, "allowPrivilegeEscalation": True},
}


def test_a_privileged_engine_raises_memlock_and_then_takes_its_arguments_as_any_other(tmp_path: Path) -> None:
    whole = plan(modelserver={"podOverrides": {"prefill": PRIVILEGED}})
    server, usual = container(pod(whole, "prefill")), container(pod(plan(), "prefill"))
    assert server["args"] == usual["args"]
    program = tmp_path / "vllm"
    program.write_text('#!/bin/sh\nfor each; do echo "$each"; done\n')
    program.chmod(0o755)
    # The shell's own `ulimit` may be refused here, so one takes its place that says what it is asked for.
    shell, option, script, *rest = server["command"]
    said = subprocess.run(
        [shell, option, f'ulimit() {{ echo "ulimit $*"; }}\n{script}', *rest, *server["args"], "two words"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert said.stdout.splitlines() == ["ulimit -l unlimited", "serve", *usual["args"], "two words"]


@pytest.mark.parametrize(
    ("override", "rdma"),
    [
        pytest.param({}, {}, id="a user that may not raise it"),
        pytest.param(PRIVILEGED, {"enabled": False}, id="nothing that pins memory"),
    ],
)
def test_an_engine_is_started_directly_for(override: dict[str, Any], rdma: dict[str, Any]) -> None:
    whole = plan(modelserver={"podOverrides": {"prefill": override}}, devices={"rdma": rdma})
    assert container(pod(whole, "prefill"))["command"] == ["vllm", "serve"]


def test_the_stack_makes_an_account_without_rights_or_token() -> None:
    whole = plan()
    assert planned(whole, "ServiceAccount", "rel-modelserver")["automountServiceAccountToken"] is False
    assert pod(whole, "prefill")["serviceAccountName"] == "rel-modelserver"
    assert pod(whole, "prefill")["automountServiceAccountToken"] is False


def test_an_account_of_the_operators_is_used_and_none_is_made() -> None:
    whole = plan(modelserver={"serviceAccountName": "mine"})
    assert pod(whole, "decode")["serviceAccountName"] == "mine"
    assert kinds(whole, "ServiceAccount") == ["rel-epp"]


def test_every_pod_pulls_with_the_secrets_named() -> None:
    whole = plan(imagePullSecrets=["one", "two"])
    want = [{"name": "one"}, {"name": "two"}]
    epp = planned(whole, "Deployment", "rel-epp")["spec"]["template"]["spec"]
    assert [spec["imagePullSecrets"] for spec in (pod(whole, "prefill"), pod(whole, "decode"), epp)] == [want] * 3
    assert "imagePullSecrets" not in pod(plan(), "prefill")


# --- resources --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("modelserver", "want_prefill", "want_decode"),
    [
        pytest.param({}, {"cpu": "40", "memory": "460Gi"}, {"cpu": "40", "memory": "460Gi"}, id="the recipe's"),
        pytest.param(
            {"resources": {"requests": {"cpu": "4000m", "memory": "2048Mi"}}},
            {"cpu": "4", "memory": "2Gi"},
            {"cpu": "4", "memory": "2Gi"},
            id="the operator's, as a whole",
        ),
        pytest.param(
            {
                "resources": {"requests": {"cpu": "4"}},
                "podOverrides": {"decode": {"resources": {"requests": {"cpu": 0.5}}}},
            },
            {"cpu": "4"},
            {"cpu": "500m"},
            id="the role's wins",
        ),
    ],
)
def test_requests_are(modelserver: dict[str, Any], want_prefill: Any, want_decode: Any) -> None:
    whole = plan(modelserver=modelserver)
    found = [container(pod(whole, role))["resources"]["requests"] for role in ("prefill", "decode")]
    assert found == [want_prefill, want_decode]


def test_without_limits_none_are_written() -> None:
    whole = plan(modelserver={"resources": {"requests": {"cpu": "4"}}})
    assert "limits" not in container(pod(whole, "prefill"))["resources"]


def test_the_reference_prefill_pod_is_guaranteed_so_that_a_static_cpu_manager_pins_it() -> None:
    spec = pod(plan(), "prefill")
    for found in (*spec["containers"], *spec["initContainers"]):
        resources = found["resources"]
        assert resources["requests"] == resources["limits"]
        assert {"cpu", "memory"} <= resources["limits"].keys()


# --- placement and strategy -------------------------------------------------------------------------------------------


def test_with_replicas_pods_spread_over_nodes_within_one_version_of_their_role() -> None:
    [constraint] = pod(plan(), "decode")["topologySpreadConstraints"]
    assert constraint["topologyKey"] == "kubernetes.io/hostname"
    assert constraint["maxSkew"] == 1
    assert constraint["whenUnsatisfiable"] == "ScheduleAnyway"
    assert constraint["matchLabelKeys"] == ["pod-template-hash"]
    assert constraint["labelSelector"]["matchLabels"] == {
        "app.kubernetes.io/instance": "rel",
        "app.kubernetes.io/component": "decode",
    }


def test_with_node_placement_each_entry_is_one_pod_on_its_node_replaced_only_when_it_is_gone() -> None:
    whole = plan(modelserver=PLACED | {"strategy": {"rollingUpdate": {"maxSurge": 1}}})
    for name, manifest in deployments(whole).items():
        spec = manifest["spec"]
        node = {"rel-prefill-0": "n1", "rel-decode-1": "n1", "rel-decode-2": "n2"}[name]
        assert spec["replicas"] == 1
        assert spec["strategy"] == {"type": "Recreate"}
        assert spec["template"]["spec"]["nodeSelector"] == {"kubernetes.io/hostname": node}
        assert "topologySpreadConstraints" not in spec["template"]["spec"]
        assert manifest["metadata"]["annotations"][labels.NODE] == node, "read back to tell a reassignment"


def test_a_node_selector_of_the_operators_stands_beside_the_entrys_node() -> None:
    override = {"decode": {"nodeSelector": {"pool": "npu"}}}
    found = pod(plan(modelserver=PLACED | {"podOverrides": override}), "decode", 2)["nodeSelector"]
    assert found == {"pool": "npu", "kubernetes.io/hostname": "n2"}


@pytest.mark.parametrize(
    ("strategy", "want_strategy"),
    [
        pytest.param(
            {}, {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}, id="the chart's"
        ),
        pytest.param(
            {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "25%"}},
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "25%"}},
            id="without spare devices",
        ),
        pytest.param({"type": "Recreate"}, {"type": "Recreate"}, id="Recreate takes no numbers"),
    ],
)
def test_the_strategy_is(strategy: dict[str, Any], want_strategy: dict[str, Any]) -> None:
    for manifest in deployments(plan(modelserver={"strategy": strategy})).values():
        assert manifest["spec"]["strategy"] == want_strategy


def test_scheduling_overrides_are_passed_on_and_left_out_when_not_given() -> None:
    override: dict[str, Any] = {
        "tolerations": [{"key": "npu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "runtimeClassName": "rbln",
        "schedulerName": "mine",
    }
    spec = pod(plan(modelserver={"podOverrides": {"prefill": override}}), "prefill")
    assert {key: spec[key] for key in override} == override
    assert not override.keys() & pod(plan(), "prefill").keys()


def test_the_engine_waits_for_deletion_and_not_for_readiness() -> None:
    for manifest in deployments(plan()).values():
        annotations = manifest["metadata"]["annotations"]
        assert annotations["pulumi.com/waitFor"] == "jsonpath={.metadata.uid}"
        assert "pulumi.com/skipAwait" not in annotations, "it would skip waiting for deletion as well"


def test_one_roles_arguments_restart_that_role_only() -> None:
    changed = plan(modelserver={"serveArgs": {"decode": {"max-num-seqs": 2}}})
    assert template(changed, "prefill") == template(plan(), "prefill")
    assert template(changed, "decode") != template(plan(), "decode")
