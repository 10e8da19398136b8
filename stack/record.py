"""What a Deployment was applied with, kept in an annotation of its own: written by the planner, read by impact.

It stands on the Deployment and not in its Pod template, so that writing it restarts nothing; and on each Deployment and
not on the topology anchor, so that an update that fails leaves no record of what never ran. The deployment controller
copies it onto the ReplicaSet of the template that it belongs to (Kubernetes 1.36, `SetNewReplicaSetAnnotations`), so
Pods of an earlier template can be told by the record of theirs. Secrets stand in it by the names of the objects that
hold them, as in `stack.contributions`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from stack import labels
from stack.names import content_hash

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_BYTES = 100 * 1024
"""Longest record. Kubernetes takes 256 KiB of annotations on one object, and others write some as well."""
TOO_LARGE = "(too large to keep)"
"""Under it stand the keys whose values are not kept, each with a hash of its value. No config key begins like it."""
DEEPEST = 250
"""Most lists and maps in one another in a record that is read; in a configuration there are 200 (pydantic's parser)."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a Pod template was made from.

    Attributes:
        values: config key -> effective value as canonical JSON.
        hashes: the same for keys whose values were too large to keep: a hash of the value.
    """

    values: Mapping[str, str] = field(default_factory=dict[str, str])
    hashes: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def keys(self) -> frozenset[str]:
        """All keys, with values kept or not."""
        return frozenset(self.values) | frozenset(self.hashes)

    def mark(self, key: str) -> str | None:
        """Stands for the value of a key, kept or not; None for a key that has none."""
        return _hash(self.values[key]) if key in self.values else self.hashes.get(key)


def write_record(contributions: Mapping[str, str]) -> str:
    """The annotation's text: one JSON object, keys sorted.

    Args:
        contributions: config key -> effective value as canonical JSON.
    """
    hashes: dict[str, str] = {}
    text = _text(contributions, hashes)
    for key in sorted(contributions, key=lambda key: (-_size(contributions[key]), key)):
        if _size(text) <= MOST_BYTES:
            break
        hashes[key] = _hash(contributions[key])
        text = _text(contributions, hashes)
    return text


def read_record(live: Mapping[str, Any]) -> Record | None:
    """The record of a live Deployment or ReplicaSet; None if it has none, or one that was not written here."""
    annotations: Mapping[str, str] = live.get("metadata", {}).get("annotations") or {}
    try:
        found: object = json.loads(annotations[labels.APPLIED])
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or _is_deeper(cast("object", found), DEEPEST):
        return None
    values = cast("dict[str, Any]", found)
    hashes = values.pop(TOO_LARGE, {})
    if not isinstance(hashes, dict):
        return None
    return Record(
        values={key: canonical_json(value) for key, value in values.items()},
        hashes={key: str(value) for key, value in cast("dict[str, Any]", hashes).items()},
    )


def canonical_json(value: Any) -> str:
    """JSON in one spelling: keys sorted, no spaces, no escapes that are not needed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _text(contributions: Mapping[str, str], hashes: Mapping[str, str]) -> str:
    kept: dict[str, Any] = {key: json.loads(value) for key, value in contributions.items() if key not in hashes}
    return canonical_json(kept | {TOO_LARGE: hashes} if hashes else kept)


def _is_deeper(value: object, levels: int) -> bool:
    """Whether more lists and maps stand in one another; what is read again level by level would end in the middle."""
    layer = [value]
    for _ in range(levels):
        layer = [inner for each in layer for inner in _inside(each)]
        if not layer:
            return False
    return True


def _inside(value: object) -> list[object]:
    """Lists and maps in a list or map."""
    found: object = list(cast("dict[str, object]", value).values()) if isinstance(value, dict) else value
    return [each for each in cast("list[object]", found) if isinstance(each, dict | list)]


def _hash(value: str) -> str:
    return content_hash(value)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
