"""Where Pods may run: tolerations, and the free-form maps that Kubernetes itself describes."""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from stack.errors import reject
from stack.scalars import LabelKey, LabelValue, Strict

FreeMap = Mapping[str, JsonValue]
"""Passed on as written; the API server is the one that knows its schema."""
NodeSelector = Mapping[LabelKey, LabelValue]


class Toleration(Strict):
    """Kubernetes toleration; the same relations between the fields hold as at the API server."""

    key: LabelKey | None = Field(default=None, description="Taint key. Left out with `Exists`: every taint.")
    operator: Literal["Exists", "Equal"] = Field(default="Equal", description="How the taint is compared.")
    value: LabelValue | None = Field(default=None, description="Taint value; only with `Equal`.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Taint effect. Left out: every effect."
    )
    toleration_seconds: int | None = Field(
        default=None, description="How long a `NoExecute` taint is tolerated, in seconds. Left out: for ever."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.key is None and self.operator != "Exists":
            raise reject("is needed with operator Equal", fix="Write the taint's key, or operator: Exists", field="key")
        if self.operator == "Exists" and self.value:
            raise reject(
                "has no meaning with operator Exists", fix="Remove `value`, or use operator: Equal", field="value"
            )
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise reject(
                "has a meaning for effect NoExecute only",
                fix="Remove `tolerationSeconds`, or set effect: NoExecute",
                field="tolerationSeconds",
            )
        return self
