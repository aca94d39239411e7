"""Every error that treetap raises on purpose, a caller's options, and what the words of an error are made of.

    TreetapError
     ├── BadInput                 the user's input: a file, a field, an option. Exit status 2.
     │    ├── ConfigError         a configuration or job file
     │    └── DataError           a table: a file, a row, a column
     │         └── NotText        its text is of another encoding than its settings say
     ├── ProtocolError            a peer broke the order or the form of the protocol
     │    ├── OutOfOrder          a step that does not follow from the last one
     │    ├── UnknownJob          a job, attempt or model that this process does not have
     │    ├── Conflict            the same step or message again, with other content
     │    └── Malformed           a message whose content cannot be what it claims
     │         └── Disputed       numbers of a peer that do not fit what this party knows of them
     ├── Refused                  this party's own policy forbids the step, or the caller is not entitled to it
     ├── Interrupted              the job stopped but can be resumed
     │    ├── Unreachable         no process answers at an address, or the handshake failed
     │    │    └── Unanswered     a process runs, but the connection broke or it did not take the call
     │    ├── Incompatible        a peer's certificate, or a version of the protocol, does not fit: repair, then resume
     │    └── Silent              a peer answered once and then sent nothing for too long
     ├── Pending                  a party's people have not yet approved the job: it waits for them
     ├── Overloaded               the request queue is full: repeat the request later
     ├── NotServed                no predictions are given: not yet, or not any more
     ├── Defect                   a process met an error that treetap did not foresee: its log has the details
     └── PlaintextOverflow        a number that does not fit its slot: refused, never wrapped

Messages name the file, the field and the remedy.

`visible` stands where text of other processes and files enters (details of a failed call, a status), and again where it
leaves (console, log lines, reports). It changes no printable text, so that it may stand at both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Self


class TreetapError(Exception):
    """Base of all errors raised on purpose. `party`: the party where it happened, if the message names it."""

    def __init__(self, *message: object, party: str = "") -> None:
        super().__init__(*message)
        self.party = party

    def at(self, party: str) -> Self:
        """This error with the party's name before its message, unless the message names the place already."""
        return self if self.party else type(self)(f"{party}: {self}", party=party)


class BadInput(TreetapError):
    """The user's input cannot be used; the command line exits with status 2."""


class ConfigError(BadInput):
    """A configuration or job file is wrong."""


class DataError(BadInput):
    """A table is wrong: the message names file, row and column."""


class NotText(DataError):
    """A table's text is of another encoding than its settings say."""


class ProtocolError(TreetapError):
    """A peer broke the protocol."""


class OutOfOrder(ProtocolError):
    """A step came that does not follow from the last one."""


class UnknownJob(ProtocolError):
    """A job, an attempt or a model that this process does not have."""


class Conflict(ProtocolError):
    """The same step or message came again with other content."""


class Malformed(ProtocolError):
    """A message cannot be what it claims to be."""


class Disputed(Malformed):
    """Numbers of a peer do not fit what this party knows of them: only its own people let the job go on, once."""


class Refused(TreetapError):
    """The caller is not entitled to this, or this party's policy forbids the answer."""


class LimitReached(Refused):
    """A job has reached a partner's limit in this party's policy: of a day, or of a list's length."""


class Interrupted(TreetapError):
    """The job stopped; `treetap resume` continues it."""


class Unreachable(Interrupted):
    """No process answers at an address, or the TLS handshake failed."""


class Unanswered(Unreachable):
    """A process runs, but the connection broke or it did not take the call: a repeat may succeed at once."""


class Incompatible(Interrupted):
    """A peer's certificate, or the protocol's version of a peer or a job, does not fit ours: a repeat fails too."""


class Silent(Interrupted):
    """A peer sent nothing for longer than the agreed time."""


class Overloaded(TreetapError):
    """The request queue is full: this request is not taken."""


class Pending(TreetapError):
    """A party's people have not yet approved the job, which waits for them."""


class NotServed(TreetapError):
    """Predictions are not given now; a client may repeat the request."""


class Defect(TreetapError):
    """An error that treetap did not foresee; details are in the log of the process where it happened."""


class PlaintextOverflow(TreetapError):
    """A number does not fit its slot."""


def each_of(*checks: Callable[[], Any]) -> list[Any]:
    """What independent checks of one input return; the faults of all of them as one error, so that all are mended.

    Text of another encoding than the settings say is a fault of the first check alone.
    """
    made, faults = list[Any](), list[BadInput]()
    for check in checks:
        try:
            made.append(check())
        except BadInput as fault:
            faults += [] if faults and isinstance(fault, NotText) else [fault]
    if faults:
        raise type(faults[0])("\n".join(dict.fromkeys(map(str, faults))), party=faults[0].party)
    return made


@contextmanager
def naming(party: str) -> Iterator[None]:
    """Errors of input in the block name the party at which they happen."""
    try:
        yield
    except BadInput as failure:
        raise failure.at(party) from None


@contextmanager
def cannot(be_done: str, place: object, kind: type[TreetapError] = BadInput, *, more: str = "") -> Iterator[None]:
    """What the operating system refuses in the block is an error of this kind: "PLACE: cannot BE_DONE: why; MORE".

    A file to "be read" that is not there has a sentence of its own.
    """
    try:
        yield
    except OSError as failure:
        if be_done == "be read" and isinstance(failure, FileNotFoundError):
            raise kind(f"{place}: there is no such file{more}") from None
        raise kind(f"{place}: cannot {be_done}: {failure.strerror or failure}{more}") from failure


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The most similar of the names that are known, of these one with the same letters; None if no one is similar."""
    plain = {_plain(one): one for one in known}
    alike = get_close_matches(_plain(name), plain, cutoff=0.65)
    swapped = [other for other in alike if sorted(other) == sorted(_plain(name))]
    return plain[(swapped or alike)[0]] if alike else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known: "; did you mean …?", or nothing."""
    meant = nearest(name, known)
    return "" if meant is None else f"; did you mean {meant!r}?"


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_").replace(" ", "_")


def visible(text: str, keep: str = "") -> str:
    r"""The text with every character that is not printable as its escape, such as `\x1b` or `\u202e`.

    Those are the control characters C0 and C1, line separators, marks that turn the direction of writing, and lone
    surrogates. `keep`: characters that stay, such as a line feed where lines are meant.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in keep else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def quoted(text: str) -> str:
    r"""The text in quotation marks, as TOML, JSON and Python read it: TOML has no `\x7f` that is not escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", r"\u007f")


def one_line(text: str) -> str:
    """The lines of a message side by side, with "; " between them where the first does not end with a colon."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return "".join(f"{line}{' ' if line.endswith(':') else '; '}" for line in lines[:-1]) + (lines[-1] if lines else "")


def visible_value(value: object) -> object:
    """As `visible` for a plain `str`; every other value, such as markup that is escaped already, stays as it is."""
    return visible(value) if type(value) is str else value


def refuse(*rules: tuple[object, str], kind: type[Exception] = ValueError) -> None:
    """Raise an error of the kind with what the first rule says whose condition holds."""
    for holds, says in rules:
        if holds:
            raise kind(says)
