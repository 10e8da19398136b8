"""`python -m local`: the commands of `local.cli` on their own."""

from local.cli import app

app()
