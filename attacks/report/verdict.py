"""What each side learned: a sentence, a word and a bar for each verdict, the same in a terminal and on pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from attacks.document import Document
from attacks.report.glossary import count, score, share
from attacks.verdict import OTHERS, WORDS, Verdict, Word

TITLE = "What each side learned"
#: Letters of a bar in a terminal, and its three parts: guessed before, gained, left.
BAR, PARTS = 30, "█▓░"
#: Word → its meaning.
MEANINGS: dict[Word, str] = {
    "nothing found": "these attacks did no better with the training than without it, as far as so many records tell",
    "little": "at most 5 % of what was left to guess",
    "notable": "5 to 20 % of what was left to guess",
    "severe": "more than 20 % of what was left to guess",
    "not measured": "nothing was compared",
}


class Line(NamedTuple):
    """A verdict as a reader sees it.

    `before`, `gained`: lengths of the bar's first two parts, of 100; None where nothing was measured. `gain`: with its
    interval. `beside`: what else there is to say; empty where there is nothing. `details`: the page's section.
    """

    party: str
    text: str
    word: Word
    gain: str
    beside: str
    before: float | None
    gained: float | None
    details: str

    @property
    def style(self) -> str:
        """The word as a class of the style sheet."""
        return self.word.replace(" ", "-")


def lines(verdicts: Iterable[Verdict]) -> list[Line]:
    """The verdicts, and those that were not measured of one party for one reason in one line."""
    measured, unmeasured = list[Line](), dict[tuple[str, str, str], list[Verdict]]()
    for it in verdicts:
        if it.before is None:
            unmeasured.setdefault((it.party, it.learned, it.reason), []).append(it)
        else:
            measured.append(_line(it))
    return [*measured, *(_unmeasured(several) for several in unmeasured.values())]


def verdict_lines(document: Document) -> list[str]:
    """The lines of a terminal: a title, a sentence and a bar for each party and direction, what to do.

    Before that all faults of transcripts, which make figures too small.
    """
    said = [f"{TITLE}:"]
    for it in lines(document.verdicts):
        said.append(f"{it.party} {it.text}: {it.word}{it.gain and f' ({it.gain})'}")
        if it.before is not None and it.gained is not None:
            said.append(f"  {_bar(it.before, it.gained)}{it.beside and f'  {it.beside}'}")
    said += [f"{name}: {fault}" for name, party in document.parties.items() for fault in party.faults]
    return said if (advice := to_do(document)) is None else [*said, advice]


def to_do(document: Document) -> str | None:
    """What to do about the worst verdict; None where little or nothing was found."""
    worst = max(document.verdicts, key=lambda it: it.rank, default=None)
    if worst is None or worst.rank <= WORDS.index("little"):
        return None
    advice = document.advice
    if worst.learned == "labels" and advice is not None and (advice.suggestions or advice.parameters):
        return "To lower it: “What lowers this” in the report; treetap frontier measures defences on your table."
    if worst.learned == "labels":
        return "To lower it: docs/choosing-a-defence.md; treetap frontier measures defences on your table."
    return "To lower it: docs/defences.md, on columns."


def _line(it: Verdict) -> Line:
    assert it.before is not None
    assert it.after is not None
    assert it.gain is not None
    assert it.low is not None
    assert it.high is not None
    whose = f"{it.of}'s {it.learned}" if it.of != OTHERS else f"the {it.learned} of {it.of}"
    known = "" if it.known is None else f", if it knows {count(it.known)} of them"
    how = f"before ({it.before_how})"
    if it.measure == "AUC":
        text = f"could rank {whose} with AUC {score(it.before)} {how}, {score(it.after)} after{known}"
        gain = f"{it.gain:+.3f}, {it.low:+.3f} to {it.high:+.3f}"
    else:
        what = "the variance of " if it.measure == "explained" else ""
        text = f"could guess {share(it.before, 1)} of {what}{whose} {how}, {share(it.after, 1)} after{known}"
        gain = f"{100 * it.gain:+.1f} points, {100 * it.low:+.1f} to {100 * it.high:+.1f}"
    beside = ""
    if it.first is not None:
        of = it.first
        right, before, chance = (round(of.first * part) for part in (of.after, of.before, of.chance))
        beside = f"first {count(of.first)} named: {right} are {of.rarest!r} (before {before}, by chance {chance})"
    return Line(it.party, text, it.word, gain, beside, 100 * it.before, 100 * it.gain, it.details)


def _unmeasured(several: list[Verdict]) -> Line:
    first = several[0]
    names = " and ".join(it.of for it in several)
    return Line(
        first.party,
        f"as a reader of the {first.learned} of {names}",
        first.word,
        first.reason,
        "",
        None,
        None,
        first.details,
    )


def _bar(before: float, gained: float) -> str:
    """The bar in letters; what was gained has one at least, unless it is nothing."""
    first = round(BAR * before / 100)
    second = min(BAR - first, max(round(BAR * gained / 100), int(gained > 0)))
    return PARTS[0] * first + PARTS[1] * second + PARTS[2] * (BAR - first - second)
