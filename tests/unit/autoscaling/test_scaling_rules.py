"""Scalers that are legal and probably not meant, and what rules about Pods make of bounds."""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.errors import ConfigError
from stack.rules import accept
from tests.builders import SMALLEST, accepted, merged

KEDA: dict[str, Any] = {"prometheus": {"serverAddress": "http://prometheus:9090"}}
SOUND: dict[str, Any] = {"decode": {"provider": "hpa", "minReplicas": 2, "maxReplicas": 8}}


def warned(**blocks: Any) -> dict[str, str]:
    return {problem.key: str(problem) for problem in accepted(**blocks).warnings}


def refused(**blocks: Any) -> dict[str, str]:
    with pytest.raises(ConfigError) as error:
        accept(merged(SMALLEST, blocks), context="test")
    return {problem.key: str(problem) for problem in error.value.problems}


@pytest.mark.parametrize(
    ("blocks", "keys"),
    [
        pytest.param(SOUND, set[str](), id="one role, sound"),
        pytest.param({"decode": {"provider": "none"}}, set[str](), id="turned off"),
        pytest.param(
            {"prefill": {"provider": "keda", "maxReplicas": 8, "tokensPerSecond": 9000}, **KEDA},
            set[str](),
            id="prefill by tokens",
        ),
        pytest.param(
            {"decode": {"provider": "hpa", "maxReplicas": 4}}, {"autoscaling.decode.maxReplicas"}, id="never changes"
        ),
        pytest.param(
            {"decode": {"provider": "hpa", "minReplicas": 5, "maxReplicas": 8}},
            {"modelserver.replicas.decode"},
            id="configured outside of the bounds",
        ),
        pytest.param(merged(SOUND, {"decode": {"occupancy": 0.89}}), set[str](), id="just below what is tolerated"),
        pytest.param(
            {
                "decode": {"provider": "keda", "minReplicas": 2, "maxReplicas": 8},
                "prometheus": KEDA["prometheus"] | {"authModes": "bearer"},
            },
            {"autoscaling.prometheus.authModes"},
            id="a way to prove oneself, and nothing to prove it with",
        ),
        pytest.param(
            {
                "decode": {"provider": "keda", "minReplicas": 2, "maxReplicas": 8},
                "prometheus": KEDA["prometheus"] | {"authModes": "bearer", "triggerAuthentication": "a"},
            },
            set[str](),
            id="and with it",
        ),
        pytest.param(
            {"prefill": {"provider": "hpa", "maxReplicas": 8, "signal": "occupancy"}},
            {"autoscaling.prefill.signal"},
            id="occupancy of prefill",
        ),
        pytest.param(
            merged(SOUND, {"decode": {"signal": "queueTime"}}), {"autoscaling.decode.signal"}, id="queue time"
        ),
        pytest.param(
            merged(SOUND, {"decode": {"queueSeconds": 2}}), {"autoscaling.decode.queueSeconds"}, id="another's number"
        ),
        pytest.param(
            merged(SOUND, {"decode": {"behavior": {"scaleUp": {"pods": 4}}}}),
            {"autoscaling.decode.behavior.scaleUp"},
            id="faster than it shows",
        ),
        pytest.param(
            merged(SOUND, {"decode": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 30}}}}),
            {"autoscaling.decode.behavior.scaleDown.stabilizationWindowSeconds"},
            id="down on a dip",
        ),
        pytest.param({**SOUND, **KEDA}, {"autoscaling.prometheus"}, id="nobody asks there"),
        pytest.param({"decode": {"maxReplicas": 8}}, {"autoscaling.decode.provider"}, id="bounds without a scaler"),
        pytest.param(
            {"decode": {"provider": "keda", "maxReplicas": 8, "metricName": "mine"}, **KEDA},
            {"autoscaling.decode.metricName"},
            id="KEDA asks by query",
        ),
        pytest.param(
            {
                **SOUND,
                "prefill": {"provider": "hpa", "minReplicas": 2, "maxReplicas": 8, "tokensPerSecond": 9000},
                "ratio": {"min": 0.5, "max": 2},
            },
            {"autoscaling.ratio"},
            id="a ratio that nothing holds",
        ),
        pytest.param(
            {"decode": {"provider": "hpa", "minReplicas": 3, "maxReplicas": 5}, "ratio": {"min": 0.8, "max": 1.4}},
            set[str](),
            id="a ratio that is kept whatever happens",
        ),
    ],
)
def test_what_is_warned_of(blocks: dict[str, Any], keys: set[str]) -> None:
    assert set(warned(autoscaling=blocks)) == keys


def test_aibrix_gets_a_whole_number_and_many_pods_go_at_a_time() -> None:
    found = warned(autoscaling={"decode": {"provider": "aibrix", "maxReplicas": 20}})
    assert "it gets 2" in found["autoscaling.decode.occupancy"]
    assert "more than one at a time" in found["autoscaling.decode.maxReplicas"]


def one_slot(slots: int = 1) -> dict[str, Any]:
    """A stack whose decode Pods have so many slots."""
    return {
        "recipe": "qwen3-0.6b",
        "modelserver": {"serveArgs": {"decode": {"max-num-seqs": slots}}},
        "devices": {
            "npu": {"mode": "devicePlugin", "count": 1},
            "rdma": {"mode": "devicePlugin", "resourceName": "a/b"},
        },
    }


def test_one_slot_is_no_occupancy() -> None:
    found = warned(**one_slot(), autoscaling=SOUND)
    assert "full or idle" in found["autoscaling.decode.signal"]


@pytest.mark.parametrize(
    ("slots", "decode", "want"),
    [
        pytest.param(1, {"provider": "aibrix"}, "aims at 1 of 1 slot, since AIBrix takes whole numbers,", id="rounded"),
        pytest.param(2, {"provider": "aibrix"}, None, id="1 of 2 can be exceeded"),
        pytest.param(1, {"provider": "hpa"}, None, id="0.6 of 1 can be exceeded"),
        pytest.param(4, {"provider": "hpa", "occupancy": 0.95}, "aims at 3.8 of 4 slots and", id="by hand"),
        pytest.param(4, {"provider": "aibrix", "occupancy": 1}, "aims at 4 of 4 slots and", id="all, and nothing lost"),
        pytest.param(10, {"provider": "keda", "occupancy": 0.9}, "aims at 9 of 10 slots and", id="just what is held"),
        pytest.param(10, {"provider": "aibrix", "occupancy": 0.95}, "aims at 9 of 10 slots, since", id="both"),
        pytest.param(100, {"provider": "hpa", "occupancy": 0.89}, None, id="below it"),
    ],
)
def test_a_target_that_full_pods_do_not_exceed_by_a_tenth_is_refused(
    slots: int, decode: dict[str, Any], want: str | None
) -> None:
    blocks = {"decode": decode | {"maxReplicas": 8}, **(KEDA if decode["provider"] == "keda" else {})}
    if want is None:
        assert accepted(**one_slot(slots), autoscaling=blocks)
    else:
        found = refused(**one_slot(slots), autoscaling=blocks)
        assert found.keys() == {"autoscaling.decode.occupancy"}
        assert want in found["autoscaling.decode.occupancy"]


@pytest.mark.parametrize(
    ("address", "want"),
    [
        ("http://prometheus:9090", None),
        ("https://[::1]:9090/select/0/prometheus", None),
        ("prometheus:9090", "is not the URL of a server"),
        ("ftp://prometheus", "is not the URL of a server"),
        ("http://", "is not the URL of a server"),
        ("http://:9090", "is not the URL of a server"),
        ("http://prometheus:port", "is not the URL of a server"),
        ("http://prometheus:9090?query=up", "is not the URL of a server"),
        ("http://[prometheus:9090", "is not the URL of a server"),
        ("http://prometheus:9090 ", "is not the URL of a server"),
        ("http://user:hidden@prometheus:9090", "looks like a secret"),
        ("https://hidden@prometheus", "has credentials in it"),
    ],
)
def test_prometheus_is_asked_at_a_url_without_credentials(address: str, want: str | None) -> None:
    blocks = {"decode": {"provider": "keda", "maxReplicas": 8}, "prometheus": {"serverAddress": address}}
    if want is None:
        assert accepted(autoscaling=blocks)
    else:
        found = refused(autoscaling=blocks)
        assert want in found["autoscaling.prometheus.serverAddress"]
        assert "hidden" not in found["autoscaling.prometheus.serverAddress"]


def test_volumes_for_one_pod_are_held_against_the_ceiling() -> None:
    storage = {"compileCache": {"accessModes": ["ReadWriteOnce"]}}
    one = {"replicas": {"prefill": 1, "decode": 1}, "strategy": {"type": "Recreate"}}
    assert accepted(modelserver=one, storage=storage)
    told = refused(
        modelserver=one,
        storage=storage,
        autoscaling={"decode": {"provider": "hpa", "maxReplicas": 3}},
    )
    assert "3 decode Pods share one cache" in told["storage.compileCache.accessModes"]


def test_an_update_that_stops_a_role_at_its_floor_is_told() -> None:
    found = warned(
        modelserver={"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 2}}},
        autoscaling=SOUND,
    )
    assert "covers all 2 decode Pods" in found["modelserver.strategy.rollingUpdate.maxUnavailable"]


QUARTERS = st.integers(1, 16).map(lambda n: n / 4)


@settings(max_examples=150, deadline=None)
@given(low=QUARTERS, width=QUARTERS, floor=st.integers(1, 6), more=st.integers(0, 6))
def test_a_ratio_that_is_accepted_comes_to_rest(low: float, width: float, floor: int, more: int) -> None:
    """Each role is lifted by the other at most once: then both are where they stay."""
    high = low + width
    prefill_floor, prefill_ceiling = ceil(floor * low), ceil((floor + more) * low)
    blocks = {
        "prefill": {
            "provider": "keda",
            "minReplicas": prefill_floor,
            "maxReplicas": max(prefill_floor, prefill_ceiling),
            "tokensPerSecond": 9000,
        },
        "decode": {"provider": "keda", "minReplicas": floor, "maxReplicas": floor + more},
        "ratio": {"min": low, "max": high},
        **KEDA,
    }
    try:
        accept(merged(SMALLEST, {"autoscaling": blocks}), context="test")
    except ConfigError as error:
        if {problem.key for problem in error.problems} != {"autoscaling.ratio"}:
            raise
        return
    for asked in range(floor, floor + more + 1):
        decode = asked
        prefill = min(max(prefill_floor, ceil(decode * low)), max(prefill_floor, prefill_ceiling))
        lifted = min(max(decode, ceil(prefill / high)), floor + more)
        assert lifted == decode, "nothing is lifted by what it lifted itself"
