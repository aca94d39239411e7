"""A federation of processes of this machine that stays up from one training to the next.

Each party reads its tables from a folder (`tables_folder` of its configuration): a job's tables are written there
under a new name, and removed when the job has ended. Whoever calls acts for all parties, and holds all of their files.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from treetap import terminal
from treetap.commands.jobs import progress_view
from treetap.commands.jobs.client import Operator
from treetap.commands.jobs.job_file import JobTable
from treetap.errors import BadInput, Interrupted, TreetapError
from treetap.lab.api.frames import ID, InvalidInput
from treetap.lab.experiment.file_tables import RESERVED
from treetap.lab.local_federation import STAND_IN, LocalFederation, dealer_of, empty_folder, keep_table, to_toml
from treetap.models.durable import make_folder, write_whole
from treetap.names import check_name, check_process_name
from treetap.party.policy import PERMISSIVE, merged
from treetap.protocols.prediction import predict_request
from treetap.wire.v2 import jobs_pb2

#: Where a party answers its gateway.
_SERVED = {"listen": "127.0.0.1:0", "gateway": "gateway"}
#: Federations that stay up for later trainings; of more the one that was used longest ago ends.
MOST_KEPT = 2
#: Words of parties about files → those of a caller, who gives frames and parameters.
_WORDS = {
    "in the table's settings": "as a parameter of the estimator",
    "eval_table": "eval_set",
    "eval table": "eval set",
}


@dataclass(frozen=True)
class OwnTable:
    """A party's table of a job: records with a column `ID`, and the keys of its description beside path and id."""

    records: pa.Table
    keys: Mapping[str, Any]


class Loopback:
    """Parties and a coordinator, started by the first job, ended by `close`.

    Args:
        parties: their names.
        defences: party → its table of defences.
        policy: tables of every party's policy.
        workers: of each party.
        workdir: a folder that keeps its files.
        serve: a client of the name `client` may ask each party about records, over HTTP on loopback, of its gateway.
            The name is drawn, since it is all that a client shows there.
        dealer: one process more may deal for jobs with privacy = "private".

    Raises:
        InvalidInput: there is one party only, or a name is none for a party.
    """

    def __init__(
        self,
        parties: Sequence[str],
        defences: Mapping[str, Mapping[str, Any]] | None = None,
        policy: Mapping[str, Any] | None = None,
        workers: int | None = None,
        workdir: Path | None = None,
        serve: bool = False,
        dealer: bool = False,
    ) -> None:
        if len(parties) < 2:
            raise InvalidInput(f"parties: {', '.join(parties) or 'none'}: a federation has at least two parties")
        if isinstance(parties, str) or not all(isinstance(name, str) for name in parties):
            raise InvalidInput(f"parties: {parties!r}: must be a list of names, or their number")
        if len(set(parties)) < len(parties):
            raise InvalidInput(f"parties: {', '.join(parties)}: each needs a name of its own")
        for name in parties:
            try:
                check_process_name(check_name(name))
            except ValueError as failure:
                raise InvalidInput(f"parties: {name!r}: {failure}") from None
            if name in RESERVED:
                raise InvalidInput(f"parties: {name!r}: the federation has this name itself, as {', '.join(RESERVED)}")
        given, self.client = dict(defences or {}), f"app-{secrets.token_hex(16)}"
        if unknown := [name for name in given if name not in parties]:
            raise InvalidInput(f"defences of {unknown[0]!r}, which is none of {', '.join(parties)}")
        self.parties, self.policy, self._workdir = parties, policy or {}, workdir
        self._configured = {}
        for party in parties:
            others = [name for name in parties if name != party]
            self._configured[party] = {
                "policy": merged(PERMISSIVE, {"people": {"label_holders": others}}, self.policy),
                "workers": workers,
                "tables_folder": "tables",
                **({"serve": {"clients": [self.client], **_SERVED}} if serve else {}),
                **({"defences": dict(given[party])} if given.get(party) else {}),
            }
        self._serves, self.deals = serve, dealer
        self._owner = os.getpid()
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._jobs = 0  # that run now
        self._federation: LocalFederation | None = None
        self._operator: Operator | None = None
        self._folder: Path | None = None
        self._end: weakref.finalize[Any, Loopback] | None = None
        self._ended = False

    def __repr__(self) -> str:
        return f"Loopback({', '.join(self.parties)})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Loopback:
        """Processes are not copied: clones of an estimator use the same ones."""
        return self

    def __reduce__(self) -> Any:
        """Elsewhere it has ended: its processes, and their keys, stay here."""
        return _copied, (self.parties,)

    @property
    def text(self) -> str:
        """Its configuration, in one order: two with the same text may share their processes."""
        return to_toml({name: self._configured[name] for name in sorted(self.parties)}) + f"{self.deals}{self._workdir}"

    @property
    def owned(self) -> bool:
        """False in a fork of the process that made it, whose processes it must leave alone."""
        return self._owner == os.getpid()

    @property
    def idle(self) -> bool:
        """True while no job runs."""
        return self._jobs == 0

    @property
    def running(self) -> bool:
        """True while all of its processes run, in the process that started them."""
        return self._federation is not None and self.owned and self._federation.alive

    @property
    def folder(self) -> Path:
        """The folder of its processes: configurations, certificates, states and logs."""
        if self._folder is None:
            raise InvalidInput("the federation does not run")
        return self._folder

    @property
    def pids(self) -> dict[str, int]:
        """The processes of its parties."""
        federation = self._federation
        return {} if federation is None else {name: federation.pid(name) for name in self.parties}

    def start(self) -> Operator:
        """Start the processes if they do not run; returns the operator.

        Raises:
            InvalidInput: the federation has ended.
            TreetapError: they do not start.
        """
        if self._ended:
            raise InvalidInput(
                "the federation has ended, or this is a copy from another process: fit in the block of "
                "treetap.federation, or leave federation out"
            )
        with self._lock:
            if self.running and self._operator is not None:
                return self._operator
            self.close()
            self._owner = os.getpid()
            if self._workdir is None:
                self._folder = Path(tempfile.mkdtemp(prefix="treetap-")).resolve()
            else:
                try:
                    self._folder = empty_folder(self._workdir)
                except BadInput as failure:
                    raise InvalidInput(str(failure).removeprefix("--")) from None
            self._federation = LocalFederation(self._folder, self._configured, dealer=self.deals)
            # a folder of the caller stays
            temporary = self._folder if self._workdir is None else None
            self._end = weakref.finalize(self, _end, self._owner, self._federation, temporary)
            try:
                for name in self.parties:
                    make_folder(self._folder / name / "tables")
                self._federation.__enter__()
                self._operator = self._federation.operator
            except BadInput as failure:
                said = str(failure).replace(f"{self._folder}/", "")
                self.close()
                raise InvalidInput(said) from None
            except OSError as failure:
                folder = self._folder
                self.close()
                raise InvalidInput(f"workdir {folder}: cannot be made: {failure.strerror}; name another") from None
            except BaseException:
                self.close()
                raise
            return self._operator

    def close(self) -> None:
        """End the processes; a temporary folder goes, with its keys. Python does so at its own end."""
        with self._lock:
            self._federation = self._operator = self._folder = None
            if self._end is not None:
                self._end()

    def end(self) -> None:
        """Close it for good: no job starts it again."""
        self._ended = True
        self.close()

    def train(
        self,
        tables: Mapping[str, OwnTable],
        job: JobTable,
        label_holder: str,
        evaluated: Mapping[str, OwnTable] | None = None,
        *,
        verbose: bool,
    ) -> tuple[jobs_pb2.JobStatus, dict[str, Path]]:
        """Train on tables by party, measuring those of `evaluated`; returns the job's status and the published models.

        Raises:
            InvalidInput: a party or the coordinator refuses the tables or the job.
            TreetapError: the job failed otherwise.
        """
        operator = self.start()
        others = [name for name in self.parties if name != label_holder]
        with self._placed(tables) as name, nullcontext() if evaluated is None else self._placed(evaluated) as further:
            if (dealer := dealer_of(job)) and verbose:
                terminal.err.print(STAND_IN, soft_wrap=True)
            spec = job.spec(label_holder, others, name, further or "", dealer)
            request = jobs_pb2.SubmitRequest(job=name, spec=spec)
            status = watched(operator, operator.submit(request), verbose=verbose)
        return status, {party: self.folder / party / "state" / "models" / name for party in self.parties}

    def predict(
        self, model: str, tables: Mapping[str, OwnTable], protocol: str, *, verbose: bool, attributed: bool = False
    ) -> tuple[pa.Table, jobs_pb2.JobStatus]:
        """Predict tables by party with the model of a training; returns the label holder's predictions and the status.

        `attributed`: of "eini"; returns the Shapley values of scores, masked sums of an encrypted prediction.

        Raises as `train`; Refused where a party's policy forbids attributions.
        """
        operator = self.start()
        with self._placed(tables) as name:
            request = predict_request(protocol, job=name, model=model, table=name, attributions=attributed)
            status = watched(operator, operator.predict(request), verbose=verbose)
        predicted = _taken(status.predictions)
        return _taken(status.attributions) if attributed else predicted, status

    @contextmanager
    def serve(
        self, model: str, tables: Mapping[str, OwnTable], protocol: str, *, look_up: bool, reasons: bool
    ) -> Iterator[str]:
        """Serve a model for records of tables while the block runs; yields HOST:PORT of HTTP.

        Raises:
            InvalidInput: the parties have no address for clients, or a table cannot be used.
            TreetapError: the job failed.
        """
        if not self._serves:
            raise InvalidInput("the parties have no address for clients: treetap.federation(…, serve=True)")
        operator = self.start()
        with self._placed(tables) as name:
            asked = {"job": name, "model": model, "table": name}
            operator.predict(predict_request(protocol, **asked, serve=True, look_up=look_up, reasons=reasons))
            try:
                status = operator.watch(name, lambda _: None, progress_view.serves)
                if status.state != "running":
                    raise (InvalidInput if status.bad_input else Interrupted)(status.error)
                federation = self._federation
                assert federation is not None
                (holder,) = (party for party, at in federation.serving.items() if at == status.serving.grpc)
                yield federation.start_gateway(holder, plain_http=True)
            finally:
                with suppress(TreetapError):
                    operator.cancel(name)

    @contextmanager
    def _placed(self, tables: Mapping[str, OwnTable]) -> Iterator[str]:
        """Write the tables where parties read them while the block runs; yields their name, which no other job has."""
        name = f"fit-{next(self._numbers)}"
        places = {party: self.folder / party / "tables" for party in tables}
        with self._lock:
            self._jobs += 1
        try:
            for party, own in tables.items():
                keep_table(own.records, places[party] / f"{name}.parquet")
                described = {"path": f"{name}.parquet", "id": ID, **own.keys}
                write_whole(places[party] / f"{name}.toml", to_toml(described).encode())
            yield name
        except BadInput as failure:
            # in terms of the frames and parameters of the caller
            dated = re.sub(r'\{ (?:"(.+)"|([\w-]+)) = "days" \}', r'{"\1\2": "days"}', str(failure))
            plain = re.sub(rf"tables/{name}\.(parquet: |toml: \d+ wrong: )", "", dated)
            raise InvalidInput(to_caller(plain)) from None
        finally:
            with self._lock:
                self._jobs -= 1
            for place in places.values():
                for file in place.glob(f"{name}.*"):
                    file.unlink(missing_ok=True)


def to_caller(message: str) -> str:
    """A message about tables in files, in the words of a caller, who gave frames and parameters."""
    for word, own in _WORDS.items():
        message = message.replace(word, own)
    return message


def _taken(file: str) -> pa.Table:
    """A file that a party wrote for the caller, who has it from here on."""
    content = pq.read_table(file)
    Path(file).unlink()
    return content


def watched(operator: Operator, job: str, *, verbose: bool) -> jobs_pb2.JobStatus:
    """Watch a job to its end, which must be a good one; Ctrl-C cancels it. Raises as `Loopback.train`."""
    try:
        with progress_view.live(job) if verbose else nullcontext(lambda _: None) as update:
            status = operator.watch(job, update)
    except KeyboardInterrupt:
        with suppress(TreetapError):
            operator.cancel(job)
        raise
    if status.state == "finished":
        return status
    raise (InvalidInput if status.bad_input else Interrupted)(status.error or f"job {job} is {status.state}")


_kept: dict[str, Loopback] = {}
_keeping = threading.RLock()


def kept(wanted: Loopback) -> Loopback:
    """The running federation as the wanted one, which stays up for the next training until the interpreter ends."""
    with _keeping:
        if not all(loopback.owned for loopback in _kept.values()):
            _kept.clear()  # they belong to the process of which this is a fork
        running = _kept.pop(wanted.text, wanted)
        for text in [text for text, loopback in _kept.items() if loopback.idle][: len(_kept) + 1 - MOST_KEPT]:
            _kept.pop(text).close()
        _kept[wanted.text] = running  # the one used last is at the end
        return running


def _end(owner: int, federation: LocalFederation, temporary: Path | None) -> None:
    """End the processes in the process that started them; in a fork, which has this too, leave them alone."""
    if owner == os.getpid():
        federation.stop()
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _copied(parties: Sequence[str]) -> Loopback:
    copy = Loopback(parties)
    copy.end()
    return copy


@contextmanager
def federation(
    parties: int | Sequence[str] = 2,
    *,
    defences: Mapping[str, Mapping[str, Any]] | None = None,
    policy: Mapping[str, Any] | None = None,
    workers: int | None = None,
    workdir: str | Path | None = None,
    serve: bool = False,
    dealer: bool = False,
) -> Iterator[Loopback]:
    """A federation of processes of this machine that runs while the block does.

    Estimators take it as `federation`; they predict with it until the block ends, and afterwards in this process.

    Args:
        parties: their names, or their number.
        defences: party → its table `[defences]`.
        policy: tables of every party's policy file.
        workers: threads of each party that compute; None: the number of cores.
        workdir: a folder that keeps configurations, certificates, states and logs; None: a temporary one.
        serve: give the parties an address at which `model.serve` answers over HTTP; needs the extra `serve`.
        dealer: start a dealer too, as estimators with privacy = "private" need one; on one machine it is a stand-in.

    Raises:
        TreetapError: the processes do not start.
    """
    if isinstance(parties, int | Integral):
        names: Sequence[str] = [f"party-{number}" for number in range(1, int(parties) + 1)]
    else:
        names = parties if isinstance(parties, str) else tuple(parties)
    folder = None if workdir is None else Path(workdir)
    running = Loopback(names, defences, policy, workers, folder, serve, dealer)
    try:
        running.start()
        yield running
    finally:
        running.end()
