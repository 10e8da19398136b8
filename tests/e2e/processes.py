"""What runs on this machine on behalf of a folder."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from local import supervisor


def processes_of(folder: Path) -> list[str]:
    """Command lines of every process on this machine that has to do with a folder."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            identity = supervisor.identify(int(path.parent.name))
            if identity and any(str(folder) in word for word in words):
                found.append(" ".join(words))
    return found


def end_processes_under(folder: Path) -> None:
    """Kill every process whose environment speaks of a folder: what an engine that was killed left behind.

    A killed engine cannot stop its language host and its plugins, and they do not notice.
    """
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if int(path.parent.name) != os.getpid() and str(folder).encode() in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)
