"""An API server to ask, by context `test` of the kubeconfig in `KUBECONFIG`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stand_in import kubeconfig, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.stand_in import StandIn


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with serve() as stand_in:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, stand_in.url)))
        yield stand_in
