"""Where the plane finds its programs and the CRDs: whatever answers these two questions will do.

The toolchain that builds and caches them does; `FolderTools` answers from folders, for tests and for odd machines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")


class Tools(Protocol):
    """Programs and CRDs by name."""

    def path(self, name: str) -> Path:
        """Return the program of this name."""
        ...

    def crd_dir(self, name: str) -> Path:
        """Return the folder (or the one file) with the CRDs of this project."""
        ...


@dataclass(frozen=True, kw_only=True)
class FolderTools:
    """Programs that lie in one folder under their own names, and CRDs wherever they are."""

    programs: Path
    crds: Mapping[str, Path] = field(default_factory=dict["str", "Path"])

    def path(self, name: str) -> Path:
        """Return the program of this name.

        Raises:
            LocalError: if it is not there.
        """
        program = self.programs / name
        if not program.is_file():
            raise LocalError(f"There is no {name} in {self.programs}. Build it, or name another folder.")
        return program

    def crd_dir(self, name: str) -> Path:
        """Return the folder with the CRDs of this project.

        Raises:
            LocalError: if none was given.
        """
        if name not in self.crds:
            raise LocalError(f"No folder was given for the CRDs of {name}.")
        return self.crds[name]
