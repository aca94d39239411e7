"""Public data sets that benchmarks and some tests read, as files of the folder that TREETAP_DATA names.

    python benchmarks/data.py                  # the sets: terms, and how to get each
    python benchmarks/data.py credit_default   # fetch one; that one is a workbook, whose reader is in the extra `bench`
    python benchmarks/data.py fashion_mnist --images t.parquet [--part test] [--rows 100] [--halves]

A set is fetched in four steps: download its archive, unpack one file, convert that to a table, compare the table's
content digest with the one below. Only a table that passes the last step is kept, so that every benchmark uses the same
rows and columns. measured/data-sets.md defines the digest.

A set of images, got by hand, is an `.npz` file of uint8 arrays: `train_images` and `test_images` (N, height, width) or
(N, height, width, channels), and a class number per image in `train_labels` and `test_labels`. As a table that parties
read it has `id`, `image` (or `left` and `right`, split in the middle of the width) and `label`.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import http.client
import io
import os
import sys
import urllib.request
import zipfile
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from treetap import terminal
from treetap.models.durable import write_whole
from treetap.tables.cells import tensor_column

#: Seconds without a byte after which a download fails; the most bytes of one, and of the file in it.
SILENCE_S, MOST, LARGEST = 30.0, 50_000_000, 100_000_000
_TYPES = {"int": pa.int32(), "real": pa.float64(), "text": pa.large_string()}
_CC_BY = "CC BY 4.0"
_UCI = "https://archive.ics.uci.edu"
_OBESITY = "estimation+of+obesity+levels+based+on+eating+habits+and+physical+condition"
# The last commit at which the file itself, not a pointer to it, was kept in the repository.
_PMLB = "https://raw.githubusercontent.com/EpistasisLab/pmlb/c8f6e4b419cc1e75676d6d5e07b0a14d98c5dce7"


class DataSet(NamedTuple):
    """A set. One that is got by hand has `how`; one that is fetched has where it lies, and its table's content.

    Attributes:
        url: of an archive, or of one gzip file where there are no `members`.
        members: names in zip archives, each in the one before.
        columns: `name:kind:digits`, the first 8 of the digest of the column's values.
        rename: the file's names of columns → ours.
        sheet: the file is an Excel workbook; else it is CSV.
    """

    file: str
    rows: int
    licence: str
    citation: str
    page: str
    how: str = ""
    url: str = ""
    members: tuple[str, ...] = ()
    columns: str = ""
    digest: str = ""
    rename: Mapping[str, str] = {}
    sheet: bool = False


SETS = {
    "credit_default": DataSet(
        file="credit_default.parquet",
        url=f"{_UCI}/static/public/350/default+of+credit+card+clients.zip",
        members=("default of credit card clients.xls",),
        rows=30_000,
        columns="""
            LIMIT_BAL:int:7024d536 SEX:int:8a6da0ca EDUCATION:int:1275bf27 MARRIAGE:int:fba1a76c
            AGE:int:5da15eae PAY_0:int:ebc404f3 PAY_2:int:5d82dda8 PAY_3:int:a4996e13 PAY_4:int:93ddf914
            PAY_5:int:d210fcf1 PAY_6:int:df49b5df BILL_AMT1:int:6d100308 BILL_AMT2:int:5c9d6068
            BILL_AMT3:int:941a95e1 BILL_AMT4:int:a95445ba BILL_AMT5:int:f0312d11 BILL_AMT6:int:11ed2aaf
            PAY_AMT1:int:02d7dad5 PAY_AMT2:int:50433371 PAY_AMT3:int:2242ef8e PAY_AMT4:int:2f27a5e2
            PAY_AMT5:int:c12c644e PAY_AMT6:int:13bdd4fd default.payment.next.month:int:9e02d06e
        """,
        digest="13dd22e622988cff7c28360ce14198ef8d8de3b2967c53fd200836c1bb4198b1",
        licence=_CC_BY,
        citation="Yeh, I.-C. and Lien, C.-h. (2009), Expert Syst. Appl. 36(2), 2473–2480. doi:10.24432/C55S3H",
        page=f"{_UCI}/dataset/350/default+of+credit+card+clients",
        rename={"default payment next month": "default.payment.next.month"},
        sheet=True,
    ),
    "bank_marketing": DataSet(
        file="bank_marketing.parquet",
        url=f"{_UCI}/static/public/222/bank+marketing.zip",
        members=("bank.zip", "bank-full.csv"),
        rows=45_211,
        columns="""
            age:int:39fdf786 job:text:3a9060cd marital:text:04880683 education:text:b30bf210
            default:text:2cf8f4e3 balance:int:e9716b82 housing:text:8c2f2c92 loan:text:7cc10e31
            contact:text:7ac7b678 day:int:9d24d5f4 month:text:ea887848 duration:int:b8928604
            campaign:int:3f4c8387 pdays:int:6f5f8445 previous:int:8dbe982c poutcome:text:97e36873
            y:text:57b14b44
        """,
        digest="2ba27c72d327764a2e43058b30aad0b0794e77057055bb80edb3494d24a95adb",
        licence=_CC_BY,
        citation="Moro, S., Cortez, P. and Rita, P. (2014), Decision Support Systems 62, 22–31. doi:10.24432/C5K306",
        page=f"{_UCI}/dataset/222/bank+marketing",
    ),
    "appliances_energy": DataSet(
        file="appliances_energy.parquet",
        url=f"{_UCI}/static/public/374/appliances+energy+prediction.zip",
        members=("energydata_complete.csv",),
        rows=19_735,
        columns="""
            date:text:79fadc2e Appliances:int:7a96d814 lights:int:8372d929 T1:real:ec44ef31 RH_1:real:99e8f3bc
            T2:real:142abd58 RH_2:real:0cf66847 T3:real:a57b735b RH_3:real:367e9c5a T4:real:6337587d
            RH_4:real:1739f721 T5:real:a4cc79c5 RH_5:real:9f41bccf T6:real:c00d3066 RH_6:real:9c6b6be6
            T7:real:63dd0b5d RH_7:real:0d2304a2 T8:real:44f718b2 RH_8:real:12a236a2 T9:real:0ca8a2ae
            RH_9:real:f5c0fc6d T_out:real:fdf80304 Press_mm_hg:real:d496b62e RH_out:real:29b2105e
            Windspeed:real:1c9fb84e Visibility:real:01cc8024 Tdewpoint:real:73789482 rv1:real:0b776f0f
            rv2:real:0b776f0f
        """,
        digest="c7102312a6d46f9b58f7e03d0ead6cd9d808f803a6102e87f3358c9d220f2bf3",
        licence=_CC_BY,
        citation="Candanedo, L., Feldheim, V. and Deramaix, D. (2017), Energy Build. 140, 81–97. doi:10.24432/C5VC8G",
        page=f"{_UCI}/dataset/374/appliances+energy+prediction",
    ),
    "obesity": DataSet(
        file="obesity.parquet",
        url=f"{_UCI}/static/public/544/{_OBESITY}.zip",
        members=("ObesityDataSet_raw_and_data_sinthetic.csv",),
        rows=2_111,
        columns="""
            Gender:text:1eda30eb Age:real:6cedf53c Height:real:55a5ee04 Weight:real:33b949e7
            family_history_with_overweight:text:5f33f3e1 FAVC:text:6e5ce6fc FCVC:real:442e5bd5
            NCP:real:cb0cd20f CAEC:text:8ccb3dc2 SMOKE:text:61f8f671 CH2O:real:37a5b4e6 SCC:text:0377ece4
            FAF:real:457923f0 TUE:real:358f8edd CALC:text:2c5a0901 MTRANS:text:92c4abd8
            NObeyesdad:text:ee3053ef
        """,
        digest="3f6687d728c694335bccacc544ebc7caf37d6e8225bd9353f07f5f430c5030b1",
        licence=_CC_BY,
        citation="Mendoza Palechor, F. and De la Hoz Manotas, A. (2019), Data in Brief 25, 104344. doi:10.24432/C5H31Z",
        page=f"{_UCI}/dataset/544/{_OBESITY}",
    ),
    "fars": DataSet(
        file="fars.parquet",
        url=f"{_PMLB}/datasets/fars/fars.csv.gz",
        rows=100_968,
        columns="""
            CASE_STATE:int:0b35ac0f AGE:int:67bf50e6 SEX:int:8e86b6d4 PERSON_TYPE:int:4deec58c
            SEATING_POSITION:int:1b48a62a RESTRAINT_SYSTEM-USE:int:182c1cf2
            AIR_BAG_AVAILABILITY/DEPLOYMENT:int:e9520fe0 EJECTION:int:8c565877 EJECTION_PATH:int:098f6804
            EXTRICATION:int:375196cc NON_MOTORIST_LOCATION:int:5235687d
            POLICE_REPORTED_ALCOHOL_INVOLVEMENT:int:7aea7731 METHOD_ALCOHOL_DETERMINATION:int:80a13832
            ALCOHOL_TEST_TYPE:int:eafccb74 ALCOHOL_TEST_RESULT:int:5a08a978
            POLICE-REPORTED_DRUG_INVOLVEMENT:int:78572d02 METHOD_OF_DRUG_DETERMINATION:int:6e8272be
            DRUG_TEST_TYPE:int:d4c0d31e DRUG_TEST_RESULTS_(1_of_3):int:57658f70
            DRUG_TEST_TYPE_(2_of_3):int:9721f7fc DRUG_TEST_RESULTS_(2_of_3):int:f54caa75
            DRUG_TEST_TYPE_(3_of_3):int:8c1ad301 DRUG_TEST_RESULTS_(3_of_3):int:559d23d6
            HISPANIC_ORIGIN:int:2211f53a TAKEN_TO_HOSPITAL:int:388a1d78
            RELATED_FACTOR_(1)-PERSON_LEVEL:int:07ce866a RELATED_FACTOR_(2)-PERSON_LEVEL:int:715f2839
            RELATED_FACTOR_(3)-PERSON_LEVEL:int:8868d6f8 RACE:int:3d8e9c25 target:int:c42a8ca6
        """,
        digest="a11ff58227bed18c9e66bbe7edeaecc7f41ccf6dbc6528d27f4509a1260152a7",
        licence="US government data; PMLB packaging MIT",
        citation="US NHTSA, FARS; Romano, J. D. et al. (2022), PMLB v1.0, Bioinformatics 38(3), 878–880",
        page="https://epistasislab.github.io/pmlb/profile/fars.html",
        rename={"class": "target"},
    ),
    "give_me_some_credit": DataSet(
        file="give_me_some_credit.parquet",
        rows=150_000,
        licence="no open licence: the competition's rules",
        citation="Kaggle (2011), Give Me Some Credit",
        page="https://www.kaggle.com/c/GiveMeSomeCredit",
        how="It has no open licence, and each user must accept the competition's rules. "
        "Accept the rules, download cs-training.csv, leave out its first column (a row number), read NA as "
        "missing, and write the other 11 columns to give_me_some_credit.parquet.",
    ),
    "pucrio_har_partial": DataSet(
        file="pucrio_har_partial.parquet",
        rows=165_633,
        licence=_CC_BY,
        citation="Ugulino, W. et al. (2012), Wearable Computing: Accelerometers' Data Classification of Body Postures "
        "and Movements, SBIA 2012",
        page="http://groupware.les.inf.puc-rio.br/har",
        how="The reference copy holds the first 152,064 of 165,633 rows only, so a whole set could not be checked. "
        "Take the first 152,064 rows of dataset-har-PUC-Rio-ugulino.csv, write decimal commas as points and the "
        "damaged cell z4 of row 122,077 as -144, and save them to pucrio_har_partial.parquet.",
    ),
    "sensorless_drive_subset": DataSet(
        file="sensorless_drive_subset.parquet",
        rows=58_509,
        licence=_CC_BY,
        citation="Bator, M. (2013), Dataset for Sensorless Drive Diagnosis. doi:10.24432/C5VP5F",
        page=f"{_UCI}/dataset/325/dataset+for+sensorless+drive+diagnosis",
        how="The reference copy is a sample of 200 rows per class; how it was drawn is not known. "
        "Draw 200 rows of each of the 11 classes from Sensorless_drive_diagnosis.txt, name the last column class, "
        "and save them to sensorless_drive_subset.parquet. Figures will differ a little from published ones.",
    ),
    "fashion_mnist": DataSet(
        file="fashion_mnist.npz",
        rows=70_000,
        licence="MIT",
        citation="Xiao, H., Rasul, K. and Vollgraf, R. (2017), arXiv:1708.07747",
        page="https://github.com/zalandoresearch/fashion-mnist",
        how="It is images, not a table, and the reference copy is in another order than the original. "
        "Read the four IDX files and save the uint8 arrays train_images (60000 × 28 × 28), train_labels, "
        "test_images and test_labels to fashion_mnist.npz.",
    ),
    "cifar10_subset": DataSet(
        file="cifar10_subset.npz",
        rows=60_000,
        licence="none stated; the authors ask for citation",
        citation="Krizhevsky, A. (2009), Learning Multiple Layers of Features from Tiny Images",
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
        how="It has no stated licence, and the reference copy is a random 25,000 of its 60,000 images. "
        "Draw 2,000 training and 500 test images per class, and save the uint8 arrays train_images (20000 × 32 "
        "× 32 × 3), train_labels, test_images and test_labels to cifar10_subset.npz.",
    ),
    "cifar100_subset": DataSet(
        file="cifar100_subset.npz",
        rows=60_000,
        licence="none stated; the authors ask for citation",
        citation="Krizhevsky, A. (2009), Learning Multiple Layers of Features from Tiny Images",
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
        how="It has no stated licence, and the reference copy is a random 6,000 of its 60,000 images. "
        "Draw 50 training and 10 test images per fine class, and save the uint8 arrays train_images (5000 × 32 "
        "× 32 × 3), train_labels, test_images and test_labels to cifar100_subset.npz.",
    ),
}


def fetch(known: DataSet, folder: Path) -> bool:
    """Put the set's file into `folder`; False if it was there already, with the right content."""
    path = folder / known.file
    if path.exists():
        if wrong := _wrong(known, path.read_bytes()):
            sys.exit(f"{path}: is not the set: {wrong}; move it away to fetch the set")
        return False
    if known.sheet and find_spec("xlrd") is None:
        sys.exit(f"{path.stem} is published as an Excel workbook: pip install xlrd")
    content = _downloaded(known)
    try:
        kept = io.BytesIO()
        pq.write_table(convert(known, unpacked(known, content)), kept, compression="zstd")
        wrong = _wrong(known, kept.getvalue())
    except Exception as fault:  # noqa: BLE001 - whatever the readers make of another file
        wrong = f"{type(fault).__name__}: {fault}"
    if wrong:
        sys.exit(f"{known.url}: is not the set: {wrong}; it begins with {content[:16]!r}. See {known.page}")
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(path, kept.getvalue(), 0o644)
    return True


def _downloaded(known: DataSet) -> bytes:
    opener = urllib.request.build_opener()
    opener.addheaders = [("User-Agent", "treetap")]
    try:
        with opener.open(known.url, timeout=SILENCE_S) as response:
            content: bytes = response.read(MOST + 1)
            announced = response.headers.get("Content-Length")
    except (OSError, http.client.HTTPException) as fault:
        sys.exit(f"{known.url}: {fault}. See {known.page}")
    if len(content) > MOST or (announced is not None and len(content) != int(announced)):
        sys.exit(f"{known.url}: sends {len(content)} bytes, announces {announced}; {MOST} is the limit; try again")
    return content


def unpacked(known: DataSet, content: bytes) -> bytes:
    """The one file wanted: through zip archives, each in the one before, or through gzip."""
    if not known.members:
        with gzip.open(io.BytesIO(content)) as packed:
            content = packed.read(LARGEST + 1)
    for member in known.members:
        archive = zipfile.ZipFile(io.BytesIO(content))
        with archive.open({Path(name).name: name for name in archive.namelist()}[member]) as packed:
            content = packed.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"unpacks to more than {LARGEST} bytes")
    return content


def convert(known: DataSet, content: bytes) -> pa.Table:
    """The unpacked file as a table with the set's columns, in its order and with its types; others are left out."""
    kinds = dict(column.split(":")[:2] for column in known.columns.split())
    if known.sheet:  # an Excel 97 workbook's first sheet, whose second row is the header
        import xlrd

        sheet = xlrd.open_workbook(file_contents=content, logfile=io.StringIO()).sheet_by_index(0)
        names = _renamed(known, map(str, sheet.row_values(1)))
        columns = {name: pa.array(sheet.col_values(names.index(name), 2)) for name in kinds}
    else:
        first = content.split(b"\n", 1)[0].decode("utf-8-sig").rstrip("\r")
        separator = max(",;\t", key=first.count)
        # whole numbers are read as real ones: some sources write 1.0 for 1; the cast below refuses 1.5
        types = {name: pa.large_string() if kind == "text" else pa.float64() for name, kind in kinds.items()}
        table = pacsv.read_csv(
            pa.BufferReader(content),
            pacsv.ReadOptions(
                column_names=_renamed(known, next(csv.reader([first], delimiter=separator))), skip_rows=1
            ),
            pacsv.ParseOptions(delimiter=separator),
            pacsv.ConvertOptions(column_types=types, include_columns=list(kinds), null_values=[]),
        )
        columns = {name: table.column(name) for name in kinds}
    return pa.table({name: pc.cast(columns[name], _TYPES[kind]) for name, kind in kinds.items()})


def _renamed(known: DataSet, header: Iterable[str]) -> list[str]:
    return [known.rename.get(name, name) for name in header]


def content_of(table: pa.Table) -> tuple[str, list[str]]:
    """The digest of a table without missing values, and `name:kind:digits` of each column."""
    whole, columns = hashlib.sha256(), []
    for name in table.column_names:
        values = table.column(name).combine_chunks()
        if values.null_count or (pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py()):
            raise ValueError(f"column {name} has missing values")
        if pa.types.is_integer(values.type):
            kind, data = "int", values.to_numpy().astype("<i8").tobytes()
        elif pa.types.is_floating(values.type):
            reals = values.to_numpy().astype(np.float64) + 0.0  # -0.0 becomes 0.0
            kind, data = "real", b"".join(b"%.9g\n" % value for value in reals.tolist())
        else:
            texts = (text.encode() for text in values.to_pylist())
            kind, data = "text", b"".join(b"%d:%b" % (len(text), text) for text in texts)
        digest = hashlib.sha256(data).hexdigest()
        whole.update(f"{name}\0{kind}\0{digest}\n".encode())
        columns.append(f"{name}:{kind}:{digest[:8]}")
    return whole.hexdigest(), columns


def difference(known: DataSet, table: pa.Table) -> str:
    """The first difference between a table and the set; empty if they agree."""
    digest, columns = content_of(table)
    if table.num_rows != known.rows:
        return f"it has {table.num_rows} rows, not {known.rows}"
    for column, wanted in zip_longest(columns, known.columns.split()):
        if column != wanted:
            return f"column {column} is the first that differs, from {wanted}"
    return "" if digest == known.digest else f"its content digest is {digest}, not {known.digest}"


def _wrong(known: DataSet, content: bytes) -> str:
    try:
        return difference(known, pq.read_table(pa.BufferReader(content)))
    except (pa.ArrowException, ValueError) as fault:
        return str(fault)


def image_table(path: Path, part: str, rows: int | None = None, *, halves: bool = False) -> pa.Table:
    """The first images of a part of a set, by default all."""
    with np.load(path, allow_pickle=False) as file:
        images, labels = file[f"{part}_images"][:rows], file[f"{part}_labels"][:rows]
    cells = images.transpose(0, 3, 1, 2) if images.ndim == 4 else images
    middle = cells.shape[-1] // 2
    columns = {"left": cells[..., :middle], "right": cells[..., middle:]} if halves else {"image": cells}
    return pa.table(
        {
            "id": [f"{part}-{number:05d}" for number in range(len(cells))],
            **{name: tensor_column(stack) for name, stack in columns.items()},
            "label": pa.array(labels.astype(np.int32)),
        }
    )


def main() -> None:
    """List the sets, fetch one, or write one of images as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=SETS)
    parser.add_argument("--images", type=Path, metavar="PARQUET", help="the file to write a set of images to")
    parser.add_argument("--part", choices=("train", "test"), default="train")
    parser.add_argument("--rows", type=int, help="the first images alone")
    parser.add_argument("--halves", action="store_true", help="columns left and right, for two parties")
    given = parser.parse_args()
    if given.name is None:
        for name, known in SETS.items():
            terminal.out.print(
                f"{name}: {known.rows:,} rows; {known.licence}; {known.citation}; {known.page}", soft_wrap=True
            )
            terminal.out.print(f"  {known.how or 'is fetched'}", soft_wrap=True)
        return
    known, folder = SETS[given.name], Path(os.environ["TREETAP_DATA"])
    if given.images:
        pq.write_table(image_table(folder / known.file, given.part, given.rows, halves=given.halves), given.images)
    elif known.how:
        sys.exit(f"{given.name} is not fetched. {known.how}\nSource: {known.page}")
    else:
        terminal.out.print(f"{folder / known.file}: {'fetched' if fetch(known, folder) else 'already there'}")


if __name__ == "__main__":
    main()
