"""Ids that two organisations write differently, in one form: `normalise` of a table's settings.

The rules of an id column apply in the order of `_STEPS`, in whatever order they are listed: so lists of the same rules
make the same ids. `"e164:DE"` and `"digits"` together make `4930123456` of `030 123456` and of `0049 (30) 123456`.
Ids that come from elsewhere, in files or requests of clients, become those of a table by the same function.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

from treetap.errors import DataError, did_you_mean
from treetap.version import install

#: A telephone number in the form of E.164, such as +4930123456, as somebody in the country behind the colon dials it.
_E164 = re.compile("e164:([A-Z]{2})")
#: Categories of characters that do not show: controls, marks of formats such as zero-width ones, and blanks.
_UNSEEN = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})
_PART = re.compile("([0-9]{1,9}):")
Rule = Callable[[str], str]


def _nfkc(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _casefold(text: str) -> str:
    return text.casefold()


def _strip(text: str) -> str:
    seen = [place for place, letter in enumerate(text) if unicodedata.category(letter) not in _UNSEEN]
    return text[seen[0] : seen[-1] + 1] if seen else ""


def _digits(text: str) -> str:
    """The decimal digits of any script as those of ASCII."""
    return "".join(str(unicodedata.decimal(letter)) for letter in text if unicodedata.category(letter) == "Nd")


#: Rules in the order in which they apply; None stands for a country's.
_STEPS: dict[str, Rule | None] = {
    "nfkc": _nfkc,
    "casefold": _casefold,
    "strip": _strip,
    "e164:CC": None,
    "digits": _digits,
}


def checked(value: Any) -> Any:
    """What `normalise` says; ValueError for what is no list of rules, nor one for each id column."""
    for listed in value.values() if isinstance(value, dict) else [value]:
        if not isinstance(listed, list) or not all(isinstance(word, str) for word in listed):
            raise ValueError('is a list of rules, such as ["nfkc", "casefold"], or a table with one for each id column')
        for word in listed:
            if word not in _STEPS and not _E164.fullmatch(word):
                raise ValueError(
                    f"{word!r} is no rule: write some of {', '.join(map(repr, _STEPS))}, CC being a country such as DE"
                    f"{did_you_mean(word, _STEPS)}; ids are equal or not, and no rule takes similar ones for one"
                )
        names = [word.partition(":")[0] for word in listed]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise ValueError(f"lists {twice} twice")
    return value


def rules_of(keys: Sequence[str], given: Sequence[str] | Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The rules of each id column in their order, with blanks between them; no columns where none has rules.

    `given`: those of all id columns, or by column; ValueError for one that is no id column.
    """
    order = [name.partition(":")[0] for name in _STEPS]
    if isinstance(given, Mapping) and (others := [name for name in given if name not in keys]):
        raise ValueError(f"normalise names {others[0]!r}, which is no id column{did_you_mean(others[0], keys)}")
    own = [given.get(name, ()) if isinstance(given, Mapping) else given for name in keys]
    rules = (" ".join(sorted(words, key=lambda word: order.index(word.partition(":")[0]))) for words in own)
    return tuple(rules) if any(own) else ()


def in_words(rules: Sequence[str]) -> str:
    """The rules as settings have them, of several columns one list after the other."""
    listed = [f"[{', '.join(map(repr, rule.split()))}]" for rule in rules] or ["[]"]
    return "normalise = " + (listed[0] if len(set(listed)) == 1 else ", ".join(listed))


def keys_in_words(columns: Sequence[int]) -> str:
    """How many keys ids have: `columns` of each; none where they have one."""
    return (
        f"an id of {len(columns)} keys (of {', '.join(map(str, columns))} columns)" if columns else "an id of one key"
    )


@cache
def normaliser(rules: tuple[str, ...]) -> Rule:
    """The function from an id as it comes to the id that a table with these rules has; empty where nothing is left.

    Of several columns an id is their texts, each after its length; one that is not of that form is as it comes.

    Raises:
        DataError: the library of telephone numbers is not installed, or does not know the country.
    """
    steps = [_column(rule) for rule in rules]
    if len(steps) == 1:
        return steps[0]

    def normalised(text: str) -> str:
        parts = _parts(text, len(steps))
        return text if parts is None else joined_id([step(part) for step, part in zip(steps, parts, strict=True)])

    return normalised


def joined_id(texts: Sequence[str]) -> str:
    """The id of one record from its texts in several columns: each after its length in bytes and a colon."""
    return "".join(f"{len(text.encode())}:{text}" for text in texts)


def _parts(text: str, number: int) -> list[str] | None:
    """The inverse of `joined_id` for so many columns; None for what it does not make."""
    rest, parts = text.encode(), list[str]()
    for _ in range(number):
        length = _PART.match(rest.decode(errors="replace"))
        if length is None:
            return None
        begin = length.end()
        parts.append(rest[begin : begin + int(length[1])].decode(errors="replace"))
        rest = rest[begin + int(length[1]) :]
    return parts if not rest and joined_id(parts) == text else None


def _column(rule: str) -> Rule:
    steps = [_STEPS.get(word) or _telephone(word.partition(":")[2]) for word in rule.split()]
    if steps[:2] == [_nfkc, _casefold]:
        steps.insert(2, _nfkc)  # folding takes some letters apart again

    def normalised(text: str) -> str:
        *_, made = accumulate(steps, lambda now, step: step(now), initial=text)
        return made.strip()

    return normalised


def _telephone(country: str) -> Rule:
    """The rule of a country; empty for what is no telephone number."""
    try:
        import phonenumbers  # an extra, of tables with such ids alone
    except ImportError:
        raise DataError(f"e164:{country} needs phonenumbers: {install('phone')}") from None
    known = phonenumbers.SUPPORTED_REGIONS
    if country not in known:
        raise DataError(f"e164:{country}: phonenumbers knows no such country; write its code of ISO 3166, such as DE")

    def normalised(text: str) -> str:
        try:
            number = phonenumbers.parse(text, country)
        except phonenumbers.NumberParseException:
            return ""
        return str(phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164))

    return normalised
