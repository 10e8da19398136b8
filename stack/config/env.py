"""Values of environment variables: text, whole numbers, a Secret's key, a field of the Pod. Never a secret itself."""

from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Discriminator, Field, Tag

from stack.errors import reject
from stack.scalars import DnsSubdomain, EnvName, SecretDataKey, Strict

_FIELDS = (
    r"^(metadata\.(name|namespace|uid)|metadata\.(labels|annotations)\['[^']+'\]"
    r"|spec\.(nodeName|serviceAccountName)|status\.(hostIP|hostIPs|podIP|podIPs))$"
)


class SecretKeyRef(Strict):
    """One key of a Secret in the release's namespace."""

    name: DnsSubdomain = Field(description="Name of the Secret in the release's namespace.")
    key: SecretDataKey = Field(description="Key inside the Secret.")


class FieldRef(Strict):
    """One field of the Pod, as the downward API offers it to environment variables."""

    field_path: str = Field(pattern=_FIELDS, description="Field of the Pod, for example `status.podIP`.")


class FromSecret(Strict):
    """`secretKeyRef`: the variable is filled from a Secret when the container starts."""

    secret_key_ref: SecretKeyRef = Field(description="The Secret's name and key.")


class FromField(Strict):
    """`fieldRef`: the variable is filled from the Pod's own fields."""

    field_ref: FieldRef = Field(description="The Pod's field.")


def _literal(value: object) -> object:
    """Refuse what YAML made of an unquoted word: the container would see another text than the file shows."""
    match value:
        case bool():
            text = str(value).lower()
            raise reject("is a boolean, and an environment variable is text", fix=f'Write "1", or "{text}" in quotes')
        case float():
            raise reject(
                "is a decimal number, and an environment variable is text", fix=f'Write it in quotes: "{value}"'
            )
        case _:
            return value


def _kind(value: Any) -> str:
    match value:
        case FromSecret():
            return "<secret>"
        case FromField():
            return "<field>"
        case dict():
            keys = cast("dict[str, object]", value)
            return "<field>" if "fieldRef" in keys and "secretKeyRef" not in keys else "<secret>"
        case int() if not isinstance(value, bool):
            return "<number>"
        case _:
            return "<text>"


EnvValue = Annotated[
    Annotated[str, Tag("<text>")]
    | Annotated[int, Tag("<number>")]
    | Annotated[FromSecret, Tag("<secret>")]
    | Annotated[FromField, Tag("<field>")],
    Discriminator(_kind),
    BeforeValidator(_literal),
]
"""Text, a whole number, `{secretKeyRef: {name, key}}` or `{fieldRef: {fieldPath}}`."""

Environment = Mapping[EnvName, EnvValue]


class SecretName(Strict):
    """A Secret that holds a Hugging Face token, by name and key."""

    name: DnsSubdomain = Field(
        default="llm-d-hf-token", description="Name of the Secret in the release's namespace; it must exist there."
    )
    key: SecretDataKey = Field(default="HF_TOKEN", description="Key inside the Secret.")
