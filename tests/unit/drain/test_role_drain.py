"""The way out: which mode, what sum, what is rendered. The hook itself runs in tests/e2e/test_drain_hook.py."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.drain import LEAVE, RoleDrain, api_processes, engine_version, kv_lease_seconds, plan_drain
from stack.errors import ConfigError
from stack.facts import NOTHING_READ
from stack.limits import time_limits
from stack.plan import plan_stack
from stack.serve import plan_serve
from tests.builders import accepted, container, merged, plan, pod

if TYPE_CHECKING:
    from stack.planned import StackPlan
    from stack.scalars import Role

GPUS: dict[str, Any] = {"recipe": "gpt-oss-120b-nvidia"}
AGGREGATED: dict[str, Any] = {"modelserver": {"replicas": {"aggregated": 2}}, "devices": {"rdma": {"enabled": False}}}


def drain(role: Role, **blocks: Any) -> RoleDrain:
    found = accepted(**blocks)
    return plan_serve(
        found.config, found.recipe, role, is_disaggregated="aggregated" not in found.config.modelserver.roles()
    ).drain


def args(role: str, **given: Any) -> dict[str, Any]:
    return {"modelserver": {"serveArgs": {role: {flag.replace("_", "-"): value for flag, value in given.items()}}}}


# --- the mode ---------------------------------------------------------------------------------------------------------

INTERNAL = {"data-parallel-size": 4}
LAYOUTS: dict[str, tuple[dict[str, Any], int]] = {
    "one rank": ({}, 1),
    "one rank, three API processes": ({"api-server-count": 3}, 3),
    "one rank, one API process": ({"api-server-count": 1}, 1),
    "internal balancing counts ranks": (INTERNAL, 4),
    "internal balancing, one API process": ({**INTERNAL, "api-server-count": 1}, 1),
    "appended as text": ({**INTERNAL, "api-server-count": "1"}, 1),
    "external balancing": ({**INTERNAL, "data-parallel-external-lb": True}, 1),
    "external balancing, by rank": ({**INTERNAL, "data-parallel-rank": 0}, 1),
    "external balancing, three API processes": (
        {**INTERNAL, "data-parallel-external-lb": True, "api-server-count": 3},
        3,
    ),
    "hybrid balancing counts local ranks, which are all": ({**INTERNAL, "data-parallel-hybrid-lb": True}, 4),
    "hybrid balancing, by start rank": ({**INTERNAL, "data-parallel-start-rank": 0}, 4),
    "several ports, each with its supervisor's child": (
        {**INTERNAL, "data-parallel-multi-port-external-lb": True},
        1,
    ),
    "elastic expert parallelism": ({**INTERNAL, "enable-elastic-ep": True}, 1),
}
VERSIONS = {"0.17.1": False, "0.18.0rc1": False, "0.18.0": True, "v0.30.0": True, "0.22.0+cpu": True, "nightly": False}


@pytest.mark.parametrize(("given_args", "want"), LAYOUTS.values(), ids=LAYOUTS)
def test_api_processes_that_share_an_engine(given_args: dict[str, Any], want: int) -> None:
    assert api_processes(given_args) == want


@pytest.mark.parametrize("count", ["many", True, 1.5, None])
def test_a_count_that_is_no_number_is_none(count: object) -> None:
    assert api_processes({"api-server-count": count}) is None


@pytest.mark.parametrize("role", ["prefill", "decode", "aggregated"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_mode_follows_from_version_and_api_processes_in_each_role(role: Role, layout: str, version: str) -> None:
    """Native needs both: an engine that knows the flag, and one API process."""
    found = accepted(**merged(AGGREGATED if role == "aggregated" else {}, {"drain": {"engineVersion": version}}))
    flags, processes = LAYOUTS[layout]
    planned = plan_drain(
        found.config, found.recipe, role, flags, {}, is_disaggregated=role != "aggregated", ports=(8000,)
    )
    want = "native" if VERSIONS[version] and processes == 1 else "idle"
    assert (planned.mode, planned.flag is not None) == (want, want == "native")
    if want == "idle":
        assert version in planned.why or str(processes) in planned.why


def test_the_reference_drains_natively_in_every_role() -> None:
    whole = plan()
    assert {role: found["mode"] for role, found in whole.outputs["drain"].items()} == {
        "prefill": "native",
        "decode": "native",
    }
    assert plan(**AGGREGATED).outputs["drain"]["aggregated"]["mode"] == "native"


@pytest.mark.parametrize(
    ("blocks", "want"),
    [
        ({}, "0.30.0"),
        ({"modelserver": {"image": {"tag": "v0.17.0"}}}, "0.17.0"),
        ({"modelserver": {"image": {"tag": "v0.17.1-cu130"}}}, "0.17.1"),
        ({"modelserver": {"image": {"tag": "v0.19.0-x86_64"}}}, "0.19.0"),
        ({"modelserver": {"image": {"tag": "v0.18.0rc1"}}}, "0.18.0rc1"),
        ({"modelserver": {"image": {"repository": "registry.example.com/mirror/vllm-openai"}}}, "0.30.0"),
        (
            {"modelserver": {"image": {"repository": "registry.example.com/mirror/vllm-openai", "tag": "v0.17.0"}}},
            "0.17.0",
        ),
        ({"modelserver": {"image": {"tag": "ours"}}}, None),
        ({"modelserver": {"image": {"tag": "20260101"}}}, None),
        ({"modelserver": {"image": {"tag": "latest"}}}, None),
        ({"modelserver": {"image": {"digest": "sha256:" + "1" * 64}}}, None),
        ({"modelserver": {"image": {"repository": "registry.example.com/ours", "tag": "v0.30.0"}}}, None),
        ({"modelserver": {"image": {"repository": "registry.example.com/ours"}}}, None),
        ({"modelserver": {"image": {"tag": "v0.17.0"}}, "drain": {"engineVersion": "0.19.0"}}, "0.19.0"),
    ],
)
def test_an_image_of_vllm_tells_its_version_by_its_tag_or_not_at_all(blocks: dict[str, Any], want: str | None) -> None:
    found = accepted(**merged(GPUS, blocks))
    assert engine_version(found.config, found.recipe) == want


@pytest.mark.parametrize("image", [{"tag": "ours"}, {"digest": "sha256:" + "1" * 64}, {"tag": "v0.17.1-cu130"}])
def test_an_engine_that_may_be_too_old_for_the_flag_is_not_given_it(image: dict[str, str]) -> None:
    way = drain("decode", **merged(GPUS, {"modelserver": {"image": image}}))
    assert (way.mode, way.flag) == ("idle", None)
    assert ("0.17.1" if "cu130" in image.get("tag", "") else "drain.engineVersion says it") in way.why


def test_the_tag_of_a_plugins_image_is_not_the_version_of_vllm() -> None:
    found = accepted(modelserver={"image": {"tag": "0.12.1"}})
    assert engine_version(found.config, found.recipe) == "0.30.0"


@pytest.mark.parametrize(
    ("env", "want"),
    [
        ({"VLLM_RUST_FRONTEND_PATH": "/rust"}, "idle"),
        ({"VLLM_RUST_FRONTEND_PATH": "/rust", "VLLM_USE_RUST_FRONTEND": "0"}, "native"),
        ({"VLLM_USE_RUST_FRONTEND": "1"}, "idle"),
    ],
)
def test_the_rust_frontend_stops_before_the_engine(env: dict[str, str], want: str) -> None:
    assert drain("decode", modelserver={"serveEnv": env}).mode == want


def test_a_layout_of_several_ports_that_is_turned_off_again_is_internal_balancing() -> None:
    off = args("decode", data_parallel_multi_port_external_lb=False)
    way = drain("decode", **off)
    assert (way.mode, way.ports) == ("idle", (8200,))
    assert "4 API processes share the engine" in way.why


# --- the sum ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "blocks", "want"),
    [
        ("decode", {}, 20 + 60 + 30),
        ("prefill", {}, 20 + 60 + 30 + 30),
        ("aggregated", AGGREGATED, 20 + 60 + 30),
        ("decode", {"drain": {"shutdownTimeoutSeconds": {"decode": 900}}}, 20 + 900 + 30),
        ("prefill", {"drain": {"shutdownTimeoutSeconds": {"decode": 900}}}, 20 + 60 + 30 + 30),
        ("decode", {"drain": {"mode": "idle", "routerDelaySeconds": 5, "marginSeconds": 17}}, 5 + 60 + 17),
        ("prefill", {"drain": {"kvPullSeconds": 0}}, 20 + 60 + 30),
        ("decode", {"drain": {"mode": "off"}}, 30),
    ],
)
def test_the_grace_period(role: Role, blocks: dict[str, Any], want: int) -> None:
    whole = plan(**blocks)
    assert pod(whole, role)["terminationGracePeriodSeconds"] == want
    [workload] = [w for w in whole.modelserver.workloads if w.role == role]
    assert workload.leave_seconds == want
    assert workload.object.manifest["spec"]["progressDeadlineSeconds"] == workload.ready_seconds + want
    assert whole.modelserver.topology.leave_seconds >= want


def nixl(**extra: Any) -> dict[str, Any]:
    return {"kv-transfer-config": {"kv_connector": "RblnNixlConnector", "kv_connector_extra_config": extra}}


@pytest.mark.parametrize(
    ("flags", "env", "version", "want"),
    [
        (nixl(), {}, "0.30.0", 30),
        (nixl(kv_lease_duration=12), {}, "0.30.0", 12),
        (nixl(), {"VLLM_NIXL_ABORT_REQUEST_TIMEOUT": "100"}, "0.30.0", 30),
        (nixl(), {}, "0.21.0", 480),
        (nixl(), {"VLLM_NIXL_ABORT_REQUEST_TIMEOUT": "100"}, "0.21.0", 100),
        (nixl(), {}, "unknown", 30),
        (
            {
                "kv-transfer-config": {
                    "kv_connector": "MultiConnector",
                    "kv_connector_extra_config": {
                        "connectors": [{"kv_connector": "Other"}, nixl(kv_lease_duration=9)["kv-transfer-config"]]
                    },
                }
            },
            {},
            "0.30.0",
            9,
        ),
        ({"kv-transfer-config": '{"kv_connector": "NixlConnector"}'}, {}, "0.30.0", 30),
        ({"kv-transfer-config": "{"}, {}, "0.30.0", None),
        ({"kv-transfer-config": {"kv_connector": "OffloadingConnector"}}, {}, "0.30.0", None),
        ({}, {}, "0.30.0", None),
    ],
)
def test_the_lease_on_blocks(flags: dict[str, Any], env: dict[str, str], version: str, want: int | None) -> None:
    found = accepted(drain={"engineVersion": version})
    assert kv_lease_seconds(found.config, found.recipe, flags, env) == want


def test_pulls_take_no_longer_than_the_lease() -> None:
    assert (
        drain("prefill", **args("prefill", kv_transfer_config=nixl(kv_lease_duration=12)["kv-transfer-config"])).pull
        == 12
    )
    assert (
        drain("prefill", **args("prefill", kv_transfer_config=nixl(kv_lease_duration=99)["kv-transfer-config"])).pull
        == 30
    )


def some(**optional: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=optional)


SECONDS = st.integers(1, 86400)
ROLE_SECONDS = some(prefill=SECONDS, decode=SECONDS, aggregated=SECONDS)
DRAINS = some(
    mode=st.sampled_from(["auto", "native", "idle", "off"]),
    shutdownTimeoutSeconds=ROLE_SECONDS,
    longestRequestSeconds=ROLE_SECONDS,
    routerDelaySeconds=st.integers(0, 86400),
    marginSeconds=st.integers(10, 86400),
    kvPullSeconds=st.integers(0, 60),
    engineVersion=st.sampled_from(list(VERSIONS)),
)
SHAPES = st.sampled_from([{}, GPUS, AGGREGATED, {"recipe": "qwen3-0.6b"}, args("prefill", api_server_count=2)])


@settings(deadline=None, max_examples=60)
@given(SHAPES, DRAINS, st.sampled_from([{}, {"requestTimeout": "0s"}, {"requestTimeout": "10m"}]))
def test_whatever_is_accepted_the_sum_holds(shape: dict[str, Any], block: dict[str, Any], gateway: Any) -> None:
    try:
        found = accepted(**merged(shape, {"drain": block, "gateway": gateway}))
    except ConfigError:
        return
    whole = plan_stack(found, NOTHING_READ)
    for workload in whole.modelserver.workloads:
        role = cast("Role", workload.role)
        is_disaggregated = whole.modelserver.topology.is_disaggregated
        serve = plan_serve(found.config, found.recipe, role, is_disaggregated=is_disaggregated)
        way, spec = serve.drain, pod(whole, workload.role)
        grace = spec["terminationGracePeriodSeconds"]
        assert grace == way.grace == workload.leave_seconds
        check_rendered(whole, way, spec)
        if way.mode == "off":
            continue
        assert grace >= way.delay + way.timeout + way.pull + way.margin
        assert grace - way.longest_hook == way.margin > 0, "the hook leaves the margin for SIGTERM"
        assert workload.timeout_seconds > grace
        assert whole.modelserver.topology.leave_seconds > grace
        if workload.role != "prefill":
            [picker] = [limit for limit in whole.outputs["limits"] if limit["setBy"] == "router.epp.drainSeconds"]
            assert picker["seconds"] >= way.timeout, "the endpoint picker keeps the streams as long"


def check_rendered(whole: StackPlan, way: RoleDrain, spec: dict[str, Any]) -> None:
    server = container(spec)
    hook = server.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
    config = [o.manifest["data"]["serve.yaml"] for o in whole.objects() if f"-serve-{way.role}-" in o.name]
    has_flag = f"shutdown-timeout: {way.timeout}\n" in config[0]
    assert ("shutdown-timeout" in config[0]) == has_flag == (way.mode == "native")
    assert (hook is not None) == (way.mode != "off") == spec.get("shareProcessNamespace", False)
    if hook is None:
        return
    numbers = [int(number) for number in hook[5:]]
    watches = way.mode == "idle" or (way.role == "prefill" and whole.modelserver.topology.is_disaggregated)
    assert hook[:5] == ["python3", "-I", "-S", "-c", LEAVE]
    assert numbers[:4] == [way.delay, int(watches), way.timeout, way.pull]
    assert numbers[4:] == [p["containerPort"] for p in server["ports"] if p["name"].startswith("api-")]


# --- what is rendered -------------------------------------------------------------------------------------------------


def test_the_hook_asks_the_engines_ports_and_not_the_proxys() -> None:
    def ports(whole: StackPlan, role: str) -> list[str]:
        return container(pod(whole, role))["lifecycle"]["preStop"]["exec"]["command"][9:]

    assert ports(plan(), "prefill") == ["8000"]
    assert ports(plan(), "decode") == ["8200", "8201", "8202", "8203"]
    assert ports(plan(**AGGREGATED), "aggregated") == ["8000", "8001", "8002", "8003"]
    assert ports(plan(routing={"proxy": {"modelServerPort": 9000}}), "decode") == ["9000", "9001", "9002", "9003"]


def test_one_text_serves_every_role() -> None:
    whole = plan(drain={"routerDelaySeconds": 7, "marginSeconds": 18})
    texts = {container(pod(whole, r))["lifecycle"]["preStop"]["exec"]["command"][4] for r in ("prefill", "decode")}
    assert texts == {LEAVE}


def test_the_hook_needs_nothing_but_the_standard_library_of_an_old_python() -> None:
    tree = ast.parse(LEAVE, feature_version=(3, 8))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported == {"http", "os", "signal", "socket", "sys", "threading", "time", "typing"}


def test_a_container_that_fails_its_probe_does_not_stay_for_the_drain() -> None:
    server = container(pod(plan(), "decode"))
    assert server["livenessProbe"]["terminationGracePeriodSeconds"] == 30
    assert server["startupProbe"]["terminationGracePeriodSeconds"] == 30
    assert "terminationGracePeriodSeconds" not in server["readinessProbe"], "Kubernetes refuses it there"
    off = container(pod(plan(drain={"mode": "off"}), "decode"))
    assert "terminationGracePeriodSeconds" not in off["livenessProbe"], "its Pod leaves as fast"


def test_the_proxy_stays_to_the_end_as_a_native_sidecar() -> None:
    [proxy] = [c for c in pod(plan(), "decode")["initContainers"] if c["name"] == "routing-proxy"]
    assert proxy["restartPolicy"] == "Always"
    assert "lifecycle" not in proxy


@pytest.mark.parametrize(
    ("blocks", "want"),
    [
        ({}, 60),
        ({"drain": {"shutdownTimeoutSeconds": {"decode": 20}}}, 60),
        ({"drain": {"shutdownTimeoutSeconds": {"decode": 200}}}, 200),
        ({"drain": {"shutdownTimeoutSeconds": {"prefill": 200}}}, 60),
        ({"drain": {"longestRequestSeconds": {"decode": 280}}}, 280),
        ({"router": {"epp": {"drainSeconds": 600}}}, 600),
    ],
)
def test_the_endpoint_picker_stays_as_long_as_the_streams_of_decode_may(blocks: dict[str, Any], want: int) -> None:
    assert {limit["setBy"]: limit["seconds"] for limit in plan(**blocks).outputs["limits"]}[
        "router.epp.drainSeconds"
    ] == want


# --- limits on the way ------------------------------------------------------------------------------------------------


def limits(**blocks: Any) -> dict[str, float | None]:
    found = accepted(**blocks)
    is_split = "aggregated" not in found.config.modelserver.roles()
    serves: Any = {
        role: plan_serve(found.config, found.recipe, role, is_disaggregated=is_split)
        for role in found.config.modelserver.roles()
    }
    return {limit.name: limit.seconds for limit in time_limits(found.config, found.recipe, serves)}


def test_every_limit_on_the_way_of_a_stream() -> None:
    assert limits() == {
        "HTTPRoute timeouts.request": 300,
        "gateway Pod, when it leaves": 5,
        "endpoint picker, when it leaves": 60,
        "routing proxy, after its engine has ended": 60,
        "unused connection from routing proxy to engine": 90,
        "unused connection at prefill engines": 120,
        "prefill Pod, when it leaves (N)": 60,
        "unused connection at decode engines": 120,
        "decode Pod, when it leaves (N)": 60,
    }


def test_no_route_no_limit_and_no_end_no_number() -> None:
    assert "HTTPRoute timeouts.request" not in limits(gateway={"enabled": False})
    assert limits(gateway={"requestTimeout": "0s"})["HTTPRoute timeouts.request"] is None
    assert "routing proxy, after its engine has ended" not in limits(**AGGREGATED)
    assert "decode Pod, when it leaves (N)" not in limits(drain={"mode": "off"})


def warned(**blocks: Any) -> dict[str, str]:
    return {warning.key: str(warning) for warning in accepted(**blocks).warnings}


def test_a_default_that_is_too_short_is_warned_of_with_the_numbers() -> None:
    found = warned(drain={"shutdownTimeoutSeconds": {"decode": 900}})
    text = found["gateway.requestTimeout"]
    assert "300 s" in text
    assert "900 s" in text
    assert "950 s = 20 (router) + 900 (drain) + 30 (margin)" in text
    assert "router.epp.drainSeconds" not in found, "it follows"


def test_the_longest_request_is_held_against_the_route() -> None:
    assert "700 s" in warned(drain={"longestRequestSeconds": {"decode": 700}})["gateway.requestTimeout"]
    assert "gateway.requestTimeout" not in warned(drain={"longestRequestSeconds": {"prefill": 700}})
    assert "gateway.requestTimeout" not in warned(
        drain={"longestRequestSeconds": {"decode": 700}}, gateway={"requestTimeout": "700s"}
    )


def test_what_is_surprising_is_warned_of() -> None:
    assert "every running stream is cut" in warned(drain={"mode": "off"})["drain.mode"]
    assert "drain.routerDelaySeconds" in warned(drain={"routerDelaySeconds": 0})
    assert "drain.kvPullSeconds" in warned(**merged(AGGREGATED, {"drain": {"kvPullSeconds": 5}}))
    assert "drain.mode" in warned(drain={"mode": "native", "engineVersion": "nightly"})
    found = warned(modelserver={"serveEnv": {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "5"}})
    for role in ("prefill", "decode"):
        assert "90 s" in found[f"modelserver.extraServeEnv.{role}.VLLM_HTTP_TIMEOUT_KEEP_ALIVE"]
    alone = merged(AGGREGATED, {"modelserver": {"serveEnv": {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "5"}}})
    assert not any("KEEP_ALIVE" in key for key in warned(**alone)), "no proxy, no connections of its own"


def test_keys_that_nothing_follows_from_are_warned_of() -> None:
    every: dict[str, Any] = {
        "shutdownTimeoutSeconds": {"decode": 90},
        "longestRequestSeconds": {"decode": 100},
        "routerDelaySeconds": 20,
        "marginSeconds": 30,
        "kvPullSeconds": 0,
        "engineVersion": "0.30.0",
    }
    assert not {key for key in warned(drain=every) if key.startswith("drain")}
    assert {key for key, text in warned(drain={**every, "mode": "off"}).items() if "has no effect" in text} == {
        "drain.shutdownTimeoutSeconds.decode",
        "drain.routerDelaySeconds",
        "drain.marginSeconds",
        "drain.kvPullSeconds",
        "drain.engineVersion",
    }, "the endpoint picker still follows the longest request"
    found = warned(**merged(AGGREGATED, {"drain": every}))
    assert {key for key, text in found.items() if "has no effect" in text} == {
        "drain.shutdownTimeoutSeconds.decode",
        "drain.longestRequestSeconds.decode",
        "drain.kvPullSeconds",
    }


def test_a_grace_period_beyond_what_the_cluster_autoscaler_grants_is_warned_of() -> None:
    key = "drain.shutdownTimeoutSeconds.decode"
    text = warned(drain={"shutdownTimeoutSeconds": {"decode": 551}})[key]
    assert "--max-graceful-termination-sec=601" in text
    assert "601 s = 20 (router) + 551 (drain) + 30 (margin)" in text
    assert key not in warned(drain={"shutdownTimeoutSeconds": {"decode": 550}})


def test_an_engine_that_tells_nothing_of_its_requests_is_refused_where_a_hook_or_a_scaler_asks() -> None:
    def refused(**blocks: Any) -> dict[str, str]:
        try:
            accepted(**blocks)
        except ConfigError as refusal:
            return {problem.key: str(problem) for problem in refusal.problems}
        return {}

    common = {"modelserver": {"serveArgs": {"common": {"disable-log-stats": True}}}}
    key = "modelserver.serveArgs.common.disable-log-stats"
    assert "a prefill Pod that leaves" in refused(**common)[key]
    assert refused(**args("decode", disable_log_stats=True)) == {}, "native: nobody asks"
    appended = {"modelserver": {"extraServeArgs": {"decode": ["--seed=1", "--disable-log-stats"]}}}
    assert refused(**appended) == {}
    assert "modelserver.extraServeArgs.decode[1]" in refused(**merged(appended, {"drain": {"mode": "idle"}}))
    scaled = {"autoscaling": {"decode": {"provider": "hpa", "maxReplicas": 6}}}
    assert "the scaler of decode" in refused(**merged(appended, scaled))["modelserver.extraServeArgs.decode[1]"]
    assert refused(**merged(common, {"drain": {"mode": "off"}})) == {}


def test_nothing_is_said_of_the_reference() -> None:
    assert not {key for key in warned() if key.startswith(("drain", "gateway", "router"))}


def test_an_equal_flag_by_hand_is_let_through_and_changes_nothing() -> None:
    by_hand = plan(**args("decode", shutdown_timeout=60))
    assert by_hand.modelserver.workloads == plan().modelserver.workloads
