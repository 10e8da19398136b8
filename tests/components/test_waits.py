"""Roll-outs are awaited beside the engine, side by side, and a failing wait ends the program with one message."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pulumi
import pytest

from components.waits import EXIT_MESSAGE_WAS_SHOWN, beside_the_program
from tests.builders import ROOT
from tests.components.programs import PLANS, whole_stack
from tests.components.recorder import Recorder, Stage

DEADLINE = 10
NOTHING_ELSE: dict[str, Any] = {"claims": (), "volumes": (), "router": (), "gateway": (), "monitoring": ()}
ROLES = dataclasses.replace(PLANS["the smallest"], **NOTHING_ELSE)
ENTRIES = dataclasses.replace(PLANS["entries on nodes"], **NOTHING_ELSE)


def test_every_workload_is_awaited_by_its_name_in_the_cluster(declare: Stage) -> None:
    awaited: list[str] = []
    declare(whole_stack(ENTRIES, until_rolled_out=awaited.append), recorder=Recorder(runs_hooks=True))
    assert sorted(awaited) == ["rel-decode-1", "rel-decode-3", "rel-prefill-0", "rel-prefill-2"]


def test_roll_outs_are_awaited_side_by_side(declare: Stage) -> None:
    """Each waits for the others, so one after another would never end."""
    together, arrived = threading.Barrier(4, timeout=DEADLINE), list[str]()

    def until_rolled_out(name: str) -> None:
        together.wait()
        arrived.append(name)

    declare(whole_stack(ENTRIES, until_rolled_out=until_rolled_out), recorder=Recorder(runs_hooks=True))
    assert len(arrived) == 4


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_devices_are_awaited_before_a_workload_is_made(declare: Stage, role: str) -> None:
    """Each alone, so that it is its own wait that is seen."""
    recorder = Recorder(runs_hooks=True)
    was_made: list[bool] = []

    def until_devices_are_free() -> None:
        was_made.append(f"rel-{role}-id" in recorder.made)

    servers = ROLES.modelserver
    alone = dataclasses.replace(servers, workloads=tuple(w for w in servers.workloads if w.role == role))
    planned = dataclasses.replace(ROLES, modelserver=alone)
    declare(whole_stack(planned, until_devices_are_free=until_devices_are_free), recorder=recorder)
    assert was_made == [False]
    assert f"rel-{role}-id" in recorder.made


def test_a_failing_roll_out_ends_the_program_with_its_message_alone(declare: Stage) -> None:
    def until_rolled_out(name: str) -> None:
        if name == "rel-decode":
            raise pulumi.RunError("rel-decode did not roll out")

    with pytest.raises(pulumi.RunError) as caught:
        declare(whole_stack(ROLES, until_rolled_out=until_rolled_out), recorder=Recorder(runs_hooks=True))
    assert str(caught.value) == "rel-decode did not roll out"


def test_a_failing_roll_out_does_not_wait_for_the_others(declare: Stage) -> None:
    hanging, ended = threading.Event(), threading.Event()

    def until_rolled_out(name: str) -> None:
        if name == "rel-decode":
            raise pulumi.RunError("rel-decode did not roll out")
        hanging.wait(DEADLINE)
        ended.set()

    try:
        with pytest.raises(pulumi.RunError, match="rel-decode"):
            declare(
                whole_stack(ROLES, until_rolled_out=until_rolled_out),
                recorder=Recorder(runs_hooks=True),
            )
        assert not ended.is_set()
    finally:
        hanging.set()


def test_what_a_failing_hook_says_reaches_the_engine_as_one_line(declare: Stage) -> None:
    def until_devices_are_free() -> None:
        raise pulumi.RunError("rel-prefill-x of the earlier topology did not leave")

    recorder = Recorder(runs_hooks=True)
    with pytest.raises(pulumi.RunError):  # and no other exception, for which the SDK would print a traceback
        declare(whole_stack(ROLES, until_devices_are_free=until_devices_are_free), recorder=recorder)
    assert set(recorder.hook_errors) == {"rel-prefill-x of the earlier topology did not leave"}


def test_nothing_is_awaited_in_a_preview(declare: Stage) -> None:
    awaited: list[str] = []
    declare(
        whole_stack(ROLES, until_rolled_out=awaited.append),
        preview=True,
        recorder=Recorder(uid=None, runs_hooks=False),  # the engine runs none then
    )
    assert awaited == []


def test_a_wait_beside_the_program_leaves_the_event_loop_alone() -> None:
    async def both() -> None:
        served = threading.Event()
        waiting = asyncio.ensure_future(beside_the_program(lambda: _need(served)))
        await asyncio.sleep(0)
        served.set()
        await waiting

    asyncio.run(both())


def _need(event: threading.Event) -> None:
    assert event.wait(DEADLINE)


def test_an_abandoned_wait_says_nothing_when_it_ends() -> None:
    """Its loop is closed by then; an error on its thread would be printed as a traceback."""
    goes_on, said = threading.Event(), list[object]()
    before, kept = set(threading.enumerate()), threading.excepthook
    threading.excepthook = said.append
    try:

        async def abandon() -> None:
            waiting = asyncio.ensure_future(beside_the_program(lambda: _need(goes_on)))
            await asyncio.sleep(0)
            waiting.cancel()

        asyncio.run(abandon())
        goes_on.set()
        for thread in set(threading.enumerate()) - before:
            thread.join(DEADLINE)
            assert thread.daemon, "it would keep the program from ending"
    finally:
        threading.excepthook = kept
    assert said == []


def test_the_engines_interrupt_ends_the_program_without_a_traceback() -> None:
    code = (
        "import sys, time\n"
        "from components.waits import end_quietly_when_interrupted\n"
        "end_quietly_when_interrupted()\n"
        "print('ready', flush=True)\n"
        f"time.sleep({DEADLINE})\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        os.kill(program.pid, signal.SIGINT)
        _, errors = program.communicate(timeout=DEADLINE)
    assert (program.returncode, errors) == (EXIT_MESSAGE_WAS_SHOWN, "")
