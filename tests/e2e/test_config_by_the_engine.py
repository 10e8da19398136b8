"""The engine's own parser reads the stack file: what the program gets and what our commands read must be the same."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from pulumi.automation import ConfigValue

from cli.stackfile import read_stack_file
from stack.errors import ConfigError
from tests.builders import STACK_FILES
from tests.e2e.bench import without_traceback
from tests.unit.config.bad_files import BadFile, bad_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from local.toolchain import Toolbox
    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("small")]
GOOD = [*STACK_FILES]
SCALARS = """\
text: chat
quoted: "0120"
octal: 0120
hexadecimal: 0x1F
new-octal: 0o17
grouped: 1_000
exponent: 1e3
whole: 1.0
fraction: 1.50
small: 0.000001
smaller: 0.00000025
large: 1e30
beyond-64-bits: 12345678901234567890123
yes: yes
on: on
true: True
day: 2026-08-01
moment: 2026-08-01T10:00:00+02:00
fraction-of-a-second: 2026-08-01 10:00:00.50
nothing:
tilde: ~
"""
"""Scalars that YAML versions and parsers read differently, as keys of one map and directly at config keys."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """The engine's own reading of stack files, for a stack that exists."""

    pulumi: Path
    folder: Path
    environment: dict[str, str]

    def read(self, path: Path) -> dict[str, Any]:
        """What the engine makes of a stack file: block -> value, objects decoded; what is encrypted is left out.

        Raises:
            subprocess.CalledProcessError: the engine refuses the file.
        """
        listed = subprocess.run(
            [self.pulumi, "config", "--json", "--stack", "test", "--config-file", path],
            cwd=self.folder,
            env=self.environment,
            check=True,
            capture_output=True,
            text=True,
        )
        read: dict[str, Any] = {}
        for key, entry in json.loads(listed.stdout).items():
            project, _, block = key.partition(":")
            if project == "serving-stack" and not entry["secret"]:
                read[block] = entry["objectValue"] if "objectValue" in entry else entry.get("value", "")
        return read


@pytest.fixture
def engine(bench_of: Callable[[str], Bench], toolbox: Toolbox) -> Engine:
    bench = bench_of("small")
    bench.write()
    assert bench.stack is not None, "it is made here"
    return Engine(pulumi=toolbox.path("pulumi"), folder=bench.folder, environment=bench.environment)


def test_both_readers_agree_on_every_good_file(engine: Engine) -> None:
    assert GOOD
    for path in GOOD:
        assert read_stack_file(path.read_text(encoding="utf-8"))[0] == engine.read(path), path.name


def test_both_readers_agree_on_odd_scalars(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "odd.yaml"
    top = "".join(f"  serving-stack:top-{line}\n" for line in SCALARS.splitlines())
    inner = "".join(f"    {line}\n" for line in SCALARS.splitlines())
    file.write_text(f"config:\n{top}  serving-stack:map:\n{inner}  no-project: chat\n")
    assert read_stack_file(file.read_text())[0] == engine.read(file)


def test_both_readers_agree_on_every_bad_file_too_and_stop_at_the_same(engine: Engine) -> None:
    def compare(bad: BadFile) -> str | None:
        """What differs, None if nothing does."""
        try:
            ours, _ = read_stack_file(bad.text)
        except ConfigError:
            ours = None
        try:
            theirs = engine.read(bad.path)
        except subprocess.CalledProcessError as error:
            theirs = None
            if bad.engine_says is not None and bad.engine_says not in error.stderr:
                return f"{bad.path.name}: the engine says {error.stderr}"
        if bad.stops_the_engine != (theirs is None):
            return f"{bad.path.name}: marked as stopping the engine: {bad.stops_the_engine}, stopped: {theirs is None}"
        if ours is not None and theirs is not None:
            encrypted = ours.keys() - theirs.keys()
            assert all('"secure"' in json.dumps(ours[block]) for block in encrypted)
            ours = {block: value for block, value in ours.items() if block not in encrypted}
        return None if ours == theirs else f"{bad.path.name}: {ours} here, {theirs} there"

    with ThreadPoolExecutor(2) as pool:
        assert [difference for difference in pool.map(compare, bad_files()) if difference] == []


def test_bad_config_stops_the_engine_with_every_problem_and_no_traceback(bench_of: Callable[[str], Bench]) -> None:
    bench = bench_of("small")
    bench.write(
        recipe="qwen3-0.6b",
        modelserver={"replica": {"prefill": 1}, "image": {"tag": 12}},
        devices={"npu": {"mode": "draa"}},
        storage={"model": {"kind": "existingClaim"}},
    )
    said = bench.refuse()
    for key in ("modelserver.replica", "modelserver.image.tag", "devices.npu.mode"):
        assert key in said
    assert without_traceback(said)
    assert bench.objects() == set(), "nothing half applied"


def test_an_encrypted_block_is_refused_without_showing_it(bench_of: Callable[[str], Bench]) -> None:
    bench = bench_of("small")
    bench.write(recipe="qwen3-0.6b")
    bench.stack.set_config("serving-stack:eppServiceName", ConfigValue(value="hunter2", secret=True))
    said = bench.refuse()
    assert "eppServiceName" in said
    assert "hunter2" not in said
    assert without_traceback(said)
