"""Results of finished steps of an attack, kept in a folder: an audit that was interrupted goes on from them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.attacks.sums.propagation import Knowledge
from treetap.attacks.sums.sketches import Ints


@dataclass(frozen=True)
class Kept:
    """A folder, None: nothing is kept; `digest`: of all that the steps depend on, by which files are named."""

    folder: Path | None = None
    digest: str = ""

    @classmethod
    def of(cls, folder: Path, *parts: object) -> Kept:
        """Files of an attack on what the parts say."""
        return cls(folder, hashlib.sha256(repr(parts).encode()).hexdigest()[:24])

    def array(self, step: str, make: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """The array of a step, made unless a run before has kept it."""
        return self._of(step, lambda: {"array": make()})["array"]

    def knowledge(self, step: str, chains: Sequence[Ints], make: Callable[[], Knowledge]) -> Knowledge:
        """The knowledge after a step, made unless a run before has kept it."""

        def made() -> dict[str, npt.NDArray[Any]]:
            new = make()
            return {"possible": np.packbits(new.possible, axis=1), "contradictions": np.array(new.contradictions)}

        arrays = self._of(step, made)
        nothing = Knowledge.nothing(len(arrays["possible"]), chains)
        bits = np.unpackbits(arrays["possible"], axis=1, count=nothing.possible.shape[1]).astype(bool)
        return Knowledge.of(nothing.first, bits, int(arrays["contradictions"]))

    def clear(self) -> None:
        """Delete the files, and the folder with the last of them: the attack is finished."""
        if self.folder is not None:
            for path in self.folder.glob(f"{self.digest}-*.npz"):
                path.unlink(missing_ok=True)
            with suppress(OSError):
                self.folder.rmdir()

    def _of(self, step: str, make: Callable[[], dict[str, npt.NDArray[Any]]]) -> dict[str, npt.NDArray[Any]]:
        if self.folder is None:
            return make()
        path = self.folder / f"{self.digest}-{step}.npz"
        if path.is_file():
            with np.load(path, allow_pickle=False) as kept:
                return {name: kept[name] for name in kept.files}
        arrays = make()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type] # numpy's stub takes no mapping of arrays
        os.replace(part, path)  # a file under its name is whole
        return arrays
