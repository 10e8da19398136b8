"""Changes of the topology on a live stack: every device is free before a new Pod asks for one, and volumes stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import ROOT
from tests.e2e.bench import is_ready

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("small")]
NODES = ("npu-0", "npu-1")
ENTRIES = [{"role": role, "node": node} for node in NODES for role in ("prefill", "decode")]


def place(bench: Bench, entries: list[dict[str, str]]) -> None:
    bench.change(modelserver={"replicas": {"prefill": 0, "decode": 0}, "nodePlacement": entries})


def pods(bench: Bench) -> dict[str, str]:
    """UID of every role Pod, by name; all must be Ready."""
    found = bench.pods()
    assert all(is_ready(pod) for pod in found)
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found}


def nodes_of(bench: Bench) -> list[tuple[str, str]]:
    """Entry and node of every role Pod."""
    return sorted(
        (pod["metadata"]["labels"]["serving-stack.dev/entry"], pod["spec"]["nodeName"]) for pod in bench.pods()
    )


def generation(bench: Bench) -> Any:
    return bench.stack.outputs()["topology"].value["generation"]


def test_a_mode_switch_and_a_reorder_replace_every_pod_and_an_appended_entry_touches_none(
    bench_of: Callable[[str], Bench],
) -> None:
    bench = bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.change(modelserver={"replicas": {"prefill": 2, "decode": 2}})
    bench.up()
    first, kept = pods(bench), bench.volume_uids()

    place(bench, ENTRIES)
    assert bench.preview() == {"replace": 1, "create": 4}, "the anchor, and the entries in place of the roles"
    bench.up()
    placed = pods(bench)
    assert nodes_of(bench) == [("0", "npu-0"), ("1", "npu-0"), ("2", "npu-1"), ("3", "npu-1")]
    assert not set(placed.values()) & set(first.values())
    assert bench.preview() == {}

    place(bench, [*ENTRIES, {"role": "decode", "node": "npu-0"}])
    assert bench.preview() == {"create": 1}
    bench.up()
    appended = pods(bench)
    assert placed.items() < appended.items(), "the entries that were there are as they were"
    assert generation(bench) == 1

    place(bench, ENTRIES[::-1])
    bench.up()
    reordered = pods(bench)
    assert nodes_of(bench) == [("0", "npu-1"), ("1", "npu-1"), ("2", "npu-0"), ("3", "npu-0")]
    assert not set(reordered.values()) & set(appended.values())
    assert generation(bench) == 2
    assert bench.preview() == {}, "a reorder is told from what runs, and that is as wanted now"

    bench.change(modelserver={"replicas": {"prefill": 2, "decode": 2}, "nodePlacement": []})
    bench.up()
    assert len(pods(bench)) == 4
    assert bench.preview() == {}
    assert bench.volume_uids() == kept
