"""What operators do to images: move between tag and digest in one change, and use tags that look like numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from cli.stackfile import read_stack_file
from stack.facts import NOTHING_READ
from stack.plan import plan_stack
from stack.rules import accept
from tests.builders import container, plan, planned, pod

if TYPE_CHECKING:
    from stack.planned import StackPlan

DIGEST = f"sha256:{'0a' * 32}"


@dataclass(frozen=True)
class Image:
    """A key under which an image is configured, and the container that runs it."""

    key: str
    container: str
    repository: str

    def blocks(self, image: dict[str, Any]) -> dict[str, Any]:
        nested: Any = image
        for part in reversed(self.key.split(".")):
            nested = {part: nested}
        return nested

    def of(self, whole: StackPlan) -> str:
        is_epp = self.container == "epp"
        spec = planned(whole, "Deployment", "rel-epp")["spec"]["template"]["spec"] if is_epp else pod(whole, "decode")
        return container(spec, self.container)["image"]


IMAGES = [
    Image("modelserver.image", "modelserver", "repo.rebellions.ai/rebellions/rbln-serve"),
    Image("routing.proxy.image", "routing-proxy", "ghcr.io/llm-d/llm-d-router-disagg-sidecar"),
    Image("router.epp.image", "epp", "ghcr.io/llm-d/llm-d-router-endpoint-picker"),
]
EACH = pytest.mark.parametrize("image", IMAGES, ids=[image.key for image in IMAGES])


@EACH
@pytest.mark.parametrize(
    ("tag", "digest"),
    [
        pytest.param({"tag": "9.9"}, {"digest": DIGEST}, id="the other taken out"),
        pytest.param({"tag": "9.9", "digest": None}, {"tag": None, "digest": DIGEST}, id="the other set to null"),
    ],
)
def test_one_change_moves_from_tag_to_digest_and_one_back(
    image: Image, tag: dict[str, Any], digest: dict[str, Any]
) -> None:
    tagged, pinned, again = (plan(**image.blocks(written)) for written in (tag, digest, tag))
    assert image.of(tagged) == f"{image.repository}:9.9"
    assert image.of(pinned) == f"{image.repository}@{DIGEST}"
    assert [o.manifest for o in again.objects()] == [o.manifest for o in tagged.objects()]


@EACH
@pytest.mark.parametrize("tag", ["20260801", "007", "0120", "1e3", "0x1F", "1.10", "2026-08-01", "true", "null"])
def test_a_tag_in_quotes_is_used_as_it_is_written(image: Image, tag: str) -> None:
    block, _, rest = image.key.partition(".")
    lines = [f"serving-stack:{block}:", *(f"{'  ' * depth}{part}:" for depth, part in enumerate(rest.split("."), 1))]
    depth = len(lines)
    text = "\n".join(
        [
            "config:",
            "  kubernetes:context: test",
            "  serving-stack:release: rel",
            "  serving-stack:namespace: ns",
            "  serving-stack:cluster: {identifier: test}",
            "  serving-stack:storage: {model: {existingClaim: model-store}}",
            *(f"  {line}" for line in lines),
            f'  {"  " * depth}tag: "{tag}"',
        ]
    )
    blocks, context = read_stack_file(text)
    whole = plan_stack(accept(blocks, context=context), NOTHING_READ)
    assert image.of(whole) == f"{image.repository}:{tag}"
    applied: Any = whole.applied
    for part in image.key.split("."):
        applied = applied[part]
    assert applied["tag"] == tag, "and stays text where it is written out again"
