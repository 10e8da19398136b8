"""`python -m cli` is `serving-stack`, also where the project is not installed."""

from __future__ import annotations

from cli.main import main

main()
