"""The first values of every generator, drawn by children of a fork server that has imported this module."""

from __future__ import annotations

import multiprocessing
import os
import random
import secrets
import ssl
import uuid
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from nacl.utils import random as of_libsodium

from treetap.lattice.parameters import Parameters
from treetap.lattice.scheme import Scheme
from treetap.psi.group import Exponent

np.random.default_rng()  # numpy imports its generators, and seeds the one of its functions, when they are first used
LATTICE = Scheme(Parameters(8192, 4, 20, 12, 1))


def draw(pipe: Connection) -> None:
    """Send the first values that each generator of this process gives, by its name."""
    ring = LATTICE.ring
    drawn: dict[str, Any] = {
        "multiprocessing": bytes(multiprocessing.current_process().authkey),
        "system": os.urandom(16),
        "secrets": secrets.token_bytes(16),
        "uuid": uuid.uuid4().bytes,
        "random": random.getrandbits(128),
        "numpy, a generator": np.random.default_rng().bytes(16),
        "numpy, its functions": np.random.bytes(16),
        "libsodium": of_libsodium(16),
        "OpenSSL": ssl.RAND_bytes(16),
        "OpenSSL, a key": X25519PrivateKey.generate().private_bytes_raw(),
        "exponents": Exponent.draw().for_kernel(),
        "lattice, a seed": LATTICE.draw()[0],
        "lattice, numbers": ring.blinds(8).tobytes(),
        "lattice, a key": ring.secret()[:, :8].tobytes(),
        "lattice, noise": ring.encrypt(ring.zeros(), np.zeros(1, int), ring.zeros())[:, :8].tobytes(),
    }
    pipe.send(drawn)
