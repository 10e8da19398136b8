"""Reads recipes from the data files beside this module, once each.

It knows which recipes exist; proposing a near name for a misspelt one is left to the caller.
"""

import json
from collections.abc import Hashable
from functools import cache
from importlib import resources
from typing import Any

import yaml
from pydantic import ValidationError

from stack.recipes.model import Recipe

_SUFFIX = ".yaml"


class RecipeError(Exception):
    """A recipe that does not exist or is not well formed; the message says which and why."""


class _NoDuplicates(yaml.SafeLoader):
    """YAML in which a key written twice is an error: the second would win unseen."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002  # the base class's signature
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key: Hashable = super().construct_object(key_node, deep=True)  # pyright: ignore[reportUnknownMemberType]  # untyped in the stubs
            if key in seen:
                raise RecipeError(f"key {key!r} stands twice, again in line {key_node.start_mark.line + 1}")
            seen.add(key)
        return super().construct_mapping(node, deep)


@cache
def recipe_names() -> tuple[str, ...]:
    """Names of all recipes, sorted."""
    folder = resources.files(__package__ or "stack.recipes")
    return tuple(sorted(f.name.removesuffix(_SUFFIX) for f in folder.iterdir() if f.name.endswith(_SUFFIX)))


def known(name: str) -> bool:
    """Whether a recipe of that name exists."""
    return name in recipe_names()


@cache
def load_recipe(name: str) -> Recipe:
    """The recipe of that name; the same object at every call.

    Raises:
        RecipeError: there is no such recipe, or its file is not well formed.
    """
    if not known(name):
        raise RecipeError(f"there is no recipe {name!r}; there are {', '.join(recipe_names())}")
    text = (resources.files(__package__ or "stack.recipes") / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
    recipe = parse_recipe(text)
    if recipe.name != name:
        raise RecipeError(f"file {name}{_SUFFIX} holds a recipe called {recipe.name!r}. Give both one name")
    return recipe


def parse_recipe(text: str) -> Recipe:
    """A recipe from the text of its YAML file.

    Raises:
        RecipeError: not YAML, a key twice, or not of a recipe's shape; all shape problems at once.
    """
    try:
        raw = yaml.load(text, Loader=_NoDuplicates)  # noqa: S506  # a SafeLoader
    except yaml.YAMLError as error:
        raise RecipeError(f"not YAML: {error}") from None
    try:
        return Recipe.model_validate_json(json.dumps(raw), by_alias=True, by_name=False)
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, e['loc'])) or 'recipe'}: {e['msg']}" for e in error.errors())
        raise RecipeError("; ".join(problems)) from None
