"""A party's files: progress of running jobs, shards of published models, and the clean-up at the party's start.

    state/jobs/<job>/     job.json (which submission of which job), the shard, a file of a kind (trees.jsonl: one tree a
                          line), alignment.npz, and at the label holder scores.npz and perhaps reached-T.npz and
                          left-bits.jsonl, at a dealer dealt.jsonl; of a network epochs-even.npz, epochs-odd.npz,
                          best.npz and private.npz, a key
    state/models/<job>/   job.json and the shard, copied there with manifest.json: appears whole, by one rename, when
                          the job is done; at the label holder also names.json, features that other parties have named
    state/ledger.jsonl    what data were charged for (`treetap.party.runtime.ledger`)
    state/attempts.json   which attempts are over (`treetap.party.runtime.attempts`); a damaged one is to be removed

All files but the published shards, of which the manifest has the digests, have checksums.

Files are for the party's own user only. What is on disk before what: see `treetap.models.durable`.
"""

from __future__ import annotations

import hashlib
import io
import logging
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from treetap.errors import ConfigError, DataError, cannot
from treetap.models.durable import (
    make_folder,
    read_bytes,
    read_document,
    read_json,
    remnant,
    remove_folder,
    sync_folder,
    write_bytes,
    write_document,
    write_folder,
)
from treetap.models.line_file import LineFile
from treetap.models.store import (
    JOB,
    JOB_SEED,
    KINDS,
    MANIFEST,
    NAMES,
    NAMES_SEED,
    STATES,
    Names,
    described,
    read_job,
    read_manifest,
    read_names,
)
from treetap.names import NAME

if TYPE_CHECKING:
    from treetap.models.arrays import Array, Arrays

#: The folder of a job in which its model is made, until it is moved to the others.
DRAFT = "model"
#: Entry of a job's notes, and so of its model's `JOB`: name and submission of each model that the job replaces, the
#: latest first.
REPLACES = "replaces"
#: The folder of transcripts.
TRANSCRIPTS = "transcripts"
#: The folder of noisy labels in a party's state: see `treetap.party.defences.noisy_labels`.
DRAWS = "noisy_labels"
#: The folder of counted queries of records: see `treetap.party.prediction.query_counts`.
QUERIES = "queries"
#: The folder of decisions about served records: see `treetap.party.serving.decisions`.
DECISIONS = "decisions"
#: The folder of rows that previews have found: see `treetap.party.alignment.preview`.
PREVIEWED = "previews"


log = logging.getLogger(__name__)


class Store:
    """The state folder of one party; raises `BadInput` if it cannot be made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.transcripts = root / TRANSCRIPTS
        self.predictions = root / "predictions"
        self._jobs = root / "jobs"
        self._models = root / "models"
        with cannot("be used as state folder", f"state = {str(root)!r}"):
            for folder in (self.transcripts, self.predictions, self._jobs, self._models):
                make_folder(folder)
            swept = sweep(root, self.predictions, self._jobs, self._models)
        if swept:
            log.warning("deleted what an earlier process left: %s", ", ".join(map(str, swept)))

    def job(self, name: str) -> JobStore:
        """The files of a job, which may not exist yet."""
        return JobStore(self._jobs / name, self._models / name)

    def trial(self, folder: Path) -> JobStore:
        """The files of a job that is only checked, in a folder of its own; it can continue from published models."""
        return JobStore(folder, self._models / folder.name)

    def model(self, name: str, submission: str) -> Path:
        """The folder of a published model of one submission.

        Raises:
            DataError: it is missing, of another submission or version, or its files have changed since publication.
        """
        return _published(self._models, name, submission)

    def give_way(
        self, model: str, users_of: Callable[[str], Sequence[str]], missed: Sequence[str], *, deletes: bool
    ) -> None:
        """Delete the models that a published one replaces, those that are here; without `deletes` see if it may.

        `users_of`: the jobs under way that use a model; `missed`: parties that have not opened the new one before.

        Raises:
            ConfigError: one is in use, or a party that was missed may still have a part of it.
        """
        for name, submission in read_job(self._models / model).get(REPLACES, ()):
            if _submission(folder := self._models / name) != submission:
                continue
            if users := users_of(name):
                raise ConfigError(
                    f"model {model} replaces {name}, which job {users[0]} uses: end that first "
                    f"(treetap cancel {users[0]}), then open {model}"
                )
            if missed:
                raise ConfigError(
                    f"model {model} replaces {name}, of which {', '.join(missed)} may still have a part: open it once "
                    "with all parties"
                )
            if deletes:
                remove_folder(folder)
                log.warning("model %s is deleted: %s replaces it", name, model)

    def keep_names(self, model: str, received: Names, withheld: Collection[str]) -> None:
        """Label holder: store the last feature names that each party has sent for a published model."""
        path = self._models / model / NAMES
        before = read_names(path.parent)
        names = {party: rows for party, rows in before.items() if party not in withheld} | dict(received)
        if names != before:
            write_document(path, {"names": names}, NAMES_SEED, indented=True)


def _published(models: Path, name: str, submission: str) -> Path:
    folder = models / name
    if not NAME.match(name) or not (folder / MANIFEST).is_file():
        for path in sorted(models.glob(f"*/{JOB}")):
            if [name, submission] in read_document(path, JOB_SEED).get(REPLACES, ()):
                by = path.parent.name
                raise DataError(f"model {name!r} is deleted, since model {by!r} has replaced it: use that one")
        raise DataError(f"there is no model {name!r} in {models}; bring a back-up of it back")
    if read_job(folder).get("submission") != submission:
        raise DataError(f"{folder}: this model was trained by another job of that name; bring back the one of this job")
    read_manifest(folder)
    return folder


def _submission(model: Path) -> str | None:
    """The submission of the published model in a folder, of whatever format; None if there is none."""
    return str(read_document(model / JOB, JOB_SEED).get("submission")) if (model / JOB).is_file() else None


def published_manifest(root: Path, name: str, submission: str) -> dict[str, Any]:
    """The manifest of a published model in the state folder `root`; raises as `Store.model` does."""
    return read_manifest(_published(root / "models", name, submission))


class JobStore:
    """One job's files. The folder is made on the first write."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder = folder
        self.model = model
        self._lines: dict[str, LineFile] = {}
        self._notes: dict[str, Any] = {}  # what `JOB` is to say, until another file lies beside it

    @property
    def published(self) -> bool:
        """True if the job's model is published."""
        return (self.model / MANIFEST).is_file()

    def base(self, name: str, submission: str) -> Path:
        """The folder of another published model, from which this job continues; raises as `Store.model` does."""
        return _published(self.model.parent, name, submission)

    def noted(self, what: str = "table") -> str | None:
        """The job as `claim` and `bind` have noted it, as the digest of its table; None if nothing is noted."""
        digest = self._job().get(what)
        return None if digest is None else str(digest)

    def manifest(self) -> dict[str, Any]:
        """The manifest of the published model; `DataError` if it is damaged."""
        return read_manifest(self.model)

    def claim(self, submission: str, digest: str, replaces: Sequence[str] = ()) -> None:
        """Make the job's files those of one submission of one job, of which `digest` is in hexadecimal.

        `replaces`: name and submission of the model in whose place it is trained; what that replaces, it replaces too.

        That is on disk with the first of them: a job without files needs no owner.

        Raises:
            ConfigError: they belong to another submission or another job.
            DataError: they are damaged.

        Two submissions share a name if the coordinator has lost its journal or if there are two coordinators.
        """
        if self.noted("submission") != submission:
            self.check_free()
            notes: dict[str, Any] = {"submission": submission, "digest": digest}
            if replaces:
                name, replaced = replaces
                same = _submission(before := self.model.parent / name) == replaced
                notes[REPLACES] = [[name, replaced], *(read_job(before).get(REPLACES, []) if same else [])]
            self._note(notes)
        elif (first := str(self._job().get("digest"))) != digest:
            raise ConfigError(changed(self.folder.name, first, digest))
        elif self.published:
            remove_folder(self.folder)  # what a kill after the publication has left

    def check_free(self) -> None:
        """`ConfigError` if the files belong to a submission, of whatever job; `DataError` if they are damaged."""
        if self.noted("submission") is not None:
            raise ConfigError(
                f"there are files of another job of this name, in {self.model if self.published else self.folder}; "
                "choose another name for the job, or remove them"
            )
        if self.folder.is_dir() and any(not remnant(path) for path in self.folder.iterdir()):
            raise DataError(f"{self.folder / JOB}: is not there; bring a back-up of it back, or cancel the job")

    def bind(self, digest: str, what: str = "table") -> bool:
        """Note the digest of what the job works on; False if it was another one when the shard was begun.

        `what`: the table, or the labels where they differ from the table's.
        """
        job = self._job()
        if job.get(what) == digest:
            return True
        if self.published or any(map(self.has, (*KINDS, *(f"{name}.npz" for name in STATES)))):
            return False
        self._note({**job, what: digest})
        return True

    def lines(self, kind: str) -> LineFile:
        """The job's shard of a kind that is stored line by line, as `TREES`; always the same object."""
        own = LineFile(self.folder / kind, lambda: self._seed(kind), lambda: self.path(kind))
        return self._lines.setdefault(kind, own)

    def save_arrays(self, name: str, arrays: Arrays) -> None:
        """Keep arrays beside the shard, whole or not at all."""
        from treetap.models.arrays import content_of  # of a job; the store is opened before

        write_bytes(self.path(f"{name}.npz"), content_of(arrays), self._seed(name))

    def load_arrays(self, name: str) -> dict[str, Array] | None:
        """The arrays stored under a name, or None."""
        path = self.folder / f"{name}.npz"
        if not path.is_file():
            return None
        from treetap.models.arrays import read_arrays

        try:
            return read_arrays(io.BytesIO(read_bytes(path, self._seed(name))))
        except ValueError:
            raise DataError(f"{path}: is damaged; bring a back-up of it back, or cancel the job") from None

    def path(self, name: str) -> Path:
        """A further file of the job, its folder made; the job's notes come before it."""
        make_folder(self.folder)
        if self._notes:
            write_document(self.folder / JOB, self._notes, JOB_SEED, settle=False)
            self._notes = {}
        return self.folder / name

    def has(self, name: str) -> bool:
        """True if the job has a further file of that name."""
        return (self.folder / name).is_file()

    def publish(self, manifest: dict[str, Any], files: Mapping[str, bytes]) -> None:
        """Make a model of these files, with job.json and the manifest, then delete the progress.

        Published already: only what is left of the progress is deleted. A kill before the rename leaves all that a
        resume needs.
        """
        if not self.published:
            draft = self.path(DRAFT)
            remove_folder(draft)
            digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
            write_folder(draft, {**files, **described(self._job(), digests, manifest)})
            draft.replace(self.model)
            sync_folder(self.model.parent)
        remove_folder(self.folder, settle=False)

    def discard(self, submission: str) -> None:
        """Delete the progress of a submission that will not be finished; that of another one, and every model, stay.

        Raises:
            OSError: the disk refuses it.
        """
        try:
            mine = self.noted("submission") in (submission, None)
        except DataError:  # what says whose they are is damaged
            mine = True
        if mine and (not self.published or already_published(self.folder, self.model)):
            remove_folder(self.folder)
            self._notes = {}

    def _job(self) -> dict[str, Any]:
        if (self.model / JOB).is_file():
            return read_job(self.model)
        path = self.folder / JOB
        return read_document(path, JOB_SEED) if path.is_file() else self._notes

    def _note(self, job: dict[str, Any]) -> None:
        """Note what `JOB` says; on disk where it is there already, else with the first file beside it."""
        if self.has(JOB):
            write_document(self.folder / JOB, job, JOB_SEED)
        else:
            self._notes = job

    def _seed(self, name: str) -> str:
        """The seed of the checksums of one of the job's files."""
        return f"{name} of {self.noted('submission')}"


def changed(job: str, before: str, now: str) -> str:
    """The fault of an attempt at another job than the attempts before it. Digests: in hexadecimal."""
    return (
        f"job {job} is not the one that its first attempt began (digest {before[:12]}, now {now[:12]}): a job keeps "
        "its parameters, its parties and its tables; submit a new one, or resume with the release that began it"
    )


def sweep(state: Path, predictions: Path, jobs: Path, models: Path) -> list[Path]:
    """Delete files of crashes, and progress whose model is published; returns the paths."""
    whole = [
        folder
        for folder in (
            state,
            state / TRANSCRIPTS,
            *(state / TRANSCRIPTS).glob("*/"),
            state / DRAWS,
            state / QUERIES,
            state / DECISIONS,
            state / PREVIEWED,
            predictions,
            jobs,
            models,
        )
        if folder.is_dir()
    ]
    left = [path for folder in whole for path in folder.iterdir() if remnant(path)]
    for folder in sorted(path for parent in (jobs, models) for path in parent.iterdir() if path not in left):
        model = models / folder.name
        # a kill between a publication and the deletion of the progress has left both
        if folder != model and folder.is_dir() and already_published(folder, model):
            left.append(folder)
        elif folder.is_dir():
            left += [path for path in sorted(folder.iterdir()) if remnant(path) or path.name == DRAFT]
    for path in left:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return left


def already_published(progress: Path, model: Path) -> bool:
    """True if the progress is of the submission whose model is published: a kill prevented its deletion."""
    if not (model / MANIFEST).is_file() or not (progress / JOB).is_file():
        return False
    try:
        return read_json(progress / JOB) == read_json(model / JOB)
    except DataError:  # one is damaged: an error names it when somebody asks for the job
        return False


#: What is used once: numbers, and names of what they number.
Number: TypeAlias = tuple[int | str, ...]


class UsedOnce:
    """Numbers of a job of which each is used once: it is on disk before anything that it numbers goes out."""

    def __init__(self, lines: LineFile) -> None:
        """`lines`: the job's, one for each use of some numbers; it is read."""
        self._lines = lines
        self._used: set[Number] = {tuple(number) for line in lines.read() for number in line["used"]}

    def __contains__(self, number: Number) -> bool:
        return number in self._used

    def use(self, numbers: Collection[Number]) -> Number | None:
        """Note these in one line; or give one that was used before, and note none."""
        if again := self._used & {*numbers}:
            return min(again)
        self._lines.put({"used": [list(number) for number in numbers]}, self._lines.count())
        self._used |= {*numbers}
        return None
