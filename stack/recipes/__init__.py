"""Models as data: what one model needs to be served on one kind of accelerator.

A recipe names the engine and its version, the arguments and environment of each role, the devices one Pod takes, and
the probes that fit its loading time. It leaves alone everything that depends on the operator's cluster (volumes,
node names, images mirrored elsewhere) and everything the planner computes (ports, model path, side channel address).
"""

from stack.recipes.flags import has_flag, serve_flags
from stack.recipes.load import RecipeError, known, load_recipe, recipe_names
from stack.recipes.model import (
    Accelerator,
    ArgValue,
    Engine,
    Image,
    Probe,
    Probes,
    Recipe,
    Resources,
    ServeArgs,
    ServeEnv,
)

__all__ = [
    "Accelerator",
    "ArgValue",
    "Engine",
    "Image",
    "Probe",
    "Probes",
    "Recipe",
    "RecipeError",
    "Resources",
    "ServeArgs",
    "ServeEnv",
    "has_flag",
    "known",
    "load_recipe",
    "recipe_names",
    "serve_flags",
]
