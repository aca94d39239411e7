"""The results of a label holder's attacks on columns in the audit document."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from attacks.findings import Count, Findings

#: The embeddings that an attack is given: as they came, or with mean 0 and deviation 1 in each coordinate.
Scale = Literal["raw", "standardised"]
#: A PNG file as data URL.
PictureUrl = Annotated[str, Field(pattern=r"\Adata:image/png;base64,[A-Za-z0-9+/]*={0,2}\z")]


class RecordScores(Findings):
    """Distances of guessed records from the true ones.

    `mse`: of images of pixels in [0, 1], of tables of standardised numbers. `psnr`, in dB, the mean over images, null
    where one has no error; `ssim` (Wang et al. 2004): null of tables, and of images smaller than its window. Of several
    columns of images all are means over the columns.
    """

    mse: float
    psnr: float | None = None
    ssim: float | None = None


class Reconstruction(Findings):
    """One attack that guesses whole records. `headline`: the stronger one, by SSIM of images and MSE of tables.

    Scores are of the images of a table that has some, otherwise of its numbers; null where the victims' columns are not
    at hand. `floor`: the mean auxiliary record.
    """

    attack: str
    records: Count
    raw: RecordScores | None
    standardised: RecordScores | None
    headline: Scale | None
    floor: RecordScores | None
    seconds: float


class ClassScores(Findings):
    """Scores of a guessed class; F1, precision and recall are means over the classes (macro)."""

    accuracy: float
    f1: float
    precision: float
    recall: float


class Attribute(Findings):
    """One column, guessed as a class or as a number.

    `classes`: different ones among the auxiliary records, null of a number. `left_out`: victims without a value.
    `raw`, `standardised`, `floor` (the majority class): of a class; `raw_r2`, `standardised_r2`: of a number, whose
    floor, the mean, is about 0. All are null where no victim has a value, and R² where all have the same. `headline`:
    the stronger one, by accuracy or R².
    """

    name: str
    kind: Literal["class", "number"]
    classes: Count | None
    auxiliary: Count
    records: Count
    left_out: Count
    raw: ClassScores | None = None
    standardised: ClassScores | None = None
    floor: ClassScores | None = None
    raw_r2: float | None = None
    standardised_r2: float | None = None
    headline: Scale | None = None


class Picture(Findings):
    """One victim beside its reconstructions: PNG files as data URLs, by `truth`, `floor` and `ATTACK, SCALE`."""

    column: str
    images: dict[str, PictureUrl]


class VictimFigures(Findings):
    """All attacks on one feature party's columns; `reasons`: attack, or a part of one → why it was left out.

    `source`: embeddings of a training's `epoch` (from 0), or of a prediction, `job`. `auxiliary`, `victims`: records
    used. `scored`: the victims' columns were at hand.
    """

    source: Literal["training", "prediction"]
    job: str
    epoch: Count | None
    width: Count
    auxiliary: Count
    victims: Count
    left_out: Count
    scored: bool
    reconstructions: list[Reconstruction]
    attributes: list[Attribute]
    pictures: list[Picture]
    reasons: dict[str, str]
