"""Refuses blocks that the engine marks as encrypted, without looking into them.

The configuration holds no secret, only names of Secrets: all of it becomes readable objects in the cluster and a
readable stack output. A value that the operator encrypted would come out there in clear.
"""

from collections.abc import Iterable, Mapping

from stack.errors import HIDDEN, ConfigError, Problem

_WHY = (
    "is encrypted in the stack file, in whole or in part, and the configuration holds no secret: what stands in it can "
    "be read in the cluster's objects and in the stack's outputs"
)
_FIX = (
    "Put the secret value into a Kubernetes Secret and name that Secret where a key asks for one, or by "
    "`secretKeyRef: {name: ..., key: ...}`. Write the rest without `secure:`"
)


def refuse_encrypted(blocks: Mapping[str, object], secret_keys: Iterable[str], *, project: str) -> None:
    """Look for blocks among the keys that the engine decrypted.

    Args:
        blocks: what was given, by name.
        secret_keys: full config keys that hold something encrypted (`serving-stack:modelserver`).
        project: namespace of the keys of this program.

    Raises:
        ConfigError: a letter for each such block.
    """
    marked = set(secret_keys)
    problems = [Problem(key=name, value=HIDDEN, why=_WHY, fix=_FIX) for name in blocks if f"{project}:{name}" in marked]
    if problems:
        raise ConfigError(problems)
