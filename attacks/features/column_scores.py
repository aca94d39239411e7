"""Scores of guessed columns.

Attributes: accuracy, and macro means over the classes of F1, precision and recall; R² of numbers. A class that occurs,
or is guessed, counts; one that is never guessed has precision 0, and one that never occurs recall 0.

Images of pixels in [0, 1]: mean squared error, PSNR and SSIM. SSIM is that of Wang, Bovik, Sheikh and Simoncelli 2004,
"Image quality assessment: from error visibility to structural similarity", equation 13 and section III-C: a Gaussian
window of 11 × 11 with deviation 1.5, constants .01 and .03.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import accuracy_score, precision_recall_fscore_support, r2_score
from torch.nn import functional

from attacks.features.results import ClassScores

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: Side of SSIM's window, and its deviation, both in pixels.
WINDOW, _DEVIATION = 11, 1.5
#: (K1 L)² and (K2 L)² with the range L = 1.
_C1, _C2 = 0.01**2, 0.03**2


def class_scores(guess: Ints, truth: Ints) -> ClassScores:
    """Scores of guessed classes (n,), n > 0."""
    precision, recall, f1, _ = precision_recall_fscore_support(truth, guess, average="macro", zero_division=0)
    return ClassScores(
        accuracy=float(accuracy_score(truth, guess)), f1=float(f1), precision=float(precision), recall=float(recall)
    )


def r2(guess: Floats, truth: Floats) -> float | None:
    """R² of guessed numbers (n,); None where the true ones are all equal, which leaves nothing to explain."""
    if not len(truth) or truth.min() == truth.max():
        return None
    return float(r2_score(truth, guess))


def mse(guess: torch.Tensor, truth: torch.Tensor) -> float:
    """The mean squared error of images (n, channels, height, width)."""
    return float(_errors(guess, truth).mean())


def psnr(guess: torch.Tensor, truth: torch.Tensor) -> float | None:
    """The mean over images (n, channels, height, width) of each one's PSNR in dB; None where one has no error."""
    errors = _errors(guess, truth)
    return None if bool((errors == 0).any()) else float((-10 * torch.log10(errors)).mean())


def ssim(guess: torch.Tensor, truth: torch.Tensor) -> float | None:
    """The mean SSIM of images (n, channels, height, width) over all places of the window that lie inside an image.

    None where the window does not fit.
    """
    if min(truth.shape[-2:]) < WINDOW:
        return None
    x, y = guess.double().flatten(0, 1)[:, None], truth.double().flatten(0, 1)[:, None]
    mean_x, mean_y = _windowed(x), _windowed(y)
    variance_x, variance_y = _windowed(x * x) - mean_x**2, _windowed(y * y) - mean_y**2
    covariance = _windowed(x * y) - mean_x * mean_y
    means = (2 * mean_x * mean_y + _C1) / (mean_x**2 + mean_y**2 + _C1)
    return float((means * (2 * covariance + _C2) / (variance_x + variance_y + _C2)).mean())


def _errors(guess: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """The mean squared error (n,) of each image."""
    return ((guess.double() - truth.double()) ** 2).flatten(1).mean(dim=1)


def _windowed(values: torch.Tensor) -> torch.Tensor:
    """Weighted means (m, 1, h - 10, w - 10) of values (m, 1, h, w) in each place of the window."""
    places = torch.arange(WINDOW, dtype=torch.float64) - WINDOW // 2
    weights = torch.exp(-(places**2) / (2 * _DEVIATION**2))
    weights = weights / weights.sum()
    rows = functional.conv2d(values, weights.reshape(1, 1, -1, 1))
    return functional.conv2d(rows, weights.reshape(1, 1, 1, -1))
