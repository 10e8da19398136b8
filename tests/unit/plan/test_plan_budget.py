from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from stack.budget import budget_line
from tests.builders import plan

if TYPE_CHECKING:
    from stack.planned import BudgetLine

GI = 2**30


def pod_of(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> BudgetLine:
    spec = {"containers": list(containers), "initContainers": list(init)}
    return budget_line("part", {"spec": {"replicas": 1, "template": {"spec": spec}}}, None)


def asks(cpu: str, *, sidecar: bool = False, limit: str | None = None) -> dict[str, Any]:
    container: dict[str, Any] = {
        "resources": {"requests": {"cpu": cpu}, "limits": {} if limit is None else {"cpu": limit}}
    }
    return container | {"restartPolicy": "Always"} if sidecar else container


@pytest.mark.parametrize(
    ("line", "want_cpu_millis"),
    [
        pytest.param(pod_of(asks("2"), asks("500m")), 2500, id="containers run side by side"),
        pytest.param(pod_of(asks("2"), init=(asks("1"),)), 2000, id="an init container runs before them"),
        pytest.param(pod_of(asks("2"), init=(asks("3"), asks("1"))), 3000, id="the largest init container decides"),
        pytest.param(pod_of(asks("2"), init=(asks("1", sidecar=True),)), 3000, id="a native sidecar runs beside them"),
        pytest.param(
            pod_of(asks("2"), init=(asks("1", sidecar=True), asks("4"))),
            5000,
            id="an init container after a sidecar runs beside it",
        ),
        pytest.param(
            pod_of(asks("2"), init=(asks("4"), asks("1", sidecar=True))),
            4000,
            id="an init container before a sidecar does not",
        ),
        pytest.param(
            pod_of({"resources": {"limits": {"cpu": "3"}}}), 3000, id="a limit without request is the request"
        ),
        pytest.param(pod_of(asks("1", limit="3")), 1000, id="a request below the limit stays"),
        pytest.param(pod_of({}), 0, id="nothing asked for"),
        pytest.param(pod_of(asks("1.0005")), 1001, id="a part of a millicore counts whole, as the scheduler has it"),
    ],
)
def test_a_pod_requests(line: BudgetLine, want_cpu_millis: int) -> None:
    assert line.cpu_millis == want_cpu_millis


def test_the_reference_asks_for_its_model_servers_and_the_epp() -> None:
    lines = {line.part: line for line in plan().budget.lines}
    assert list(lines) == ["prefill", "decode", "epp"]
    for role in ("prefill", "decode"):
        assert (lines[role].pods, lines[role].cpu_millis, lines[role].memory_bytes) == (4, 40_000, 460 * GI)
    assert (lines["epp"].pods, lines["epp"].cpu_millis, lines["epp"].memory_bytes) == (1, 4000, 8 * GI)
    assert (lines["epp"].accelerators, lines["epp"].nics) == (0, 0)


def test_totals_count_every_pod() -> None:
    budget = plan().budget
    assert budget.total("cpu_millis") == 8 * 40_000 + 4000
    assert budget.total("memory_bytes") == 8 * 460 * GI + 8 * GI
    assert budget.total("accelerators") is None, "the operator's template decides"


def test_the_proxys_requests_stand_beside_the_engines() -> None:
    proxy = {"resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}
    lines = {line.part: line for line in plan(routing={"proxy": proxy}).budget.lines}
    assert (lines["decode"].cpu_millis, lines["decode"].memory_bytes) == (42_000, 461 * GI)
    assert lines["prefill"].cpu_millis == 40_000


def test_devices_of_all_pods_are_summed() -> None:
    devices = {"npu": {"mode": "devicePlugin"}, "rdma": {"mode": "devicePlugin", "resourceName": "rdma/hca"}}
    whole = plan(devices=devices)
    assert (whole.budget.total("accelerators"), whole.budget.total("nics")) == (32, 16)
    assert whole.outputs["devices"] == {"accelerators": 32, "nics": 16}


def test_entries_of_one_role_are_one_line() -> None:
    entries = [{"role": role, "node": node} for role in ("prefill", "decode") for node in ("n1", "n2")]
    lines = plan(modelserver={"nodePlacement": [*entries, {"role": "decode", "node": "n3"}]}).budget.lines
    assert [(line.part, line.pods) for line in lines] == [("prefill", 2), ("decode", 3), ("epp", 1)]


@pytest.mark.parametrize(
    ("blocks", "part", "want_surge"),
    [
        pytest.param({}, "epp", 1, id="a new EPP comes before the old one goes"),
        pytest.param({"router": {"epp": {"replicas": 2}}}, "epp", 0, id="several EPPs go first"),
        pytest.param({}, "decode", 1, id="spare devices for one Pod"),
        pytest.param(
            {"modelserver": {"strategy": {"rollingUpdate": {"maxSurge": "30%"}}}},
            "decode",
            2,
            id="30% of 4, rounded up",
        ),
        pytest.param({"modelserver": {"strategy": {"type": "Recreate"}}}, "decode", 0, id="Recreate"),
        pytest.param(
            {"modelserver": {"nodePlacement": [{"role": "decode", "node": "a"}, {"role": "prefill", "node": "a"}]}},
            "decode",
            0,
            id="entries are recreated",
        ),
    ],
)
def test_what_a_roll_out_needs_besides_is_told(blocks: dict[str, Any], part: str, want_surge: int) -> None:
    whole = plan(**blocks)
    [line] = [line for line in whole.budget.lines if line.part == part]
    assert line.surge == want_surge
    assert (f"(and {want_surge} more while it rolls)" in str(line)) == (want_surge > 0)
    assert str(line) in whole.outputs["budget"]


def test_what_a_roll_out_needs_for_a_while_is_in_no_total() -> None:
    assert plan().budget.total("cpu_millis") == 8 * 40_000 + 4000


def test_every_epp_counts() -> None:
    line = plan(router={"epp": {"replicas": 2}}).budget.lines[-1]
    assert (line.part, line.pods) == ("epp", 2)
