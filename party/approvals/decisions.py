"""A job as a party was asked for it, decisions of its people, which its key countersigns, and standing approvals.

A standing approval lets in jobs beforehand, bounded by what their documents may say:

name = "weekly"
    until = 2027-01-01
    count = 12
    kinds = ["train"]
    coordinator = "coordinator"
    partners = ["bank"]
    table = "loans"

    [document]
    protocol = "boosting"
    aggregator = "bank"
    "parameters.n_estimators" = { most = 20 }
    "parameters.objective" = ["binary:logistic", "reg:squarederror"]

A field of the document that is not named has its default, so that nothing that an approver has not seen gets in.
"""

from __future__ import annotations

import base64
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal, TypeAlias, get_args

from google.protobuf.message import DecodeError
from pydantic import Field, ValidationError

from treetap.errors import BadInput, Malformed
from treetap.protocols.agreement import plain_parameters
from treetap.protocols.job_spec import OPENED
from treetap.protocols.key_options import KEY_BITS, LINE, PAILLIER, Obfuscation
from treetap.protocols.registry import prediction, training
from treetap.strict import Name, ProcessName, Strict, faults_of
from treetap.wire.ports import Role
from treetap.wire.signatures import signed, verified
from treetap.wire.tls import Insecure, Transport
from treetap.wire.v2.types_pb2 import Signed

Kind: TypeAlias = Literal["train", "predict", "serve", "align"]
#: Decisions; a job that has ended here needs a new submission, and that an approval of its own.
APPROVED, REFUSED, ENDED = "approved", "refused", "ended"
#: In the place of a decision: an attempt ended by a check of a peer's numbers, and people decide again.
DISPUTED = "disputed"
#: Way of a decision by a person's own command; that of a standing approval is its name behind `STANDING`; `END`: of a
#: job that has ended.
COMMAND, STANDING, END = "command", "standing ", "end of the job"


@dataclass(frozen=True)
class Verdict:
    """A decision about one job.

    Attributes:
        decision: `APPROVED`, `REFUSED`, `ENDED` or `DISPUTED`.
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

    @property
    def undecided(self) -> bool:
        """True if people are to decide, for the first time or again."""
        return self.last is None or self.last.decision == DISPUTED

    @property
    def disputes(self) -> int:
        """The number of attempts that ended by a check of a peer's numbers."""
        return sum(verdict.decision == DISPUTED for verdict in self.verdicts)

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Asked:
        """The job in a file; TypeError or KeyError for another content."""
        verdicts = tuple(Verdict(**verdict) for verdict in plain["verdicts"])
        return cls(**{**plain, "words": tuple(plain["words"]), "verdicts": verdicts})


def statement(purpose: str, made: Verdict | Standing, **of: str) -> bytes:
    """The bytes that a party countersigns: no other signature of its key is of bytes that begin so."""
    content = of | {name: value for name, value in asdict(made).items() if name != "countersigned"}
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


#: Most bytes of a standing approval's text.
LONGEST = 64 * 1024
#: Fields of a document that the other keys bound, or that name this submission alone.
_BOUND = frozenset(
    {
        *("job", "submission", "prediction", "base_submission", "replaced_submission", "preview", "table"),
        *("feature_parties", "parties"),
    }
)
#: Field of a document that is not empty by default → its defaults; the first ones are of jobs without such a key.
_USUAL: Mapping[str, tuple[Any, ...]] = {
    "scheme": ("", PAILLIER),
    "key_bits": (0, KEY_BITS),
    "obfuscation": ("", get_args(Obfuscation)[0]),
    "line": (0, LINE),
    "sums": ("", OPENED),
    "alignment": ("psi",),
    "join": ("", "inner"),
    "away_policy": ("fail",),
    "answer": ("count",),
}
#: Fields of a document in which 0 stands for no limit, so that it is beyond any largest number.
_UNLIMITED = frozenset({"explain_limit", "parameters.max_leaves", "parameters.max_delta_step"})
Value: TypeAlias = bool | int | float | str


class Bounds(Strict):
    """Bounds of a number in a document."""

    least: float | None = None
    """Least number; without it there is none."""
    most: float | None = None
    """Largest number; without it there is none."""


class StandingFile(Strict):
    """The file of `treetap approve --standing`."""

    name: Name
    """Its name, by which it is shown and revoked."""
    until: datetime | date
    """The day or moment (UTC unless it says otherwise) at which it ends."""
    count: Annotated[int, Field(ge=1, le=10_000)]
    """Number of jobs that it lets in."""
    kinds: Annotated[list[Kind], Field(min_length=1)] = ["train"]
    """Kinds of jobs: "train", "predict", "serve", "align"."""
    coordinator: ProcessName
    """The coordinator that asks."""
    partners: Annotated[list[ProcessName], Field(min_length=1)]
    """Parties that may be in the job beside this one."""
    table: Name
    """The name of the table."""
    document: dict[str, Value | list[Value] | Bounds] = {}
    """Field of the job's document, as `treetap jobs JOB --json` shows it, with a dot before a parameter's name = its
    value, a list of values, or { least = , most = }, where 0 that stands for no limit is beyond any `most`. A field
    that is not here has its default.
    """


@dataclass(frozen=True)
class Standing:
    """A standing approval that a party keeps.

    Attributes:
        text: the file.
        since, until: seconds since 1970.
        used: digests of the jobs that it has let in.
        revoked: who revoked it; empty: nobody.
        countersigned: as of a `Verdict`.
    """

    name: str
    text: str
    approver: str
    since: float
    until: float
    count: int
    used: tuple[str, ...] = ()
    revoked: str = ""
    countersigned: str = ""

    def fault(self, asked: Asked, party: str, now: float) -> str:
        """The reason why it does not let a job in now; empty if it does."""
        if self.revoked:
            return f"{self.revoked} has revoked it"
        if not self.since <= now < self.until:
            return "it has ended"
        if len(self.used) >= self.count and asked.digest not in self.used:
            return f"it has let in {self.count} jobs, and no more"
        return next(_beyond(_parsed(self.text), asked, party), "")

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Standing:
        """The one in a file; TypeError or KeyError for another content."""
        return cls(**{**plain, "used": tuple(plain["used"])})


def standing_of(text: str, approver: str, now: float) -> Standing:
    """A standing approval that begins now, by its file. BadInput for a text that is none."""
    file = _parsed(text)
    end = file.until if isinstance(file.until, datetime) else datetime.combine(file.until, datetime.min.time())
    until = (end if end.tzinfo else end.replace(tzinfo=UTC)).timestamp()
    if until <= now:
        raise BadInput(f"until = {file.until}: is over already")
    return Standing(file.name, text, approver, now, until, file.count)


def _parsed(text: str) -> StandingFile:
    if len(text.encode()) > LONGEST:
        raise BadInput(f"a standing approval has at most {LONGEST} bytes")
    try:
        return StandingFile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as fault:
        raise BadInput(f"the standing approval is no TOML: {fault}") from None
    except ValidationError as failure:
        raise BadInput("\n".join(faults_of(failure, StandingFile))) from None


def _beyond(file: StandingFile, asked: Asked, party: str) -> Iterator[str]:
    """What of a job is beyond a standing approval, one reason after the other."""
    document = flat(asked.document)
    if asked.kind not in file.kinds:
        yield f"kinds: {asked.kind} is none of them"
    if asked.coordinator != file.coordinator:
        yield f"coordinator: {asked.coordinator} asks"
    if document.get("table") != file.table:
        yield "table: it is another one"
    if strangers := [name for name in parties_of(asked.document) if name not in (party, *file.partners)]:
        yield f"partners: {', '.join(strangers)}"
    usual = _defaults(asked)
    for name, value in document.items():
        if name in _BOUND and name not in file.document:
            continue
        allowed = file.document.get(name)
        if allowed is None:
            if value not in usual[name] if name in usual else value:
                yield f"{name} is not its default, and not named"
        elif not _within(name, value, allowed):
            yield f"{name} is beyond it"


def _within(name: str, value: Any, allowed: Value | list[Value] | Bounds) -> bool:
    if isinstance(allowed, Bounds):
        least, most = allowed.least, allowed.most
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        value = value or (math.inf if name in _UNLIMITED else 0)
        return (least is None or value >= least) and (most is None or value <= most)
    if isinstance(value, list):
        return value == allowed
    return value in allowed if isinstance(allowed, list) else value == allowed


def flat(document: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """The fields of a document, those within others with a dot before their names."""
    fields: dict[str, Any] = {}
    for name, value in document.items():
        fields |= flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return fields


def parties_of(document: Mapping[str, Any]) -> list[str]:
    """All parties that a document names."""
    first = [str(document[name]) for name in ("aggregator", "recipient") if name in document]
    return [*first, *document.get("feature_parties", []), *document.get("parties", [])]


def _defaults(asked: Asked) -> dict[str, list[Any]]:
    """Field of a document → its values by default; a field that is not here is empty by default."""
    name, usual = asked.document.get("protocol", ""), {field: list(values) for field, values in _USUAL.items()}
    if asked.kind == "align":
        return usual
    described = training(name).params if asked.kind == "train" else prediction(name).options
    usual |= {field: [value] for field, value in flat({"parameters": plain_parameters(described())}).items()}
    if asked.kind != "train":
        usual["block"] = [prediction(name).block]
        usual["protocol"] = [name]  # the model's training has settled which may predict with it
    return usual
