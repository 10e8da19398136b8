"""The impact table, keys of the engine: each restarts every role that reads it, and no other part of the stack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.impact import (
    DECODE,
    EPP,
    NONE,
    PREFILL,
    SERVERS,
    Cell,
    cell,
    cells,
    deployment,
    see,
    serve_configs,
    start,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("impact-modelserver")]
DIGEST = f"sha256:{'ab' * 32}"
BOTH = serve_configs("prefill", "decode")


@pytest.fixture(scope="module")
def live(module_bench_of: Callable[[str], Bench]) -> Bench:
    return start(module_bench_of("small"))


def modelserver(key: str, value: Any, restarts: frozenset[str], **more: Any) -> Cell:
    return cell(f"modelserver.{key}", value, restarts, **more)


@cells(
    modelserver("image.tag", "0.12.1", SERVERS, and_back=True),
    modelserver("image.repository", "mirror.example/rbln-serve", SERVERS),
    modelserver(
        "serveEnv",
        {"VLLM_LOGGING_LEVEL": "DEBUG"},
        SERVERS,
        because=frozenset({"modelserver.extraServeEnv.{part}.VLLM_LOGGING_LEVEL"}),
    ),
    modelserver(
        "removeServeArgs",
        ["disable-access-log-for-endpoints"],
        SERVERS,
        changes=BOTH,
        because=frozenset({"modelserver.serveArgs.{part}.disable-access-log-for-endpoints"}),
    ),
    modelserver("probes.startup", {"failureThreshold": 90}, SERVERS),
    modelserver("probes.readiness", {"periodSeconds": 7}, SERVERS),
    modelserver("probes.liveness", {"periodSeconds": 20}, SERVERS),
    cell("drain.marginSeconds", 31, SERVERS, and_back=True),
    modelserver(
        "resources",
        {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"memory": "8Gi"}},
        SERVERS,
        # The recipe asks for as many CPUs, and limits them, too.
        because=frozenset(
            f"modelserver.podOverrides.{{part}}.resources.{of}"
            for of in ("requests.memory", "limits.memory", "limits.cpu")
        ),
    ),
)
def test_all_model_servers_restart_and_nothing_else(live: Bench, each: Cell) -> None:
    see(live, each)


@cells(
    modelserver(
        "serveArgs.common",
        {"max-num-seqs": 8},
        SERVERS,
        changes=BOTH,
        because=frozenset({"modelserver.serveArgs.{part}.max-num-seqs"}),
        and_back=True,
    ),
    modelserver("serveArgs.prefill", {"max-num-seqs": 2}, PREFILL, changes=serve_configs("prefill")),
    modelserver("serveArgs.decode", {"max-num-seqs": 6}, DECODE, changes=serve_configs("decode")),
    modelserver("extraServeArgs.prefill", ["--seed=1"], PREFILL),
    modelserver("extraServeArgs.decode", ["--seed=2"], DECODE),
    modelserver("extraServeEnv.prefill", {"OMP_NUM_THREADS": 1}, PREFILL),
    modelserver("extraServeEnv.decode", {"OMP_NUM_THREADS": 2}, DECODE),
    cell("drain.shutdownTimeoutSeconds.decode", 21, DECODE, changes=serve_configs("decode")),
    cell("drain.kvPullSeconds", 29, PREFILL),
    modelserver("podOverrides.prefill", {"annotations": {"example.com/team": "blue"}}, PREFILL),
    modelserver("podOverrides.decode", {"labels": {"example.com/team": "green"}}, DECODE),
)
def test_only_the_roles_that_read_it_restart(live: Bench, each: Cell) -> None:
    """Better than the chart for arguments: there one ConfigMap serves all roles, so that each of them restarts all."""
    see(live, each)


@cells(
    modelserver("image, from tag to digest", {"tag": None, "digest": DIGEST}, SERVERS),
    modelserver("image, from digest to tag", {"tag": "20260801", "digest": None}, SERVERS),
)
def test_tag_and_digest_take_turns_in_one_change(live: Bench, each: Cell) -> None:
    """Also a tag of digits alone, which is text here and a number to `helm --set`."""
    see(live, each)


@cells(
    cell("tracing.collector.endpoint, while off", "http://a:4317"),
    cell("tracing.collector.protocol, while off", "http/protobuf"),
    modelserver(
        "strategy",
        {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "100%"}},
        NONE,
        updates=frozenset({deployment("prefill"), deployment("decode")}),
    ),
)
def test_no_pod_restarts(live: Bench, each: Cell) -> None:
    assert each.restarts == NONE
    see(live, each)


@cells(
    Cell(
        key="tracing.enabled",
        change={"tracing": {"enabled": True, "collector": {"protocol": "grpc"}}},
        restarts=SERVERS | EPP,
        changes=BOTH,
        because=frozenset(
            {f"tracing.{of}" for of in ("enabled", "sampler", "samplerArg")}
            | {f"tracing.collector.{of}" for of in ("endpoint", "protocol")}
        ),
    ),
    cell("tracing.collector.endpoint", "http://b:4317", SERVERS | EPP, changes=BOTH),
    cell("tracing.sampler", "always_on", SERVERS | EPP),
    cell("tracing.samplerArg", "0.5", SERVERS | EPP),
    cell("imagePullSecrets", ["registry-pull"], SERVERS | EPP),
)
def test_all_model_servers_and_the_endpoint_picker_restart(live: Bench, each: Cell) -> None:
    """The endpoint picker is traced as well, and its image pulled with the same Secrets."""
    see(live, each)


@cells(cell("tracing.collector.protocol", "http/protobuf", SERVERS))
def test_the_endpoint_picker_does_not_restart_for_what_it_cannot_do(live: Bench, each: Cell) -> None:
    """It traces over gRPC only."""
    see(live, each)


def test_after_all_of_it_nothing_is_left_to_change(live: Bench) -> None:
    assert live.preview() == {}
