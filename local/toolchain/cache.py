"""Where built tools live: a directory per user, shared by all checkouts, with one directory per tool and key.

The key is a hash of what determines the binary, so a changed pin gives a new place and never overwrites the old one.
What stands in the cache is complete: it is made elsewhere and arrives by one rename. What is put there is not decided
here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from local.toolchain.failures import ToolchainError, reason

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from local.toolchain.pins import Module, Tool

ENV_VAR = "SERVING_STACK_CACHE"
LAYOUT = 1  # goes into every key; raise it when what stands in an entry changes shape
KEY_DIGITS = 16
POLL_SECONDS = 0.5


def cache_root(environ: Mapping[str, str]) -> Path:
    """Return the cache directory: SERVING_STACK_CACHE itself, else `serving-stack` in XDG_CACHE_HOME or ~/.cache."""
    if chosen := environ.get(ENV_VAR):
        return Path(chosen).expanduser().absolute()
    base = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".cache")
    return Path(base).absolute() / "serving-stack"


def digest(value: object) -> str:
    """Hash any JSON-shaped value to a short name fit for a directory."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]


def tool_key(tool: Tool, module: Module, sources: Mapping[str, bytes], go: Mapping[str, str]) -> str:
    """Hash what determines a binary: its pins, its lock files and own sources, and the Go that compiles it.

    Left out is what does not: how PATH is judged, how much disk it takes, where it stands in the order.

    Args:
        tool: The tool's pins.
        module: Its module's pins.
        sources: The files of the wrapper module: name -> content.
        go: What `go env` says of version, platform and code generation.
    """
    return digest(
        {
            "layout": LAYOUT,
            "tool": tool.model_dump(mode="json", include={"name", "package", "beside", "embeds"}),
            "ldflags": module.ldflags,
            "sources": {name: hashlib.sha256(content).hexdigest() for name, content in sources.items()},
            "go": dict(go),
        }
        | ({"tags": module.tags} if module.tags else {})  # what has none keeps the key it had before there were any
    )


@dataclass(frozen=True)
class Cache:
    """The cache directory and the places in it."""

    root: Path

    @property
    def staging(self) -> Path:
        """Where entries are made before they are renamed into place; of no worth once nobody builds."""
        return self.root / "staging"

    def entry(self, tool: str, key: str) -> Path:
        """The directory of one built tool."""
        return self.root / "tools" / tool / key

    def log(self, tool: str, key: str) -> Path:
        """The log of one tool's last build."""
        return self.root / "logs" / f"{tool}-{key}.log"

    def binary(self, tool: str, key: str) -> Path | None:
        """The binary of a built tool, or None if it is not in the cache."""
        path = self.entry(tool, key) / tool
        return path if path.is_file() else None

    def prepare(self) -> None:
        """Make the cache directory and prove that it can be written.

        Raises:
            ToolchainError: It cannot.
        """
        try:
            self.staging.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.staging):
                pass
        except OSError as error:
            raise ToolchainError(
                f"cache directory {self.root}",
                f"cannot be written: {reason(error)}",
                fix=f"Give yourself write access to it, or set {ENV_VAR} to a directory of your own.",
            ) from None

    @contextlib.contextmanager
    def build_lock(self, what: str, *, on_wait: Callable[[str], None], on_tick: Callable[[], None]) -> Generator[None]:
        """Hold the one lock under which anything is built into this cache.

        One lock for all tools, since a Go build by itself uses every core: two at once only take each other's memory.

        Args:
            what: What the holder is about to do, shown to whoever has to wait.
            on_wait: Told who holds the lock, whenever that changes while we wait.
            on_tick: Called at each try in vain.
        """
        lock = FileLock(self.root / "build.lock")
        holder = self.root / "build.holder"
        told = ""
        while True:
            try:
                lock.acquire(timeout=POLL_SECONDS if told else 0)
                break
            except Timeout:
                if (now := _read_holder(holder)) != told:
                    on_wait(f"waiting for another run ({now})")
                    told = now
                on_tick()
        try:
            holder.write_text(f"process {os.getpid()}, {what}", encoding="utf-8")
            yield
        finally:
            holder.unlink(missing_ok=True)
            lock.release()

    def publish(self, made: Path, place: Path) -> Path:
        """Rename a finished directory to where it belongs; if someone was faster, theirs stays and ours is dropped."""
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            made.rename(place)
        except OSError:
            if not place.is_dir():
                raise
            remove_tree(made)
        return place

    def linked(self, kind: str, files: Mapping[str, Path]) -> Path:
        """Make a directory that holds the given files, named after what it holds, so that it never changes.

        Files of this cache are hard-linked, which makes a program find its companions beside it in the new place (a
        symbolic link would lead it back to its own directory); all others are symbolic links.

        Args:
            kind: Parent directory in the cache.
            files: Path below the new directory -> file it leads to.
        """
        place = self.root / kind / digest({name: str(path) for name, path in files.items()})
        if place.is_dir():
            return place
        made = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=self.staging))
        for name, path in files.items():
            link = made / name
            link.parent.mkdir(parents=True, exist_ok=True)
            if path.is_relative_to(self.root):
                try:
                    link.hardlink_to(path)
                except OSError:  # a file system without hard links
                    shutil.copy2(path, link)
            else:
                link.symlink_to(path)
        return self.publish(made, place)

    def unused(self, wanted: Iterable[Path], older_than_days: float) -> list[Path]:
        """List entries that nobody asked for in so many days, except those wanted."""
        kept = set(wanted)
        limit = time.time() - older_than_days * 24 * 3600
        places = [*self.root.glob("tools/*/*"), *self.root.glob("bin/*"), *self.root.glob("pulumi-home/*")]
        return sorted(place for place in places if place not in kept and place.stat().st_mtime < limit)


def mark_used(place: Path) -> None:
    """Note on an entry that it was asked for just now; `Cache.unused` goes by that."""
    with contextlib.suppress(OSError):  # a cache one may only read from still serves
        os.utime(place)


def fresh(place: Path) -> Path:
    """Make an empty directory, in place of what an interrupted run may have left there."""
    remove_tree(place)
    place.mkdir(parents=True)
    return place


def remove_tree(place: Path) -> None:
    """Remove a directory and what is in it; one that is gone already is fine."""
    shutil.rmtree(place, ignore_errors=True)


def size_of(place: Path) -> int:
    """Bytes below a directory."""
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file() and not path.is_symlink())


def _read_holder(holder: Path) -> str:
    try:
        return holder.read_text(encoding="utf-8")
    except OSError:
        return "it has not said who it is"
