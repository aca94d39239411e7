"""Scores of images against published and closed-form values, of classes against a worked example, and PNG files."""

from __future__ import annotations

import base64
import io
import math

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

import torch

from treetap.attacks.features.findings import class_scores, mse, psnr, r2, ssim
from treetap.attacks.networks.schema import png_url

pytestmark = pytest.mark.second_tier


def pair(height: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two images (1, 1, height, width) by a formula."""
    y, x = np.mgrid[0:height, 0:width]
    first = 0.5 + 0.4 * np.sin(x / 2) * np.cos(y / 3)
    second = 0.45 + 0.35 * np.sin(x / 2 + 0.3) * np.cos(y / 3) + 0.1 * np.cos(x * y)
    return torch.from_numpy(first)[None, None], torch.from_numpy(second)[None, None]


#: `skimage.metrics` of scikit-image 0.26 on these images: `structural_similarity(a, b, gaussian_weights=True,
#: sigma=1.5, use_sample_covariance=False, data_range=1)` and `peak_signal_noise_ratio`. Its tests compare these with
#: the program of the article https://www.ipol.im/pub/art/2011/g_lmii/ (Image Processing On Line) on `data.camera()` and
#: noise: .357959 and 22.409353; ours are .357964, as scikit-image's, and 22.409353 there.
PUBLISHED = {
    (28, 14): (0.862034050328965, 19.808804774831152),
    (32, 16): (0.8385969111722564, 19.853743709438863),
    (11, 11): (0.7996715531620828, 20.32829586461055),
}


@pytest.mark.parametrize("size", PUBLISHED)
def test_scores_are_those_of_another_program(size: tuple[int, int]) -> None:
    """SSIM and PSNR; of several images and channels the mean, and no window fits a smaller image."""
    a, b = pair(*size)
    expected_ssim, expected_psnr = PUBLISHED[size]
    assert ssim(b, a) == pytest.approx(expected_ssim, abs=1e-12)
    assert psnr(b, a) == pytest.approx(expected_psnr, abs=1e-10)
    both = torch.cat([torch.cat([b, a], dim=1), torch.cat([a, a], dim=1)]), torch.cat([a, a], dim=1).repeat(2, 1, 1, 1)
    assert ssim(*both) == pytest.approx((expected_ssim + 3) / 4, abs=1e-12)
    assert mse(*both) == pytest.approx(mse(b, a) / 4)
    assert ssim(a[..., :10], b[..., :10]) is None


def test_scores_of_constant_images_have_a_closed_form() -> None:
    """Of images m and m + d, or of an image and itself plus d, SSIM is one of means (Wang et al. 2004, equation 6)."""
    low, high = torch.full((2, 3, 16, 12), 0.25), torch.full((2, 3, 16, 12), 0.5)
    assert ssim(high, low) == pytest.approx((2 * 0.25 * 0.5 + 1e-4) / (0.25**2 + 0.5**2 + 1e-4), abs=1e-12)
    assert mse(high, low) == 0.0625
    assert psnr(high, low) == pytest.approx(-20 * math.log10(0.25))
    assert (ssim(low, low), psnr(low, low)) == (pytest.approx(1.0), None)
    striped = torch.arange(16.0).reshape(1, 1, 16, 1).remainder(2).repeat(1, 1, 1, 12)  # 0 and 1: half of each, about
    assert float(ssim(1 - striped, striped) or 0) < -0.9  # the covariance is minus the variance


def test_psnr_is_a_mean_over_images() -> None:
    """Not that of the mean error."""
    truth = torch.zeros(2, 1, 4, 4)
    guess = torch.cat([torch.full((1, 1, 4, 4), 0.1), torch.full((1, 1, 4, 4), 0.01)])
    assert psnr(guess, truth) == pytest.approx((20 + 40) / 2, abs=1e-5)


def test_scores_of_classes() -> None:
    """Macro means by hand: a class that is never guessed has no precision, one that never occurs no recall."""
    truth, guess = np.array([0, 0, 0, 0, 1, 2]), np.array([0, 0, 0, 1, 1, 3])
    found = class_scores(guess, truth)
    assert found.accuracy == pytest.approx(4 / 6)
    assert found.precision == pytest.approx((1 + 1 / 2 + 0 + 0) / 4)
    assert found.recall == pytest.approx((3 / 4 + 1 + 0 + 0) / 4)
    assert found.f1 == pytest.approx((6 / 7 + 2 / 3) / 4)
    assert r2(np.array([1.0, 2.0, 2.0]), np.array([1.0, 2.0, 3.0])) == pytest.approx(0.5)
    assert r2(np.array([1.0, 2.0]), np.array([3.0, 3.0])) is None


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pictures_are_png_files(channels: int) -> None:
    """Another program reads the pixels that were written."""
    image: npt.NDArray[np.float32] = np.random.default_rng(0).random((channels, 5, 7)).astype(np.float32)
    kind, _, content = png_url(image).partition(",")
    assert kind == "data:image/png;base64"
    from matplotlib.image import imread  # of this test alone, and half a second for each worker

    read = imread(io.BytesIO(base64.b64decode(content)), format="png")
    expected = np.rint(image * 255).transpose(1, 2, 0) / 255
    assert np.allclose(read.reshape(5, 7, channels), expected, atol=1e-6)
    assert png_url(np.repeat(image[:1], 2, axis=0)) == png_url(image[:1])
