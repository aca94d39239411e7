"""The answers to a party's people about what goes on there, and what its ledger leaves of its limits.

Only those whom the policy names now are answered. Nothing here changes a job, a file or a count. Files are read off the
event loop, a page of them at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from treetap.errors import BadInput, ConfigError, DataError, did_you_mean, visible
from treetap.models.durable import read_json
from treetap.models.store import MANIFEST
from treetap.names import ALL
from treetap.party.defences.budgets import ColumnBudget, LabelBudget
from treetap.party.prediction.query_counts import counts_of
from treetap.party.runtime.job_ledger import DAILY, JobLedger
from treetap.party.runtime.job_store import TRANSCRIPTS
from treetap.party.runtime.ledger import Charge, Kind, Occasion, ledger_of
from treetap.party.runtime.steps import disk_faults
from treetap.privacy.column_privacy import ColumnPrivacy
from treetap.wire.v2 import control_pb2, overview_pb2

if TYPE_CHECKING:
    from treetap.party.approvals.ledger import Approvals
    from treetap.party.config import PartyConfig
    from treetap.party.runtime.attempts import Session
    from treetap.party.runtime.context import Offload
    from treetap.party.runtime.metrics import PartyMetrics


def spent(party: PartyConfig, charges: list[Charge]) -> list[dict[str, Any]]:
    """A row for each limit: `limit`, `of`, `most`, `spent`, `left`. Raises `DataError` where a ledger is damaged.

    `charges`: all of the party's ledger. Units: ε of labels and columns, numbers of the last 24 hours for partners.
    """
    labels = LabelBudget(party.state, party.policy.labels.label_budget)
    used, rest = labels.spent(), labels.left()
    rows: list[dict[str, Any]] = []
    if used or rest is not None:
        own = {"spent": float(used), "left": None if rest is None else float(rest)}
        rows.append({"limit": "label_budget", "of": "labels", "most": labels.budget, **own})
    columns, privacy = ColumnBudget(party.state, party.policy.columns.column_budget), party.defences.column_privacy
    noise = None if privacy is None else ColumnPrivacy(privacy.epsilon, privacy.delta, privacy.trees)
    for name in sorted({charge.occasion.table for charge in columns.charges()}):
        most = columns.budget if columns.budget is not None or noise is None else noise.epsilon
        account = {key: value for key, value in columns.account(name, noise).items() if key != "table"}
        rows.append({"limit": "column_budget", "of": f"columns of table {name}", "most": most, **account})
    return rows + [row for row in _of_partners(party, charges) if row["spent"] or row["named"]]


def _of_partners(party: PartyConfig, charges: list[Charge]) -> Iterator[dict[str, Any]]:
    """A row for each limit on a partner; `named`: the partner has limits of its own."""
    policy, now = party.policy, time.time()
    met = {partner for charge in charges for partner in charge.occasion.partners} | {*policy.partners} - {ALL}
    parties = tuple(sorted(met - {*policy.people.coordinators}))
    for job in (
        Occasion("", parties, "", "", 0),
        *(Occasion("", (), name, "", 0) for name in policy.people.coordinators),
    ):
        kept = JobLedger(ledger_of(party.state), job, party.name, policy)
        rows = [
            (DAILY[kind], partner, most, sum(one.amount for one in kept.of_day(kind, partner, now)))
            for kind in DAILY
            for partner, most in kept.daily(kind)
        ]
        rows += [
            ("queries_per_record", partner, most, counts_of(party.state, partner).most())
            for partner, most in kept.queries_per_record()
        ]
        for limit, partner, most, used in rows:
            named = partner in policy.partners
            left = max(most - used, 0)
            yield {"limit": limit, "of": partner, "most": most, "spent": used, "left": left, "named": named}


#: Rows of a page, and the most pages.
ROWS, PAGES = 50, 100_000
#: Most characters of a text in a row, and the greatest number of trees that a field has.
LONGEST, MOST_TREES = 200, 2**32 - 1
#: Endings of the reports of audits.
REPORTS = (".html", ".json")
#: Limit → its unit.
UNITS = {
    "label_budget": "ε",
    "column_budget": "ε",
    "queries_per_record": "queries of one record",
    **dict.fromkeys(DAILY.values(), "in 24 hours"),
}
#: Measure of the party's metrics → the policy's limit on it, whose it is, its unit. Those of columns: the ledger's.
LEAKAGE = {
    "treetap_leakage_bound_nats": ("max_leakage", "labels", "nats of a node"),
    "treetap_signature_excess_share": ("", "labels", "share of their entropy"),
}
View: TypeAlias = overview_pb2.View
T = TypeVar("T")


class Overview:
    """The party's side of overview.proto.

    Args:
        config: returns the configuration that holds now.
        sessions: the attempts under way, by job.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        config: Callable[[], PartyConfig],
        approvals: Approvals,
        sessions: Mapping[str, Session],
        metrics: PartyMetrics,
        offload: Offload,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._config, self._approvals, self._sessions = config, approvals, sessions
        self._metrics, self._offload, self._clock = metrics, offload, clock
        self._views: dict[str, Callable[[View, int], None]] = {
            "running": self._running,
            "exchanged": self._exchanged,
        }
        self._of_files: dict[str, Callable[[View, int], None]] = {
            "limits": self._limits,
            "ledger": self._ledger,
            "models": self._models,
            "certificates": self._certificates,
            "transcripts": self._transcripts,
        }

    async def show(self, caller: str, request: overview_pb2.AskedView) -> View:
        """A page of a view.

        Raises:
            Refused: the policy does not name the caller among its approvers.
            BadInput: there is no such view.
            DataError: the ledger is damaged.
        """
        config, view = self._config(), View(at=self._clock())
        self._approvals.check_approver(config.policy, caller)
        known, page = {**self._views, **self._of_files}, min(request.page, PAGES)
        if request.view not in known:
            near = did_you_mean(request.view[:LONGEST], known)
            raise BadInput(f"there is no such view{near}; those of this party are: {', '.join(known)}")
        with disk_faults(config.name, request.view):
            if request.view in self._views:
                known[request.view](view, page)
            else:
                await self._offload(lambda: known[request.view](view, page))
        return view

    def _running(self, view: View, page: int) -> None:
        now = asyncio.get_running_loop().time()
        for session in _page(view, self._sessions.values(), page):
            occasion, pace = session.context.ledger.occasion, session.pace
            kind, protocol, rounds = _asked_for(session.request)
            left = pace.seconds_left(rounds, now)
            view.running.add(
                job=occasion.job,
                attempt=occasion.attempt,
                kind=kind,
                protocol=protocol,
                table=_cut(occasion.table),
                coordinator=occasion.coordinator,
                parties=occasion.parties,
                step=pace.step,
                done=pace.done,
                rounds=rounds,
                seconds=now - pace.begun,
                seconds_left=left,
                bytes_sent=session.context.costs.byte_counts.bytes_sent,
            )

    def _exchanged(self, view: View, page: int) -> None:
        rows = [
            (sent, labels["peer"], labels["disclosure"], int(value))
            for sent, metric in ((True, "treetap_sent_bytes_total"), (False, "treetap_received_bytes_total"))
            for _, labels, value in self._metrics.samples(metric)
        ]
        for sent, peer, disclosure, size in _page(view, sorted(rows), page):
            view.exchanged.add(sent=sent, peer=peer, disclosure=disclosure, bytes=size)

    def _limits(self, view: View, page: int) -> None:
        config = self._config()
        rows = [
            overview_pb2.SpentLimit(
                limit=row["limit"],
                of=_cut(row["of"]),
                unit=UNITS[row["limit"]],
                most=row["most"],
                spent=row["spent"],
            )
            for row in spent(config, ledger_of(config.state).charges())
        ]
        for name, labels, value in self._metrics.samples(*LEAKAGE):
            limit, own, unit = LEAKAGE[name]
            most = getattr(config.policy.labels, limit) if limit else None
            of = f"{own}, by {labels['peer']}"
            rows.append(overview_pb2.SpentLimit(limit=limit or "leakage", of=of, unit=unit, most=most, spent=value))
        view.limits.extend(_page(view, rows, page))

    def _ledger(self, view: View, page: int) -> None:
        config = self._config()
        charges = ledger_of(config.state).charges()
        for charge in _page(view, (one for one in reversed(charges) if one.kind is not Kind.ANSWER), page):
            occasion = charge.occasion
            view.ledger.add(
                at=charge.seconds,
                kind=str(charge.kind),
                amount=charge.amount,
                table=_cut(occasion.table),
                partners=charge.partners,
                job=occasion.job,
                attempt=occasion.attempt,
            )

    def _models(self, view: View, page: int) -> None:
        for folder in _page(view, _folders(self._config().state / "models", MANIFEST), page):
            manifest = folder / MANIFEST
            try:
                content = read_json(manifest)
                protocol, role = (_cut(content[key]) for key in ("protocol", "role"))
                trees, fault = min(max(0, int(content.get("trees", 0))), MOST_TREES), ""
            except (DataError, KeyError, OverflowError, TypeError, ValueError):
                protocol, role, trees, fault = "", "", 0, "its manifest cannot be read: bring a back-up of it back"
            view.models.add(
                model=_cut(folder.name),
                protocol=protocol,
                role=role,
                trees=trees,
                published=manifest.stat().st_mtime,
                fault=fault,
            )

    def _certificates(self, view: View, page: int) -> None:
        if (tls := self._config().tls) is None:
            return
        shown, files = list[overview_pb2.HeldCertificate](), tls.files()
        for what in files.holds:
            try:
                ends = files.ends(what)
                shown += [overview_pb2.HeldCertificate(what=what, subject=_cut(of), ends=at) for of, at in ends]
            except ConfigError as fault:
                shown.append(overview_pb2.HeldCertificate(what=what, fault=_cut(fault)))
        view.certificates.extend(_page(view, shown, page))

    def _transcripts(self, view: View, page: int) -> None:
        for folder in _page(view, _folders(self._config().state / TRANSCRIPTS), page):
            files = sorted(path for path in folder.iterdir() if path.is_file())
            known = [path.stat() for path in files]
            view.transcripts.add(
                job=_cut(folder.name),
                bytes=sum(one.st_size for one in known),
                changed=max((one.st_mtime for one in known), default=0.0),
                reports=[_cut(path.name) for path in files if path.suffix in REPORTS][:ROWS],
            )


def _page(view: View, rows: Iterable[T], page: int) -> list[T]:
    """The rows of a page; the view notes if there are more."""
    first = page * ROWS
    taken = list(islice(rows, first, first + ROWS + 1))
    view.more = len(taken) > ROWS
    return taken[:ROWS]


def _folders(parent: Path, having: str = "") -> list[Path]:
    """The folders within a folder, by name; those that have a file of this name."""
    if not parent.is_dir():
        return []
    return sorted(path for path in parent.iterdir() if path.is_dir() and (path / having).exists())


def _asked_for(request: control_pb2.StepRequest) -> tuple[str, str, int]:
    """Kind and protocol of the job that a request opens, and its trees; 0: it grows none."""
    from treetap.protocols.job_spec import params_of  # an attempt is under way: it is loaded
    from treetap.protocols.registry import prediction_name, training_name

    if request.setup.HasField("prepare"):
        spec = request.setup.prepare.spec
        return "train", training_name(spec), int(getattr(params_of(spec), "n_estimators", 0))
    if request.alignment.HasField("open_preview"):
        return "align", "psi", 0
    model = request.prediction.open_model
    return "serve" if model.serve else "predict", prediction_name(model), 0


def _cut(text: object) -> str:
    """The beginning of a text; names of files may have bytes that are no text."""
    return visible(str(text))[:LONGEST]
