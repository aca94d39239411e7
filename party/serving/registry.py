"""The registry of the models that a party serves: admits the clients of `[serve]`, counts every request.

Paths of this host in errors that leave a party: they are named from the folders that its configuration names.

Peers, clients and coordinators need not know where a party's files lie; its own log keeps the whole paths.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from treetap import errors
from treetap.models.line_file import Line
from treetap.names import NAME
from treetap.party.config import PartyConfig, ServeConfig
from treetap.party.runtime.metrics import STRANGER, PartyMetrics
from treetap.wire.v2 import serving_pb2

if TYPE_CHECKING:
    from treetap.party.serving.decisions import DecisionLog

#: A folder of a table that is a column's value, as in `site=north/part-0.parquet`: the value is content.
_PARTITION = re.compile(r"([\w.-]+)=[^/\s]+/")


class OwnPaths:
    """Takes this host's folders out of a message: of a path below one, what lies below it stays.

    `/srv/bank/state/jobs/j` becomes `state/jobs/j`, and a table's file its name, also in an object store. Values of
    columns in names of folders are left out.
    """

    def __init__(self, config: PartyConfig) -> None:
        self._known: dict[str, str] = {}
        self.add(config)

    def add(self, config: PartyConfig) -> None:
        """Also take out the folders of a configuration that was read again: jobs under way name those before."""
        # The folders that a configuration names, and what they are called outside; empty: nothing.
        names = {config.state: "state"}
        if config.data is not None:
            names[config.data] = "data"
        if config.tables_folder is not None:
            names.setdefault(config.tables_folder, "tables")
        files = [file for table in config.tables.values() for file in table.local()]
        if config.tls is not None:
            files += [
                named for named in (config.tls.ca, config.tls.certificate, config.tls.key, config.tls.revoked) if named
            ]
        for file in files:
            names.setdefault(file.parent, "")
        known: dict[str, str] = {}
        for folder, name in names.items():
            for path in {folder, folder.absolute(), folder.resolve()}:
                if path.is_absolute() and path != Path(path.anchor):
                    known.update(dict.fromkeys((str(path), repr(str(path))[1:-1]), name))
        # of an object store what lies below the part of the path that no pattern is in
        stored = [place for table in config.tables.values() for place in table.places if isinstance(place, str)]
        known.update((re.split(r"/[^/]*[*?\[]", place)[0].rpartition("/")[0], "") for place in stored)
        self._known = {**self._known, **known}
        longest_first = sorted(self._known, key=len, reverse=True)
        alternatives = "|".join(map(re.escape, longest_first))
        self._pattern = re.compile(rf"(?<![\w./-])({alternatives})(/(?=[^\s/])|(?![\w-]|\.\w))")

    def __call__(self, text: str) -> str:
        return _PARTITION.sub(r"\1=…/", self._pattern.sub(self._shown, text)) if self._known else text

    def _shown(self, match: re.Match[str]) -> str:
        name, below = self._known[match[1]], match[2]
        return (name and name + "/") if below else name or "its folder"


#: Error → the outcome, in the metrics, of a request that ended with it.
OUTCOMES: dict[type[BaseException], str] = {
    errors.BadInput: "malformed",
    errors.UnknownJob: "unknown_model",
    errors.NotServed: "not_served",
    errors.Overloaded: "queue_full",
    errors.Silent: "late",
    errors.Refused: "refused",
    asyncio.CancelledError: "client_gone",
}


def _outcome(error: BaseException) -> str:
    """The outcome of a request that ended with an error."""
    return next((name for kind, name in OUTCOMES.items() if isinstance(error, kind)), "defect")


class ServedModel(Protocol):
    """A model that a job serves."""

    config: ServeConfig
    model: str
    job: str
    attempt: int

    @property
    def ready(self) -> bool:
        """True while requests are answered."""
        ...

    @property
    def about(self) -> Line:
        """The model and the job in a line of the decision log."""
        ...

    def named(self, value: str) -> str:
        """The id that the table has, of one as a client wrote it."""
        ...

    async def predict(
        self,
        client: str,
        ids: Sequence[str],
        records: Sequence[serving_pb2.NewRecord],
        within_s: float,
        reasons: int,
    ) -> serving_pb2.PredictedRecords:
        """An answer for each id and each record, in their order, with so many reasons at most."""
        ...

    def describe(self) -> serving_pb2.ModelDescription:
        """The description of the model for clients."""
        ...

    def recorded(self, client: str, request: serving_pb2.PredictRecords) -> None:
        """Record a client's request in the transcript, if this party keeps one."""
        ...

    def refuse(self) -> None:
        """Count a request without an answer."""
        ...

    def close(self) -> None:
        """End the attempt: requests that wait get an error."""
        ...


class ServedModels:
    """The models that this party serves, by at most one job each, and the permitted clients.

    `address`: that for clients, `host:port`; empty if the party does not listen.
    """

    def __init__(self, config: PartyConfig, metrics: PartyMetrics, decisions: DecisionLog | None = None) -> None:
        """`decisions`: where it notes what it answers and what it refuses."""
        self._name, self._policy, self.decisions = config.name, config.policy, decisions
        self._clients = frozenset(config.serve.clients if config.serve else ())
        self.own_paths = OwnPaths(config)  #: are left out of errors
        self.metrics = metrics
        self.rereads = 0  #: how often this party has been told to read its tables again
        self.address = ""
        self._served: dict[str, ServedModel] = {}
        self._beside: list[ServedModel] = []  # by further attempts of these jobs: such as begin, such as end
        self._between: dict[str, str] = {}  # model → its job, whose attempt has ended and another one may begin

    def go_by(self, config: PartyConfig) -> None:
        """From the next request on, admit the clients of another configuration; served models begin anew."""
        self._policy = config.policy
        self._clients = frozenset(config.serve.clients if config.serve else ())
        self.own_paths.add(config)
        self.rereads += 1

    # ---- for jobs

    def take(self, served: ServedModel) -> None:
        """Enter a job's model before the job serves it; `ConfigError` if another job serves it."""
        other = self._served.get(served.model)
        if other is not None and other.job != served.job:
            raise errors.ConfigError(
                f"{self._name} serves model {served.model} already, by job {other.job}: "
                f"treetap cancel {other.job} first",
                party=self._name,
            )
        if other is not None and other.ready:
            self._beside.append(served)
            return
        self._served[served.model] = served
        self._between.pop(served.model, None)

    def begin(self, served: ServedModel) -> None:
        """Have an attempt's model answer from here on; requests that wait for the attempt before it stay there."""
        if served in self._beside:
            self._beside.remove(served)
            self._beside.append(self._served[served.model])
            self._served[served.model] = served

    def leave(self, job: str, attempt: int) -> None:
        """Remove the model of a job's attempt that ends.

        Clients are answered by an attempt beside it, or asked to come again.
        """
        for served in [*self._served.values(), *self._beside]:
            if (served.job, served.attempt) != (job, attempt):
                continue
            if served in self._beside:
                self._beside.remove(served)
            else:
                del self._served[served.model]
                self._between[served.model] = job
            served.close()
        for served in [served for served in self._beside if served.model in self._between]:
            self._beside.remove(served)
            self.take(served)

    def forget(self, job: str) -> None:
        """Forget the model of a job that has been cancelled: its name is that of no served model."""
        self._between = {model: other for model, other in self._between.items() if other != job}

    # ---- for clients

    @property
    def ready(self) -> bool:
        """True if any model is served."""
        return any(served.ready for served in self._served.values())

    async def predict(
        self, client: str, request: serving_pb2.PredictRecords, within_s: float | None = None
    ) -> serving_pb2.PredictedRecords:
        """Answer a client, whose name is known by now, within `within_s` seconds or the configured deadline.

        Raises:
            Refused: the client is not permitted.
            BadInput: no id, or too many.
            UnknownJob: the model is not served.
            NotServed, Overloaded, Silent: the client may retry later.
        """
        try:
            self.admit(client, request.model)
            with self._counted(client, request.model):
                served = self._find(request.model)
                asked = len(request.ids) + len(request.records)
                if not 0 < asked <= served.config.most_ids:
                    raise errors.BadInput(
                        f"{asked} ids: a request has 1 to {served.config.most_ids} of them (most_ids)"
                    )
                served.recorded(client, request)
                longest = served.config.deadline_s
                within = longest if within_s is None else min(within_s, longest)
                return await served.predict(client, request.ids, request.records, within, request.reasons)
        except errors.TreetapError as refusal:
            if self.decisions is not None:
                # The line of a refusal; without ids if the client may not ask, or about so many, or the model is not
                # here.
                meant = self._meant(request.model)
                about = {"model": request.model if NAME.match(request.model) else ""} if meant is None else meant.about
                hidden = isinstance(refusal, errors.Refused | errors.BadInput)
                ids_asked = [*request.ids, *(record.id for record in request.records)]
                ids = (
                    []
                    if meant is None or hidden
                    else [self.decisions.hashed(meant.named(value)) for value in ids_asked]
                )
                await self.decisions.write([{**about, "client": client, "status": _outcome(refusal), "ids": ids}])
            raise

    def describe(self, client: str, model: str = "") -> serving_pb2.ModelDescription:
        """The description of a served model for a client. Raises as `predict` does."""
        self.admit(client, model)
        return self._find(model).describe()

    def admit(self, client: str, model: str = "") -> None:
        """Raise `Refused` if the client is not listed or may not receive predictions."""
        try:
            if client not in self._clients:
                raise errors.Refused(f"{client} is not a client of {self._name} ([serve] clients = …)")
            self._policy.check_emits(self._name, client, ("CONTROL", "PREDICTION"), client=True)
        except errors.Refused:
            self.metrics.request_ended(client if client in self._clients else STRANGER, "refused", 0.0)
            self._refused(model)
            raise

    def _find(self, model: str) -> ServedModel:
        if not self._served:
            raise errors.NotServed(f"{self._name} serves no model now; ask again later")
        if model in self._served:
            return self._served[model]
        if model in self._between:
            raise errors.NotServed(f"model {model} is not served now; ask again later")
        names = ", ".join(sorted({*self._served, *self._between}))
        if model:
            raise errors.UnknownJob(f"{self._name} does not serve model {model!r} (it serves {names})")
        if len(self._served) + len(self._between) > 1:
            raise errors.BadInput(f"model: is missing, and {self._name} serves several: {names}")
        return next(iter(self._served.values()))

    def _refused(self, model: str) -> None:
        """Count a request without an answer at its model, or at the only model if it names none."""
        if (served := self._meant(model)) is not None:
            served.refuse()

    def _meant(self, model: str) -> ServedModel | None:
        """The served model of this name, or the only one if it is empty."""
        return next(iter(self._served.values())) if len(self._served) == 1 and not model else self._served.get(model)

    @contextmanager
    def _counted(self, client: str, model: str) -> Iterator[None]:
        """Count a client's request by its outcome."""
        loop = asyncio.get_running_loop()
        began, outcome = loop.time(), "defect"
        try:
            yield
            outcome = "answered"
        except (errors.TreetapError, asyncio.CancelledError) as error:
            outcome = _outcome(error)
            if isinstance(error, errors.TreetapError):
                self._refused(model)
            raise
        finally:
            self.metrics.request_ended(client, outcome, loop.time() - began)
