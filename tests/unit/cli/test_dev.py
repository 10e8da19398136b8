"""The try-out commands, with stand-ins for the engine and no plane."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from cli import dev
from cli.main import app
from local.errors import LocalError
from local.waiting import wait_until
from tests.builders import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 20
# It takes its leave after the first signal, as the engine does; only what kills it keeps it from that.
ENGINE = """\
#!/bin/sh
trap 'sleep 1; echo gone > "$FOLDER/end"; exit 3' INT TERM
echo "$*" > "$FOLDER/begun"
while :; do sleep 0.05; done
"""
RUN = """
import os, sys
from pathlib import Path
from types import SimpleNamespace
from cli.dev import Bench
folder = Path(os.environ["FOLDER"])
tools = SimpleNamespace(path=folder.joinpath)
sys.exit(Bench(toolbox=tools, plane=None, namespace="llm", environment=dict(os.environ)).pulumi("up", "--yes"))
"""


@pytest.mark.parametrize(
    "to_all", [pytest.param(signal.SIGINT, id="Ctrl-C, which a terminal sends to all"), pytest.param(None, id="kill")]
)
def test_an_interrupted_engine_is_given_the_time_to_release_its_stack(
    to_all: signal.Signals | None, tmp_path: Path
) -> None:
    engine = tmp_path / "pulumi"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    command = subprocess.Popen(
        [sys.executable, "-c", RUN], cwd=ROOT, env={**os.environ, "FOLDER": str(tmp_path)}, start_new_session=True
    )
    try:
        begun = tmp_path / "begun"
        wait_until(lambda: begun.exists() and begun.read_text(), timeout=SECONDS, what="the engine to begin")
        if to_all is None:
            command.terminate()
        else:
            os.killpg(command.pid, to_all)
        assert command.wait(SECONDS) == 3, "the engine's own exit status"
        assert (tmp_path / "end").read_text() == "gone\n"
        assert begun.read_text() == "up --yes --non-interactive\n"
    finally:
        if command.poll() is None:
            os.killpg(command.pid, signal.SIGKILL)
            command.wait()


@pytest.mark.parametrize(
    ("command", "code", "want"),
    [("down", 0, "Nothing is running any more."), ("status", 1, "not running"), ("env", 1, "not running")],
)
def test_without_a_plane_nothing_is_built_to_say_so(
    command: str, code: int, want: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ensure(_names: object) -> None:
        raise AssertionError("tools were asked for")

    monkeypatch.setattr(dev, "ensure", ensure)
    result = CliRunner().invoke(app, ["dev", command], env={"SERVING_STACK_STATE": str(tmp_path)})
    assert result.exit_code == code
    assert want in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_failure_is_shown_as_it_is_though_logs_look_like_markup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ensure(_names: object) -> None:
        raise LocalError("etcd ended by itself.\n  | [/registry/pods] took too long [bold]")

    monkeypatch.setattr(dev, "ensure", ensure)
    result = CliRunner().invoke(app, ["dev", "up"], env={"SERVING_STACK_STATE": str(tmp_path)})
    assert result.exit_code == 1
    assert "| [/registry/pods] took too long [bold]" in result.output


def lock(backend: Path, **held: object) -> None:
    folder = backend / ".pulumi" / "locks" / "organization" / "serving-stack" / "dev"
    folder.mkdir(parents=True)
    (folder / "1.json").write_text(json.dumps(held))


def test_a_lock_is_taken_away_only_from_a_process_of_this_machine_that_is_gone(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    here = socket.gethostname()
    lock(tmp_path / "gone", pid=gone.pid, hostname=here)
    lock(tmp_path / "alive", pid=os.getpid(), hostname=here)
    lock(tmp_path / "elsewhere", pid=gone.pid, hostname="elsewhere")
    lock(tmp_path / "odd", pid="x")
    judged = {
        case: dev.is_locked_by_the_dead(tmp_path / case) for case in ("gone", "alive", "elsewhere", "odd", "none")
    }
    assert judged == {"gone": True, "alive": False, "elsewhere": False, "odd": False, "none": False}
