"""The `serving-stack` command."""
