"""`serving-stack impact` on a live stack: what it says is what the engine says, and nothing changes.

The command runs as a process of its own, with the environment of the operator: that of the bench.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from stack.report import Report, Verdict, from_text
from tests.builders import ROOT
from tests.e2e.bench import STACK, without_traceback
from tests.e2e.test_guards import versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("small")]

IMAGE: dict[str, Any] = {"modelserver": {"image": {"tag": "0.12.1"}}}
MORE_THAN_THERE_ARE: dict[str, Any] = {"modelserver": {"replicas": {"decode": 40}}}
ANOTHER_MODEL: dict[str, Any] = {"modelserver": {"model": "Qwen/Qwen3-1.7B"}}


@pytest.fixture(scope="module")
def live(module_bench_of: Callable[[str], Bench]) -> Bench:
    """Stack dev with a Pod of one role and two of the other."""
    bench = module_bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.change(modelserver={"replicas": {"prefill": 1, "decode": 2}})
    bench.up()
    return bench


@pytest.fixture
def changed(live: Bench) -> Iterator[Callable[..., None]]:
    """Write the live configuration with a change over it; each test begins from what is live."""
    blocks = live.blocks
    live.write(**blocks)

    def change(**over: Any) -> None:
        live.write(**blocks)
        live.change(**over)

    yield change
    live.write(**blocks)


def impact(
    bench: Bench, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command about the bench's stack; it leaves the folder as it was, and no traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "cli", "impact", "--cwd", str(bench.folder), *arguments],
        cwd=ROOT,
        env={**bench.environment, "COLUMNS": "200", **(environment or {})},
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert without_traceback(done.stdout + done.stderr)
    return done


def read(done: subprocess.CompletedProcess[str]) -> Report:
    """The report of `--format json`, valid as the documents say."""
    schema = json.loads((ROOT / "docs" / "impact.schema.json").read_text())
    Draft202012Validator(schema).validate(json.loads(done.stdout))  # pyright: ignore[reportUnknownMemberType]  # no types
    return from_text(done.stdout)


@pytest.mark.parametrize(
    ("over", "want", "steps"),
    [
        pytest.param({}, (Verdict.NOTHING_RESTARTS, 0), set[tuple[str, str]](), id="nothing"),
        pytest.param(
            IMAGE, (Verdict.RESTARTS, 10), {("update", "rel-prefill"), ("update", "rel-decode")}, id="another image"
        ),
        pytest.param(
            {"modelserver": {"replicas": {"decode": 3}}},
            (Verdict.NOTHING_RESTARTS, 0),
            {("update", "rel-decode")},
            id="one Pod more",
        ),
        pytest.param(
            ANOTHER_MODEL,
            (Verdict.OUTAGE, 11),
            {("replace", "rel-prefill"), ("replace", "rel-decode")},
            id="another model",
        ),
    ],
)
def test_impact_and_engine_agree(
    live: Bench,
    changed: Callable[..., None],
    over: dict[str, Any],
    want: tuple[Verdict, int],
    steps: set[tuple[str, str]],
) -> None:
    changed(**over)
    before = versions(live)
    done = impact(live, "--format", "json")
    report = read(done)
    assert (report.verdict, done.returncode) == want, done.stdout + done.stderr
    assert (report.stack, report.release, report.namespace) == (STACK, "rel", live.namespace)
    assert report.engine is not None
    assert report.engine.is_refreshed
    assert report.engine.differences == ()
    deployments = {(step.operation, step.name) for step in report.engine.steps if step.kind == "Deployment"}
    assert deployments - {("update", "rel-epp")} == steps
    assert versions(live) == before, "nothing was changed"


def test_a_refused_change_is_told_with_its_guard_and_nothing_changes(live: Bench, changed: Callable[..., None]) -> None:
    changed(**MORE_THAN_THERE_ARE)
    before = versions(live)
    done = impact(live, "--format", "json")
    assert done.returncode == 12
    report = read(done)
    assert "devices" in {letter.guard for letter in report.refusals}
    assert report.impact is not None, "it says what would happen all the same"
    assert report.engine is None
    assert versions(live) == before


def test_the_table_is_for_people(live: Bench, changed: Callable[..., None], tmp_path: Path) -> None:
    changed(**IMAGE)
    done = impact(live, "--output", str(tmp_path / "table.txt"))
    assert done.returncode == 10
    assert done.stdout == ""
    table = (tmp_path / "table.txt").read_text()
    assert "restarts prefill (1 Pod), decode (2 Pods); no outage" in table
    assert "because of modelserver.image.tag: 0.12.0 -> 0.12.1 (prefill, decode)" in table
    assert "it agrees" in table


def test_problems_of_the_stack_file_are_told_as_a_preview_tells_them(live: Bench, changed: Callable[..., None]) -> None:
    changed(gateway={"port": 0})
    done = impact(live)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[0] == "The stack file has a problem:"
    assert "gateway.port = 0: " in done.stderr


def test_a_stack_that_is_not_there_is_told_and_none_is_selected(live: Bench) -> None:
    selected = live.run("stack", "--show-name")
    done = impact(live, "--stack", "nowhere")
    assert done.returncode == 1
    assert "no stack named 'nowhere' found" in done.stderr
    assert live.run("stack", "--show-name") == selected


# --- without a cluster ------------------------------------------------------------------------------------------------


@pytest.fixture
def away(live: Bench, tmp_path: Path) -> dict[str, str]:
    """An environment in which the API server is not to be reached."""
    return {"KUBECONFIG": live.kubeconfig_to_nowhere(tmp_path)}


def test_without_a_cluster_it_plans_and_says_what_it_could_not_check(
    live: Bench, changed: Callable[..., None], away: dict[str, str]
) -> None:
    changed(**IMAGE)
    done = impact(live, "--no-refresh", "--format", "json", environment=away)
    assert done.returncode == 13, done.stdout + done.stderr
    report = read(done)
    assert report.verdict is Verdict.NOT_KNOWN
    assert report.impact is None
    cluster, change = report.unknown
    assert cluster.startswith(f"cluster of context {live.plane.context}: ")
    assert "what stands in its way" in change
    assert report.engine is not None
    assert not report.engine.is_refreshed
    assert report.engine.differences is None
    changes = {step.name: step.paths for step in report.engine.steps if step.kind == "Deployment"}
    assert changes.keys() == {"rel-prefill", "rel-decode"}
    assert all("spec.template.spec.containers[0].image" in paths for paths in changes.values())


def test_without_a_cluster_a_refresh_ends_it_and_the_way_out_is_told(
    live: Bench, changed: Callable[..., None], away: dict[str, str]
) -> None:
    changed(**IMAGE)
    done = impact(live, environment=away)
    assert done.returncode == 1
    assert "unreachable cluster" in done.stderr
    assert "`--no-refresh` plans without the cluster" in done.stderr


def test_a_cluster_that_the_engine_did_not_look_at_is_still_read_by_the_program(
    live: Bench, changed: Callable[..., None]
) -> None:
    changed(**IMAGE)
    done = impact(live, "--no-refresh", "--format", "json")
    assert done.returncode == 10
    report = read(done)
    assert report.engine is not None
    assert report.engine.differences is None
    assert any(line.startswith("whether the engine agrees") for line in report.unknown)
