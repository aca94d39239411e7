"""Every error that treetap raises on purpose, and a caller's options.

    TreetapError
     ├── BadInput                 the user's input: a file, a field, an option. Exit status 2.
     │    ├── ConfigError         a configuration or job file
     │    └── DataError           a table: a file, a row, a column
     ├── ProtocolError            a peer broke the order or the form of the protocol
     │    ├── OutOfOrder          a step that does not follow from the last one
     │    ├── UnknownJob          a job, attempt or model that this process does not have
     │    ├── Conflict            the same step or message again, with other content
     │    └── Malformed           a message whose content cannot be what it claims
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
"""

from __future__ import annotations

from typing import Self


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


class Refused(TreetapError):
    """The caller is not entitled to this, or this party's policy forbids the answer."""


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
