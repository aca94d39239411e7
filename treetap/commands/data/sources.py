"""The catalogue of public data sets that benchmarks use: sources, terms, and contents of a correct copy.

An entry of kind `Source` is fetched; one of kind `ByHand` is not, and has the reason and what to do instead. Every
`Source` is a table without missing values, whose content digest `treetap.commands.data.download` defines and compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_CC_BY = "CC BY 4.0"
_UCI = "https://archive.ics.uci.edu"
_OBESITY = "estimation+of+obesity+levels+based+on+eating+habits+and+physical+condition"
# The last commit at which the file itself, not a pointer to it, was kept in the repository.
_PMLB = "https://raw.githubusercontent.com/EpistasisLab/pmlb/c8f6e4b419cc1e75676d6d5e07b0a14d98c5dce7"


@dataclass(frozen=True, kw_only=True)
class ByHand:
    """A set that is not fetched. `rows` and `width` (columns with the label) are those of the whole public set."""

    title: str
    file: str
    rows: int
    width: int
    label: str
    licence: str
    citation: str
    page: str
    why: str
    how: str


@dataclass(frozen=True, kw_only=True)
class Source:
    """A set that is fetched, and the required contents of its table.

    `members` leads to the file: names in zip archives, each in the one before; without any, `url` is one gzip file.
    `columns` are (name, kind, first 8 digits of the digest of the column's values); `rename` maps the file's names to
    them.
    `sheet`: the file is an Excel workbook; otherwise it is CSV. `limit` is the largest download, in bytes.
    """

    name: str
    title: str
    url: str
    members: tuple[str, ...]
    rows: int
    columns: tuple[tuple[str, str, str], ...]
    digest: str
    label: str
    licence: str
    citation: str
    page: str
    rename: Mapping[str, str] = field(default_factory=dict)
    sheet: bool = False
    limit: int = 50_000_000

    @property
    def file(self) -> str:
        """Name of the Parquet file."""
        return f"{self.name}.parquet"

    @property
    def width(self) -> int:
        """Number of columns, the label included."""
        return len(self.columns)


def columns_of(text: str) -> tuple[tuple[str, str, str], ...]:
    """`name:kind:digits`, separated by blanks."""
    columns = []
    for item in text.split():
        name, kind, digits = item.rsplit(":", 2)
        columns.append((name, kind, digits))
    return tuple(columns)


_SOURCES = (
    Source(
        name="credit_default",
        title="Default of credit card clients",
        url=f"{_UCI}/static/public/350/default+of+credit+card+clients.zip",
        members=("default of credit card clients.xls",),
        rows=30_000,
        columns=columns_of(
            """
            LIMIT_BAL:int:7024d536 SEX:int:8a6da0ca EDUCATION:int:1275bf27 MARRIAGE:int:fba1a76c
            AGE:int:5da15eae PAY_0:int:ebc404f3 PAY_2:int:5d82dda8 PAY_3:int:a4996e13 PAY_4:int:93ddf914
            PAY_5:int:d210fcf1 PAY_6:int:df49b5df BILL_AMT1:int:6d100308 BILL_AMT2:int:5c9d6068
            BILL_AMT3:int:941a95e1 BILL_AMT4:int:a95445ba BILL_AMT5:int:f0312d11 BILL_AMT6:int:11ed2aaf
            PAY_AMT1:int:02d7dad5 PAY_AMT2:int:50433371 PAY_AMT3:int:2242ef8e PAY_AMT4:int:2f27a5e2
            PAY_AMT5:int:c12c644e PAY_AMT6:int:13bdd4fd default.payment.next.month:int:9e02d06e
            """
        ),
        digest="13dd22e622988cff7c28360ce14198ef8d8de3b2967c53fd200836c1bb4198b1",
        label="default.payment.next.month",
        licence=_CC_BY,
        citation="Yeh, I.-C. and Lien, C.-h. (2009), Expert Syst. Appl. 36(2), 2473–2480. doi:10.24432/C55S3H",
        page=f"{_UCI}/dataset/350/default+of+credit+card+clients",
        rename={"default payment next month": "default.payment.next.month"},
        sheet=True,
    ),
    Source(
        name="bank_marketing",
        title="Bank marketing (bank-full)",
        url=f"{_UCI}/static/public/222/bank+marketing.zip",
        members=("bank.zip", "bank-full.csv"),
        rows=45_211,
        columns=columns_of(
            """
            age:int:39fdf786 job:text:3a9060cd marital:text:04880683 education:text:b30bf210
            default:text:2cf8f4e3 balance:int:e9716b82 housing:text:8c2f2c92 loan:text:7cc10e31
            contact:text:7ac7b678 day:int:9d24d5f4 month:text:ea887848 duration:int:b8928604
            campaign:int:3f4c8387 pdays:int:6f5f8445 previous:int:8dbe982c poutcome:text:97e36873
            y:text:57b14b44
            """
        ),
        digest="2ba27c72d327764a2e43058b30aad0b0794e77057055bb80edb3494d24a95adb",
        label="y",
        licence=_CC_BY,
        citation="Moro, S., Cortez, P. and Rita, P. (2014), Decision Support Systems 62, 22–31. doi:10.24432/C5K306",
        page=f"{_UCI}/dataset/222/bank+marketing",
    ),
    Source(
        name="appliances_energy",
        title="Appliances energy prediction",
        url=f"{_UCI}/static/public/374/appliances+energy+prediction.zip",
        members=("energydata_complete.csv",),
        rows=19_735,
        columns=columns_of(
            """
            date:text:79fadc2e Appliances:int:7a96d814 lights:int:8372d929 T1:real:ec44ef31 RH_1:real:99e8f3bc
            T2:real:142abd58 RH_2:real:0cf66847 T3:real:a57b735b RH_3:real:367e9c5a T4:real:6337587d
            RH_4:real:1739f721 T5:real:a4cc79c5 RH_5:real:9f41bccf T6:real:c00d3066 RH_6:real:9c6b6be6
            T7:real:63dd0b5d RH_7:real:0d2304a2 T8:real:44f718b2 RH_8:real:12a236a2 T9:real:0ca8a2ae
            RH_9:real:f5c0fc6d T_out:real:fdf80304 Press_mm_hg:real:d496b62e RH_out:real:29b2105e
            Windspeed:real:1c9fb84e Visibility:real:01cc8024 Tdewpoint:real:73789482 rv1:real:0b776f0f
            rv2:real:0b776f0f
            """
        ),
        digest="c7102312a6d46f9b58f7e03d0ead6cd9d808f803a6102e87f3358c9d220f2bf3",
        label="Appliances",
        licence=_CC_BY,
        citation="Candanedo, L., Feldheim, V. and Deramaix, D. (2017), Energy Build. 140, 81–97. doi:10.24432/C5VC8G",
        page=f"{_UCI}/dataset/374/appliances+energy+prediction",
    ),
    Source(
        name="obesity",
        title="Estimation of obesity levels",
        url=f"{_UCI}/static/public/544/{_OBESITY}.zip",
        members=("ObesityDataSet_raw_and_data_sinthetic.csv",),
        rows=2_111,
        columns=columns_of(
            """
            Gender:text:1eda30eb Age:real:6cedf53c Height:real:55a5ee04 Weight:real:33b949e7
            family_history_with_overweight:text:5f33f3e1 FAVC:text:6e5ce6fc FCVC:real:442e5bd5
            NCP:real:cb0cd20f CAEC:text:8ccb3dc2 SMOKE:text:61f8f671 CH2O:real:37a5b4e6 SCC:text:0377ece4
            FAF:real:457923f0 TUE:real:358f8edd CALC:text:2c5a0901 MTRANS:text:92c4abd8
            NObeyesdad:text:ee3053ef
            """
        ),
        digest="3f6687d728c694335bccacc544ebc7caf37d6e8225bd9353f07f5f430c5030b1",
        label="NObeyesdad",
        licence=_CC_BY,
        citation="Mendoza Palechor, F. and De la Hoz Manotas, A. (2019), Data in Brief 25, 104344. doi:10.24432/C5H31Z",
        page=f"{_UCI}/dataset/544/{_OBESITY}",
    ),
    Source(
        name="fars",
        title="Fatality Analysis Reporting System (PMLB)",
        url=f"{_PMLB}/datasets/fars/fars.csv.gz",
        members=(),
        rows=100_968,
        columns=columns_of(
            """
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
            """
        ),
        digest="a11ff58227bed18c9e66bbe7edeaecc7f41ccf6dbc6528d27f4509a1260152a7",
        label="target",
        licence="US government data; PMLB packaging MIT",
        citation="US NHTSA, FARS; Romano, J. D. et al. (2022), PMLB v1.0, Bioinformatics 38(3), 878–880",
        page="https://epistasislab.github.io/pmlb/profile/fars.html",
        rename={"class": "target"},
    ),
)

_BY_HAND = {
    "give_me_some_credit": ByHand(
        title="Give Me Some Credit (cs-training)",
        file="give_me_some_credit.parquet",
        rows=150_000,
        width=11,
        label="SeriousDlqin2yrs",
        licence="no open licence: the competition's rules",
        citation="Kaggle (2011), Give Me Some Credit",
        page="https://www.kaggle.com/c/GiveMeSomeCredit",
        why="it has no open licence, and each user must accept the competition's rules.",
        how="accept the rules, download cs-training.csv, leave out its first column (a row number), read NA as "
        "missing, and write the other 11 columns to give_me_some_credit.parquet.",
    ),
    "pucrio_har_partial": ByHand(
        title="Wearable computing: body postures and movements (PUC-Rio)",
        file="pucrio_har_partial.parquet",
        rows=165_633,
        width=19,
        label="class",
        licence=_CC_BY,
        citation="Ugulino, W. et al. (2012), Wearable Computing: Accelerometers' Data Classification of Body Postures "
        "and Movements, SBIA 2012",
        page="http://groupware.les.inf.puc-rio.br/har",
        why="the reference copy holds the first 152,064 of 165,633 rows only, so a whole set could not be checked.",
        how="take the first 152,064 rows of dataset-har-PUC-Rio-ugulino.csv, write decimal commas as points and the "
        "damaged cell z4 of row 122,077 as -144, and save them to pucrio_har_partial.parquet.",
    ),
    "sensorless_drive_subset": ByHand(
        title="Sensorless drive diagnosis",
        file="sensorless_drive_subset.parquet",
        rows=58_509,
        width=49,
        label="class",
        licence=_CC_BY,
        citation="Bator, M. (2013), Dataset for Sensorless Drive Diagnosis. doi:10.24432/C5VP5F",
        page=f"{_UCI}/dataset/325/dataset+for+sensorless+drive+diagnosis",
        why="the reference copy is a sample of 200 rows per class; how it was drawn is not known.",
        how="draw 200 rows of each of the 11 classes from Sensorless_drive_diagnosis.txt, name the last column class, "
        "and save them to sensorless_drive_subset.parquet. Figures will differ a little from published ones.",
    ),
    "fashion_mnist": ByHand(
        title="Fashion-MNIST",
        file="fashion_mnist.npz",
        rows=70_000,
        width=785,
        label="train_labels, test_labels",
        licence="MIT",
        citation="Xiao, H., Rasul, K. and Vollgraf, R. (2017), arXiv:1708.07747",
        page="https://github.com/zalandoresearch/fashion-mnist",
        why="it is images, not a table, and the reference copy is in another order than the original.",
        how="read the four IDX files and save the uint8 arrays train_images (60000 × 28 × 28), train_labels, "
        "test_images and test_labels to fashion_mnist.npz.",
    ),
    "cifar10_subset": ByHand(
        title="CIFAR-10",
        file="cifar10_subset.npz",
        rows=60_000,
        width=3073,
        label="train_labels, test_labels",
        licence="none stated; the authors ask for citation",
        citation="Krizhevsky, A. (2009), Learning Multiple Layers of Features from Tiny Images",
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
        why="it has no stated licence, and the reference copy is a random 25,000 of its 60,000 images.",
        how="draw 2,000 training and 500 test images per class, and save the uint8 arrays train_images (20000 × 32 "
        "× 32 × 3), train_labels, test_images and test_labels to cifar10_subset.npz.",
    ),
    "cifar100_subset": ByHand(
        title="CIFAR-100",
        file="cifar100_subset.npz",
        rows=60_000,
        width=3073,
        label="train_labels, test_labels",
        licence="none stated; the authors ask for citation",
        citation="Krizhevsky, A. (2009), Learning Multiple Layers of Features from Tiny Images",
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
        why="it has no stated licence, and the reference copy is a random 6,000 of its 60,000 images.",
        how="draw 50 training and 10 test images per fine class, and save the uint8 arrays train_images (5000 × 32 "
        "× 32 × 3), train_labels, test_images and test_labels to cifar100_subset.npz.",
    ),
}

#: Every set by name, the fetched ones first.
CATALOGUE: dict[str, Source | ByHand] = {source.name: source for source in _SOURCES} | _BY_HAND
