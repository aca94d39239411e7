"""Measurements of a machine, in a file: costs of operations on ciphertexts by kind of key, and of all else."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from treetap.additive.sums.kernel_timings import KernelCosts
from treetap.errors import ConfigError
from treetap.protocols.key_options import KeyKind


@dataclass(frozen=True)
class HostCosts:
    """Costs outside the arithmetic of ciphertexts: seconds of a processor at main processes, unless named otherwise."""

    send_message_s: float  # between parties, at the sender
    send_byte_s: float
    receive_message_s: float  # until it is read from the mailbox
    receive_byte_s: float
    call_s: float  # of a worker
    pipe_byte_s: float  # to or from a worker
    worker_byte_s: float  # the same at the worker
    gradient_s: float  # a record, at the label holder for each tree
    histogram_s: float  # a record in a column of the label holder's own, for each node that is summed
    split_s: float  # a record of a node that splits, at the owner
    check_s: float  # the same at the label holder, which compares the children's sums
    space_s: float  # a record whose place in a node is encoded and sent, or received and decoded
    process_mb: float  # memory of a main process without records
    worker_mb: float  # and of a worker without ciphertexts


@dataclass
class Measurements:
    """A file of measurements: the machine in words, costs, and those under each kind of key by `kernel_name`."""

    machine: dict[str, str]
    host: HostCosts
    kernels: dict[str, KernelCosts]
    version: Literal[1] = 1

    def of(self, key: KeyKind, obfuscation: str) -> KernelCosts | None:
        """The costs under a kind of key; None: not measured."""
        return self.kernels.get(kernel_name(key, obfuscation))

    def figures(self) -> list[tuple[str, float]]:
        """All costs with their names."""
        kinds = {"": asdict(self.host), **{f"{name}: ": asdict(costs) for name, costs in self.kernels.items()}}
        return [(kind + name, cost) for kind, costs in kinds.items() for name, cost in costs.items()]

    def save(self, path: Path) -> None:
        """Write the file; the folder is made."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Measurements:
        """Read a file. Raises `ConfigError` if it cannot be read, or is no such file."""
        try:
            measured = TypeAdapter(cls).validate_json(path.read_bytes(), strict=True)
            if wrong := [
                f"{name} = {cost:g} is no number above 0" for name, cost in measured.figures() if not cost > 0
            ]:
                raise ValueError("; ".join(wrong))
        except OSError as fault:
            raise ConfigError(f"{path}: cannot be read: {fault.strerror or fault}") from None
        except ValueError as fault:  # pydantic's too
            raise ConfigError(
                f"{path}: is no file of measurements ({fault}); treetap capacity --measure writes a new one"
            ) from None
        return measured


def kernel_name(key: KeyKind, obfuscation: str) -> str:
    """Scheme, bits and obfuscation as one name."""
    return f"{key.scheme} {key.bits} {obfuscation}"
