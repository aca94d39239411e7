"""The audit report: a document of `attacks.document` as one self-contained HTML file, or as tables in a terminal."""

from __future__ import annotations

from attacks.report.page import html
from attacks.report.terminal import print_summary, print_verdict

__all__ = ["html", "print_summary", "print_verdict"]
