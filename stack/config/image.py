"""Where an image comes from: repository, and either tag or digest."""

from typing import Self

from pydantic import Field, model_validator

from stack.errors import reject
from stack.scalars import ImageDigest, ImageRepository, ImageTag, Strict


class ImageConfig(Strict):
    """An image; what is left out comes from the recipe, or from the default that the block names."""

    repository: ImageRepository | None = Field(
        default=None, description="Image repository without tag or digest. Default: the one that fits the rest."
    )
    tag: ImageTag | None = Field(
        default=None, description="Image tag, always a string: quote tags that are all digits. Excludes `digest`."
    )
    digest: ImageDigest | None = Field(
        default=None, description="Image digest, `sha256:` and 64 hexadecimal digits. Excludes `tag`."
    )

    @model_validator(mode="after")
    def _is_pinned_once(self) -> Self:
        if self.tag is not None and self.digest is not None:
            raise reject(
                "is given together with a tag, and an image is pinned by one of the two",
                fix="Remove `digest` when moving to a tag, or remove `tag` to stay pinned",
                field="digest",
            )
        return self
