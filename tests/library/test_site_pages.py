"""Pages as they are copied for the site: lists, links out of docs/, meanings of terms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.renderers.site import ROOT, Repository, copied, explained, glossary, rewritten

LIST = """Text above:
- one
  - below one
    goes on
- two

  ```sh
  make test
    indented
  ```

After it [a link](x.md).

1. first

   A paragraph.
"""
REWRITTEN = """Text above:

- one
    - below one
        goes on
- two

    ```sh
    make test
      indented
    ```

After it [a link](y.md).

1. first

    A paragraph.
"""


def test_lists_are_as_pythons_markdown_reads_them() -> None:
    """Four blanks for each level, blocks too, a blank line above; links elsewhere are replaced, and not in code."""
    assert rewritten(LIST, lambda link: link.replace("x.md", "y.md")) == REWRITTEN
    assert rewritten("it is less than\n3. So\n", str) == "it is less than\n3. So\n"
    assert rewritten("    [a](x.md)\n```text\n[a](x.md)\n```\n", lambda _: "y.md").count("y.md") == 1


def test_a_term_is_explained_once_and_not_in_code() -> None:
    """At its first use, in the plural too; not in headings, tables, links and code."""
    prose = "`feature party` [feature party](x.md) unfeature party. Two feature parties, a feature party."
    page = f"# A feature party\n\n{prose}\n"
    told = explained(page, {"feature party": 'owner of "columns"'})
    assert told.count("<abbr") == 1
    assert '<abbr title="owner of &quot;columns&quot;">feature parties</abbr>' in told


def test_terms_are_those_of_the_glossary(tmp_path: Path) -> None:
    """Of the page that there is some; of one word none, and no links and marks."""
    assert "feature party" in glossary(ROOT / "docs")
    text = "**split party**: in *PIVODL*,\n[drawn](x.md).\n\n**record**: one row.\n\n**Fed-EINI**: a protocol.\n"
    (tmp_path / "glossary.md").write_text(text)
    assert glossary(tmp_path) == {"split party": "in PIVODL, drawn.", "Fed-EINI": "a protocol."}


@pytest.mark.parametrize("address", ["", "https://host.example.org/owner/treetap/"])
def test_links_to_the_repository(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To its address at a commit; without one to copies, of a folder to a list of its files."""
    monkeypatch.setenv("TREETAP_REPOSITORY", address)
    monkeypatch.setattr("tools.renderers.site._origin", lambda: "")
    (tmp_path / "docs" / "adr").mkdir(parents=True)
    text = "[m](../Makefile) [f](../examples/loans) [r](../README.md#limits) [p](adr/p.md) [a](tables.md#formats)\n"
    (tmp_path / "docs" / "page.md").write_text(text)
    repository = copied(tmp_path / "docs", tmp_path / "pages")
    made = (tmp_path / "pages" / "page.md").read_text()
    assert "[r](index.md#limits) [p](adr/p.md) [a](tables.md#formats)" in made
    assert (tmp_path / "pages" / "index.md").is_file()
    if address:
        assert f"[m]({address.rstrip('/')}/blob/" in made
        assert f"[f]({address.rstrip('/')}/tree/" in made
        assert "lead to https://host.example.org/owner/treetap at" in repository.says()
    else:
        assert "[m](files/Makefile.txt) [f](files/examples/loans/)" in made
        assert (
            'href="loans.csv.txt"' in (tmp_path / "pages" / "files" / "examples" / "loans" / "index.html").read_text()
        )
        assert "are copied" in repository.says()


def test_the_address_of_a_remote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of git over SSH the https form; of a path on this machine none."""
    monkeypatch.delenv("TREETAP_REPOSITORY", raising=False)
    for remote, address in (
        ("git@host.example.org:owner/treetap.git", "https://host.example.org/owner/treetap"),
        ("ssh://git@host.example.org/owner/treetap", "https://host.example.org/owner/treetap"),
        ("https://host.example.org/owner/treetap.git", "https://host.example.org/owner/treetap"),
        (str(ROOT), ""),
        ("", ""),
    ):
        monkeypatch.setattr(
            "tools.renderers.site._git", lambda *words, remote=remote: remote if words[0] == "remote" else "c"
        )
        assert Repository(tmp_path).address == address
