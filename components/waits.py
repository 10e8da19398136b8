"""How the program waits for the cluster without standing in the engine's way.

Three things were found on the real engine (CLI 3.274, SDK 3.272):

* The SDK runs hooks on the program's event loop; one that blocks there keeps everything else from being registered.
* The engine holds the state of a resource locked while an *after* hook of it runs, and so can save, and soon start,
  nothing else: roll-outs awaited in after hooks ran one after the other, and could not be cancelled. So there are no
  after hooks here; the program waits once the engine has let go.
* The engine interrupts the program of a failed or cancelled update, and Python prints a traceback of wherever it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import signal
import threading
from typing import TYPE_CHECKING

import pulumi

if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_MESSAGE_WAS_SHOWN = 32
"""Exit code by which the SDK tells the language host that what is wrong was told; any other adds a line of its own."""


async def beside_the_program(wait: Callable[[], None]) -> None:
    """Run a blocking wait on a thread of its own and raise what it raises.

    Not on the event loop's own threads: each registration under way holds one of those, and their number is limited. A
    thread that is still waiting does not keep the program from ending.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def tell(error: BaseException | None) -> None:
        if ended.done():
            return
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            wait()
        except StopIteration as raised:  # no future takes one, and the program would wait for ever
            error = RuntimeError(f"the wait ended early: {raised!r}")
        except Exception as raised:  # noqa: BLE001  # it is raised again where it is awaited
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: the program ended for another reason
            loop.call_soon_threadsafe(tell, error)

    # The SDK finds its engine through context variables.
    threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True).start()
    await ended


def rolled_out(workload: pulumi.CustomResource, wait: Callable[[], None]) -> pulumi.Output[pulumi.Resource]:
    """The workload itself, once it has rolled out, for others to depend on; at once in a preview.

    Also for a workload that did not change in this update: it may still be on its way from the one before, and an
    update that ends well has to mean that the stack serves.
    """

    async def after(_: object) -> pulumi.Resource:
        if not pulumi.runtime.is_dry_run():
            await beside_the_program(wait)
        return workload

    return workload.id.apply(after)


def end_quietly_when_interrupted() -> None:
    """Take the engine's interrupt without a traceback: by then it has said itself what failed."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _end)


def _end(_number: int, _frame: object) -> None:
    os._exit(EXIT_MESSAGE_WAS_SHOWN)
