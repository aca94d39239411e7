"""The bytes of docs/one-gradient.md: eight customers' first gradients, from a label to a chosen split.

Every number is computed by the functions of a job, under a key that protects nothing (512 bits, fixed primes) and with
fixed randomness, so that the page has the same bytes each time.
"""

from __future__ import annotations

import csv
import hashlib
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gmpy2 import mpz, next_prime

from tools.renderers.rendering import ROOT, with_tables
from treetap.additive.paillier.public_key import Packer
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.residues.batches import power
from treetap.additive.sums.kernels import HeldTree
from treetap.party.boosting.ciphers import layout
from treetap.trees.boosting_criterion import BoostingCriterion, loss_changes
from treetap.trees.candidates import Shape
from treetap.trees.loss import Logistic, Quantised
from treetap.trees.params import BoostingParams
from treetap.trees.slots import Slots
from treetap.wire.v2 import exchange_pb2

CUSTOMERS = ("C67811", "C34679", "C37376", "C74046", "C15397", "C51178", "C59295", "C13862")
COLUMN = "late_bills"
#: min_child_weight is 0 because Σh of eight customers is 2.
PARAMS = BoostingParams(min_child_weight=0.0)
#: The place that each candidate takes: the feature party permutes them.
ORDER = np.array([2, 0, 1])
JOB = "first"


def rendered(docs: Path) -> dict[Path, str]:
    """The page with its bytes."""
    return with_tables({name: f"\n```bytes\n{text}\n```\n\n" for name, text in steps()}, docs)


def steps() -> Iterator[tuple[str, str]]:
    """The name and the text of each block."""
    labels, values = table()
    loss = Logistic(1)
    scores = np.zeros((len(labels), 1)) + loss.base_margin(PARAMS.base_score, labels)
    g, h = loss.gradients(scores, labels)
    fixed = loss.quantise(g, h)
    yield "gradient-number", numbers(labels, g, h, fixed)
    slots = layout(PARAMS, len(labels), 1)
    plains = slots.encode([fixed.g[:, 0], fixed.h[:, 0], np.ones(len(labels), dtype=np.int64)])
    yield "gradient-slots", packed(slots, plains[0])
    secret, drawn = key()
    public = secret.public
    obfuscators = power(public.ring, public.ring.batch([unit(drawn, public.n) for _ in plains]), int(public.n))
    ciphertexts = public.write(public.encrypt(plains, obfuscators))
    yield "gradient-ciphertext", hexadecimal(ciphertexts[: public.ciphertext_bytes])
    yield "gradient-message", dump(gradients(ciphertexts, len(labels)))
    codes = values.reshape(-1, 1)
    bins = int(values.max()) + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as in `key`
        sums = candidate_sums(public, slots, ciphertexts, codes, bins, drawn)
    yield "gradient-answer", dump(answer(sums, bins - 1))
    (plain,) = secret.decrypt_many(sums)
    opened = slots.decode(plain, bins - 1)
    whole = np.array([[fixed.g.sum(), fixed.h.sum(), len(labels)]])
    yield "gradient-opened", choice(plain, opened, whole)


def table() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """The labels at the bank, and the telephone company's column."""
    path = ROOT / "examples" / "loans" / "loans.csv"
    with path.open(encoding="utf-8", newline="") as lines:
        rows = {row["customer"]: row for row in csv.DictReader(lines)}
    labels = np.array([float(rows[name]["defaulted"] == "yes") for name in CUSTOMERS])
    return labels, np.array([int(rows[name][COLUMN]) for name in CUSTOMERS], dtype=np.int64)


def key() -> tuple[SecretKey, random.Random]:
    """A key of 512 bits, p ≡ q ≡ 3 (mod 4), and what all else is drawn from."""
    drawn = random.Random("one gradient")  # noqa: S311 - the bytes of a page
    primes: list[int] = []
    while len(primes) < 2:
        prime = int(next_prime(mpz(drawn.getrandbits(256) | 3 << 254)))
        if prime % 4 == 3 and prime.bit_length() == 256:
            primes.append(prime)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such a key protects nothing
        return SecretKey(primes[0], primes[1], allow_breakable=True), drawn


def unit(drawn: random.Random, modulus: mpz) -> mpz:
    """A number below the modulus; it shares no factor with it but with a chance that does not count."""
    return mpz(drawn.randrange(2, int(modulus)))


def numbers(labels: npt.NDArray[Any], g: npt.NDArray[Any], h: npt.NDArray[Any], fixed: Quantised) -> str:
    """The first customer's g and h, and in fixed point."""
    return "\n".join(
        [
            f"{CUSTOMERS[0]}: paid back, so y = {labels[0]:.0f}; no tree yet, so p = 0.5",
            f"g = p - y     = {g[0, 0]:+.2f}  · 2^32 = {fixed.g[0, 0]:>11,}  = {int(fixed.g[0, 0]):#x}",
            f"h = p (1 - p) = {h[0, 0]:+.2f}  · 2^32 = {fixed.h[0, 0]:>11,}  = {int(fixed.h[0, 0]):#x}",
        ]
    )


def packed(slots: Slots, plain: int) -> str:
    """A plaintext, by bits."""
    bits = f"{plain:0{slots.bits}b}"
    parts = [
        bits[slots.bits - offset - width : slots.bits - offset]
        for offset, width in zip(slots.offsets, slots.widths, strict=True)
    ]
    width_g, width_h, width_n = slots.widths
    return "\n".join(
        [
            f"1, {width_n} bits      {parts[2]}",
            f"h, {width_h} bits     {parts[1]}",
            f"g, {width_g} bits     {parts[0]}",
            f"together     {plain:#x}",
        ]
    )


def hexadecimal(data: bytes) -> str:
    """All bytes, 32 on a line."""
    return "\n".join(data[first : first + 32].hex(" ", 4) for first in range(0, len(data), 32))


def dump(data: bytes) -> str:
    """The first bytes with their letters, and how many there are."""
    shown = [data[first : first + 16] for first in range(0, 96, 16)]
    lines = [f"{line.hex(' '):47}  {''.join(chr(it) if 32 <= it < 127 else '.' for it in line)}" for line in shown]
    return "\n".join([*lines, f"… {len(data):,} bytes"])


def frame() -> exchange_pb2.PeerMessage:
    """A message of the first level of the first tree."""
    return exchange_pb2.PeerMessage(job=JOB, attempt=1, last=True, job_digest=hashlib.sha256(JOB.encode()).digest())


def gradients(ciphertexts: bytes, count: int) -> bytes:
    """The label holder's message."""
    message = frame()
    content = message.protocol.boosting.gradients
    content.count, content.ciphertexts = count, ciphertexts
    return message.SerializeToString(deterministic=True)


def answer(sums: bytes, candidates: int) -> bytes:
    """The feature party's message."""
    message = frame()
    content = message.growth.candidate_sums
    content.nodes.append(1)
    content.candidates, content.ciphertexts = candidates, sums
    return message.SerializeToString(deterministic=True)


def candidate_sums(
    public: Any, slots: Slots, ciphertexts: bytes, codes: npt.NDArray[np.int64], bins: int, drawn: random.Random
) -> bytes:
    """The feature party's sums of the ciphertexts, left of each cut, permuted, in one ciphertext."""
    groups = slots.groups_per_plaintext(public.plain_bits)
    tree = HeldTree(public, slots.bits, groups, [bins], [(0,)], joint_cells=True)
    tree.add(codes, ciphertexts)
    left, _ = tree.left_sums([tree.root_bins()[0]], [Shape(bins, has_missing=False)])
    values = public.read(left)[ORDER]
    return bytes(public.write(Packer(public, slots.bits, groups).pack(values, [unit(drawn, public.n)])))


def choice(plain: int, opened: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> str:
    """The opened sums, the loss change of each candidate, and which one wins."""
    changes = loss_changes(opened[None], whole, 1.0, PARAMS)[0]
    chosen = BoostingCriterion(1.0, PARAMS).choose([changes])
    assert chosen is not None
    lines = [f"plaintext    {plain:#x}", "", "place      g left    h left    customers left    loss change"]
    for place, ((g, h, count), change) in enumerate(zip(opened, changes, strict=True)):
        wins = "  <- wins" if place in chosen[1] else ""
        lines.append(f"{place:>5}    {g / 2**32:+8.2f}  {h / 2**32:8.2f}    {count:>14}    {change:11.4f}{wins}")
    return "\n".join(lines)
