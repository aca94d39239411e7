"""Clean-up of the state folder at a party's start, from files of crashes."""

from __future__ import annotations

import shutil
from pathlib import Path

from treetap.errors import DataError
from treetap.models.durable import remnant
from treetap.models.store import JOB, MANIFEST, read_json

#: The folder of a job in which its model is made, until it is moved to the others.
DRAFT = "model"
#: The folder of noisy labels in a party's state: see `party.defences.noisy_labels`.
DRAWS = "noisy_labels"


def sweep(state: Path, predictions: Path, jobs: Path, models: Path) -> list[Path]:
    """Delete files of crashes, and progress whose model is published; returns the paths."""
    whole = [folder for folder in (state, state / DRAWS, predictions, jobs, models) if folder.is_dir()]
    found = [path for folder in whole for path in folder.iterdir() if remnant(path)]
    for folder in sorted(path for each in (jobs, models) for path in each.iterdir() if path not in found):
        model = models / folder.name
        if folder != model and folder.is_dir() and already_published(folder, model):
            found.append(folder)
        elif folder.is_dir():
            found += [path for path in sorted(folder.iterdir()) if remnant(path) or path.name == DRAFT]
    for path in found:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return found


def already_published(progress: Path, model: Path) -> bool:
    """True if the progress is of the submission whose model is published: a kill prevented its deletion."""
    if not (model / MANIFEST).is_file() or not (progress / JOB).is_file():
        return False
    try:
        return read_json(progress / JOB) == read_json(model / JOB)
    except DataError:  # one is damaged: an error names it when somebody asks for the job
        return False
