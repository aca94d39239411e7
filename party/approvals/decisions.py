"""A job as a party was asked for it, and the decisions of the party's people, which the party's key countersigns."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

from google.protobuf.message import DecodeError

from treetap.errors import Malformed
from treetap.wire.roles import Role
from treetap.wire.signatures import signed, verified
from treetap.wire.tls import Insecure, Transport
from treetap.wire.v2.types_pb2 import Signed

Kind: TypeAlias = Literal["train", "predict", "serve", "align"]
#: Decisions; a job that has ended here needs a new submission, and that an approval of its own.
APPROVED, REFUSED, ENDED = "approved", "refused", "ended"
#: Way of a decision by a person's own command; that of a standing approval is its name behind `STANDING`; `END`: of a
#: job that has ended.
COMMAND, STANDING, END = "command", "standing ", "end of the job"


@dataclass(frozen=True)
class Verdict:
    """A decision about one job.

    Attributes:
        decision: `APPROVED`, `REFUSED` or `ENDED`.
        approver: the name in the certificate of whoever decided; of an end, the coordinator.
        way: `COMMAND`, `STANDING` and a name, or `END`.
        since, until: seconds since 1970, between which it holds.
        why: of a refusal.
        countersigned: the party's signature, a `Signed` in base64; empty in plain text.
    """

    decision: str
    approver: str
    way: str
    since: float
    until: float
    why: str = ""
    countersigned: str = ""

    @property
    def standing(self) -> str:
        """The name of the standing approval by which it was made; empty: by none."""
        return self.way.removeprefix(STANDING) if self.way.startswith(STANDING) else ""

    def statement(self, party: str, job: str, digest: str, coordinator: str) -> bytes:
        """The bytes that the party countersigns."""
        own = {name: value for name, value in asdict(self).items() if name != "countersigned"}
        of = {"party": party, "job": job, "digest": digest, "coordinator": coordinator}
        return statement("approval", of | own)


@dataclass(frozen=True)
class Asked:
    """A job that a party was asked for.

    Attributes:
        digest: of the job's document, in hexadecimal.
        operator, fingerprint: of the signature that counts here; empty without one.
        signed: the operator's signature, a `Signed` in base64.
        since: seconds since 1970 at which it was first asked for.
        words: what this party would send, in sentences.
        waits: the policy asked for an approval when it came.
        verdicts: the decisions, the last one of which counts.
    """

    job: str
    kind: Kind
    digest: str
    coordinator: str
    operator: str = ""
    fingerprint: str = ""
    signed: str = ""
    since: float = 0.0
    words: tuple[str, ...] = ()
    document: dict[str, Any] = field(default_factory=dict)
    waits: bool = False
    verdicts: tuple[Verdict, ...] = ()

    @property
    def submission(self) -> str:
        """The nonce of the submission."""
        return str(self.document.get("prediction") or self.document.get("submission", ""))

    @property
    def last(self) -> Verdict | None:
        """The decision that counts; None: there is none yet."""
        return self.verdicts[-1] if self.verdicts else None

    def with_verdict(self, verdict: Verdict) -> Asked:
        return replace(self, verdicts=(*self.verdicts, verdict))

    def plain(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self)

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Asked:
        """The job in a file; TypeError or KeyError for another content."""
        verdicts = tuple(Verdict(**verdict) for verdict in plain["verdicts"])
        return cls(**{**plain, "words": tuple(plain["words"]), "verdicts": verdicts})


def statement(purpose: str, content: dict[str, Any]) -> bytes:
    """The bytes of a party's countersignature: no other signature of its key is of bytes that begin so."""
    return f"treetap {purpose}\n{json.dumps(content, sort_keys=True, separators=(',', ':'))}".encode()


def countersigned(transport: Transport, content: bytes, unix_nanos: int) -> str:
    """The party's signature of a statement, in base64; empty in plain text."""
    if isinstance(transport, Insecure):
        return ""
    made = signed(transport, content, "approval", unix_nanos)
    return base64.b64encode(made.SerializeToString(deterministic=True)).decode()


def signature_of(text: str) -> Signed:
    """The signature in base64; Malformed for what is none."""
    try:
        return Signed.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        raise Malformed("its countersignature cannot be read") from None


def check_countersigned(party: str, transport: Transport, made: str, content: bytes) -> None:
    """Raise Malformed unless a statement is countersigned by this party; in plain text nothing is."""
    if isinstance(transport, Insecure):
        return
    if not made:
        raise Malformed("it is not countersigned")
    name, _ = verified(transport, signature_of(made), content, Role.PARTY)
    if name != party:
        raise Malformed(f"it is countersigned by {name!r}, not by {party!r}")
