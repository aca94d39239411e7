"""The table `[output]` of an experiment: where results go beside the experiment's folder."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from pydantic import field_validator

from treetap.errors import ConfigError
from treetap.strict import Strict, unshown

Value = TypeVar("Value")
#: Schemes of MLflow's servers.
_SERVERS = ("http", "https")
#: The beginning of an address with a user and a password.
_USER = re.compile("[^/]:[^/]*@")
#: Characters that have a meaning in the address of a SQLite file.
_MEANT = frozenset("?#%")


class OutputTable(Strict):
    """`mlflow`: the address of a tracking server, or a folder. `tensorboard`: event files below the results' folder."""

    mlflow: str | None = None
    tensorboard: bool = False

    @field_validator("mlflow")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if "://" in value:
            parts = urlsplit(value)
            if parts.scheme not in _SERVERS or not parts.hostname:
                raise unshown("is neither the address of a server, as http://HOST:5000, nor a folder")
            if parts.username is not None:
                raise unshown("holds a password: give it by MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD")
        elif _USER.search(value):
            raise unshown("holds what may be a password, and is no address of a server: write http://HOST:5000")
        needed = ("mlflow",) if "://" in value else ("mlflow", "sqlalchemy", "alembic")
        return _with_libraries(value, needed, "mlflow")

    @field_validator("tensorboard")
    @classmethod
    def _writer(cls, value: bool) -> bool:
        return _with_libraries(value, ("tensorboardX",) if value else (), "tensorboard")

    def mlflow_address(self, base: Path) -> str | None:
        """The address of the server, or the absolute path of the folder, which starts at `base`; None if none is given.

        Raises:
            ConfigError: an environment variable is not set, or the path cannot be that of a SQLite file.
        """
        if self.mlflow is None or "://" in self.mlflow:
            return self.mlflow
        expanded = os.path.expandvars(self.mlflow)
        if "$" in expanded:
            raise ConfigError(f"output.mlflow = {self.mlflow!r}: the environment variable is not set")
        folder = str((base / expanded).resolve())
        if _MEANT & set(folder):
            raise ConfigError(f"output.mlflow: the path {folder} has one of {' '.join(sorted(_MEANT))}; name another")
        return folder


def _with_libraries(value: Value, needed: tuple[str, ...], extra: str) -> Value:
    if missing := [name for name in needed if find_spec(name) is None]:
        raise ValueError(f"needs {missing[0]}: pip install 'treetap[{extra}]'")
    return value
