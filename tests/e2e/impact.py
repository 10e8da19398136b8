"""One cell of the impact table on a live stack: change a key, see what preview says, apply it, see which Pods are new.

Cells of one module share a live stack and are applied one after another; each looks at the Pods before and after its
own change, so it does not matter what came before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from stack.impact import Happening, Method
from tests.builders import ROOT
from tests.e2e.bench import is_ready
from tests.e2e.prediction import as_foreseen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stack.report import Report
    from tests.e2e.bench import Bench, Pods

NONE: frozenset[str] = frozenset()
PREFILL, DECODE, AGGREGATED, EPP = (frozenset({part}) for part in ("prefill", "decode", "aggregated", "epp"))
SERVERS = PREFILL | DECODE
QUICK: dict[str, Any] = {
    "modelserver": {
        "replicas": {"prefill": 1, "decode": 2},
        # All Pods of a role at once: there are devices for it, and a cell takes half the time.
        "strategy": {"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}},
    }
}
"""Stack dev with two Pods of one role, so that a role of which only some Pods are new is seen."""


def below(key: str, value: Any) -> dict[str, Any]:
    """A value at a key with dots: `below("gateway.port", 80)`. What follows a comma is not of the key."""
    for word in reversed(key.partition(",")[0].split(".")):
        value = {word: value}
    return value


def _keys(blocks: dict[str, Any], path: str = "") -> Iterator[str]:
    """Every key of nested blocks that has a value."""
    for key, value in blocks.items():
        if isinstance(value, dict):
            yield from _keys(cast("dict[str, Any]", value), f"{path}{key}.")
        else:
            yield f"{path}{key}"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One key and what its change does. Objects are written `Kind/name`, with `*` for a hash of content.

    Attributes:
        key: the config key, and after a comma what is done to it if there is more than one thing.
        change: blocks merged over the stack file.
        restarts: parts whose Pods are all new afterwards; their Deployments are updated in place.
        changes: names by content: a new one is made, and the old one goes at the end.
        updates: what else is updated in place.
        creates, deletes, replaces: what else is made, goes, or is replaced.
        because: keys that it says are the reason, with `{part}` for the part that restarts; None if those that are set.
        and_back: whether the previous configuration is put back afterwards, which must bring back the same Pod
            templates and leave nothing to change.
    """

    key: str
    change: dict[str, Any]
    restarts: frozenset[str] = NONE
    changes: frozenset[str] = NONE
    updates: frozenset[str] = NONE
    creates: frozenset[str] = NONE
    deletes: frozenset[str] = NONE
    replaces: frozenset[str] = NONE
    because: frozenset[str] | None = None
    and_back: bool = False

    @property
    def reasons(self) -> set[str]:
        """Keys that it must name as the reason of restarts."""
        keys = set(_keys(self.change)) if self.because is None else self.because
        return {key.format(part=part) for key in keys for part in self.restarts}

    @property
    def objects(self) -> dict[str, set[str]]:
        """What a preview must say, by operation."""
        rolled = {deployment(part) for part in self.restarts} - self.replaces
        wanted = {
            "create": self.creates | self.changes,
            "update": self.updates | rolled,
            "replace": self.replaces,
            "delete": self.deletes | self.changes,
        }
        return {op: set(objects) for op, objects in wanted.items() if objects}


def deployment(part: str) -> str:
    return f"Deployment/rel-{part}"


def serve_configs(*roles: str) -> frozenset[str]:
    """The roles' serve ConfigMaps."""
    return frozenset(f"ConfigMap/rel-serve-{role}-*" for role in roles)


def cell(key: str, value: Any, restarts: frozenset[str] = NONE, **more: Any) -> Cell:
    """The cell of a key that is set to a value."""
    return Cell(key=key, change=below(key, value), restarts=restarts, **more)


def cells(*given: Cell) -> Callable[[Any], Any]:
    """One test a cell, named by its key."""
    return pytest.mark.parametrize("each", [pytest.param(one, id=one.key) for one in given])


def start(bench: Bench, **blocks: Any) -> Bench:
    """Bring up stack dev, with `QUICK` and then blocks over it."""
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.change(**QUICK)
    bench.change(**blocks)
    bench.add_what_an_operator_has()
    with as_foreseen(bench):
        bench.up()
    return bench


def templates(bench: Bench) -> set[tuple[str, str]]:
    """Part and hash of the Pod template of every Pod that stays: the same template has the same hash."""
    labels = [
        pod["metadata"]["labels"]
        for pod in bench.pods("app.kubernetes.io/instance=rel")
        if "deletionTimestamp" not in pod["metadata"]
    ]
    return {(label["app.kubernetes.io/component"], label["pod-template-hash"]) for label in labels}


def volumes(bench: Bench) -> dict[str, str]:
    """UIDs by name of the volumes that belong to no Pod."""
    claims = bench.volume_claims().items()
    return {name: claim["metadata"]["uid"] for name, claim in claims if "ownerReferences" not in claim["metadata"]}


def see(bench: Bench, cell: Cell) -> None:
    """Apply a cell: preview shows its objects and no other, exactly the Pods that it names are new, as was foreseen."""
    previous, were = bench.blocks, templates(bench)
    before, kept = bench.parts(), volumes(bench)
    bench.change(**cell.change)
    foreseen = bench.foresee()
    assert foreseen.objects == cell.objects
    named(foreseen.report, cell)
    with as_foreseen(bench, foreseen.report):
        bench.up()
    changed = restarted(bench, before, cell)
    assert kept.items() <= volumes(bench).items(), "no volume is replaced"
    if cell.and_back:
        bench.write(**previous)
        with as_foreseen(bench):
            bench.up()
        named(bench.report(), cell)
        restarted(bench, changed, cell)
        assert templates(bench) == were, "the Pods are what they were before"
        assert bench.preview() == {}


def named(report: Report | None, cell: Cell) -> None:
    """The report says that the cell's parts restart because of its keys, and all others stay."""
    assert report is not None
    assert report.impact is not None
    parts = {part.part: part for part in report.impact.parts}
    assert {name for name, part in parts.items() if part.happens is Happening.RESTARTS} == cell.restarts
    assert {name for name, part in parts.items() if part.happens is Happening.STAYS} == parts.keys() - cell.restarts
    told = {key.key for part in parts.values() for key in part.keys}
    assert told == cell.reasons, f"these or those alone: {told ^ cell.reasons}"
    for name in cell.restarts:
        assert parts[name].keys
        assert parts[name].reason is None
        assert parts[name].is_restart_certain
        is_replaced = deployment(name) in cell.replaces
        assert parts[name].method is (Method.REPLACE if is_replaced else Method.ROLLING)


def restarted(bench: Bench, before: Pods, cell: Cell) -> Pods:
    """The Pods now: as many as before, those of the cell's parts new, all others the same, all Ready."""
    after = bench.parts()
    assert after.counts == before.counts
    assert after.new_since(before) == cell.restarts
    assert all(is_ready(pod) for pod in bench.pods())
    return after
