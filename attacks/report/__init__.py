"""The audit report: a document of `treetap.attacks.document` as one self-contained HTML page, or as terminal tables."""

from __future__ import annotations

from treetap.attacks.report.page import html, print_summary, print_verdict

__all__ = ["html", "print_summary", "print_verdict"]
