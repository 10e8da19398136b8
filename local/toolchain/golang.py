"""The Go command: finding it, the environment it runs in, and running it so that it can be followed and stopped.

Every run is pure Go (no C compiler), with the locked module graph only, for this machine, and with the toolchain that
is installed. Which registry modules come from is the user's setting (`GOPROXY`) and never ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from packaging.version import Version

from local.toolchain.failures import ToolchainError, explain, reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from local.toolchain.pins import SummedOrigin

GOFLAGS = "-mod=readonly -buildvcs=false"
KEPT_GOFLAGS = (
    "-p=",
    "-modcacherw",
)  # of the user's: how many at once, and writable module caches; neither changes a binary
SETTINGS = ("GOVERSION", "GOHOSTOS", "GOHOSTARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOCACHE", "GOMODCACHE")
TICK_SECONDS = 1.0
GRACE_SECONDS = 5.0
HOW_TO_GET_GO = "Install Go {minimum} or newer (its own site and most package managers have it) and put it on PATH."


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run of Go left behind."""

    code: int
    output: str
    errors: str


@dataclass(frozen=True, kw_only=True)
class Go:
    """An installed Go that is new enough.

    Attributes:
        executable: The `go` command.
        settings: What `go env` says, for the names in SETTINGS.
        environ: The environment it is run in.
    """

    executable: str
    settings: Mapping[str, str]
    environ: Mapping[str, str]
    _running: set[subprocess.Popen[bytes]] = field(default_factory=set["subprocess.Popen[bytes]"])
    _stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def identity(self) -> dict[str, str]:
        """What of it goes into a binary: version, platform and code generation."""
        return {
            name: self.settings[name]
            for name in ("GOVERSION", "GOHOSTOS", "GOHOSTARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT")
        }

    @property
    def build_cache(self) -> Path:
        """Where compiled packages are kept."""
        return Path(self.settings["GOCACHE"])

    @property
    def module_cache(self) -> Path:
        """Where modules are kept."""
        return Path(self.settings["GOMODCACHE"])

    def run(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        environ: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] = lambda _: None,
        on_tick: Callable[[], None] = lambda: None,
        log: IO[str] | None = None,
    ) -> Result:
        """Run Go to its end.

        It gets a process group of its own, so that it and its compilers can be ended together, and so that a Ctrl-C at
        the terminal reaches it through us and not twice.

        Args:
            arguments: What stands after `go`.
            cwd: The module's folder.
            environ: Variables on top of the usual ones.
            on_line: Gets each line of its standard error, where Go reports progress and errors.
            on_tick: Called about once a second, whether or not there is anything to read.
            log: Gets the command and each line as well.
        """
        if log:
            log.write(f"$ cd {cwd}\n$ go {' '.join(arguments)}\n")
            log.flush()
        lines: list[str] = []

        def take(line: str) -> None:
            lines.append(line)
            if log:
                log.write(line + "\n")
                log.flush()
            on_line(line)

        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [self.executable, *arguments],
                cwd=cwd,
                env={**self.environ, **(environ or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            self._running.add(process)
            try:
                if self._stopping.is_set():  # it was started just as everything else was being stopped
                    _end(process)
                _follow(process, take, on_tick)
                code = process.wait()
            except BaseException:
                _end(process)
                raise
            finally:
                self._running.discard(process)
                if process.stderr:
                    process.stderr.close()
            output.seek(0)
            return Result(code=code, output=output.read().decode(errors="replace"), errors="\n".join(lines))

    def stop(self) -> None:
        """End every run of Go that was started here, with its compilers, from whichever thread."""
        self._stopping.set()
        for process in list(self._running):
            _end(process)


def find_go(minimum: Version, environ: Mapping[str, str]) -> Go:
    """Find Go on PATH and ask it for its settings.

    Raises:
        ToolchainError: There is none, it does not run, or it is too old.
    """
    how = HOW_TO_GET_GO.format(minimum=minimum)
    executable = shutil.which("go", path=environ.get("PATH", ""))
    if executable is None:
        raise ToolchainError("go", "is not on PATH", fix=how)
    kept = [flag for flag in environ.get("GOFLAGS", "").split() if flag.startswith(KEPT_GOFLAGS)]
    base = {
        **{name: value for name, value in environ.items() if name not in {"GOOS", "GOARCH"}},
        "CGO_ENABLED": "0",
        "GOFLAGS": " ".join([*kept, GOFLAGS]),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GO111MODULE": "on",
    }
    try:
        asked = subprocess.run(
            [executable, "env", "-json", *SETTINGS], env=base, capture_output=True, text=True, check=True
        )
        settings = cast("dict[str, str]", json.loads(asked.stdout))
    except subprocess.CalledProcessError as error:
        raise ToolchainError(executable, f"does not run: {str(error.stderr).strip()}", fix=how) from None
    except OSError as error:
        raise ToolchainError(executable, f"does not run: {reason(error)}", fix=how) from None
    except ValueError:
        raise ToolchainError(executable, "does not answer `go env -json` as Go does", fix=how) from None
    if (version := parse_go_version(settings["GOVERSION"])) is not None and version < minimum:
        raise ToolchainError(executable, f"is {settings['GOVERSION']}, which is too old", fix=how)
    host = {"GOOS": settings["GOHOSTOS"], "GOARCH": settings["GOHOSTARCH"]}
    return Go(executable=executable, settings=settings, environ=base | host)


def parse_go_version(text: str) -> Version | None:
    """Read `go1.26.8`, `go1.27rc1` or `go1.26.6-custom`; None for a development version, which is taken to be new."""
    match = re.match(r"go(\d+\.\d+(?:\.\d+)?(?:(?:rc|beta)\d+)?)", text)
    return Version(match[1]) if match else None


def fetch_modules(go: Go, origins: Iterable[SummedOrigin], *, cwd: Path) -> dict[str, Path]:
    """Bring modules into the module cache and check each against its pinned sum.

    Go itself checks what it downloads against its checksum database, unless the user switched that off; the pins are
    checked always.

    Args:
        go: The Go to do it.
        origins: The modules.
        cwd: A folder outside any module.

    Returns:
        `path@version` -> the module's directory.

    Raises:
        ToolchainError: A module is refused, cannot be reached, or is not what was pinned.
    """
    wanted = {str(origin): origin for origin in origins}
    if not wanted:
        return {}
    result = go.run(["mod", "download", "-json", *wanted], cwd=cwd)
    found: dict[str, Path] = {}
    for answer in read_json_values(result.output):
        name = f"{answer.get('Path')}@{answer.get('Version')}"
        if "Error" in answer:
            explanation = explain(str(answer["Error"]))
            raise ToolchainError(name, explanation.why, fix=explanation.fix)
        if answer["Sum"] != wanted[name].sum:
            raise ToolchainError(
                name,
                f"has the checksum {answer['Sum']}, and pins.toml says {wanted[name].sum}",
                fix="Do not go on with it: what was served is not what was pinned. If the pin was just changed, "
                "correct its sum.",
            )
        found[name] = Path(answer["Dir"])
    if missing := [name for name in wanted if name not in found]:
        explanation = explain(result.errors)
        raise ToolchainError(missing[0], explanation.why, fix=explanation.fix)
    return found


def read_json_values(text: str) -> list[dict[str, Any]]:
    """Read JSON objects that simply follow one another, as `go … -json` prints them."""
    decoder = json.JSONDecoder()
    values: list[dict[str, Any]] = []
    rest = text.lstrip()
    while rest:
        value, end = decoder.raw_decode(rest)
        values.append(value)
        rest = rest[end:].lstrip()
    return values


def _follow(process: subprocess.Popen[bytes], take: Callable[[str], None], on_tick: Callable[[], None]) -> None:
    assert process.stderr is not None  # noqa: S101 - Popen was given a pipe
    descriptor = process.stderr.fileno()
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            on_tick()
            if not selector.select(TICK_SECONDS):
                continue
            chunk = os.read(descriptor, 65536)
            if not chunk:
                break
            *whole, buffer = (buffer + chunk).split(b"\n")
            for line in whole:
                take(line.decode(errors="replace"))
    if buffer:
        take(buffer.decode(errors="replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process group: ask first, so that Go removes its temporary files, then insist."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
            if number == signal.SIGINT:
                # Go is gone; a compiler that it left behind is not waited for but ended.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            return
