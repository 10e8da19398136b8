"""What a change will do to the Pods that run, before it is made.

`foresee` judges a plan against what is live, `render_table` and `to_json` say it. Whether spare devices are enough for
it is not decided here: `extra_pods` and `freed` say what they have to be enough for.
"""

from stack.impact.foresee import foresee
from stack.impact.model import (
    CompileCache,
    Happening,
    Impact,
    KeyChange,
    Method,
    Outage,
    PartImpact,
    Start,
    WorkloadImpact,
    to_json,
)
from stack.impact.table import duration, render_table

__all__ = [
    "CompileCache",
    "Happening",
    "Impact",
    "KeyChange",
    "Method",
    "Outage",
    "PartImpact",
    "Start",
    "WorkloadImpact",
    "duration",
    "foresee",
    "render_table",
    "to_json",
]
