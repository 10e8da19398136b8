"""The CRDs a plane installs, sent as they lie in their projects' modules; none is copied here.

The operators of VictoriaMetrics and AIBrix have no Go module, so `crds/` holds small ones of our own in their place.

What an API server made of them is kept in a file beside the other caches and put into the next new store as it is,
which turns ten seconds into one. A file that is missing or unreadable costs those seconds and is written again.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from local.api import condition_is_true
from local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from local.api import Api, Object
    from local.etcd_store import EtcdStore
    from local.tools import Tools

PROJECTS = ("gateway-api", "gateway-api-inference-extension", "lws", "keda", "prometheus-operator", "istio")
KEPT = 4  # sets of CRDs: several versions of the tools, or several choices of projects
OWN = Path(__file__).parent / "crds"
COLLECTION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STORED_UNDER = "/registry/apiextensions.k8s.io/customresourcedefinitions/"

_KIND = re.compile(rb"^kind: *CustomResourceDefinition *$", re.MULTILINE)
_NAME = re.compile(rb"^  name: *\"?([a-z0-9.-]+)\"? *$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Crd:
    """One CRD as YAML text."""

    name: str
    source: Path
    text: bytes


def find_crds(tools: Tools, projects: Iterable[str] = PROJECTS) -> tuple[Crd, ...]:
    """Return the CRDs of these projects and our own, largest first, since those take the server longest.

    Raises:
        LocalError: if a project has none.
    """
    found: list[Crd] = list(_read_all(OWN))
    for project in projects:
        here = list(_read_all(tools.crd_dir(project)))
        if not here:
            raise LocalError(f"There is no CRD of {project} in {tools.crd_dir(project)}.")
        found += here
    return tuple(sorted(found, key=lambda crd: -len(crd.text)))


def _read_all(place: Path) -> Iterator[Crd]:
    for path in sorted(place.glob("*.yaml")) if place.is_dir() else [place]:
        for text in re.split(rb"^---.*$", path.read_bytes(), flags=re.MULTILINE):
            if _KIND.search(text) and (name := _NAME.search(text)):
                yield Crd(name=name[1].decode(), source=path, text=text)


def digest_of(crds: Iterable[Crd], server: Path) -> str:
    """Return what changes when the CRDs or the API server's program do."""
    found = hashlib.sha256(f"{server.resolve()} {server.stat().st_size}\n".encode())
    for crd in crds:
        found.update(f"{crd.name} {hashlib.sha256(crd.text).hexdigest()}\n".encode())
    return found.hexdigest()[:16]


def restore_crds(store: EtcdStore, kept: Path) -> bool:
    """Put what `keep_crds` kept into a store; False if there is nothing usable."""
    try:
        content = json.loads(kept.read_text())
        values = {key: base64.b64decode(value, validate=True) for key, value in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return False
    store.write(values)
    return True


def keep_crds(store: EtcdStore, kept: Path) -> None:
    """Keep the CRDs of a store in which all are established; where nothing can be written it is only a saving lost."""
    values = {key: base64.b64encode(value).decode() for key, value in store.read(STORED_UNDER).items()}
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        draft = kept.with_name(f".{kept.name}.{os.getpid()}")
        draft.write_text(json.dumps(values))
        draft.replace(kept)
        by_age = sorted(kept.parent.glob("*.json"), key=lambda path: -path.stat().st_mtime)
        for outdated in by_age[KEPT:]:
            outdated.unlink(missing_ok=True)


def install_crds(api: Api, crds: Iterable[Crd], *, timeout: float = 60) -> None:
    """Apply CRDs and wait until the server serves every one of them.

    Raises:
        ApiError: if one is refused.
        DeadlineError: if one is not established in time.
    """
    wanted = {crd.name: crd for crd in crds}
    with ThreadPoolExecutor(max_workers=4, thread_name_prefix="crds") as pool:
        for applied in [pool.submit(api.apply_at, f"{COLLECTION}/{name}", crd.text) for name, crd in wanted.items()]:
            applied.result()

    def all_are_established(seen: dict[str, Object]) -> bool:
        return all(name in seen and condition_is_true(seen[name], "Established") for name in wanted)

    api.wait_for(COLLECTION, all_are_established, timeout=timeout, what="the CRDs to be established")
