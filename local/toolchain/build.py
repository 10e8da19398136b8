"""Building one tool from its wrapper module into the cache, and running its downloads ahead of time.

What is built here is what the pins say; whether it needs to be built at all is decided by the caller. Nothing is left
half done: the binary is made in a staging directory and arrives in the cache by one rename, and what Go has compiled
stays in Go's own cache, so an interrupted build goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from local.toolchain.cache import fresh, remove_tree, size_of, tool_key
from local.toolchain.failures import ToolchainError, explain, reason
from local.toolchain.golang import fetch_modules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from local.toolchain.cache import Cache
    from local.toolchain.golang import Go
    from local.toolchain.pins import ModuleFile, Pins, Tool
    from local.toolchain.progress import Progress

MIB = 1 << 20
OWN_SOURCES = ("go.mod", "go.sum", "*.go")
RESERVE_MIB = 256  # what must be free beside what the builds themselves take


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """Everything a build needs to know besides the tool."""

    pins: Pins
    modules: Path
    cache: Cache
    go: Go
    progress: Progress

    def job(self, tool: Tool) -> Job:
        """Read a tool's sources and give its binary the key that follows from them."""
        folder = self.modules / tool.module
        sources = {path.name: path.read_bytes() for pattern in OWN_SOURCES for path in sorted(folder.glob(pattern))}
        return Job(tool=tool, sources=sources, key=tool_key(tool, self.pins.module_of(tool), sources, self.go.identity))

    def binary(self, job: Job) -> Path | None:
        """The tool's binary in the cache, or None."""
        return self.cache.binary(job.tool.name, job.key)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A tool as it is to be built.

    The sources are read once, so that what is built is what the key says, even if a checkout changes meanwhile.
    """

    tool: Tool
    sources: Mapping[str, bytes]
    key: str


def build_tool(job: Job, shop: Workshop) -> None:
    """Build one tool into the cache, unless another run has done so by the time it is our turn.

    Raises:
        ToolchainError: It cannot be built, with the reason and the remedy.
    """
    cache, progress, name = shop.cache, shop.progress, job.tool.name
    with cache.build_lock(f"building {name}", on_wait=progress.phase, on_tick=progress.tick):
        if shop.binary(job):
            return
        log_path = cache.log(name, job.key)
        staging = cache.staging / f"{name}-{job.key}"
        try:
            log_path.parent.mkdir(parents=True, exist_ok=True)
            with log_path.open("w", encoding="utf-8") as log:
                made = _Build(job, shop, staging=fresh(staging), log=log).run()
            cache.publish(made, cache.entry(name, job.key))
        except OSError as error:
            explanation = explain(f"{error.filename}: {reason(error)}")
            raise ToolchainError(name, explanation.why, fix=explanation.fix, log=log_path) from None
        finally:
            remove_tree(staging)


class _Build:
    """One build: its places, its log, and what it has counted so far."""

    def __init__(self, job: Job, shop: Workshop, *, staging: Path, log: IO[str]) -> None:
        self._tool = job.tool
        self._sources = job.sources
        self._shop = shop
        self._staging = staging
        self._log = log
        self._source = staging / "source"
        self._made = staging / "made"
        self._tags = tag_flags(job.tool, shop.pins)
        self._compiled = 0
        self._downloaded = 0
        self._to_compile = 0

    def run(self) -> Path:
        """Do it all; return the directory that is to become the cache entry."""
        began = time.monotonic()
        self._source.mkdir()
        self._made.mkdir()
        (self._staging / "tmp").mkdir()
        for name, content in self._sources.items():
            (self._source / name).write_bytes(content)
        self._shop.progress.phase("downloading modules")
        put_files(self._tool.embeds, self._source, self._shop)
        put_files(self._tool.beside, self._made, self._shop)
        self._count()
        self._compile()
        seconds = time.monotonic() - began
        self._record(seconds)
        version = self._shop.pins.version_of(self._tool)
        self._shop.progress.finished(self._tool.name, version=version, seconds=seconds, size=size_of(self._made))
        return self._made

    def _count(self) -> None:
        """Load the packages, which downloads their modules, and count those that Go has not compiled before."""
        listed = self._go("list", *self._tags, "-deps", "-f", "{{.Stale}}", self._tool.package)
        self._to_compile = listed.split().count("true")

    def _compile(self) -> None:
        if self._to_compile > 1:
            self._shop.progress.phase("compiling", total=self._to_compile)
        else:  # only the program itself, which Go never keeps linked
            self._shop.progress.phase("linking")
        flags = " ".join(["-s -w", *self._shop.pins.module_of(self._tool).ldflags])
        place = str(self._made / self._tool.name)
        self._go("build", "-v", "-o", place, *self._tags, "-ldflags", flags, self._tool.package)

    def _record(self, seconds: float) -> None:
        """Leave word of how the entry came to be; nobody reads it but people."""
        record: dict[str, Any] = {
            "version": self._shop.pins.version_of(self._tool),
            "go": self._shop.go.identity,
            "seconds": round(seconds, 1),
            "packagesCompiled": self._compiled,
        }
        (self._made / "build.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")

    def _go(self, *arguments: str) -> str:
        result = self._shop.go.run(
            arguments,
            cwd=self._source,
            environ={"GOTMPDIR": str(self._staging / "tmp")},
            on_line=self._read_line,
            on_tick=self._shop.progress.tick,
            log=self._log,
        )
        if result.code != 0:
            explanation = explain(result.errors)
            raise ToolchainError(self._tool.name, explanation.why, fix=explanation.fix, log=Path(self._log.name))
        return result.output

    def _read_line(self, line: str) -> None:
        """Follow what `go list` and `go build -v` say: a download, or the name of a package whose turn it is."""
        if line.startswith("go: downloading "):
            self._downloaded += 1
            if not self._to_compile:
                self._shop.progress.advance(self._downloaded)
        elif self._to_compile and line and " " not in line:
            self._compiled += 1
            if self._compiled < self._to_compile:
                self._shop.progress.advance(self._compiled)
            elif self._compiled == self._to_compile > 1:
                self._shop.progress.phase("linking")


def put_files(files: Sequence[ModuleFile], folder: Path, shop: Workshop) -> None:
    """Put files of modules into a folder, as the pins say."""
    found = fetch_modules(shop.go, [file.origin for file in files], cwd=shop.cache.staging)
    for file in files:
        source = found[str(file.origin)] / file.file
        place = folder / file.name
        if file.set:
            document: dict[str, Any] = json.loads(source.read_text(encoding="utf-8"))
            place.write_text(json.dumps(document | file.set, separators=(",", ":")), encoding="utf-8")
        else:
            shutil.copyfile(source, place)
        place.chmod(0o755)  # the module cache knows no executable files, and some of these are


def tag_flags(tool: Tool, pins: Pins) -> tuple[str, ...]:
    """The flag that gives Go the build tags of a tool's module, if it has any."""
    tags = pins.module_of(tool).tags
    return ("-tags", ",".join(tags)) if tags else ()


def check_disk(tools: Sequence[Tool], places: Mapping[str, Path]) -> None:
    """Refuse to begin what the disk cannot hold.

    Args:
        tools: What is to be built.
        places: What is written where: the name of the setting that moves it -> directory.

    Raises:
        ToolchainError: A place has less room than an empty build cache would need.
    """
    sizes = [tool.disk_mib for tool in tools]
    # While Go builds a tool it keeps what it compiles twice: in its cache and in the directory it works in.
    needed = RESERVE_MIB + max(sum(sizes[: index + 1]) + size for index, size in enumerate(sizes))
    for setting, place in places.items():
        standing = next(folder for folder in (place, *place.parents) if folder.exists())
        free = shutil.disk_usage(standing).free // MIB
        if free < needed:
            raise ToolchainError(
                f"disk of {place}",
                f"has {free} MiB free, and building {', '.join(tool.name for tool in tools)} takes up to {needed} MiB",
                fix=f"Make room, or set {setting} to a directory on a bigger disk.",
            )


class Prefetch:
    """Downloads modules of tools whose turn has not come, while another tool is being compiled.

    The one waits for the network and the other for the processors. A failure here is no failure: the tool's own build
    meets it again and reports it.
    """

    def __init__(self, tools: Sequence[Tool], shop: Workshop) -> None:
        self._shop = shop
        self._tools = tools
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="toolchain-prefetch", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no further download; the one at work is ended by `Go.stop` or runs out."""
        self._ended.set()

    def _run(self) -> None:
        for tool in self._tools:
            if self._ended.is_set():
                return
            with contextlib.suppress(OSError):
                tags = tag_flags(tool, self._shop.pins)
                listed = ["list", "-e", *tags, "-deps", "-f", "", tool.package]
                self._shop.go.run(listed, cwd=self._shop.modules / tool.module)
