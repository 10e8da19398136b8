"""Writing the lock files: go.mod and go.sum of each wrapper module, made anew from the pins.

It is for whoever changes a version in `pins.toml`; building only ever reads the result.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from local.toolchain.build import put_files
from local.toolchain.cache import fresh, remove_tree
from local.toolchain.failures import ToolchainError, explain
from local.toolchain.golang import read_json_values

if TYPE_CHECKING:
    from pathlib import Path

    from local.toolchain.build import Workshop
    from local.toolchain.pins import Module, Tool

GO_LINE = "1.26.0"  # the lowest any wrapper asks for; Go raises it where a module needs more
WRAPPER_PREFIX = "servingstack.local/toolchain"


def lock_module(name: str, shop: Workshop) -> bool:
    """Resolve one wrapper module anew and put its lock files in place.

    Returns:
        Whether they changed.

    Raises:
        ToolchainError: The module graph cannot be resolved.
    """
    module = shop.pins.modules[name]
    tools = [tool for tool in shop.pins.tools.values() if tool.module == name]
    home = shop.modules / name
    home.mkdir(parents=True, exist_ok=True)
    work = fresh(shop.cache.staging / f"lock-{name}")
    for path in home.glob("*.go"):
        shutil.copy2(path, work)
    for tool in tools:
        put_files(tool.embeds, work, shop)
    _resolve(name, module, tools, work, shop)
    changed = False
    for file in ("go.mod", "go.sum"):
        new, old = work / file, home / file
        if not old.is_file() or old.read_bytes() != new.read_bytes():
            shutil.copyfile(new, old)
            changed = True
    remove_tree(work)
    return changed


def _resolve(name: str, module: Module, tools: list[Tool], work: Path, shop: Workshop) -> None:
    def go(*arguments: str) -> str:
        result = shop.go.run(arguments, cwd=work, environ={"GOFLAGS": "-mod=mod -buildvcs=false"})
        if result.code != 0:
            explanation = explain(result.errors)
            raise ToolchainError(f"module {name}", explanation.why, fix=explanation.fix)
        return result.output

    go("mod", "init", f"{WRAPPER_PREFIX}/{name}")
    go("mod", "edit", f"-go={GO_LINE}")
    if module.staging is not None:
        [origin] = read_json_values(go("mod", "download", "-json", str(module.origin)))
        document: dict[str, Any] = json.loads(go("mod", "edit", "-json", origin["GoMod"]))
        replaced = [
            entry["Old"]["Path"] for entry in document["Replace"] if entry["New"]["Path"].startswith("./staging/")
        ]
        go("mod", "edit", *(f"-replace={path}={path}@{module.staging}" for path in replaced))
    for tool in tools:
        if tool.package == ".":
            go("get", str(module.origin))
        else:
            go("get", "-tool", f"{tool.package}@{module.origin.version}")
    go("mod", "tidy")
