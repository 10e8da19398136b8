"""`ensure`: make tools and CRD modules available, and say where they are.

A tool comes from PATH, from the cache, or is built. Whoever asks need not know which; none of it is started here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from local.toolchain.build import Prefetch, Workshop, build_tool, check_disk
from local.toolchain.cache import ENV_VAR, Cache, cache_root, mark_used
from local.toolchain.failures import ToolchainError, reason
from local.toolchain.golang import fetch_modules, find_go
from local.toolchain.onpath import Found, Look, beside_of, look_on_path
from local.toolchain.pins import MODULES, Pins, load_pins
from local.toolchain.progress import show_progress

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from pathlib import Path
    from types import FrameType

    from local.toolchain.golang import Go
    from local.toolchain.pins import Tool
    from local.toolchain.progress import Progress


@dataclass(frozen=True, kw_only=True)
class Toolbox:
    """Tools that are there, and where.

    Attributes:
        bin_dir: A directory with a link to every ensured tool, to be put first on PATH. Plugins are not in it, since
            the Pulumi engine would take one from PATH whatever its version.
        versions: Tool or CRD module -> version, without a leading v.
    """

    bin_dir: Path
    versions: Mapping[str, str]
    _paths: Mapping[str, Path]
    _crd_dirs: Mapping[str, Path]
    _pulumi_home: Path | None

    def path(self, name: str) -> Path:
        """The binary of an ensured tool.

        Raises:
            KeyError: It was not among the names given to `ensure`.
        """
        return self._paths[name]

    def crd_dir(self, name: str) -> Path:
        """The folder with the CustomResourceDefinitions of an ensured CRD module; not to be written to.

        Raises:
            KeyError: It was not among the names given to `ensure`.
        """
        return self._crd_dirs[name]

    @property
    def pulumi_home(self) -> Path:
        """A PULUMI_HOME in which the ensured plugins are installed.

        Raises:
            KeyError: No plugin was among the names given to `ensure`.
        """
        if self._pulumi_home is None:
            raise KeyError("pulumi-resource-kubernetes")
        return self._pulumi_home

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables that make a process use these tools and fetch no others, to be laid over its environment."""
        ours = {
            "PATH": os.pathsep.join(
                [str(self.bin_dir), environ["PATH"]] if environ.get("PATH") else [str(self.bin_dir)]
            )
        }
        if self._pulumi_home is not None:
            ours |= {
                "PULUMI_HOME": str(self._pulumi_home),
                "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
                "PULUMI_IGNORE_AMBIENT_PLUGINS": "true",
                "PULUMI_SKIP_UPDATE_CHECK": "true",
            }
        return ours


def ensure(
    names: Sequence[str] | None = None,
    *,
    progress: Progress | None = None,
    use_path: bool = True,
    environ: Mapping[str, str] | None = None,
    pins: Pins | None = None,
    modules: Path = MODULES,
) -> Toolbox:
    """Make tools and CRD modules available, building what is neither on PATH in a good version nor in the cache.

    Safe to call from several processes at once; what one builds, the others wait for. Ending it ends the Go it started.

    Args:
        names: Tools and CRD modules of the pins, each with what comes with it; None means all.
        progress: Who is told; None shows it on standard error if something has to be built.
        use_path: False builds even what PATH has in a good version.
        environ: The environment to judge PATH by and to run Go in; None means this process's.
        pins: The pins; None means the project's.
        modules: The folder of the wrapper modules.

    Raises:
        ToolchainError: Something cannot be made available; the message says what, why and what to do.
    """
    chosen = pins or load_pins()
    surroundings = dict(os.environ) if environ is None else environ
    wanted = _check_names(names, chosen)
    cache = Cache(cache_root(surroundings))
    cache.prepare()
    tools = [tool for tool in chosen.tools.values() if tool.name in wanted]
    found = _look(tools, chosen, cache, surroundings) if use_path else {}
    go = find_go(chosen.go.minimum, surroundings)
    with _stoppable(go), _shown(progress) as watcher:
        shop = Workshop(pins=chosen, modules=modules, cache=cache, go=go, progress=watcher)
        built = _build_missing([tool for tool in tools if tool.name not in found], shop)
        crds = {name: crd for name, crd in chosen.crds.items() if name in wanted}
        directories = fetch_modules(go, [crd.origin for crd in crds.values()], cwd=cache.staging)
        try:
            return _assemble(
                tools,
                shop,
                found=found,
                built=built,
                crds={name: directories[str(crd.origin)] / crd.folder for name, crd in crds.items()},
            )
        except OSError as error:
            raise ToolchainError(
                f"cache directory {cache.root}",
                f"cannot be written: {reason(error)}",
                fix=f"Give yourself write access and room there, or set {ENV_VAR} to a directory of your own.",
            ) from None


def _check_names(names: Sequence[str] | None, pins: Pins) -> frozenset[str]:
    if names is None:
        return frozenset(pins.names)
    if unknown := [name for name in names if name not in pins.names]:
        raise ToolchainError(
            ", ".join(unknown), "is not in the toolchain", fix=f"Choose among {', '.join(pins.names)}."
        )
    with_company = {tool.name for tool in pins.tools.values() if tool.comes_with in names}
    return frozenset(names) | with_company


def _look(tools: Sequence[Tool], pins: Pins, cache: Cache, environ: Mapping[str, str]) -> dict[str, Found]:
    looks: dict[str, Look] = {tool.name: look_on_path(tool, pins, environ, skip=cache.root) for tool in tools}
    return {name: look.found for name, look in looks.items() if look.found is not None}


def _build_missing(tools: Sequence[Tool], shop: Workshop) -> dict[str, Path]:
    jobs = [shop.job(tool) for tool in tools]
    missing = [job for job in jobs if shop.binary(job) is None]
    if missing:
        check_disk(
            [job.tool for job in missing],
            {"GOCACHE": shop.go.build_cache, "GOMODCACHE": shop.go.module_cache, ENV_VAR: shop.cache.root},
        )
        shop.progress.begin(len(missing))
        prefetch = Prefetch([job.tool for job in missing[1:]], shop)
        prefetch.start()
        try:
            for job in missing:
                shop.progress.tool(job.tool.name)
                build_tool(job, shop)
        except KeyboardInterrupt:
            shop.progress.note("Interrupted. What was compiled so far is kept; the same command goes on from there.")
            raise
        finally:
            prefetch.stop()
    built: dict[str, Path] = {}
    for job in jobs:
        path = shop.binary(job)
        if path is None:
            raise ToolchainError(
                job.tool.name, "was built and is gone again", fix="Let nothing else clean the cache meanwhile."
            )
        mark_used(path.parent)
        built[job.tool.name] = path
    return built


def _assemble(
    tools: Sequence[Tool],
    shop: Workshop,
    *,
    found: Mapping[str, Found],
    built: Mapping[str, Path],
    crds: Mapping[str, Path],
) -> Toolbox:
    cache, pins = shop.cache, shop.pins
    links: dict[str, Path] = {}
    plugins: dict[str, Path] = {}
    for tool in tools:
        if tool.name in found:
            links[tool.name] = found[tool.name].path
            for file in tool.beside:
                if companion := beside_of(found[tool.name].path, file.name):
                    links[file.name] = companion
        elif tool.plugin is not None:
            plugins[f"plugins/{tool.plugin.folder}/{tool.name}"] = built[tool.name]
        else:
            links[tool.name] = built[tool.name]
            for file in tool.beside:
                links[file.name] = built[tool.name].parent / file.name
    bin_dir = cache.linked("bin", links)
    home = cache.linked("pulumi-home", plugins) if plugins else None
    mark_used(bin_dir)
    paths = {name: bin_dir / name for name in links}
    if home is not None:
        mark_used(home)
        paths |= {path.name: home / place for place, path in plugins.items()}
    versions = {tool.name: found[tool.name].version if tool.name in found else pins.version_of(tool) for tool in tools}
    versions |= {name: pins.crds[name].origin.version.removeprefix("v") for name in crds}
    return Toolbox(
        bin_dir=bin_dir,
        versions=MappingProxyType(versions),
        _paths=MappingProxyType(paths),
        _crd_dirs=MappingProxyType(dict(crds)),
        _pulumi_home=home,
    )


@contextlib.contextmanager
def _shown(progress: Progress | None) -> Generator[Progress]:
    if progress is not None:
        yield progress
    else:
        with show_progress() as shown:
            yield shown


@contextlib.contextmanager
def _stoppable(go: Go) -> Generator[None]:
    """See to it that no Go outlives us: on Ctrl-C, on a request to end, on a closed terminal, and on any error."""
    handled = (signal.SIGTERM, signal.SIGHUP)
    ours = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in handled} if ours else {}
    defaults = [number for number, handler in before.items() if handler == signal.SIG_DFL]
    for number in defaults:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        go.stop()
        for number in defaults:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
