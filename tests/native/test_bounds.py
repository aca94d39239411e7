"""What does not fit never reaches a kernel, whether Python carries asserts out or not."""

import math
import subprocess
import sys

_CALLS = """
import numpy as np
from treetap.additive.sums.comparison import bits_of
from treetap.native import curve, lattice, library, numbers

class Kernels:
    def __getattr__(self, name):
        return Kernel(name)

class Kernel:
    restype = None
    def __init__(self, name):
        self.name = name
    def __call__(self, *_):
        if guarded:
            raise SystemExit(f"a call reached the kernel {self.name}")
        return 0

guarded = False
library.compiled, library.forms = Kernels, lambda: library.FORMS
primes, plain = PRIMES
ring = lattice.Ring(8192, primes, plain)
points = curve.Curve("plain")
modulus, fours = numbers.Modulus(2**127 - 1, 8, "ifma"), numbers.WORDS["ifma"]
words = np.zeros((3, 8), dtype=np.uint64)
table = np.zeros((2, 4, 8), dtype=np.uint64)
places = np.zeros((3, 1), dtype=np.int64)
steps = np.zeros(1, dtype=np.int32)
zero, halves = ring.zeros(), np.zeros((2, *ring.shape), dtype=np.uint32)
guarded = True
for call in [
    lambda: lattice.Ring(4096, primes, plain),
    lambda: lattice.Ring(8192, [], plain),
    lambda: lattice.Ring(8192, primes * 20, plain),
    lambda: lattice.Ring(8192, [*primes, primes[0]], plain),
    lambda: lattice.Ring(8192, [97], plain),
    lambda: ring.mask(np.ones(3 * 8192, dtype=bool)),
    lambda: ring.mask(np.ones((2, 8), dtype=bool)),
    lambda: ring.message(np.zeros(8193, dtype=np.int64)),
    lambda: ring.encrypt(zero, np.zeros(8193, dtype=np.int64), zero),
    lambda: ring.encrypt(zero[:1], np.zeros(8, dtype=np.int64), zero),
    lambda: ring.add(zero, zero[:1]),
    lambda: ring.add(zero, zero.astype(np.int64)),
    lambda: ring.add(zero, np.asfortranarray(zero)),
    lambda: ring.transform(halves),
    lambda: ring.encrypted_zero(zero),
    lambda: ring.decrypt(zero, zero),
    lambda: ring.uniform(bytes(31)),
    lambda: ring.flood(2 ** 512),
    lambda: points.raise_points(bytes(31), bytes(32)),
    lambda: points.raise_points(bytes(32), bytes(33)),
    lambda: points.raise_rooted(bytes(32), bytes(64), bytes(32)),
    lambda: points.hash_points(bytes(65)),
    lambda: points.hash_rooted(bytes(65)),
    lambda: points.sum_multiples(bytes(64), bytes(32), bytes(2), bytes(32)),
    lambda: points.sum_multiples(bytes(64), bytes(64), bytes(1), bytes(32)),
    lambda: points.sum_multiples(bytes(64), bytes(64), bytes(2), bytes(31)),
    lambda: points.sum_multiples(bytes(64), bytes(64), bytes(2), bytes(16)),
    lambda: points.leading_valid(bytes(31)),
    lambda: points.hash_ids(b"", bytes(8), bytes(7)),
    lambda: points.hash_ids(b"", bytes(8), b""),
    lambda: points.hash_ids(b"", bytes(8), np.array([0, 9]).tobytes()),
    lambda: points.hash_ids(b"", bytes(8), np.array([0, 5, 4]).tobytes()),
    lambda: points.hash_ids(b"", bytes(8), np.array([-1, 4]).tobytes()),
    lambda: fours.read(bytes(33), 32, 8),
    lambda: fours.read(bytes(32), 32, 8, np.zeros(16, dtype=np.uint64)),
    lambda: fours.read(bytes(32), 32, 257),
    lambda: fours.write(np.zeros((1, 257), dtype=np.uint64), 32),
    lambda: fours.write(words.astype(np.uint32), 32),
    lambda: numbers.Modulus(2**100, 8, "ifma"),
    lambda: numbers.Modulus(2**127 - 1, 7, "ifma"),
    lambda: numbers.Modulus(2**521 - 1, 8, "ifma"),
    lambda: numbers.Modulus(2**127 - 1, 4, "ifma"),
    lambda: numbers.Modulus(2**127 - 1, 8, "avx2"),
    lambda: numbers.Modulus(2**127 - 1, 280, "plain"),
    lambda: modulus.products(np.zeros((3, 16), dtype=np.uint64), words),
    lambda: modulus.products(words, words[:2]),
    lambda: modulus.products(words, words, np.array([0, 3]), np.array([0, 1])),
    lambda: modulus.products(words, words, np.array([0, -1]), np.array([0, 1])),
    lambda: modulus.products(words, words, np.array([0, 1], dtype=np.int32), np.array([0, 1])),
    lambda: modulus.products(words, words, out=words[:1]),
    lambda: modulus.products(words, words, out=words, out_at=np.array([0])),
    lambda: modulus.put(words, np.array([3]), words, np.array([0])),
    lambda: modulus.put(words, np.array([0]), words, np.array([-1])),
    lambda: modulus.put(words, np.array([0]), words.astype(np.int64), np.array([0])),
    lambda: modulus.sums(words, words[:2]),
    lambda: modulus.sums(words[:, ::2], words[:, ::2]),
    lambda: modulus.leave(words.astype(np.int64)),
    lambda: modulus.fixed_base(table, np.full((1, 2), 4, dtype=np.uint16)),
    lambda: modulus.fixed_base(table, np.zeros((1, 3), dtype=np.uint16)),
    lambda: modulus.fixed_base(table, np.zeros((1, 2), dtype=np.uint8)),
    lambda: modulus.fixed_base(table.astype(np.uint32), np.zeros((1, 2), dtype=np.uint16)),
    lambda: modulus.fixed_base(table[:, :, ::-1], np.zeros((1, 2), dtype=np.uint16)),
    lambda: modulus.chain(words[:2], 1, words, places, steps, steps, 0),
    lambda: modulus.chain(words, 1, words, places + 3, steps, steps, 0),
    lambda: modulus.chain(words, 1, words, places, steps, np.zeros(2, dtype=np.int32), 0),
    lambda: modulus.chain(words, 1, words, places, steps, steps - 2, 0),
    lambda: modulus.chain(words, 1, words, places, steps, steps + 1, 0),
    lambda: modulus.chain(None, 1, words, places, steps, steps, 0),
    lambda: modulus.chain(words, 1, words, places, steps.astype(np.int64), steps, 0),
    lambda: modulus.join(words, words[:2], 16),
    lambda: modulus.join(words, words, 17),
    lambda: bits_of(8, 3),
]:
    try:
        call()
    except ValueError as failure:
        print(type(failure).__name__, failure)
print("asserts" if __debug__ else "no asserts")
"""


def _said(*options: str) -> list[str]:
    """The errors of all calls."""
    primes = [prime for prime in range(1 + 2**14, 1 << 24, 2**14) if _is_prime(prime)][:4]
    script = _CALLS.replace("PRIMES", repr((primes[:3], primes[3])))
    run = subprocess.run([sys.executable, *options, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def _is_prime(number: int) -> bool:
    return all(number % each for each in range(2, math.isqrt(number) + 1))


def test_bounds_are_errors_without_asserts_too() -> None:
    """`python -O` raises the same errors, one for every call."""
    (*errors, asserts), (*others, none) = _said(), _said("-O")
    assert (asserts, none) == ("asserts", "no asserts")
    assert errors == others
    assert len(errors) == _CALLS.count("    lambda: ")
