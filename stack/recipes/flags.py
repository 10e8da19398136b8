"""Which serve flags an engine has, for the engine versions whose packages were read.

Only names: what a flag takes, and which flags go together, is left to the engine and to the rules.
"""

from functools import cache
from importlib import resources
from typing import Final

from stack.recipes.model import Engine

_NEGATION: Final = "no-"


def serve_flags(engine: Engine) -> frozenset[str]:
    """Flags of `vllm serve`, without dashes, with those the engine's plugin adds.

    Empty for an engine that was not read: nothing is then known about any flag.
    """
    flags = _read(f"vllm-{engine.vllm}")
    if flags and engine.name != "vllm":
        plugin = _read(f"{engine.name}-{engine.version}")
        return flags | plugin if plugin else frozenset()
    return flags


def has_flag(engine: Engine, flag: str) -> bool | None:
    """Whether the engine has the flag (`a.b` counts as `a`, `no-a` as `a`); None if its flags are not known."""
    flags = serve_flags(engine)
    if not flags:
        return None
    name = flag.partition(".")[0]
    return name in flags or name.removeprefix(_NEGATION) in flags


@cache
def _read(name: str) -> frozenset[str]:
    file = resources.files("stack.recipes") / "engines" / f"{name}.txt"
    if not file.is_file():
        return frozenset()
    return frozenset(
        line for line in file.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")
    )
