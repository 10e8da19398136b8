"""Tells Pod templates apart as the deployment controller does, and says where they differ.

Only templates that the API server has completed can be compared: a planned one lacks every default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from stack.rollout.pods import TEMPLATE_HASH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stack.facts import Object

NAMED_BY = ("name", "containerPort", "mountPath", "key", "topologyKey")
"""What tells the entries of a list apart, whichever they have first."""


def is_same_template(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether Pods of the two are the same, so that one does for the other (Kubernetes 1.36, `EqualIgnoreHash`)."""
    return _bare(one) == _bare(other)


def where_templates_differ(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths inside the template at which the two differ, sorted: `spec.containers[modelserver].image`.

    Without the values, since nothing says that none of them is a secret.
    """
    return tuple(sorted(set(_paths("", _bare(before), _bare(after)))))


def _bare(template: Mapping[str, Any]) -> Object:
    """Without the controller's own label, and without what some API servers write out as null."""
    bare = cast("Object", _without_nulls(dict(template)))
    meta: Object = {"labels": {}, **bare.get("metadata", {})}
    meta["labels"] = {key: value for key, value in meta["labels"].items() if key != TEMPLATE_HASH}
    return bare | {"metadata": meta}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        of = cast("Object", value)
        return {key: _without_nulls(each) for key, each in of.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in cast("list[Any]", value)]
    return value


def _paths(path: str, before: Any, after: Any) -> Iterator[str]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        one, other = cast("Object", before), cast("Object", after)
        for key in one.keys() | other.keys():
            yield from _paths(_below(path, key), one.get(key), other.get(key))
    elif isinstance(before, list) and isinstance(after, list):
        one, other = _by_name(cast("list[Any]", before)), _by_name(cast("list[Any]", after))
        if one is None or other is None or (one.keys() == other.keys() and one == other):
            yield path  # another order, or nothing tells the entries apart
            return
        for name in one.keys() | other.keys():
            yield from _paths(f"{path}[{name}]", one.get(name), other.get(name))
    else:
        yield path


def _below(path: str, key: str) -> str:
    """A key with dots or slashes, as labels have, stands in brackets."""
    if "." in key or "/" in key:
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _by_name(entries: list[Any]) -> dict[str, Any] | None:
    """Entries by what tells them apart, None if nothing does."""
    for key in NAMED_BY:
        names = [str(cast("Object", each).get(key)) for each in entries if isinstance(each, dict) and key in each]
        if len(set(names)) == len(entries):
            return dict(zip(names, entries, strict=True))
    return None
