"""The feature party's files after a training: its own model, and the gradients that returned to it, by epoch."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from treetap.attacks.view.received_rows import EpochRows
from treetap.models.arrays import read_arrays
from treetap.models.durable import write_whole
from treetap.neural.optimiser import load_weights, weights_of

Ints = npt.NDArray[np.int64]
_BOTTOM = "bottom"


@dataclass
class FeatureLog:
    """The batches of each epoch, records (n,) and gradients (n, width), and the trained bottom."""

    bottom: torch.nn.Module | None = None
    batches: dict[int, list[tuple[Ints, npt.NDArray[np.float32]]]] = field(default_factory=dict)

    def note(self, _party: str, epoch: int, rows: Ints, gradients: torch.Tensor) -> None:
        """Keep a batch."""
        self.batches.setdefault(epoch, []).append((rows, gradients.detach().numpy().copy()))

    def epochs(self) -> list[EpochRows]:
        """The gradients of each epoch, records ascending."""
        found = []
        for epoch, batches in sorted(self.batches.items()):
            records = np.concatenate([rows for rows, _ in batches])
            order = np.argsort(records, kind="stable")
            found.append(EpochRows(epoch, records[order], np.concatenate([each for _, each in batches])[order]))
        return found

    def write(self, path: Path) -> None:
        """Keep it in an `.npz` file."""
        assert self.bottom is not None  # the training is done
        arrays = {
            f"epoch {each.epoch} {name}": getattr(each, name)
            for each in self.epochs()
            for name in ("records", "values")
        }
        content = io.BytesIO()
        np.savez(content, **arrays, **weights_of({_BOTTOM: self.bottom}))  # type: ignore[arg-type]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content.getvalue(), 0o644)

    @classmethod
    def read(cls, path: Path, bottom: torch.nn.Module) -> FeatureLog:
        """That of a file, with its weights in this bottom."""
        held = read_arrays(path)
        load_weights({_BOTTOM: bottom}, {name: each for name, each in held.items() if name.startswith(f"{_BOTTOM}/")})
        epochs = sorted(int(name.split()[1]) for name in held if name.endswith(" records"))
        batches = {each: [(held[f"epoch {each} records"], held[f"epoch {each} values"])] for each in epochs}
        return cls(bottom, batches)
