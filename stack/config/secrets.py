"""Finds secrets that were written into the stack file in plain text, by their form or by the name they stand under.

Runs over the raw configuration before anything else, so that nothing that is found here is echoed by any other letter.
It cannot find every secret: a password under an innocent name stays unseen. False alarms are kept rare by leaving alone
switches (`HF_HUB_DISABLE_IMPLICIT_TOKEN: 1`), numbers, file names and paths.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, cast

from stack.config.shape import Path, written
from stack.errors import HIDDEN, Problem, looks_like_secret

_WORDS: Final = {"TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "CREDENTIAL", "CREDENTIALS", "APIKEY"}
_HARMLESS_ENDINGS: Final = {"FILE", "PATH", "DIR", "NAME", "URL", "TYPE", "ENABLED", "LENGTH", "LIMIT", "COUNT", "ID"}
_SWITCHES: Final = {"", "0", "1", "true", "false", "yes", "no", "on", "off"}
_JSON_SECRET: Final = re.compile(r'"(?:[\w-]*[_-])?(?:api[_-]?key|token|password|secret)"\s*:\s*"[^"]+"', re.IGNORECASE)

_ENVIRONMENTS: Final[tuple[Path, ...]] = (
    ("modelserver", "serveEnv"),
    ("modelserver", "extraServeEnv", "prefill"),
    ("modelserver", "extraServeEnv", "decode"),
    ("modelserver", "extraServeEnv", "aggregated"),
    ("router", "epp", "env"),
)
_ARGUMENTS: Final[tuple[Path, ...]] = (
    ("modelserver", "serveArgs"),
    ("modelserver", "extraServeArgs"),
    ("routing", "proxy", "extraArgs"),
    ("router", "epp", "extraArgs"),
)

_WHY: Final = (
    "looks like a secret in plain text, and whoever reads the stack file or the cluster's objects would have it"
)
_RENEW: Final = "The value has been in a file: have its issuer replace it"


def names_a_secret(name: str) -> bool:
    """Whether a value under this name is probably secret, as for HF_TOKEN or dbPassword, and not for MAX_TOKENS."""
    words = [word.upper() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)]
    if not words or words[-1] in _HARMLESS_ENDINGS:
        return False
    return words[-1] == "KEY" or any(word in _WORDS for word in words)


def find_secrets(blocks: Mapping[str, object]) -> tuple[list[Problem], list[Path]]:
    """Return a letter for each secret, and the paths that no other letter may speak about."""
    problems: list[Problem] = []
    paths: list[Path] = []
    for path, value in _scalars(blocks, ()):
        fix = _fix(path, value)
        if fix is not None:
            paths.append(path)
            problems.append(Problem(key=hidden(path), value=HIDDEN, why=_WHY, fix=f"{fix}. {_RENEW}"))
    return problems, paths


def hidden(path: Path) -> str:
    """The path as the operator writes it, without parts that look like secrets themselves."""
    return written(tuple(HIDDEN if isinstance(part, str) and looks_like_secret(part) else part for part in path))


def _fix(path: Path, value: object) -> str | None:  # noqa: PLR0911  # one return for each place
    if any(isinstance(part, str) and looks_like_secret(part) for part in path):
        return "Take it out; a key of the configuration never holds a secret"
    text = value if isinstance(value, str) else ""
    if any(path[:-1] == env for env in _ENVIRONMENTS):
        if looks_like_secret(text) or (_is_literal(value) and names_a_secret(str(path[-1]))):
            return f"Put it into a Secret and write {path[-1]}: {{secretKeyRef: {{name: ..., key: ...}}}}"
        return None
    if any(path[: len(place)] == place for place in _ARGUMENTS):
        flag = re.split(r"[=\s]", text.lstrip("-"), maxsplit=1)
        is_named = isinstance(path[-1], str) and names_a_secret(path[-1]) and _is_literal(value)
        is_flag = text.startswith("-") and len(flag) > 1 and names_a_secret(flag[0]) and _is_literal(flag[1])
        if is_named or is_flag or looks_like_secret(text) or _JSON_SECRET.search(text):
            return "Put it into a Secret and hand it over by secretKeyRef, as VLLM_API_KEY in place of --api-key"
        return None
    if looks_like_secret(text):
        return "Take it out, put it into a Secret, and name that Secret where a key asks for one"
    return None


def _is_literal(value: object) -> bool:
    return isinstance(value, str) and value.lower() not in _SWITCHES and not value.startswith("/")


def _scalars(value: object, path: Path) -> list[tuple[Path, object]]:
    match value:
        case Mapping():
            inner = cast("Mapping[object, object]", value)
            found = [pair for key, item in inner.items() for pair in _scalars(item, (*path, str(key)))]
            return found or [(path, None)]
        case str():
            return [(path, value)]
        case Sequence():
            entries = cast("Sequence[object]", value)
            return [pair for index, item in enumerate(entries) for pair in _scalars(item, (*path, index))]
        case _:
            return [(path, value)]
