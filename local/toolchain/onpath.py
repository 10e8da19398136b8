"""What is already on PATH: which binaries there are good enough to be used instead of built.

Policy is data (`on_path` in the pins); this module asks the binaries and compares. It installs and links nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from local.toolchain.pins import OnPath, Pins, Tool

ASK_SECONDS = 15


@dataclass(frozen=True, kw_only=True)
class Found:
    """A binary on PATH that will be used."""

    path: Path
    version: str


@dataclass(frozen=True, kw_only=True)
class Declined:
    """A binary on PATH that will not be used, and why."""

    path: Path
    why: str


@dataclass(frozen=True, kw_only=True)
class Look:
    """What PATH holds for one tool: at most one binary to use, and those that were looked at before it."""

    found: Found | None
    declined: tuple[Declined, ...] = ()


def look_on_path(tool: Tool, pins: Pins, environ: Mapping[str, str], *, skip: Path) -> Look:
    """Find the first binary on PATH that the pins accept for a tool.

    Args:
        tool: The tool.
        pins: All pins, for tools that come with another.
        environ: Where PATH is taken from, and what binaries are asked in.
        skip: The cache, whose own directory of links may well stand on PATH.
    """
    if tool.comes_with is not None:
        leader = look_on_path(pins.tools[tool.comes_with], pins, environ, skip=skip)
        if leader.found is None:
            return Look(found=None)
        beside = beside_of(leader.found.path, tool.name)
        return Look(found=beside and Found(path=beside, version=leader.found.version))
    if tool.on_path is None:
        return Look(found=None)
    declined: list[Declined] = []
    for candidate in _candidates(tool.name, environ.get("PATH", ""), skip):
        judged = judge(candidate, tool.on_path, environ)
        if isinstance(judged, Found):
            return Look(found=judged, declined=tuple(declined))
        declined.append(judged)
    return Look(found=None, declined=tuple(declined))


def judge(path: Path, policy: OnPath, environ: Mapping[str, str]) -> Found | Declined:
    """Ask one binary for its version and compare it with what is accepted."""
    try:
        answer = subprocess.run(
            [path, *policy.ask],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=ASK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return Declined(path=path, why=f"does not answer `{path.name} {' '.join(policy.ask)}`")
    match = re.search(policy.pattern, answer.stdout, re.MULTILINE)
    version = match and parse_version(match[1])
    if not version:
        return Declined(path=path, why=f"`{path.name} {' '.join(policy.ask)}` names no version")
    if not policy.accept.contains(version, prereleases=False):
        return Declined(path=path, why=f"is {version}, and {policy.accept} is wanted")
    for companion in policy.needs_beside:
        if beside_of(path, companion) is None:
            return Declined(path=path, why=f"is {version}, but has no {companion} beside it")
    return Found(path=path, version=str(version))


def parse_version(text: str) -> Version | None:
    """Read `v1.36.3`, `1.36.3-gke.100` or `v1.37.0-rc.1`; a build suffix is dropped, a prerelease stays one."""
    match = re.match(r"v?(\d+\.\d+(?:\.\d+)?)(?:-(alpha|beta|rc)\.?(\d+))?", text)
    if not match:
        return None
    try:
        return Version(match[1] + (f"{match[2]}{match[3]}" if match[2] else ""))
    except InvalidVersion:
        return None


def beside_of(path: Path, name: str) -> Path | None:
    """Find a companion in the folder of a binary, or in the folder its symbolic link leads to."""
    for folder in (path.parent, path.resolve().parent):
        if os.access(folder / name, os.X_OK):
            return folder / name
    return None


def _candidates(name: str, search: str, skip: Path) -> Iterator[Path]:
    seen: set[Path] = set()
    for folder in search.split(os.pathsep):
        path = Path(folder) / name
        if not path.is_absolute() or path.is_relative_to(skip) or not path.is_file() or not os.access(path, os.X_OK):
            continue
        if (real := path.resolve()) not in seen:
            seen.add(real)
            yield path
