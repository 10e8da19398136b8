"""Roll-outs are awaited beside the engine, side by side, and a failing wait ends the program with one message."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pulumi
import pytest

from components.waits import EXIT_MESSAGE_WAS_SHOWN, beside_the_program
from tests.builders import ROOT
from tests.components.programs import PLANS, whole_stack
from tests.components.recorder import MonitorIsGoneError, Recorder, Stage

if TYPE_CHECKING:
    from stack.planned import StackPlan
    from tests.components.recorder import Recorded

DEADLINE = 10
NOTHING_ELSE: dict[str, Any] = {"claims": (), "volumes": (), "router": (), "gateway": (), "monitoring": ()}
ROLES = dataclasses.replace(PLANS["the smallest"], **NOTHING_ELSE)
ENTRIES = dataclasses.replace(PLANS["entries on nodes"], **NOTHING_ELSE)


def test_every_deployment_is_awaited_once_by_its_name_in_the_cluster(planned: StackPlan, declare: Stage) -> None:
    awaited: list[str] = []
    declare(whole_stack(planned, until_rolled_out=awaited.append))
    assert sorted(awaited) == sorted(o.name for o in planned.objects() if o.kind == "Deployment")
    assert sorted(awaited) == sorted(planned.roll_outs), "the plan says what has to be seen of each"


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
    owners: list[str] = []

    def until_may_be_made(owner_uid: str) -> None:
        was_made.append(("Deployment", f"rel-{role}") in recorder.made)
        owners.append(owner_uid)

    servers = ROLES.modelserver
    alone = dataclasses.replace(servers, workloads=tuple(w for w in servers.workloads if w.role == role))
    planned = dataclasses.replace(ROLES, modelserver=alone)
    declare(whole_stack(planned, until_may_be_made=until_may_be_made), recorder=recorder)
    assert was_made == [False]
    assert ("Deployment", f"rel-{role}") in recorder.made
    workload = recorder.named(f"rel-{role}", "Deployment")
    assert owners == [workload.inputs["metadata"]["ownerReferences"][0]["uid"]]


# --- what comes after what --------------------------------------------------------------------------------------------


def test_the_anchor_and_all_that_stands_on_it_come_after_the_epp_serves(declare: Stage) -> None:
    """No Pod is touched before the EPP that is to find it serves, and neither is any taken down."""
    recorder, before = Recorder(), set[tuple[str, str]]()

    def until_rolled_out(name: str) -> None:
        if name == "rel-epp":
            declare.until_calm()
            before.update((r.kind, r.name) for r in recorder.resources)

    planned = PLANS["everything made by the stack"]
    declare(whole_stack(planned, until_rolled_out=until_rolled_out), recorder=recorder)
    after = {(r.kind, r.name) for r in recorder.resources} - before
    assert after == {
        ("ConfigMap", "rel-topology"),
        *(("RoleSeat", f"rel-{role}") for role in ("prefill", "decode", "aggregated")),
        *(("ScalerSeat", f"rel-{role}-scaler") for role in ("prefill", "decode", "aggregated")),
        *(("Deployment", f"rel-{role}") for role in ("prefill", "decode")),
    }


EVERYTHING = PLANS["everything made by the stack"]
WHAT_HOLDS_DEVICES = {("ConfigMap", "rel-topology"), ("Deployment", "rel-prefill"), ("Deployment", "rel-decode")}


@pytest.mark.parametrize(
    ("kind", "name"), sorted({(o.kind, o.name) for o in EVERYTHING.objects()} - WHAT_HOLDS_DEVICES)
)
def test_an_object_that_fails_does_so_before_the_anchor_or_a_workload_is_touched(
    declare: Stage, kind: str, name: str
) -> None:
    """A claim without quota, a scrape object without its CRD: everything runs on while that is mended."""

    def identity(registered: Recorded) -> tuple[str, str]:
        return registered.kind, registered.inputs["metadata"]["name"]

    def before_answer(registered: Recorded) -> None:
        if registered.is_object and identity(registered) == (kind, name):
            declare.until_calm(held=1)  # so that what does not wait for it is there
            raise MonitorIsGoneError

    recorder = Recorder(before_answer=before_answer)
    with pytest.raises(pulumi.RunError):
        declare(whole_stack(EVERYTHING), recorder=recorder)
    touched = set(map(identity, recorder.objects))
    assert (kind, name) in touched
    assert not touched & WHAT_HOLDS_DEVICES
    assert recorder.of("RoleSeat") == recorder.of("ScalerSeat") == []


@pytest.mark.parametrize("kind", ["RoleSeat", "ScalerSeat"])
@pytest.mark.parametrize("role", ["prefill", "decode", "aggregated"])
def test_no_workload_comes_before_the_last_seat(declare: Stage, role: str, kind: str) -> None:
    """Else a role would grow before the engine has heard of another one that goes, and takes it down.

    And a number would be written while what undoes it is still there.
    """
    seen_before: list[bool] = []

    def before_answer(registered: Recorded) -> None:
        if registered.kind == kind and registered.name in {f"rel-{role}", f"rel-{role}-scaler"}:
            declare.until_calm(held=1)
            seen_before.append(bool(recorder.of("Deployment")))

    recorder = Recorder(before_answer=before_answer)
    declare(whole_stack(ROLES), recorder=recorder)
    assert seen_before == [False]
    assert len(recorder.of("Deployment")) == 2


def running(*, one_after_the_other: bool = True) -> StackPlan:
    """Two prefill and two decode entries, of which each second one waits for the first one of its role, or none."""
    after = {"rel-prefill-2": ("rel-prefill-0",), "rel-decode-3": ("rel-decode-1",)} if one_after_the_other else {}
    workloads = [dataclasses.replace(w, after=after.get(w.object.name, ())) for w in ENTRIES.modelserver.workloads]
    return dataclasses.replace(
        ENTRIES, modelserver=dataclasses.replace(ENTRIES.modelserver, workloads=tuple(workloads))
    )


def deployments(recorder: Recorder) -> set[str]:
    return {recorded.name for recorded in recorder.of("Deployment")}


@pytest.mark.parametrize(
    ("earlier", "later", "of_the_other_role"),
    [("rel-prefill-0", "rel-prefill-2", "rel-decode-1"), ("rel-decode-1", "rel-decode-3", "rel-prefill-0")],
)
def test_an_entry_is_changed_after_the_earlier_one_has_rolled_out(
    declare: Stage, earlier: str, later: str, of_the_other_role: str
) -> None:
    recorder, before = Recorder(), set[str]()

    def until_rolled_out(name: str) -> None:
        if name == earlier:
            declare.until_calm()
            before.update(deployments(recorder))

    declare(whole_stack(running(), until_rolled_out=until_rolled_out), recorder=recorder)
    assert later not in before
    assert before >= {earlier, of_the_other_role}, "what does not wait for it is not held up"
    assert deployments(recorder) == {"rel-prefill-0", "rel-decode-1", "rel-prefill-2", "rel-decode-3"}


def test_entries_that_wait_for_none_start_together(declare: Stage) -> None:
    recorder, before = Recorder(), list[set[str]]()

    def until_rolled_out(_: str) -> None:
        declare.until_calm()
        before.append(deployments(recorder))

    declare(whole_stack(running(one_after_the_other=False), until_rolled_out=until_rolled_out), recorder=recorder)
    assert before == [{"rel-prefill-0", "rel-decode-1", "rel-prefill-2", "rel-decode-3"}] * 4


def test_an_entry_is_not_touched_when_the_earlier_one_does_not_roll_out(declare: Stage) -> None:
    def until_rolled_out(name: str) -> None:
        if name == "rel-prefill-0":
            raise pulumi.RunError("rel-prefill-0 did not roll out")

    recorder = Recorder()
    with pytest.raises(pulumi.RunError) as caught:
        declare(whole_stack(running(), until_rolled_out=until_rolled_out), recorder=recorder)
    assert str(caught.value) == "rel-prefill-0 did not roll out"
    assert "rel-prefill-2" not in deployments(recorder)


def test_no_model_server_is_touched_when_the_epp_does_not_roll_out(declare: Stage) -> None:
    def until_rolled_out(name: str) -> None:
        assert name == "rel-epp"
        raise pulumi.RunError("rel-epp did not roll out")

    recorder = Recorder()
    with pytest.raises(pulumi.RunError) as caught:
        declare(whole_stack(PLANS["the smallest"], until_rolled_out=until_rolled_out), recorder=recorder)
    assert str(caught.value) == "rel-epp did not roll out"
    assert deployments(recorder) == {"rel-epp"}
    assert not {"rel-topology"} & {r.name for r in recorder.objects}


# --- how a wait ends --------------------------------------------------------------------------------------------------


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
    def until_may_be_made(_: str) -> None:
        raise pulumi.RunError("rel-prefill-x of the earlier topology did not leave")

    recorder = Recorder(runs_hooks=True)
    with pytest.raises(pulumi.RunError):  # and no other exception, for which the SDK would print a traceback
        declare(whole_stack(ROLES, until_may_be_made=until_may_be_made), recorder=recorder)
    assert set(recorder.hook_errors) == {"rel-prefill-x of the earlier topology did not leave"}


def test_nothing_is_awaited_in_a_preview(declare: Stage) -> None:
    """Neither model servers nor the EPP, nor an entry before the next one."""
    awaited: list[str] = []
    planned = dataclasses.replace(running(), router=PLANS["the smallest"].router)
    declare(
        whole_stack(planned, until_rolled_out=awaited.append),
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


def test_a_wait_that_ends_in_stop_iteration_ends(declare: Stage) -> None:
    """No future takes one, and the program would go on for ever: `next()` on a list that turned out empty did that."""

    def stop() -> None:
        next(iter(()))

    with pytest.raises(RuntimeError, match="the wait ended early: StopIteration"):
        asyncio.run(asyncio.wait_for(beside_the_program(stop), DEADLINE))
    with pytest.raises(RuntimeError, match="the wait ended early: StopIteration"):
        declare(whole_stack(ROLES, until_rolled_out=lambda _: stop()))


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
