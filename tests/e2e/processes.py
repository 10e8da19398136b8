"""What runs on this machine on behalf of a folder."""

from __future__ import annotations

import contextlib
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
