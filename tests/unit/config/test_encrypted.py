"""Blocks that the engine decrypted are refused, and nothing of them is shown."""

from __future__ import annotations

import pytest

from stack.config.encrypted import refuse_encrypted
from stack.errors import ConfigError

BLOCKS = {"release": "rel", "modelserver": {"serveEnv": {"X": "hush"}}, "storage": {}}


@pytest.mark.parametrize(
    ("keys", "want"),
    [
        (["serving-stack:modelserver"], ["modelserver"]),
        (["serving-stack:storage", "serving-stack:modelserver"], ["modelserver", "storage"]),
        (["serving-stack:release"], ["release"]),
    ],
    ids=["one block", "two blocks", "a single value"],
)
def test_every_encrypted_block_is_named_and_none_is_shown(keys: list[str], want: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        refuse_encrypted(BLOCKS, keys, project="serving-stack")
    assert [problem.key for problem in caught.value.problems] == want
    assert "hush" not in str(caught.value)
    assert all("Kubernetes Secret" in problem.fix for problem in caught.value.problems)


@pytest.mark.parametrize(
    "keys",
    [[], ["aws:secretKey"], ["serving-stack:gone"], ["other:modelserver"], ["serving-stack:model"]],
    ids=["nothing", "of a provider", "not given any more", "of another project", "the beginning of a name"],
)
def test_what_is_encrypted_elsewhere_is_no_concern(keys: list[str]) -> None:
    refuse_encrypted(BLOCKS, keys, project="serving-stack")
