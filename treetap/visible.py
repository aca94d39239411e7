"""Text of other processes and files for a person's eyes: characters that control a terminal or a log are escaped.

`visible` stands where such text enters (details of a failed call, a status, metadata of an answer), and again where it
leaves (console, log lines, reports). It changes no printable text, so that it may stand at both.
"""

from __future__ import annotations


def visible(text: str, keep: str = "") -> str:
    r"""The text with every character that is not printable as its escape, such as `\x1b` or `\u202e`.

    Those are the control characters C0 and C1, line separators, marks that turn the direction of writing, and lone
    surrogates. `keep`: characters that stay, such as a line feed where lines are meant.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in keep else _escaped(letter) for letter in text)


def one_line(text: str) -> str:
    """The lines of a message side by side, with "; " between them where the first does not end with a colon."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return "".join(f"{line}{' ' if line.endswith(':') else '; '}" for line in lines[:-1]) + (lines[-1] if lines else "")


def visible_value(value: object) -> object:
    """As `visible` for a plain `str`; every other value, such as markup that is escaped already, stays as it is."""
    return visible(value) if type(value) is str else value


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
