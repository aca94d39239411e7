"""The sets of the reproduction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DataSet:
    """A set: its file below TREETAP_DATA and its label column.

    `train`: of images, those that are trained on; the test images are always all. `remark`: how the file differs from
    the public set.
    """

    title: str
    file: str
    label: str
    train: int = 0
    remark: str = ""

    @property
    def images(self) -> bool:
        """True for a set of images."""
        return self.file.endswith(".npz")


SETS = {
    "fashion": DataSet("Fashion-MNIST", "fashion_mnist.npz", "label", 20_000, "20,000 of 60,000 training images"),
    "cifar10": DataSet("CIFAR-10", "cifar10_subset.npz", "label", 10_000, "10,000 of 50,000 training images"),
    "cifar10-all": DataSet("CIFAR-10, 20,000", "cifar10_subset.npz", "label", 20_000, "all training images at hand"),
    "obesity": DataSet("Obesity", "obesity.parquet", "NObeyesdad"),
    "har": DataSet("HAR", "pucrio_har_partial.parquet", "class", remark="152,064 of 165,633 records"),
    "drive": DataSet("Drive", "sensorless_drive_subset.parquet", "class", remark="2,200 of 58,509 records"),
    "fars": DataSet("Fars", "fars.parquet", "target"),
    "credit": DataSet("Credit default", "credit_default.parquet", "default.payment.next.month"),
    "bank": DataSet("Bank marketing", "bank_marketing.parquet", "y"),
}
