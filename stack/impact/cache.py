"""Whether new model servers find what earlier ones compiled, or compile first.

A compile cache can be used again with the same compiler (major.minor), the same serving configuration and the same type
of device (*Scaling and Upgrades*, Version compatibility). The tag of an image tells its compiler: the SDK's major.minor
is the compiler's. What an earlier configuration compiled stays in the volume, so that going back to it is warm.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, cast

from stack.impact.model import CompileCache, Start
from stack.recipes import known, load_recipe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stack.impact.keys import Delta
    from stack.recipes import Recipe

Finding = tuple[Start, str]

SHAPING_FLAGS = frozenset(
    {
        "additional-config",
        "block-size",
        "compilation-config",
        "data-parallel-size",
        "dtype",
        "enable-chunked-prefill",
        "enable-expert-parallel",
        "enforce-eager",
        "hf-overrides",
        "kv-cache-dtype",
        "max-model-len",
        "max-num-batched-tokens",
        "max-num-seqs",
        "pipeline-parallel-size",
        "quantization",
        "speculative-config",
        "tensor-parallel-size",
    }
)
"""Arguments that give the compiled graphs their shape or their number."""
OUTER_FLAGS = frozenset(
    {
        "chat-template",
        "collect-detailed-traces",
        "disable-access-log-for-endpoints",
        "disable-log-requests",
        "disable-log-stats",
        "disable-uvicorn-access-log",
        "enable-auto-tool-choice",
        "enable-log-requests",
        "enable-prompt-tokens-details",
        "enable-request-id-headers",
        "max-log-len",
        "otlp-traces-endpoint",
        "reasoning-parser",
        "served-model-name",
        "shutdown-timeout",
        "tool-call-parser",
        "tool-parser-plugin",
        "uvicorn-log-level",
    }
)
"""Arguments of the API server around the engine, which no graph depends on."""
OUTER_VARIABLES = frozenset({"VLLM_API_KEY", "VLLM_ENGINE_READY_TIMEOUT_S", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE"})
OUTER_PREFIXES = ("VLLM_LOGGING_", "VLLM_NIXL_")
ENGINE_PREFIXES = ("RBLN_", "VLLM_")
CACHE_ROOT = "VLLM_CACHE_ROOT"


def start_of_a_role(recipe: Recipe, *, kind: str, is_filled: bool | None) -> CompileCache:
    """What the Pods of a role find that has none so far.

    Args:
        recipe: the recipe.
        kind: `storage.compileCache.kind`.
        is_filled: whether the claim is there already; None if that is not known, or if the operator names it.
    """
    if recipe.engine.compiler is None:
        return CompileCache(start=Start.NOTHING_COMPILED)
    if kind == "emptyDir":
        return _empty_dir()
    if is_filled is False:
        return CompileCache(start=Start.COLD, why="the compile cache is new, so they compile first")
    there = "the compile cache is there already" if is_filled else "what the compile cache holds is not known"
    return CompileCache(
        start=Start.UNKNOWN, why=f"{there}; they compile first unless it was filled by this configuration"
    )


def start_of_more(recipe: Recipe, *, kind: str) -> CompileCache:
    """What Pods find that are added to others of the same template."""
    if recipe.engine.compiler is None:
        return CompileCache(start=Start.NOTHING_COMPILED)
    return _empty_dir() if kind == "emptyDir" else CompileCache(start=Start.WARM)


def start_after(recipe: Recipe, deltas: Sequence[Delta] | None, *, kind: str) -> CompileCache:
    """What Pods find that replace others.

    Args:
        recipe: the recipe.
        deltas: what is another for them; None if that is not known.
        kind: `storage.compileCache.kind`.
    """
    if recipe.engine.compiler is None:
        return CompileCache(start=Start.NOTHING_COMPILED)
    if kind == "emptyDir":
        return _empty_dir()
    if deltas is None:
        return CompileCache(start=Start.UNKNOWN, why="it is not known whether the compile cache still fits")
    findings = [*_of_the_image(recipe, deltas), *(found for delta in deltas for found in _of_a_key(delta))]
    for start in (Start.COLD, Start.UNKNOWN):
        reasons = tuple(dict.fromkeys(why for found, why in findings if found is start))
        if reasons:
            does = "does not fit any more, so they compile first" if start is Start.COLD else "may not fit any more"
            return CompileCache(start=start, why=f"the compile cache {does}: {'; '.join(reasons)}")
    return CompileCache(start=Start.WARM)


def worst(caches: Iterable[CompileCache | None]) -> CompileCache | None:
    """The one that lets Pods start the latest; None without any."""
    order = (Start.COLD, Start.UNKNOWN, Start.WARM, Start.NOTHING_COMPILED)
    return min((each for each in caches if each is not None), key=lambda each: order.index(each.start), default=None)


def _empty_dir() -> CompileCache:
    return CompileCache(
        start=Start.COLD, why="storage.compileCache.kind emptyDir keeps nothing, so every new Pod compiles first"
    )


def _of_the_image(recipe: Recipe, deltas: Iterable[Delta]) -> Iterator[Finding]:
    """By the tag, if it is the same repository's and says a version."""
    changed = {delta.key.removeprefix("modelserver.image."): delta for delta in deltas}
    image = {part: changed[part] for part in ("repository", "tag", "digest") if part in changed}
    if not image:
        return
    if image.keys() != {"tag"}:
        yield Start.UNKNOWN, f"another image may have another compiler than {recipe.engine.compiler}"
        return
    before, after = (_version(value) for value in (image["tag"].before, image["tag"].after))
    if before is None or after is None:
        yield Start.UNKNOWN, "the image's tag does not tell its compiler"
    elif before != after:
        yield Start.COLD, f"compiler {before} -> {after}"


def _version(tag: str | None) -> str | None:
    """`major.minor` of a tag; None also of what is none, since anybody may write the record of a live Deployment."""
    text: object = None if tag is None else json.loads(tag)
    found = re.match(r"v?([0-9]+\.[0-9]+)(?![0-9])", text) if isinstance(text, str) else None
    return found[1] if found is not None else None


def _of_a_key(delta: Delta) -> Iterator[Finding]:
    place, _, name = delta.key.rpartition(".")
    if delta.key == "modelserver.model":
        yield Start.COLD, "another model"
    elif delta.key == "recipe":
        yield from _of_the_recipe(delta)
    elif place.startswith("modelserver.serveArgs."):
        yield from _of_flags([name])
    elif place == "modelserver.extraServeArgs":
        yield from _of_flags(_flags_that_differ(delta))
    elif place.startswith("modelserver.extraServeEnv."):
        yield from _of_a_variable(name)
    elif delta.key in {"devices.claimTemplate", "devices.claimTemplateName"} or place == "devices.npu":
        yield Start.UNKNOWN, "the devices may be of another type"
    elif place.startswith("modelserver.podOverrides.") and (".nodeSelector" in delta.key or name == "affinity"):
        yield Start.UNKNOWN, "other nodes may have devices of another type"
    elif delta.key == "storage.compileCache.kind" or place == "storage.compileCache.existingClaim":
        yield Start.UNKNOWN, "it is another volume"


def _of_the_recipe(delta: Delta) -> Iterator[Finding]:
    """What else a recipe changes are keys of their own."""
    compilers: set[str | None] = set()
    for value in (delta.before, delta.after):
        name: object = None if value is None else json.loads(value)
        recipe = load_recipe(name) if isinstance(name, str) and known(name) else None
        compilers.add(None if recipe is None else recipe.engine.compiler)
    if len(compilers) > 1:
        yield Start.COLD, "another recipe, with another compiler"


def _of_flags(flags: Iterable[str]) -> Iterator[Finding]:
    for flag in sorted(flags):
        if flag in SHAPING_FLAGS:
            yield Start.COLD, f"another serving configuration ({flag})"
        elif flag not in OUTER_FLAGS:
            yield Start.UNKNOWN, f"{flag} may be part of what is compiled"


def _flags_that_differ(delta: Delta) -> set[str]:
    """Names of the flags in one list of arguments and not, or not so, in the other."""
    before, after = (_arguments(value) for value in (delta.before, delta.after))
    return {argument.lstrip("-").partition("=")[0].replace("_", "-").removeprefix("no-") for argument in before ^ after}


def _arguments(value: str | None) -> set[str]:
    """Of a list of them; what is none stands for itself, since anybody may write the record of a live Deployment."""
    found: object = [] if value is None else json.loads(value)
    if not isinstance(found, list):
        return {str(found)}
    return {each if isinstance(each, str) else json.dumps(each) for each in cast("list[object]", found)}


def _of_a_variable(name: str) -> Iterator[Finding]:
    if name == CACHE_ROOT:
        yield Start.COLD, f"it is elsewhere in the volume ({CACHE_ROOT})"
    elif name.startswith(ENGINE_PREFIXES) and not (name in OUTER_VARIABLES or name.startswith(OUTER_PREFIXES)):
        yield Start.UNKNOWN, f"{name} may be part of what is compiled"
