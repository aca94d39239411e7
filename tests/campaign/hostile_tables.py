"""Damaged files of tables, read as a party reads them: each is read, or refused by one error that names the file.

A seed makes a sound table of 40 rows and damages its bytes. Chunks of cases run in processes of their own, so that a
reader that ends by a signal is a finding like an error of a library.
"""

from __future__ import annotations

import io
import json
import logging
import multiprocessing
import resource
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq

from tests.campaign.pools import workplace
from treetap.errors import DataError
from treetap.tables import streamed_reading
from treetap.tables.config import TableConfig
from treetap.tables.labels import read_labels
from treetap.tables.reading import read_table

FORMATS = ("feather", "stream", "parquet", "csv", "jsonl")
#: Cases of one process, and the seconds after which it hangs.
CHUNK, HANGS_S = 200, 120.0
_ROWS, _MEMORY = 40, 6 << 30
#: Bytes that mean something to one of the formats: marks of lengths, numbers, text that is none.
_TOKENS = [b"\0", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\xff" * 9 + b"\1", b"1e999", b"nan", b'"', b"\n", b",", b"[" * 50]
_TOKENS += [b"\xef\xbb\xbf", b"9" * 400, b"\\u0000", b"\xed\xa0\x80", b"1_000"]
_FOOTER = 1200  # bytes at the end, where Parquet and Feather describe the file


def sound(kind: str, random: Random) -> bytes:
    """A table of a format, in one of its compressions."""
    rng = np.random.default_rng(random.randrange(1 << 30))
    texts = pa.array([["red", "green", None][place % 3] for place in range(_ROWS)])
    table = pa.table(
        {
            "id": [f"id{place}" for place in range(_ROWS)],
            "a": rng.normal(size=_ROWS),
            "b": pa.array([None if place % 7 == 0 else place for place in range(_ROWS)]),
            "s": texts if kind == "csv" else texts.dictionary_encode(),
            "v": texts.cast(pa.string_view() if kind in ("feather", "stream") else pa.string()),
            "d": pa.array(rng.integers(0, 10**6, _ROWS)).cast(pa.timestamp("s")),
            "y": [place % 2 for place in range(_ROWS)],
        }
    )
    file = io.BytesIO()
    if kind == "parquet":
        packed, version = random.choice(["none", "snappy", "zstd", "gzip"]), random.choice(["1.0", "2.0"])
        pq.write_table(table, file, compression=packed, use_dictionary=random.random() < 0.5, data_page_version=version)
    elif kind == "feather":
        feather.write_feather(table, file, random.choice(["uncompressed", "lz4", "zstd"]))
    elif kind == "stream":
        with pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table, max_chunksize=random.choice([7, _ROWS]))
    elif kind == "csv":
        pacsv.write_csv(table, file)
    else:
        file.write(b"".join(json.dumps(row, default=str).encode() + b"\n" for row in table.to_pylist()))
    return file.getvalue()


def damaged(content: bytes, random: Random) -> bytes:
    """The same with bytes changed, taken out, put in, or copied from elsewhere."""
    found = bytearray(content)
    for _ in range(random.choice([1, 1, 2, 4, 16])):
        place, token = random.randrange(len(found)), random.choice(_TOKENS)
        way = random.randrange(7)
        if way == 0:
            found[place] ^= 1 << random.randrange(8)
        elif way == 1:
            found[place] = random.randrange(256)
        elif way == 2:
            del found[place : place + random.randrange(1, 9)]
        elif way == 3:
            found[place:place] = token
        elif way == 4:
            found[place : place + len(token)] = token
        elif way == 5:
            other, size = random.randrange(len(found)), random.randrange(1, 64)
            found[place : place + size] = found[other : other + size]
        else:
            near = len(found) - 1 - random.randrange(min(len(found), _FOOTER))
            found[near] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
        found = found or bytearray(b"x")
    return bytes(found)


def outcome(path: Path, kind: str, *, streams: bool) -> str:
    """The fate of a file: "read", "refused", or a finding."""
    config = TableConfig(
        path=path,
        id="id",
        columns=["a", "b", "s", "v", "d"],
        label="y",
        encode={"s": "ordinal", "v": "one-hot", "d": "days"},
        format="feather" if kind == "stream" else kind,
    )
    try:
        table = read_table(config, with_label=True, missing=None, streams=streams)
        _ = table.features
        read_labels(table, "y", "binary:logistic")
    except DataError as failure:
        return "refused" if str(path) in str(failure) else f"an error that does not name the file: {failure}"
    except BaseException as failure:  # noqa: BLE001 - that is the finding
        return f"{type(failure).__name__}: {str(failure)[:100]}"
    return "read"


def _chunk(answers: Connection, folder: Path, kind: str, seeds: Sequence[int]) -> None:
    """Read the damaged tables of these seeds, and send the fate of each."""
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    path = folder / f"{kind}-{seeds[0]}"
    streamed_reading.STREAMED = 0  # bytes from which a table is streamed, where the reader is asked to
    for seed in seeds:
        random = Random(f"{kind} {seed}")
        path.write_bytes(damaged(sound(kind, random), random))
        answers.send(outcome(path, kind, streams=seed % 2 == 1))


def _carry_out(work: tuple[str, Sequence[int]], folder: Path) -> list[str]:
    """The fate of each case of a chunk; after one that ends the process, a further one does the rest."""
    kind, seeds = work
    found: list[str] = []
    while len(found) < len(seeds):
        ours, theirs = multiprocessing.get_context("fork").Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(
            target=_chunk, args=(theirs, folder, kind, seeds[len(found) :])
        )
        process.start()
        theirs.close()
        try:
            while len(found) < len(seeds):
                found.append(ours.recv() if ours.poll(HANGS_S) else "hangs")
        except EOFError:
            process.join()
            found.append(f"the reader ends with {process.exitcode}")
        process.kill()
        process.join()
    return found


def conduct(count: int, workers: int, seed: int = 0) -> dict[str, Any]:
    """So many damaged tables of each format, from a seed on; the figures as a file holds them."""
    ends = range(seed, seed + count, CHUNK)
    work = [(kind, range(first, min(first + CHUNK, seed + count))) for kind in FORMATS for first in ends]
    kinds: Counter[str] = Counter()
    findings: list[str] = []
    with workplace() as folder, ThreadPoolExecutor(workers) as pool:
        for (kind, seeds), fates in zip(work, pool.map(partial(_carry_out, folder=folder), work), strict=True):
            for number, fate in zip(seeds, fates, strict=True):
                sound_end = fate in ("read", "refused")
                kinds[f"{kind}, {fate if sound_end else 'finding'}"] += 1
                findings += [] if sound_end else [f"{kind} {number}: {fate}"]
    return {
        "cases": sum(kinds.values()),
        "count": count,
        "read": sum(number for kind, number in kinds.items() if kind.endswith(", read")),
        "refused": sum(number for kind, number in kinds.items() if kind.endswith(", refused")),
        "seed": seed,
        "kinds": dict(sorted(kinds.items())),
        "findings": len(findings),
        "failing": findings[:50],
    }
