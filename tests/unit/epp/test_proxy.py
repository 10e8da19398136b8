from dataclasses import replace

import pytest

from stack.epp import ProxyDecisions, UnsupportedError, find_proxy, known_proxy_versions, proxy_refusals, render_proxy
from stack.epp.refusal import Refusal, split_flag

FOUR = ProxyDecisions(data_parallel_size=4)


def test_the_newest_release_gets_the_arguments_of_the_reference() -> None:
    assert render_proxy(FOUR).args == (
        "--port=8000",
        "--model-server-port=8200",
        "--data-parallel-size=4",
        "--kv-connector=nixlv2",
        "--secure-proxy=false",
        "--zap-encoder=json",
    )


def test_it_listens_on_one_port_per_rank() -> None:
    assert render_proxy(FOUR).ports == (8000, 8001, 8002, 8003)
    assert render_proxy(replace(FOUR, port=9000, data_parallel_size=1)).ports == (9000,)


def test_the_release_before_calls_the_model_servers_port_by_another_name() -> None:
    args = render_proxy(replace(FOUR, version="v0.9.0")).args
    assert "--vllm-port=8200" in args
    assert not [arg for arg in args if arg.startswith("--model-server-port")]


@pytest.mark.parametrize(
    ("decisions", "want_args"),
    [
        pytest.param(replace(FOUR, is_secure=True), ["--secure-proxy=true"], id="TLS"),
        pytest.param(replace(FOUR, is_traced=True), ["--tracing=true"], id="traces"),
        pytest.param(replace(FOUR, samples_prefillers=True), ["--enable-prefiller-sampling=true"], id="sampling"),
        pytest.param(
            replace(FOUR, guarded_pool=("serving", "chat")),
            ["--enable-ssrf-protection=true", "--inference-pool=serving/chat"],
            id="only members of a pool",
        ),
        pytest.param(
            replace(FOUR, extra_args=("--zap-log-level=4",)), ["--zap-log-level=4"], id="an argument of the operator's"
        ),
    ],
)
def test_arguments_are_added_for(decisions: ProxyDecisions, want_args: list[str]) -> None:
    assert set(render_proxy(decisions).args) - set(render_proxy(FOUR).args) == set(want_args)


@pytest.mark.parametrize("version", known_proxy_versions())
def test_every_argument_is_a_flag_of_the_release(version: str) -> None:
    release = find_proxy(version)
    assert not isinstance(release, Refusal)
    everything = replace(FOUR, version=version, is_traced=True, samples_prefillers=True, guarded_pool=("a", "b"))
    assert {split_flag(arg) for arg in render_proxy(everything).args} <= release.flags


def test_the_image_is_that_of_the_release() -> None:
    rendering = render_proxy(FOUR)
    assert rendering.image_repository == "ghcr.io/llm-d/llm-d-router-disagg-sidecar"
    assert rendering.image_tag == "v0.10.0"


@pytest.mark.parametrize(
    ("decisions", "want_field", "want_words"),
    [
        pytest.param(replace(FOUR, version="v0.8.0"), "version", "v0.10.0 or v0.9.0", id="a version that was not read"),
        pytest.param(replace(FOUR, kv_connector="lmcache"), "kv_connector", "nixlv2", id="a protocol that is none"),
        pytest.param(
            replace(FOUR, version="v0.9.0", kv_connector="offloading"),
            "kv_connector",
            "nixlv2",
            id="one of a later release",
        ),
        pytest.param(
            replace(FOUR, model_server_port=8003), "model_server_port", "overlap", id="ranks on the proxy's ports"
        ),
        pytest.param(replace(FOUR, port=8203), "model_server_port", "overlap", id="the proxy on the ranks' ports"),
        pytest.param(
            replace(FOUR, extra_args=("--connector=nixlv2",)), "extra_args", "no flag --connector", id="a removed flag"
        ),
        pytest.param(
            replace(FOUR, extra_args=("--secure-serving=false",)),
            "extra_args",
            "no flag",
            id="a flag of a later release",
        ),
        pytest.param(replace(FOUR, extra_args=("--port=1",)), "extra_args", "follows from", id="a flag of ours again"),
        pytest.param(
            replace(FOUR, extra_args=("--vllm-port=1",)),
            "extra_args",
            "follows from",
            id="a flag of ours by its old name",
        ),
    ],
)
def test_refused_with_the_decision_that_is_to_blame(
    decisions: ProxyDecisions, want_field: str, want_words: str
) -> None:
    [refusal] = proxy_refusals(decisions)
    assert refusal.field == want_field
    assert want_words in str(refusal)
    with pytest.raises(UnsupportedError) as refused:
        render_proxy(decisions)
    assert refused.value.refusals == (refusal,)


def test_neighbouring_ranges_of_ports_are_fine() -> None:
    assert proxy_refusals(replace(FOUR, model_server_port=8004)) == ()
