"""The coordinator's configuration: where it listens, where the parties are, who may give it jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from treetap.config import Strict, TlsConfig, load
from treetap.names import Address, Name


class CoordinatorConfig(Strict):
    """The file that `treetap coordinator --config` reads. `parties` maps each party's name to host:port."""

    name: Name = "coordinator"
    listen: Address = "127.0.0.1:0"
    state: Path
    tls: TlsConfig
    operators: Annotated[list[Name], Field(min_length=1)] = ["operator"]
    parties: dict[Name, Address]
    silence_s: Annotated[float, Field(gt=0)] = 30.0


def read(path: Path) -> CoordinatorConfig:
    """Read the file; relative paths in it are relative to its folder."""
    config = load(path, CoordinatorConfig)
    base = path.resolve().parent
    return config.model_copy(update={"state": base / config.state, "tls": config.tls.below(base)})
