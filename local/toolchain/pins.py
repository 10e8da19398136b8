"""The pins: which tools and modules there are, at which versions, as `pins.toml` states them.

This module reads that file and nothing else. Whether a tool is built or comes from PATH is decided elsewhere.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, Self

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

HERE = Path(__file__).parent
MODULES = HERE / "modules"


def _specifier(value: object) -> SpecifierSet:
    return value if isinstance(value, SpecifierSet) else SpecifierSet(str(value))


def _version(value: object) -> Version:
    return value if isinstance(value, Version) else Version(str(value))


class Pinned(BaseModel):
    """Base of everything read from the pins: frozen, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class Origin(Pinned):
    """A Go module at one version, as a module graph names it."""

    path: str
    version: str = Field(pattern=r"^v\d")

    def __str__(self) -> str:
        return f"{self.path}@{self.version}"


class SummedOrigin(Origin):
    """A Go module of which files are read, with the checksum that `go.sum` would hold for it."""

    sum: str = Field(pattern=r"^h1:.{43}=$")


class ModuleFile(Pinned):
    """One file of a module, put under another name; of a JSON file, top-level keys can be set on the way."""

    name: str
    file: str
    origin: SummedOrigin
    set: dict[str, str] = {}


class OnPath(Pinned):
    """When a binary that is already on PATH is good enough, and how it is asked for its version."""

    ask: tuple[str, ...]
    pattern: str
    accept: Annotated[SpecifierSet, BeforeValidator(_specifier)]
    needs_beside: tuple[str, ...] = ()


class Plugin(Pinned):
    """What the Pulumi engine calls a binary that it finds as a plugin in PULUMI_HOME."""

    kind: str
    name: str
    version: str

    @property
    def folder(self) -> str:
        """Folder below `plugins/` in which the engine looks for it."""
        return f"{self.kind}-{self.name}-v{self.version}"


class Module(Pinned):
    """A wrapper module below `modules/`: one module graph, locked by its go.mod and go.sum."""

    origin: Origin
    staging: str | None = None
    ldflags: tuple[str, ...] = ()
    tags: tuple[Annotated[str, Field(pattern=r"^\w+$")], ...] = ()


class Tool(Pinned):
    """A binary of the toolchain. `pins.toml` says what each field is for."""

    name: str
    module: str
    package: str
    disk_mib: int = Field(gt=0)
    on_path: OnPath | None = None
    comes_with: str | None = None
    beside: tuple[ModuleFile, ...] = ()
    embeds: tuple[ModuleFile, ...] = ()
    plugin: Plugin | None = None


class CrdModule(Pinned):
    """A module that carries CustomResourceDefinitions, and the folder in it where they lie."""

    origin: SummedOrigin
    folder: str


class GoPin(Pinned):
    """The Go release that everything here needs at least."""

    minimum: Annotated[Version, BeforeValidator(_version)]


class Pins(Pinned):
    """All pins; the order of `tools` is the order of building."""

    go: GoPin
    modules: dict[str, Module]
    tools: dict[str, Tool]
    crds: dict[str, CrdModule]

    @model_validator(mode="before")
    @classmethod
    def _tools_know_their_names(cls, data: dict[str, dict[str, dict[str, object]]]) -> object:
        return data | {"tools": {name: {"name": name} | tool for name, tool in data["tools"].items()}}

    @model_validator(mode="after")
    def _references_lead_somewhere(self) -> Self:
        for tool in self.tools.values():
            if tool.module not in self.modules:
                raise ValueError(f"tools.{tool.name}.module = {tool.module}: there is no such module here")
            if tool.comes_with is not None and tool.comes_with not in self.tools:
                raise ValueError(f"tools.{tool.name}.comes_with = {tool.comes_with}: there is no such tool here")
        if both := self.tools.keys() & self.crds.keys():
            raise ValueError(f"{sorted(both)}: names both a tool and a CRD module, so asking for it would be ambiguous")
        return self

    def module_of(self, tool: Tool) -> Module:
        """The module graph that a tool is built from."""
        return self.modules[tool.module]

    def version_of(self, tool: Tool) -> str:
        """The version a built tool has, without a leading v."""
        return tool.plugin.version if tool.plugin else self.module_of(tool).origin.version.removeprefix("v")

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that can be asked for: tools in the order of building, then CRD modules."""
        return (*self.tools, *self.crds)


def read_pins(path: Path) -> Pins:
    """Reads one file of pins.

    Raises:
        pydantic.ValidationError: The file is not what it should be; a mistake in the repository, not the user's.
    """
    return Pins.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))


@cache
def load_pins() -> Pins:
    """The project's pins."""
    return read_pins(HERE / "pins.toml")
