"""Where the local plane keeps things on this machine, as the XDG Base Directory Specification has it."""

from __future__ import annotations

import os
from pathlib import Path

from local.toolchain.cache import cache_root

APP = "serving-stack"


def cache_folder() -> Path:
    """Return the per-user folder for what can be made again: the toolchain's, wherever that was put."""
    return cache_root(os.environ)


def planes_folder() -> Path:
    """Return the per-user folder that holds the planes, one folder each."""
    return _xdg("XDG_STATE_HOME", ".local/state") / APP / "planes"


def _xdg(variable: str, otherwise: str) -> Path:
    chosen = os.environ.get(variable, "")
    # The specification says that a relative path is to be ignored.
    return Path(chosen) if Path(chosen).is_absolute() else Path.home() / otherwise
