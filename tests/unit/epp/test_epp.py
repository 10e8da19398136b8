from dataclasses import replace
from typing import Any

import pytest
import yaml

from stack.epp import (
    EppDecisions,
    EppDistribution,
    EppTracing,
    UnsupportedError,
    epp_refusals,
    find_epp,
    known_epp_versions,
    plan_drain,
    render_epp,
)
from stack.epp.refusal import Refusal, split_flag

SPLIT = EppDecisions(
    pool_name="chat", namespace="serving", is_disaggregated=True, block_size=4096, max_prefix_tokens=204800
)
WHOLE = replace(SPLIT, is_disaggregated=False)
GAIE = replace(WHOLE, distribution="gaie", version="v1.5.0")
RELEASES: list[tuple[EppDistribution, str]] = [
    ("llm-d", "v0.10.0"),
    ("llm-d", "v0.9.0"),
    ("gaie", "v1.5.0"),
]
RENDERABLE = [
    pytest.param(SPLIT, id="llm-d v0.10.0, P/D"),
    pytest.param(WHOLE, id="llm-d v0.10.0, aggregated"),
    pytest.param(replace(SPLIT, version="v0.9.0"), id="llm-d v0.9.0, P/D"),
    pytest.param(replace(WHOLE, version="v0.9.0"), id="llm-d v0.9.0, aggregated"),
    pytest.param(GAIE, id="gaie v1.5.0, aggregated"),
]
FILES = ("default-plugins.yaml", "payload-agnostic.yaml")


def document(decisions: EppDecisions, name: str = "default-plugins.yaml") -> dict[str, Any]:
    return yaml.safe_load(render_epp(decisions).config[name])


def types(parsed: dict[str, Any]) -> list[str]:
    return [plugin["type"] for plugin in parsed["plugins"]]


def chain(parsed: dict[str, Any], profile: str) -> list[str]:
    [found] = [p for p in parsed["schedulingProfiles"] if p["name"] == profile]
    return [entry["pluginRef"] for entry in found["plugins"]]


def parameters(parsed: dict[str, Any], kind: str) -> dict[str, Any]:
    [found] = [plugin for plugin in parsed["plugins"] if plugin["type"] == kind]
    return found.get("parameters", {})


def test_the_newest_llm_d_release_gets_the_arguments_of_its_chart() -> None:
    assert render_epp(SPLIT).args == (
        "--pool-name=chat",
        "--pool-namespace=serving",
        "--pool-group=inference.networking.k8s.io",
        "--zap-encoder=json",
        "--config-file=/config/default-plugins.yaml",
        "--grpc-health-port=9003",
        "--tracing=false",
        "--drain-timeout=10s",
    )


def test_a_release_without_a_drain_of_its_own_is_not_asked_for_one() -> None:
    for decisions in (replace(SPLIT, version="v0.9.0"), GAIE):
        assert not [arg for arg in render_epp(decisions).args if "drain" in arg]


@pytest.mark.parametrize("decisions", RENDERABLE)
def test_the_drain_is_that_of_the_decided_seconds_and_release(decisions: EppDecisions) -> None:
    release = find_epp(decisions.distribution, decisions.version)
    assert not isinstance(release, Refusal)
    assert render_epp(replace(decisions, drain_seconds=300)).drain == plan_drain(300, release)


@pytest.mark.parametrize(
    ("decisions", "want_arg"),
    [
        pytest.param(replace(SPLIT, replicas=2), "--ha-enable-leader-election=true", id="two replicas elect a leader"),
        pytest.param(replace(SPLIT, ext_proc_port=9102), "--grpc-port=9102", id="another ext_proc port"),
        pytest.param(replace(SPLIT, metrics_port=9190), "--metrics-port=9190", id="another metrics port"),
        pytest.param(replace(SPLIT, extra_args=("--v=4",)), "--v=4", id="an argument of the operator's"),
        pytest.param(
            replace(SPLIT, config_file="mine.yaml", custom_config={"mine.yaml": render_epp(SPLIT).config[FILES[0]]}),
            "--config-file=/config/mine.yaml",
            id="a file of the operator's",
        ),
        pytest.param(
            replace(SPLIT, tracing=EppTracing(endpoint="http://c:4317", sampler="always_on", sampler_arg="1")),
            "--tracing=true",
            id="tracing",
        ),
    ],
)
def test_an_argument_is_added_for(decisions: EppDecisions, want_arg: str) -> None:
    assert want_arg in render_epp(decisions).args
    assert want_arg not in render_epp(SPLIT).args


def test_without_a_pool_the_epp_finds_pods_by_labels() -> None:
    decisions = replace(SPLIT, has_pool=False, match_labels={"b": "2", "a": "1"}, target_ports=(8000, 8001))
    args = render_epp(decisions).args
    assert args[:3] == (
        "--pool-namespace=serving",
        "--endpoint-selector=a=1,b=2",
        "--endpoint-target-ports=8000,8001",
    )
    assert not [arg for arg in args if arg.startswith("--pool-name=")], "either of the two, else the EPP stops"


@pytest.mark.parametrize("decisions", RENDERABLE)
def test_every_argument_is_a_flag_of_the_release(decisions: EppDecisions) -> None:
    release = find_epp(decisions.distribution, decisions.version)
    assert not isinstance(release, Refusal)
    everything = replace(
        decisions,
        replicas=2,
        ext_proc_port=1,
        metrics_port=2,
        tracing=EppTracing(endpoint="e", sampler="s", sampler_arg="1"),
    )
    assert {split_flag(arg) for arg in render_epp(everything).args} <= release.flags


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("decisions", RENDERABLE)
def test_a_file_refers_only_to_plugins_it_declares(decisions: EppDecisions, name: str) -> None:
    parsed = document(decisions, name)
    declared = types(parsed)
    assert len(declared) == len(set(declared))
    for profile in parsed["schedulingProfiles"]:
        assert set(chain(parsed, profile["name"])) <= set(declared)


@pytest.mark.parametrize(
    ("decisions", "want"),
    [
        pytest.param(SPLIT, "llm-d.ai/v1alpha1", id="llm-d"),
        pytest.param(GAIE, "inference.networking.x-k8s.io/v1alpha1", id="gaie"),
    ],
)
@pytest.mark.parametrize("name", FILES)
def test_a_file_has_the_api_version_that_its_release_prefers(decisions: EppDecisions, want: str, name: str) -> None:
    parsed = document(decisions, name)
    assert (parsed["apiVersion"], parsed["kind"]) == (want, "EndpointPickerConfig")


@pytest.mark.parametrize("version", known_epp_versions("llm-d"))
def test_with_the_split_each_stage_sees_only_the_pods_of_its_role(version: str) -> None:
    parsed = document(replace(SPLIT, version=version))
    assert chain(parsed, "prefill") == [
        "prefill-filter",
        "prefix-cache-affinity-filter",
        "token-load-scorer",
        "max-score-picker",
    ]
    assert chain(parsed, "decode") == ["decode-filter", "active-request-scorer", "max-score-picker"]
    assert parameters(parsed, "disagg-profile-handler") == {"deciders": {"prefill": "always-disagg-pd-decider"}}
    assert "always-disagg-pd-decider" in types(parsed)


@pytest.mark.parametrize("decisions", [pytest.param(WHOLE, id="llm-d"), pytest.param(GAIE, id="gaie")])
@pytest.mark.parametrize("name", FILES)
def test_without_the_split_no_role_is_looked_at(decisions: EppDecisions, name: str) -> None:
    parsed = document(decisions, name)
    assert [p["name"] for p in parsed["schedulingProfiles"]] == ["default"]
    assert {"prefill-filter", "decode-filter", "disagg-profile-handler"}.isdisjoint(types(parsed))


def test_prefixes_are_hashed_in_the_engines_blocks_up_to_a_whole_context() -> None:
    for decisions in (SPLIT, WHOLE, GAIE):
        found = parameters(document(decisions), "approx-prefix-cache-producer")
        assert (found["blockSizeTokens"], found["maxPrefixTokensToMatch"]) == (4096, 204800)


def test_an_engine_other_than_vllm_is_named_to_the_metrics_extractor() -> None:
    sglang = document(replace(SPLIT, model_server_type="sglang"))
    assert parameters(sglang, "core-metrics-extractor") == {"defaultEngine": "sglang"}
    assert parameters(document(SPLIT), "core-metrics-extractor") == {}


def test_a_request_that_cannot_be_read_goes_to_a_decode_pod() -> None:
    parsed = document(SPLIT, "payload-agnostic.yaml")
    assert chain(parsed, "default")[0] == "decode-filter"
    assert parsed["requestHandler"] == {"parsers": [{"pluginRef": "passthrough-parser"}]}


def test_gaie_is_told_the_parser_and_the_scorer_that_it_has() -> None:
    parsed = document(GAIE, "payload-agnostic.yaml")
    assert parsed["parser"] == {"pluginRef": "passthrough-parser"}
    assert "requestHandler" not in parsed
    assert "active-request-scorer" not in types(parsed)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("decisions", RENDERABLE)
def test_no_file_of_ours_needs_an_experimental_plugin(decisions: EppDecisions, name: str) -> None:
    newest = find_epp("llm-d", "v0.10.0")
    assert not isinstance(newest, Refusal)
    assert newest.alpha_plugins.isdisjoint(types(document(decisions, name)))


def test_files_of_the_operators_own_stand_beside_ours_and_may_replace_them() -> None:
    beside = render_epp(replace(SPLIT, custom_config={"a.yaml": "x: 1\n"}))
    assert list(beside.config) == ["a.yaml", "default-plugins.yaml", "payload-agnostic.yaml"]
    assert beside.config["a.yaml"] == "x: 1\n"
    own = render_epp(WHOLE).config["default-plugins.yaml"]
    assert render_epp(replace(SPLIT, custom_config={"default-plugins.yaml": own})).config[FILES[0]] == own


def test_the_same_decisions_give_the_same_rendering() -> None:
    assert render_epp(SPLIT) == render_epp(replace(SPLIT))


@pytest.mark.parametrize(
    ("decisions", "want_image", "want_service"),
    [
        pytest.param(SPLIT, "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.10.0", "llm-d-router/epp", id="llm-d"),
        pytest.param(
            GAIE,
            "registry.k8s.io/gateway-api-inference-extension/epp:v1.5.0",
            "gateway-api-inference-extension/epp",
            id="gaie",
        ),
    ],
)
def test_image_and_name_in_traces_are_those_of_the_release(
    decisions: EppDecisions, want_image: str, want_service: str
) -> None:
    traced = render_epp(
        replace(decisions, tracing=EppTracing(endpoint="http://c:4317", sampler="traceidratio", sampler_arg="0.5"))
    )
    env = {entry["name"]: entry.get("value") for entry in traced.env}
    assert f"{traced.image_repository}:{traced.image_tag}" == want_image
    assert env["OTEL_SERVICE_NAME"] == want_service
    assert env["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://c:4317"
    assert (env["OTEL_TRACES_SAMPLER"], env["OTEL_TRACES_SAMPLER_ARG"]) == ("traceidratio", "0.5")


def test_a_variable_stands_before_the_one_that_expands_it() -> None:
    tracing = EppTracing(endpoint="e", sampler="s", sampler_arg="1")
    names = [entry["name"] for entry in render_epp(replace(SPLIT, tracing=tracing)).env]
    for part in ("NAMESPACE", "OTEL_RESOURCE_ATTRIBUTES_NODE_NAME", "OTEL_RESOURCE_ATTRIBUTES_POD_NAME"):
        assert names.index(part) < names.index("OTEL_RESOURCE_ATTRIBUTES")


def test_without_tracing_only_who_and_where_is_told() -> None:
    assert [entry["name"] for entry in render_epp(SPLIT).env] == ["NAMESPACE", "POD_NAME"]


def test_a_standby_is_asked_for_life_and_readiness_apart() -> None:
    alone, elected = render_epp(SPLIT), render_epp(replace(SPLIT, replicas=2))
    assert (alone.liveness_service, alone.readiness_service) == ("inference-extension", "inference-extension")
    assert (elected.liveness_service, elected.readiness_service) == ("liveness", "readiness")


def custom(text: str) -> dict[str, Any]:
    return {"config_file": "mine.yaml", "custom_config": {"mine.yaml": text}}


def config_text(**change: object) -> str:
    base = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig", "plugins": [{"type": "queue-scorer"}]}
    return yaml.safe_dump(base | change)


@pytest.mark.parametrize(
    ("decisions", "want_field", "want_words"),
    [
        pytest.param(
            replace(SPLIT, version="v0.11.0"), "version", "v0.10.0 or v0.9.0", id="a version that was not read"
        ),
        pytest.param(replace(SPLIT, version="0.10.0"), "version", "v0.10.0", id="a version without its v"),
        pytest.param(
            replace(GAIE, version="v0.10.0"), "version", "Use v1.5.0", id="a version of the other distribution"
        ),
        pytest.param(replace(GAIE, is_disaggregated=True), "is_disaggregated", "serve aggregated", id="P/D with gaie"),
        pytest.param(replace(SPLIT, has_pool=False), "has_pool", "match labels", id="no pool and no labels"),
        pytest.param(
            replace(SPLIT, config_file="pd-config.yaml"),
            "config_file",
            "default-plugins.yaml",
            id="a file that is none",
        ),
        pytest.param(
            replace(SPLIT, extra_args=("--watch-config-file",)), "extra_args", "no flag", id="a flag of a later release"
        ),
        pytest.param(
            replace(GAIE, extra_args=("--allow-experimental-plugins=true",)),
            "extra_args",
            "gaie EPP v1.5.0 has no flag --allow-experimental-plugins",
            id="a flag of the other distribution",
        ),
        pytest.param(
            replace(SPLIT, extra_args=("--total-queued-requests-metric=x",)),
            "extra_args",
            "no flag",
            id="a flag that is defined only to be refused",
        ),
        pytest.param(
            replace(SPLIT, extra_args=("--pool-name=other",)), "extra_args", "follows from", id="a flag of ours again"
        ),
        pytest.param(
            replace(SPLIT, extra_args=("--grpc-port=9105",)),
            "extra_args",
            "follows from",
            id="a flag that is passed only with another value than the default",
        ),
        pytest.param(
            replace(SPLIT, extra_args=("--drain-timeout=5m",)), "extra_args", "follows from", id="a drain by hand"
        ),
        pytest.param(
            replace(GAIE, extra_args=("--drain-timeout=5m",)),
            "extra_args",
            "follows from",
            id="a drain by hand where there is no such flag",
        ),
        pytest.param(replace(SPLIT, **custom("a: [")), "custom_config", "is not YAML", id="a file that is no YAML"),
        pytest.param(
            replace(SPLIT, **custom("a: 2026-02-30")), "custom_config", "is not YAML", id="a date of no calendar"
        ),
        pytest.param(
            replace(SPLIT, **custom(f"a: {'[' * 9999}")), "custom_config", "is not YAML", id="deeper than is read"
        ),
        pytest.param(replace(SPLIT, **custom("- a")), "custom_config", "is no mapping", id="a file that is a list"),
        pytest.param(
            replace(SPLIT, **custom(config_text(kind="Config"))),
            "custom_config",
            "Write kind: EndpointPickerConfig",
            id="a file of another kind",
        ),
        pytest.param(
            replace(SPLIT, **custom(config_text(apiVersion="llm-d.ai/v1"))),
            "custom_config",
            "Write apiVersion: llm-d.ai/v1alpha1",
            id="an apiVersion of a later release",
        ),
        pytest.param(
            replace(GAIE, **custom(config_text())),
            "custom_config",
            "Write apiVersion: inference.networking.x-k8s.io/v1alpha1",
            id="llm-d's apiVersion with gaie",
        ),
        pytest.param(
            replace(SPLIT, **custom(config_text(plugins=[{"type": "disaggregatedset-rollout-screener"}]))),
            "custom_config",
            "--allow-experimental-plugins=true",
            id="an experimental plugin",
        ),
    ],
)
def test_refused_with_the_decision_that_is_to_blame(decisions: EppDecisions, want_field: str, want_words: str) -> None:
    [refusal] = epp_refusals(decisions)
    assert refusal.field == want_field
    assert want_words in str(refusal)
    with pytest.raises(UnsupportedError) as refused:
        render_epp(decisions)
    assert refused.value.refusals == (refusal,)


@pytest.mark.parametrize(
    "decisions",
    [
        pytest.param(replace(SPLIT, **custom(config_text(plugins=[{"type": "ours"}]))), id="a plugin of another image"),
        pytest.param(
            replace(
                SPLIT,
                extra_args=("--allow-experimental-plugins=true",),
                **custom(config_text(plugins=[{"type": "disaggregatedset-rollout-screener"}])),
            ),
            id="an experimental plugin that is allowed",
        ),
        pytest.param(
            replace(SPLIT, version="v0.9.0", **custom(config_text(plugins=[{"type": "session-affinity-scorer"}]))),
            id="a plugin before it counted as experimental",
        ),
        pytest.param(
            replace(SPLIT, **custom(config_text(apiVersion="inference.networking.x-k8s.io/v1alpha1"))),
            id="the deprecated apiVersion",
        ),
        pytest.param(replace(SPLIT, custom_config={"unused.yaml": "a: ["}), id="a broken file that is not used"),
    ],
)
def test_not_refused(decisions: EppDecisions) -> None:
    assert epp_refusals(decisions) == ()


def test_every_refusal_is_told_at_once() -> None:
    decisions = replace(GAIE, is_disaggregated=True, config_file="none.yaml", extra_args=("--drain-timeout=5m",))
    assert [refusal.field for refusal in epp_refusals(decisions)] == ["is_disaggregated", "config_file", "extra_args"]


def test_a_refused_argument_names_the_decision_to_take_instead() -> None:
    """For every flag of a release that some decision leads to, whether it is passed or not."""
    everything = replace(
        SPLIT,
        replicas=2,
        ext_proc_port=1,
        metrics_port=2,
        tracing=EppTracing(endpoint="e", sampler="s", sampler_arg="1"),
    )
    alone = replace(everything, has_pool=False, match_labels={"a": "1"}, target_ports=(8000,))
    passed = {split_flag(arg) for decisions in (everything, alone) for arg in render_epp(decisions).args}
    for flag in sorted(passed - {"zap-encoder", "pool-group"}):
        [refusal] = epp_refusals(replace(SPLIT, extra_args=(f"--{flag}=x",)))
        assert refusal.follows_from in EppDecisions.__dataclass_fields__, flag


def test_the_known_versions_are_those_that_were_read() -> None:
    assert [(d, v) for d in ("llm-d", "gaie") for v in known_epp_versions(d)] == RELEASES
