"""The audit report: a document of `treetap.attacks.document` as one self-contained HTML page, or as terminal tables."""
