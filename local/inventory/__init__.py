"""What a plane pretends to own: nodes, devices and what a platform team prepared, as YAML files checked on reading.

A file may begin with `basedOn: <name>`: it then changes that inventory, maps key by key (null removes one), all else as
a whole. Rendering into objects is `render`'s part; nothing here talks to a server.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import ValidationError

from local.errors import LocalError
from local.inventory.model import Inventory

__all__ = ["Inventory", "InventoryError", "inventory_names", "load_inventory", "read_inventory"]

FOLDER = Path(__file__).parent


class InventoryError(LocalError):
    """An inventory file that does not say what it must.

    Attributes:
        problems: One line each, `key = value: why`.
    """

    def __init__(self, source: str, problems: tuple[str, ...]) -> None:
        self.problems = problems
        listed = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"The inventory {source} cannot be used:\n{listed}")


def inventory_names() -> tuple[str, ...]:
    """Return the names of the inventories that come with the plane."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def load_inventory(name: str) -> Inventory:
    """Return an inventory by its name, or by the path of a YAML file.

    Raises:
        InventoryError: if there is none, or it is not valid.
    """
    if name.endswith((".yaml", ".yml")):
        return read_inventory(Path(name))
    if name not in inventory_names():
        raise InventoryError(name, (f"there is no such inventory; there are {', '.join(inventory_names())}",))
    return read_inventory(FOLDER / f"{name}.yaml")


def read_inventory(path: Path) -> Inventory:
    """Read and check one inventory file.

    Raises:
        InventoryError: with every problem found.
    """
    raw = _read(path, seen=())
    try:
        return Inventory.model_validate_json(json.dumps(raw))
    except ValidationError as error:
        raise InventoryError(str(path), tuple(_describe(detail) for detail in error.errors())) from None


def _read(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    if path in seen:
        raise InventoryError(str(path), (f"basedOn: comes back to itself over {', '.join(p.stem for p in seen)}",))
    try:
        raw = yaml.load(path.read_text(), _UniqueKeysLoader)  # noqa: S506  # a SafeLoader that also refuses duplicates
    except OSError as error:
        raise InventoryError(str(path), (f"cannot be read: {error.strerror}",)) from None
    except yaml.YAMLError as error:
        raise InventoryError(str(path), (f"is not YAML: {' '.join(str(error).split())}",)) from None
    if not isinstance(raw, dict):
        raise InventoryError(str(path), ("is not a map of keys",))
    content = cast("dict[str, Any]", raw)
    base = content.pop("basedOn", None)
    if base is None:
        return content
    if base not in inventory_names():
        raise InventoryError(
            str(path), (f"basedOn = {base}: there is no such inventory; there are {', '.join(inventory_names())}",)
        )
    return _merge(_read(FOLDER / f"{base}.yaml", (*seen, path)), content)


def _merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = _merge(cast("dict[str, Any]", merged[key]), cast("dict[str, Any]", value))
        else:
            merged[key] = value
    return merged


def _describe(detail: Any) -> str:
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"]).lstrip(".")
    why = str(detail["msg"]).removeprefix("Value error, ")
    if detail["type"] == "missing":
        return f"{key}: is missing"
    if isinstance(detail["input"], dict | list):
        return f"{key}: {why}" if key else why
    return f"{key} = {json.dumps(detail['input'])}: {why}"


class _UniqueKeysLoader(yaml.SafeLoader):
    """YAML, but a key given twice is an error rather than the last one winning."""


def _construct_unique(loader: _UniqueKeysLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [str(key.value) for key, _ in node.value]
    for key in keys:
        if keys.count(key) > 1:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key} is given twice", node.start_mark)
    return cast("dict[Any, Any]", loader.construct_mapping(node, deep=True))


_UniqueKeysLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_unique)
