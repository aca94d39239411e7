"""Fed-EINI on a lattice scheme: the same course as under Paillier, since the coordinator sees no ciphertext."""

from __future__ import annotations

from coordinator.eini import COURSE

__all__ = ["COURSE"]
