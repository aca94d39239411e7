"""The part that both estimators share: from the caller's records to a training, and from its model to predictions."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from treetap.commands.jobs.job_file import JobTable
from treetap.errors import cannot
from treetap.lab.api import loopback, party_tables, simulated
from treetap.lab.api.caller_records import OF_PARTIES, by_party, is_label
from treetap.lab.api.client import Client
from treetap.lab.api.fitted import CLASSES, OTHERS_PREDICTED, Fitted, add_history, pairs_of, read_shards, write_shards
from treetap.lab.api.frames import ID, InvalidInput, Rows, checked, column_in, library_of, like
from treetap.lab.api.insights import Insights
from treetap.lab.api.loopback import Loopback
from treetap.lab.api.models import Connection, RemoteFitted, connect
from treetap.lab.api.parameters import changed, job_table
from treetap.models.store import MANIFEST
from treetap.party.policy import PERMISSIVE, merged
from treetap.protocols.job_spec import PRIVATE, PUBLISHED, SHARED
from treetap.protocols.prediction import predicting
from treetap.tables.config import AUTO
from treetap.tables.labels import class_name
from treetap.wire.tls import NAME_KEY


class Served(NamedTuple):
    """A served model: its address, the headers that name the client, and the ids of the records, in their order."""

    address: str
    headers: dict[str, str]
    ids: list[str]

    def client(self) -> Client:
        """A client that may ask there."""
        return Client(self.address, client=self.headers[NAME_KEY])


class FederatedEstimator(Insights):
    """Trains and predicts by a federation. Its subclasses have the constructor, and `_labels` of their targets."""

    #: The objective where the targets are not seen here.
    _usual_objective = "binary:logistic"

    @checked()
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        eval_set: Any = None,
        sample_weight_eval_set: Any = None,
        base_model: FederatedEstimator | None = None,
    ) -> Self:
        """Train on records with labels.

        One person acts for all parties: the job's `max_sample_weight` is at least the largest weight here.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features), or {party: data frame}, or a list of data frames
            Records. Columns of one table are split by `parties`. Of a table of each party the records that all have
            are trained on. Columns of frames go by name, those of arrays by place. Of a federation elsewhere: the name
            of the parties' own tables.
        y : array of shape (n_samples,) or column name
            Labels of the label holder's rows. Those of pandas go by their index where `X` has one, or ids. With
            protocol = "pivodl" also {party: labels}, with an empty cell where a party does not label a record.
        sample_weight : array of shape (n_samples,), optional
            Weights of the records from 0 on.
        eval_set : list of (X, y) pairs, optional
            Sets by which the model is measured after each round. With `early_stopping_rounds` the last one stops the
            training, and no record of `X` is set aside. Of a federation elsewhere: the name of the eval tables.
        sample_weight_eval_set : list of arrays of shape (n_samples,), optional
            Weights of the records of each set; they weigh its measures.
        base_model : estimator, optional
            A fitted estimator of the same records and parties, whose federation runs: `n_estimators` counts the rounds
            that are added to its trees. It has no `eval_set`.

        Returns
        -------
        self : estimator
            The fitted estimator.

        Raises
        ------
        ValueError
            The records, the labels or a parameter cannot be used.
        TreetapError
            The federation failed.
        """
        if isinstance(self.federation, Connection):
            return self._fit_elsewhere(self.federation, X, y, sample_weight, eval_set)
        if base_model is not None and eval_set is not None:
            raise InvalidInput(
                "eval_set and base_model do not go together: no party has scores of its records under the base model; "
                "leave it out, or have validation_share of the records set aside"
            )
        several = party_tables.are_frames(X)
        data, targets, places = self._of_frames(X, y) if several else self._of_one(X, y)
        labels, objective = self._labels(targets)
        names = list(data.tables)
        holder = self._holder(names)
        job = self._job(objective, "psi" if several else "sorted-ids")
        data = party_tables.settled(
            data,
            self._by_name("encode") if isinstance(self.encode, Mapping) else self.encode,
            self._dated,
            missing=self.missing,
            categorical=self._splits_categories(job),
            has_ids=self.id_column is not None,
        )
        weights = None
        if sample_weight is not None:
            weights = self._weights(data, sample_weight)
            job = changed(job, max_sample_weight=max(float(weights.max()), job.max_sample_weight or 1.0))
        tables = self._labelled(data, by_party(labels, places, holder), weights, holder)
        sets = [self._eval_set(*pair, data, holder) for pair in pairs_of(eval_set, sample_weight_eval_set)]
        evaluated = sets[-1] if sets else None
        if self.simulate:
            simulated.check(self, base_model)
            fitted = Fitted(simulated.train(tables, job, holder, evaluated, self.defences or {}), holder)
        else:
            running = self._loopback(names)
            if base_model is not None:
                if getattr(getattr(base_model, "_fitted", None), "loopback", None) is not running:
                    raise InvalidInput(
                        "base_model: must be fitted, with the same parties, on a federation that still runs"
                    )
                job = changed(job, base_model=base_model._fitted.job)
            status, folders = running.train(tables, job, holder, evaluated, verbose=bool(self.verbose))
            fitted = Fitted(read_shards(folders), holder, (running, status))
        add_history(fitted, sets)
        self._fitted = fitted
        self.label_holder_, self.columns_, self.constant_columns_ = holder, data.columns, fitted.dropped
        self.encodings_ = {party: data.keys(party) for party in data.tables}
        self.n_iter_ = fitted.rounds
        return self

    @checked()
    def predict_frame(self, X: Any) -> Any:
        """Predict the records that all parties have; raises as `predict`.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features), or a table of each party
            Records, as in `fit`.

        Returns
        -------
        predictions : data frame of the library of `X`
            Rows in the order of `X`, with its index, or that of the label holder's frame, where there is one. Columns:
            the ids where a column has them, `prediction`, of classes their probabilities, and raw scores.
        """
        predicted, rows = self._predictions(X)
        if rows is None:
            return like(
                predicted.rename_columns(["id" if name == ID else name for name in predicted.column_names]), None
            )
        return rows.framed(predicted)

    @contextmanager
    def serve(self, X: Any, *, look_up: bool = False, reasons: bool = False) -> Iterator[Served]:
        """Serve the model while the block runs; clients ask the label holder over HTTP, by ids.

        The federation is one of `treetap.federation(…, serve=True)`; docs/serving.md describes requests and answers.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features), or a table of each party
            Records, as in `fit`.
        look_up : bool, default=False
            Also answer about records that the label holder's table lacks, where other parties' policies permit it.
        reasons : bool, default=False
            Clients may ask for the reasons of scores.

        Yields
        ------
        served : Served
            Address, headers that name the client, and the ids of the records, in their order.

        Raises
        ------
        ValueError
            There is no such federation, or the records do not fit the model.
        TreetapError
            The federation failed.
        """
        running = self._model.loopback if isinstance(self._model, Fitted) else None
        if running is None:
            raise InvalidInput("the federation of this model does not run here: fit in a block of treetap.federation")
        with checked():
            data = self._party_tables(X).by_names()
            tables = self._own_tables(data)
        serving = running.serve(self._model.job, tables, self._protocol, look_up=look_up, reasons=reasons)
        with serving as address:
            yield Served(f"http://{address}", {NAME_KEY: running.client}, list(data.rows.ids))

    @checked()
    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the shards of all parties below a folder, which `treetap.load_model` reads.

        Parameters
        ----------
        folder : path
            A folder that is empty, or not there yet.
        overwrite : bool, default=False
            Replace the model that an earlier `save` has written there.

        Returns
        -------
        folder : Path
            The same folder.

        Raises
        ------
        ValueError
            The folder holds something, or with `overwrite` something else than a saved model.
        """
        place, shards = Path(folder), self._model.shards
        with cannot("be written", place, InvalidInput, more="; name another folder"):
            if there := place.exists() and any(place.iterdir()):
                if not overwrite:
                    raise InvalidInput(f"{place}: is not empty; name another folder, or overwrite=True")
                if any(not (part / MANIFEST).is_file() for part in place.iterdir() if part.name != CLASSES):
                    raise InvalidInput(f"{place}: has more than a saved model; name another folder")
            # beside the earlier model, in a folder that no one else has, until it is whole
            beside = Path(tempfile.mkdtemp(prefix=f"{place.name}.", dir=place.parent)) if there else place.parent
            draft = beside / "new" if there else place
            write_shards(shards, draft)
            if getattr(self, "classes_", np.empty(0, dtype=object)).dtype.kind != "O":
                np.save(draft / CLASSES, self.classes_, allow_pickle=False)
            if there:
                place.rename(beside / "old")
                draft.rename(place)
                shutil.rmtree(beside)
        return place

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def connect(self, coordinator: str | None = None, *, operator_file: str | Path = "operator.toml") -> Self:
        """Have this estimator train by a federation that runs elsewhere; see `treetap.connect`.

        Then `parties` has their names, `fit` and `predict` take the name of the parties' own tables, and no `y`.
        Predictions are in the order of the label holder's file, which is read if it is on this machine.

        Parameters
        ----------
        coordinator : str, optional
            Address of the coordinator, HOST:PORT, in the place of the file's.
        operator_file : path, default="operator.toml"
            File of the operator.

        Returns
        -------
        self : estimator
            The estimator with this federation.
        """
        return self.set_params(federation=connect(coordinator, operator_file=operator_file))  # type: ignore[no-any-return]

    def _fit_elsewhere(self, connection: Connection, table: Any, y: Any, sample_weight: Any, further: Any) -> Self:
        if not isinstance(table, str) or y is not None or sample_weight is not None:
            raise InvalidInput("a federation that runs elsewhere has its own tables: fit takes their name alone")
        if self.simulate:
            raise InvalidInput(
                "simulate: the tables of a federation that runs elsewhere are its parties' own; leave simulate out"
            )
        if further is not None and not isinstance(further, str):
            raise InvalidInput("eval_set: a federation that runs elsewhere has its own tables: give their name alone")
        parties = self._parties
        if isinstance(parties, int) or len(parties) < 2:
            raise InvalidInput("parties: name them all, as ['bank', 'telco']; their columns are in their own files")
        for key in OF_PARTIES:
            if getattr(self, key) not in (None, AUTO):
                raise InvalidInput(f"{key}: parties of a federation that runs elsewhere have it in their own files")
        # the first party has the labels unless `label_holder` says otherwise
        names = list(parties)
        holder = self._holder(names)
        job = self._job(self.objective or self._usual_objective, "psi")
        others = [name for name in names if name != holder]
        dealer = self.dealer or ""
        status = connection.train(job, holder, others, table, further or "", dealer=dealer, verbose=bool(self.verbose))
        self._fitted = RemoteFitted(connection, status, holder, stops=bool(getattr(job.params(), "sets_aside", False)))
        self.label_holder_, self.n_iter_ = holder, self._fitted.rounds
        return self

    def _predictions(self, X: Any) -> tuple[pa.Table, Rows | None]:
        """Predictions as the label holder's file has them, and the rows of `X`; None where it has its own."""
        model, protocol = self._model, self._protocol
        if isinstance(model, RemoteFitted):
            if not isinstance(X, str):
                raise InvalidInput("the federation has its own tables: X is their name")
            predicted = model.predict(X, protocol, verbose=bool(self.verbose))
            return predicted.rename_columns([ID, *predicted.column_names[1:]]), None
        data = self._party_tables(X)
        return model.predict(self._own_tables(data), protocol, verbose=bool(self.verbose)), data.rows

    @property
    def _protocol(self) -> str:
        """The protocol of predictions. Raises InvalidInput: models of the training's protocol have no such one."""
        known = predicting(self.protocol, withheld=self.privacy != PUBLISHED)
        if self.prediction is not None and self.prediction not in known:
            raise InvalidInput(f"prediction = {self.prediction!r}: must be one of {', '.join(known)}")
        return self.prediction or known[0]

    def _predicted_rows(self, X: Any) -> pa.Table:
        """Predictions of the rows of `X`, in their order.

        Raises:
            ValueError: a party lacks some of the records.
        """
        predicted, rows = self._predictions(X)
        if rows is None:
            return predicted
        return predicted.take(pa.array(rows.all_in(predicted, OTHERS_PREDICTED)))

    def _scored(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any]:
        """Labels and weights for `score`, in the order of the rows of `X`; `y` may name a column as in `fit`."""
        if isinstance(self._model, RemoteFitted):
            return y, sample_weight
        rows = self._party_tables(X).rows
        if is_label(y) and library_of(rows.data) is not None:
            y = column_in(rows.data, str(y))
        return rows.aligned(y, "y"), rows.aligned(sample_weight, "sample_weight")

    def _job(self, objective: str, alignment: str) -> JobTable:
        """The job table of these parameters."""
        own = [] if self._numeric else [class_name(name) for name in getattr(self, "_own_names", ())]
        job = job_table(self, objective, alignment, own, numeric=self._numeric)
        self._protocol  # noqa: B018 - refuses one that would not predict
        return job

    def _splits_categories(self, job: JobTable) -> bool:
        """True if trees may split columns by sets of their categories."""
        policy = self.federation.policy if isinstance(self.federation, Loopback) else self.policy
        columns = merged(PERMISSIVE, policy or {})["columns"]
        return job.params().splits_categories and bool(columns["category_partitions"]) and job.sums != SHARED

    def _loopback(self, names: Sequence[str]) -> Loopback:
        """The running federation that trains: the caller's, or the one of these settings."""
        if self.federation is not None and not isinstance(self.federation, Loopback):
            raise InvalidInput(
                f"federation = {self.federation!r}: must be one of treetap.federation, of treetap.connect, or None"
            )
        if self.federation is not None:
            for key in ("defences", "policy", "workdir"):
                if getattr(self, key):
                    raise InvalidInput(f"{key}: those of a federation that runs are given to treetap.federation")
            if set(self.federation.parties) != set(names):
                raise InvalidInput(
                    f"federation has parties {', '.join(self.federation.parties)}, the data has {', '.join(names)}"
                )
            if self.privacy == PRIVATE and not self.federation.deals:
                raise InvalidInput("privacy = 'private' needs a dealer: treetap.federation(…, dealer=True)")
            return self.federation
        defences = {self._holder(names): dict(self.defences or {})}
        workdir = None if self.workdir is None else Path(self.workdir)
        return loopback.kept(
            Loopback(tuple(names), defences, self.policy, self.workers, workdir, dealer=self.privacy == PRIVATE)
        )
