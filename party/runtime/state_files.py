"""The kinds of files in a party's state folder: which a state key encrypts, and why it does not the others."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from treetap.errors import ConfigError


class FileKind(NamedTuple):
    """Files of a state folder.

    Attributes:
        pattern: their places in it; `*` stands for a part of one name.
        holds: their content.
        clear: the reason why they are in clear; empty: a state key encrypts them.
    """

    pattern: str
    holds: str
    clear: str = ""


_MODEL = "a model is copied, exported and read by commands as a folder; docs/data-protection.md says what it holds"
_NO_RECORDS = "names, digests and times, nothing of single records"
_RESULT = "the result that people asked for: read it, and take it away"

#: Every kind; the first that fits counts.
KINDS = (
    FileKind("transcripts/*/*.tap", "messages of a job and own splits"),
    FileKind("transcripts/*/*.own", "the rows of aligned records in the party's table, with keyed hashes of ids"),
    FileKind("ledger.jsonl", "charges by table, partner and job"),
    FileKind("queries/*.jsonl", "records that a partner asked for, by keyed hashes"),
    FileKind("noisy_labels/*.npz", "drawn labels of a table"),
    FileKind("jobs/*/*.npz", "alignment, scores, positions, weights and keys of a job under way"),
    FileKind("jobs/*/*.jsonl", "trees, history and leakage of a job under way"),
    FileKind("models/*/continuation.npz", "records of a training, with their scores"),
    FileKind(".check-*/*.npz", "arrays of a job that is only checked"),
    FileKind(".check-*/*.jsonl", "lines of a job that is only checked"),
    FileKind("jobs/*/clean_metrics.json", "metrics by the labels as they are", _MODEL),
    FileKind("jobs/*/model/*", "a model that is being published", _MODEL),
    FileKind("*/*/job.json", "the submission and the digests of job and table", _NO_RECORDS),
    FileKind("models/*/*", "trees or weights, manifest, history, leakage, names", _MODEL),
    FileKind("predictions/*", "predictions, explanations and their metrics", _RESULT),
    FileKind("previews/*", "rows that a preview found", _RESULT),
    FileKind("approvals/*.json", "decisions about jobs", _NO_RECORDS),
    FileKind("trail.jsonl", "digests of jobs, decisions, ledger and transcripts", _NO_RECORDS),
    FileKind("attempts.json", "attempts at jobs", _NO_RECORDS),
    FileKind("key.json", "ids of state keys, with a value to check each", "is read before a key is used"),
    FileKind("lock", "nothing: it is held", "has no content"),
)


def kind_of(place: str) -> FileKind:
    """The kind of a file by its place below the state folder.

    Raises:
        ConfigError: it is of none.
    """
    kind = _kind_of(place)
    if kind is None:
        raise ConfigError(f"{place}: no file of a state folder has this name; move it away")
    return kind


def sealed(place: str) -> bool:
    """True for a file that a state key encrypts. Raises as `kind_of`."""
    return not kind_of(place).clear


@lru_cache(maxsize=4096)
def _kind_of(place: str) -> FileKind | None:
    return next((kind for kind in KINDS if patterned(place, kind.pattern)), None)


def patterned(place: str, pattern: str) -> bool:
    """True if a place has a pattern: as many parts, and each part its own."""
    parts, patterns = place.split("/"), pattern.split("/")
    return len(patterns) == len(parts) and all(map(fnmatchcase, parts, patterns))
