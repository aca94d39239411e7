"""The coordinator's configuration: its own address, the parties' addresses, and the operators that may submit jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from treetap.process.config import Process, Silence
from treetap.strict import Address, Name, ProcessName, load

#: Trainings and predictions under way at once, and seconds that a further one waits for its turn.
MOST_JOBS, WAITING_S = 2, 86_400.0


class CoordinatorConfig(Process):
    """The file that `treetap coordinator --config` reads.

    `parties` maps each party's name to host:port. `most_jobs`: trainings and predictions under way at once; further
    ones wait, at most `waiting_s` seconds.
    """

    name: ProcessName = "coordinator"
    listen: Address = "127.0.0.1:0"
    state: Path
    operators: Annotated[list[Name], Field(min_length=1)] = ["operator"]
    parties: dict[Name, Address]
    silence_s: Silence = 30.0
    metrics: Address | None = None
    keep_days: Annotated[float, Field(ge=0)] | None = None
    most_jobs: Annotated[int, Field(ge=1)] = MOST_JOBS
    waiting_s: Annotated[float, Field(gt=0, le=31_536_000)] = WAITING_S

    def addresses(self) -> dict[str, str]:
        metrics = {"metrics": self.metrics} if self.metrics else {}
        return {"listen": self.listen} | metrics | {f"parties.{name}": at for name, at in self.parties.items()}

    @model_validator(mode="after")
    def _distinct(self) -> CoordinatorConfig:
        """Refuse a party of the coordinator's name: the other parties would accept its steps as the coordinator's."""
        if self.name in self.parties:
            raise ValueError(f"parties: {self.name!r} is the coordinator's own name; give the party another")
        return self


def read(path: Path) -> CoordinatorConfig:
    """Read the file; relative paths in it are relative to its folder."""
    config = load(path, CoordinatorConfig)
    base = path.absolute().parent
    return config.model_copy(update={"state": base / config.state, "tls": config.tls_below(base)})
