"""The toolchain: every program the local plane needs, from PATH where that is good enough, else built from Go modules.

    from local.toolchain import ensure
    toolbox = ensure(["etcd", "kube-apiserver", "gateway-api"])
    toolbox.path("etcd"), toolbox.crd_dir("gateway-api"), toolbox.bin_dir

What there is and at which versions stands in `pins.toml`. It starts none of the programs.
"""

from __future__ import annotations

from local.toolchain.failures import ToolchainError
from local.toolchain.progress import Lines, Live, Progress, Silent, show_progress
from local.toolchain.toolbox import Toolbox, ensure

__all__ = ["Lines", "Live", "Progress", "Silent", "Toolbox", "ToolchainError", "ensure", "show_progress"]
