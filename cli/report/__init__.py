"""A report for a pull request and for a browser: the same facts as in a terminal, with the course of the roll-out."""

from cli.report.markdown import render_markdown
from cli.report.page import render_html

__all__ = ["render_html", "render_markdown"]
