"""What a change will do to the Pods that run, before it is made.

`foresee` judges a plan against what is live, `render_table` says it, `stack.report` writes it as JSON. Whether spare
devices are enough for it is not decided here: `extra_pods` and `freed` say what they have to be enough for.
"""

from stack.impact.foresee import foresee
from stack.impact.model import (
    CompileCache,
    FreeDevices,
    Happening,
    Impact,
    KeyChange,
    Method,
    Outage,
    PartImpact,
    Start,
    WorkloadImpact,
)
from stack.impact.table import HEADS, because, duration, how_long, outage_line, remarks, render_table, rows, summarize

__all__ = [
    "HEADS",
    "CompileCache",
    "FreeDevices",
    "Happening",
    "Impact",
    "KeyChange",
    "Method",
    "Outage",
    "PartImpact",
    "Start",
    "WorkloadImpact",
    "because",
    "duration",
    "foresee",
    "how_long",
    "outage_line",
    "remarks",
    "render_table",
    "rows",
    "summarize",
]
