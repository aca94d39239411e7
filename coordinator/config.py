"""The coordinator's configuration: its own address, the parties' addresses, and the operators that may submit jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from treetap.process.config import Relayed, Silence, TelemetryConfig
from treetap.strict import Address, Name, ProcessName

#: Trainings and predictions under way at once, and seconds that a further one waits for its turn.
MOST_JOBS, WAITING_S = 2, 86_400.0
#: Days for which a job waits for people.
APPROVAL_DAYS = 7.0


class CoordinatorConfig(Relayed):
    """The file that `treetap coordinator --config` reads."""

    name: ProcessName = "coordinator"
    """Its name, which its certificate bears and which policies list under `coordinators`."""
    listen: Address = "127.0.0.1:0"
    """The address at which it serves operators."""
    state: Path
    """Folder of its journal: one file of JSON lines for each job."""
    operators: Annotated[list[Name], Field(min_length=1)] = ["operator"]
    """Certificate names that may submit, watch, cancel, resume and prune."""
    parties: dict[Name, Address]
    """Party = address; the parties reach each other at these addresses too."""
    silence_s: Silence = 30.0
    """Seconds without a sign of life from a party (it sends one a second) before the job is interrupted."""
    metrics: Address | None = None
    """Address at which Prometheus may read metrics, over plain HTTP."""
    telemetry: TelemetryConfig | None = None
    """Export of spans to a collector, `[telemetry]`; without the table there is none."""
    keep_days: Annotated[float, Field(ge=0)] | None = None
    """Days after its end for which the journal keeps a job that nothing later needs; without it for ever."""
    most_jobs: Annotated[int, Field(ge=1)] = MOST_JOBS
    """Trainings, predictions and previews under way at once; others wait. Served models do not count."""
    waiting_s: Annotated[float, Field(gt=0, le=31_536_000)] = WAITING_S
    """Seconds for which a job waits for its turn; then it is interrupted, and can be resumed."""

    approval_days: Annotated[float, Field(gt=0, le=366)] = APPROVAL_DAYS
    """Days for which a job waits for people of its parties; then it is interrupted, and can be resumed."""

    def addresses(self) -> dict[str, str]:
        metrics = {"metrics": self.metrics} if self.metrics else {}
        return {"listen": self.listen} | metrics | {f"parties.{name}": at for name, at in self.parties.items()}

    @model_validator(mode="after")
    def _distinct(self) -> CoordinatorConfig:
        """Refuse a party of the coordinator's name: the other parties would accept its steps as the coordinator's."""
        if self.name in self.parties:
            raise ValueError(f"parties: {self.name!r} is the coordinator's own name; give the party another")
        return self
