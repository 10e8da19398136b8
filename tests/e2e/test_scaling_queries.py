"""The queries that scalers ask, put to promtool: one number without labels for the role, or none at all."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from stack.autoscaling import plan_signal
from tests.builders import accepted

if TYPE_CHECKING:
    from pathlib import Path

    from local.toolchain import Toolbox

pytestmark = pytest.mark.e2e

SECONDS = 60
OURS, THEIRS, GONE = (
    "rel-prefill-7d9c5b8f4-aaaaa",
    "rel-prefill-2-prefill-7d9c5b8f4-aaaaa",
    "rel-prefill-7d9c5b8f4-gonee",
)
DECODE = "rel-decode-5b8f47d9c-bbbbb"


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    told = ",".join(f'{key}="{value}"' for key, value in ({"namespace": "ns"} | labels).items())
    return {"series": f"{name}{{{told}}}", "values": values}


def tokens(pod: str, rank: int, values: str, **labels: str) -> dict[str, str]:
    """As the endpoint picker shows it: under its own Pod's name, with the endpoint's beside it."""
    named = {"pod": "rel-epp-x", "endpoint_name": f"{pod}-rank-{rank}", "producer_name": "inflight-load-producer"}
    return series("llm_d_epp_inflight_tokens", values, **(named | labels))


def running(pod: str, values: str, **labels: str) -> dict[str, str]:
    return series("vllm:num_requests_running", values, pod=pod, **labels)


def queued(part: str, values: str, pod: str = DECODE) -> dict[str, str]:
    return series(f"vllm:request_queue_time_seconds_{part}", values, pod=pod)


@pytest.mark.parametrize(
    ("role", "signal", "given", "want"),
    [
        pytest.param(
            "decode",
            "occupancy",
            [
                running(DECODE, "3x10", engine="0"),
                running(DECODE, "1x10", engine="1"),
                running(OURS, "9x10"),
                running("rel-decode-5b8f47d9c-ccccc", "2x10"),
                running(DECODE, "50x10", namespace="other"),
            ],
            6,
            id="all engines of all Pods of the role, and nobody else's",
        ),
        pytest.param("decode", "occupancy", [running(OURS, "9x10")], None, id="no metrics of the role: not known"),
        pytest.param("decode", "occupancy", [running(DECODE, "0x10")], 0, id="idle"),
        pytest.param(
            "prefill",
            "inFlightTokens",
            [
                tokens(OURS, 0, "1000x10"),
                tokens(OURS, 1, "500x10"),
                tokens(GONE, 0, "7000x10"),
                tokens(THEIRS, 0, "9000x10"),
                tokens(DECODE, 0, "8000x10"),
                tokens(OURS, 0, "4000x10", producer_name="another"),
                running(OURS, "0x10"),
                running(THEIRS, "0x10"),
                running(DECODE, "0x10"),
            ],
            1500,
            id="tokens to Pods that are there",
        ),
        pytest.param("prefill", "inFlightTokens", [running(OURS, "0x10")], None, id="the endpoint picker is new"),
        pytest.param(
            "decode",
            "queueTime",
            [queued("sum", "0+60x10"), queued("count", "0+30x10"), queued("sum", "0+900x10", OURS)],
            2,
            id="60 s of queueing a minute for 30 requests",
        ),
        pytest.param("decode", "queueTime", [queued("sum", "5x10"), queued("count", "9x10")], 0, id="nobody asks"),
        pytest.param("decode", "queueTime", [], None, id="no engine shows anything"),
    ],
)
def test_a_query_gives_one_number_of_the_role_or_none(
    toolbox: Toolbox, tmp_path: Path, *, role: str, signal: str, given: list[dict[str, str]], want: float | None
) -> None:
    scaled: dict[str, Any] = {"provider": "hpa", "minReplicas": 2, "maxReplicas": 8, "signal": signal}
    if signal == "inFlightTokens":
        scaled["tokensPerSecond"] = 9000
    config = accepted(autoscaling={role: scaled}).config
    expression = plan_signal(config, "prefill" if role == "prefill" else "decode", 4).query
    answer = [] if want is None else [{"labels": "{}", "value": want}]
    asked = {"expr": expression, "eval_time": "10m", "exp_samples": answer}
    case = {"interval": "1m", "input_series": given, "promql_expr_test": [asked]}
    (tmp_path / "case.yaml").write_text(json.dumps({"evaluation_interval": "1m", "tests": [case]}), encoding="utf-8")
    said = subprocess.run(
        [toolbox.path("promtool"), "test", "rules", "case.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert said.returncode == 0, said.stdout + said.stderr
