"""`verify --drain`: what it makes of a departure, and what it asks of a cluster, which a stand-in answers for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.testing import CliRunner

from cli.drain_check import Departure, Outcome, judge
from cli.main import app
from stack.drain import RoleDrain
from tests.builders import SMALLEST
from tests.prometheus_stand_in import serve as serve_prometheus
from tests.stand_in import kubeconfig, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typer.testing import Result

    from tests.stand_in import StandIn

GRACE = 110
DRAIN = RoleDrain(
    role="decode",
    mode="native",
    why="for a test",
    delay=20,
    timeout=60,
    pull=0,
    margin=30,
    is_pulled_from=False,
    ports=(8200,),
)
LEAVING = "[drain] 0.1 s: leaving: 20 s for routers to notice"
OVER = "[drain] 20.1 s: over to the engine"
ENGINE = (
    "INFO [shutdown] API server: shutdown triggered",
    "INFO [shutdown] API server: stopping engine client mode=drain timeout=60s",
)
GOOD = Departure(
    pod="rel-decode-a",
    grace=GRACE,
    has_hook=True,
    lines=(LEAVING, OVER, *ENGINE),
    log_problem=None,
    seconds=25.2,
    resets=0,
)


def outcomes(drain: RoleDrain = DRAIN, **changes: Any) -> dict[str, Outcome]:
    return {check.name: check.outcome for check in judge(drain, replace(GOOD, **changes))}


def test_a_departure_as_planned() -> None:
    assert set(outcomes().values()) == {Outcome.GOOD}


IDLE = replace(DRAIN, mode="idle")
ENDED = "[drain] 31.0 s: nothing runs any more"


@pytest.mark.parametrize(
    ("changes", "check", "want"),
    [
        pytest.param({"grace": 30}, "grace period", Outcome.BAD, id="a Pod of an older template"),
        pytest.param({"has_hook": False, "lines": ()}, "hook", Outcome.BAD, id="no hook"),
        pytest.param({"lines": ENGINE}, "hook", Outcome.BAD, id="a hook that did not run"),
        pytest.param({"lines": (LEAVING,)}, "hook", Outcome.BAD, id="a hook that was killed"),
        pytest.param({"lines": (), "log_problem": "403 Forbidden"}, "hook", Outcome.UNKNOWN, id="no right to logs"),
        pytest.param(
            {"lines": ("[drain] 0.0 s: nothing is served yet: killing everything",)},
            "hook",
            Outcome.UNKNOWN,
            id="a Pod that still loaded",
        ),
        pytest.param(
            {"lines": (LEAVING, "[drain] 80.1 s: time is up: 3 requests", OVER)},
            "requests",
            Outcome.BAD,
            id="N too short",
        ),
        pytest.param(
            {"lines": (LEAVING, OVER, "stopping engine client mode=abort timeout=0s")},
            "requests",
            Outcome.BAD,
            id="an engine that aborts",
        ),
        pytest.param(
            {"lines": (LEAVING, OVER, "Process manager: force killing remaining processes")},
            "requests",
            Outcome.BAD,
            id="an engine that had to be killed",
        ),
        pytest.param(
            {"lines": (LEAVING, OVER, "EngineCore: draining in-flight requests count=3 timeout=60s")},
            "requests",
            Outcome.GOOD,
            id="other words for the same",
        ),
        pytest.param({"lines": (LEAVING, OVER)}, "requests", Outcome.UNKNOWN, id="an engine that says nothing"),
        pytest.param({"seconds": None}, "time", Outcome.BAD, id="a Pod that stays"),
        pytest.param({"seconds": 110.4}, "time", Outcome.BAD, id="a Pod that is killed"),
        pytest.param({"resets": 2.0}, "gateway", Outcome.BAD, id="streams that broke off"),
        pytest.param({"resets": None}, "gateway", Outcome.UNKNOWN, id="nobody counted"),
    ],
)
def test_a_departure_that_is_not(changes: dict[str, Any], check: str, want: Outcome) -> None:
    found = outcomes(**changes)
    assert found[check] is want
    assert {outcome for name, outcome in found.items() if name not in {check, "requests"}} == {Outcome.GOOD}


def test_an_abort_after_a_hook_that_waited_finds_nothing_to_cut() -> None:
    """Idle mode: the engine aborts, and nothing runs any more."""
    lines = (LEAVING, ENDED, OVER, "stopping engine client mode=abort timeout=0s")
    assert set(outcomes(IDLE, lines=lines).values()) == {Outcome.GOOD}


# --- the command ------------------------------------------------------------------------------------------------------

PODS = "/api/v1/namespaces/ns/pods"
NAME = "rel-decode-5d8f7c9b6-x2x4z"


def pod(name: str = NAME, *, ready: bool = True, uid: str = "1") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": uid},
        "spec": {
            "terminationGracePeriodSeconds": GRACE,
            "containers": [{"name": "modelserver", "lifecycle": {"preStop": {"exec": {"command": ["python3"]}}}}],
        },
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


@pytest.fixture
def cluster() -> Iterator[StandIn]:
    with serve() as stand_in:
        stand_in.tell_list(PODS, pod(), pod("rel-decode-5d8f7c9b6-zzzzz"))
        stand_in.tell(f"{PODS}/{NAME}/eviction", (201, {"kind": "Status", "status": "Success"}))
        stand_in.tell(f"{PODS}/{NAME}/log", (200, "\n".join((LEAVING, OVER, *ENGINE))))
        stand_in.tell(f"{PODS}/{NAME}", (200, pod()), (404, {"kind": "Status"}))
        yield stand_in


def run(cluster: StandIn, folder: Path, *arguments: str, given: str | None = None, **blocks: Any) -> Result:
    file = folder / "Pulumi.test.yaml"
    config = {f"serving-stack:{key}": value for key, value in (SMALLEST | blocks).items()}
    file.write_text(yaml.safe_dump({"config": config | {"kubernetes:context": "test"}}))
    options = ["--kubeconfig", str(kubeconfig(folder, cluster.url))]
    return CliRunner().invoke(app, ["verify", str(file), *options, *arguments], input=given)


def test_it_evicts_one_pod_and_tells_what_it_saw(cluster: StandIn, tmp_path: Path) -> None:
    result = run(cluster, tmp_path, "--drain", "--yes", "--format", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["pod"], found["mode"], found["graceSeconds"]) == (NAME, "native", GRACE)
    assert {check["name"]: check["outcome"] for check in found["checks"]} == {
        "grace period": "good",
        "hook": "good",
        "requests": "good",
        "time": "good",
        "gateway": "not known",
    }
    [sent] = cluster.sent
    assert (sent.method, sent.body["kind"], sent.body["metadata"]["name"]) == ("POST", "Eviction", NAME)
    assert cluster.query_of(f"{PODS}/{NAME}/log")["container"] == "modelserver"


def test_the_table_has_a_line_for_each_check(cluster: StandIn, tmp_path: Path) -> None:
    said = run(cluster, tmp_path, "--drain", "--yes").stdout
    assert "native, grace period 110 s = 20 (router) + 60 (drain) + 30 (margin)" in said
    assert all(each in said for each in ("ran to its end: 20.1 s: over to the engine", "nobody was asked"))


def test_what_is_bad_shows_in_the_exit_status(cluster: StandIn, tmp_path: Path) -> None:
    cluster.tell(f"{PODS}/{NAME}/log", (200, "nothing of interest"))
    assert run(cluster, tmp_path, "--drain", "--yes").exit_code == 1


def test_a_log_that_may_not_be_read_is_not_known(cluster: StandIn, tmp_path: Path) -> None:
    cluster.tell(f"{PODS}/{NAME}/log", (403, {"kind": "Status"}))
    result = run(cluster, tmp_path, "--drain", "--yes")
    assert result.exit_code == 0
    assert "the log could not be read: 403 Forbidden" in result.stdout


def test_the_gateways_counter_is_read_before_and_after(cluster: StandIn, tmp_path: Path) -> None:
    with serve_prometheus() as prometheus:
        prometheus.vector("timestamp(up", ({}, 4_000_000_000))
        prometheus.vector("istio_requests_total", ({}, 7))
        result = run(cluster, tmp_path, "--drain", "--yes", "--prometheus", prometheus.url)
    assert result.exit_code == 0, result.output
    assert "no response broke off meanwhile" in result.stdout
    asked = [each.form["query"] for each in prometheus.asked]
    assert [query.partition("{")[0] for query in asked] == [
        "sum(istio_requests_total",
        "min(timestamp(up",
        "sum(istio_requests_total",
    ]


def test_nothing_happens_unless_somebody_says_yes(cluster: StandIn, tmp_path: Path) -> None:
    result = run(cluster, tmp_path, "--drain", given="n\n")
    assert result.exit_code == 1
    assert f"Evict {NAME} (ns, context test)?" in result.output
    assert cluster.sent == []


@pytest.mark.parametrize(
    ("pods", "arguments", "blocks", "want"),
    [
        pytest.param([], [], {}, "there is no decode Pod of release rel", id="no Pod"),
        pytest.param([pod(), pod("b", ready=False)], [], {}, "decode Pods = b: not Ready", id="a roll-out goes on"),
        pytest.param(
            [pod()], ["--pod", "b"], {}, f"--pod = b: there is no such decode Pod; there are {NAME}", id="another"
        ),
        pytest.param([pod()], [], {"drain": {"mode": "off"}}, "drain.mode = off: nothing drains", id="no drain"),
    ],
)
def test_it_evicts_none_where_that_would_tell_nothing(
    cluster: StandIn, tmp_path: Path, *, pods: list[Any], arguments: list[str], blocks: dict[str, Any], want: str
) -> None:
    cluster.tell_list(PODS, *pods)
    result = run(cluster, tmp_path, "--drain", "--yes", *arguments, **blocks)
    assert result.exit_code == 1
    assert want in result.output
    assert cluster.sent == []


def test_a_budget_that_does_not_allow_it_is_a_letter(cluster: StandIn, tmp_path: Path) -> None:
    said = {"kind": "Status", "message": "Cannot evict pod as it would violate the pod's disruption budget."}
    cluster.tell(f"{PODS}/{NAME}/eviction", (429, said))
    result = run(cluster, tmp_path, "--drain", "--yes")
    assert result.exit_code == 1
    assert f"disruptionBudget = {NAME}: Cannot evict pod" in result.output
    assert "nothing changed" in result.output


def test_a_pod_of_the_same_name_that_came_later_is_another(cluster: StandIn, tmp_path: Path) -> None:
    cluster.tell(f"{PODS}/{NAME}", (200, pod()), (200, pod(uid="2")))
    assert run(cluster, tmp_path, "--drain", "--yes").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "want"), [([], "say what to verify"), (["--drain", "--role", "aggregated"], "no aggregated Pods")]
)
def test_wrong_usage(cluster: StandIn, tmp_path: Path, arguments: list[str], want: str) -> None:
    result = run(cluster, tmp_path, *arguments)
    assert result.exit_code == 2
    assert want in result.output
