"""Models by name and sizes: shapes, numbers of weights, initial weights from named draws."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs treetap[neural]")

from torch.nn import functional  # noqa: E402

from treetap.errors import DataError  # noqa: E402
from treetap.neural import architectures  # noqa: E402
from treetap.neural.architectures import InputShape, bottom_model, top_model  # noqa: E402
from treetap.neural.draws import Draws  # noqa: E402
from treetap.neural.params import Bottom, Top  # noqa: E402

pytestmark = pytest.mark.second_tier

DRAWS = Draws(b"k")
GREY, COLOUR = InputShape(0, ((1, 28, 14),)), InputShape(0, ((3, 8, 8),))
TINY = InputShape(0, ((1, 4, 4),))
RESNET_18 = Bottom(kind="resnet", channels=(64,), blocks=(2, 2, 2, 2), width=10, norm="batch")


def weights(model: torch.nn.Module) -> int:
    """Trained numbers of a model."""
    return sum(each.numel() for each in model.parameters())


@pytest.mark.parametrize(
    ("settings", "shape", "batch", "expected"),
    [
        (Bottom(width=3), InputShape(4), (5, 4), 4 * 3 + 3),
        (Bottom(hidden=(7, 6), width=3), InputShape(4), (5, 4), 4 * 7 + 7 + 7 * 6 + 6 + 6 * 3 + 3),
        (Bottom(hidden=(7,), width=3), InputShape(0), (5, 0), 7 + 7 * 3 + 3),
        (Bottom(hidden=(7,), width=3), InputShape(2, ((1, 2, 3),)), (5, 8), 8 * 7 + 7 + 7 * 3 + 3),
        (Bottom(hidden=(7,), width=3), COLOUR, (5, 3, 8, 8), 192 * 7 + 7 + 7 * 3 + 3),
        (Bottom(kind="cnn", channels=(4, 6), width=3), COLOUR, (5, 3, 8, 8), 108 + 8 + 216 + 12 + 6 * 4 * 3 + 3),
        (Bottom(kind="cnn", channels=(4,), width=3, norm="batch"), GREY, (5, 1, 28, 14), 36 + 8 + 4 * 98 * 3 + 3),
        (
            Bottom(kind="resnet", channels=(4,), blocks=(1, 1), width=3), COLOUR, (5, 3, 8, 8),
            (108 + 8) + (144 + 8) * 2 + (288 + 16) + (576 + 16) + (32 + 16) + 8 * 3 + 3,
        ),
        (
            Bottom(kind="resnet", channels=(2,), blocks=(1, 1, 1), width=3, pool="none"), GREY, (5, 1, 28, 14),
            (18 + 4) + (36 + 4) * 2 + (72 + 8 + 144 + 8 + 8 + 8) + (288 + 16 + 576 + 16 + 32 + 16) + 8 * 7 * 4 * 3 + 3,
        ),
        (Bottom(kind="cnn", channels=(2, 2), width=3), TINY, (5, 1, 4, 4), (18 + 4) + (36 + 4) + 2 * 3 + 3),
        (
            Bottom(kind="resnet", channels=(1,), blocks=(1, 1), width=3), TINY, (5, 1, 4, 4),
            (9 + 2) + (9 + 2) * 2 + (18 + 4 + 36 + 4 + 2 + 4) + 2 * 3 + 3,
        ),
    ],
)  # fmt: skip
def test_shapes_and_numbers_of_weights(
    settings: Bottom, shape: InputShape, batch: tuple[int, ...], expected: int
) -> None:
    """Every kind maps a batch to (n, width); its weights are those that its sizes say."""
    model = bottom_model(settings, shape, DRAWS, "bottom", "a")
    assert model(torch.ones(batch)).shape == (5, 3)
    assert weights(model) == expected
    assert model.eval()(torch.ones((1, *batch[1:]))).shape == (1, 3)


def test_resnet_18_has_its_number_of_weights() -> None:
    """The layout of ResNet-18 for small images and ten classes: 11,173,962 with those of batch normalisation."""
    model = bottom_model(RESNET_18, InputShape(0, ((3, 32, 32),)), DRAWS, "bottom")
    assert weights(model) == 11_173_962
    sizes = []
    for block in model.blocks:
        block.register_forward_hook(lambda *parts: sizes.append(tuple(parts[2].shape[1:])))
    model.eval()(torch.zeros(1, 3, 32, 32))
    assert sizes[1::2] == [(64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]


def test_a_residual_block_adds_its_input() -> None:
    """With convolutions of 0 a block returns the ReLU of its input; where its size changes, of its projection.

    The last block's output is averaged over its places.
    """
    model = bottom_model(Bottom(kind="resnet", channels=(2,), blocks=(1, 1), width=3), COLOUR, DRAWS)
    first, second = model.blocks
    with torch.no_grad():
        for block in (first, second):
            block.conv0.weight.zero_()
            block.conv1.weight.zero_()
    x = torch.randn((3, 2, 8, 8), generator=torch.Generator().manual_seed(0))
    assert torch.equal(first(x), torch.relu(x))
    assert second(x).shape == (3, 4, 4, 4)
    assert torch.equal(second(x), torch.relu(second.skip(x)))
    images = torch.randn((3, 3, 8, 8), generator=torch.Generator().manual_seed(1))
    places = model.blocks(torch.relu(model.norm(model.conv(images)))).flatten(2)
    assert torch.allclose(model(images), model.linear(sum(places.unbind(2)) / places.shape[2]))


def test_the_top_joins_and_scores() -> None:
    """(n, joined width) → (n, outputs), with or without hidden layers."""
    assert weights(top_model(Top(), 6, 4, DRAWS, "top")) == 6 * 4 + 4
    model = top_model(Top((5,)), 6, 4, DRAWS, "top")
    assert weights(model) == 6 * 5 + 5 + 5 * 4 + 4
    assert model(torch.zeros(3, 6)).shape == (3, 4)


def test_initial_weights_are_uniform_within_their_bound() -> None:
    """±1/√(inputs of a unit), as PyTorch's own begin, with a third of its square as variance; norms at 1 and 0."""
    model = bottom_model(Bottom(kind="cnn", channels=(16, 32), width=64), GREY, DRAWS, "bottom", "a")
    for layer, inputs in ((model.conv0, 9), (model.conv1, 144), (model.linear, 32 * 7 * 3)):
        bound, values = 1 / math.sqrt(inputs), layer.weight.detach()
        assert 0.9 * bound < float(values.abs().max()) <= bound
        assert abs(float(values.mean())) < 6 * bound / math.sqrt(3 * values.numel())
        assert float(values.var()) == pytest.approx(bound**2 / 3, rel=0.3)
    assert 0 < float(model.linear.bias.detach().abs().max()) <= 1 / math.sqrt(32 * 7 * 3)
    assert torch.equal(model.norm0.weight, torch.ones(16))
    assert torch.equal(model.norm0.bias, torch.zeros(16))


def test_initial_weights_follow_from_key_and_name_alone() -> None:
    """Neither PyTorch's nor numpy's generator of the process is asked; other keys and parties begin elsewhere."""

    def begin(draws: Draws, seed: int, *path: str) -> torch.Tensor:
        torch.manual_seed(seed)
        np.random.seed(seed)
        before = torch.get_rng_state(), np.random.get_state()[1].copy()
        model = bottom_model(Bottom(hidden=(4,), width=3), InputShape(2), draws, *path)
        assert torch.equal(before[0], torch.get_rng_state())
        assert np.array_equal(before[1], np.random.get_state()[1])
        return torch.cat([each.detach().flatten() for each in model.parameters()])

    first = begin(DRAWS, 1, "bottom", "a")
    assert torch.equal(first, begin(Draws(b"k"), 2, "bottom", "a"))
    assert not torch.equal(first, begin(Draws(b"l"), 1, "bottom", "a"))
    assert not torch.equal(first, begin(DRAWS, 1, "bottom", "b"))
    assert len(first.unique()) == len(first)


@pytest.mark.parametrize(("channels", "groups"), [(16, 8), (12, 4), (7, 1), (8, 8)])
def test_group_normalisation(channels: int, groups: int) -> None:
    """As many groups as divide the channels, at most 8; a record's output does not depend on the batch."""
    model = bottom_model(Bottom(kind="cnn", channels=(channels,), width=3), COLOUR, DRAWS)
    assert model.norm0.num_groups == groups
    x = torch.randn((4, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(model(x)[:1], model(x[:1]), atol=1e-6)


def test_batch_normalisation() -> None:
    """In training a record's output depends on the batch; afterwards on running means, which are buffers."""
    model = bottom_model(Bottom(kind="cnn", channels=(4,), width=3, norm="batch"), COLOUR, DRAWS)
    x = torch.randn((4, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    whole = model(x)
    assert not torch.allclose(whole[:2], model(x[:2]), atol=1e-3)
    model.eval()
    assert torch.allclose(model(x)[:1], model(x[:1]), atol=1e-6)
    assert int(model.norm0.num_batches_tracked) == 2


HUGE = "the model has {} weights; at most 100,000,000: name smaller"
REFUSED = [
    # each halving is of images that have two rows and two columns at least
    (
        Bottom(kind="cnn", channels=(2, 2, 2)),
        TINY,
        "channels has 3 entries: each halves the images, which are too small",
    ),
    (
        Bottom(kind="resnet", channels=(1,), blocks=(1, 1, 1)),
        TINY,
        "blocks has 3 entries: each but the first halves the images, which are too",
    ),
    # before one weight takes memory
    (Bottom(hidden=(65_536, 65_536), width=1), InputShape(1), HUGE.format("4,295,229,441")),
    (Bottom(width=65_536), InputShape(0, ((3, 100, 100),)), HUGE.format("1,966,145,536")),
    (Bottom(kind="cnn", channels=(65_536,) * 2, width=1), COLOUR, HUGE.format("38,656,999,425")),
    (Bottom(kind="resnet", channels=(32_768,), blocks=(1, 1), width=1), COLOUR, HUGE.format("79,458,435,073")),
    # convolutions take one column of images
    *[
        (
            Bottom(kind=kind, channels=(4,), blocks=(1,) if kind == "resnet" else ()),
            shape,
            f"kind = '{kind}' takes one column of images and no other; .*{said}: name",
        )
        for kind in ("cnn", "resnet")
        for shape, said in (
            (InputShape(4), "4 numbers and 0 columns of images"),
            (InputShape(1, ((1, 8, 8),)), "1 numbers and 1 columns of images"),
            (InputShape(0, ((1, 8, 8), (1, 8, 8))), "0 numbers and 2 columns of images"),
            (InputShape(0), "0 numbers and 0 columns of images"),
        )
    ],
]


@pytest.mark.parametrize(("settings", "shape", "said"), REFUSED)
def test_models_that_cannot_be(settings: Bottom, shape: InputShape, said: str) -> None:
    """The error says what the table or the settings have; the label holder's model has the bound of every party's."""
    with pytest.raises(DataError, match=said):
        bottom_model(settings, shape, DRAWS)
    with pytest.raises(DataError, match="top: " + HUGE.format("4,295,229,441")):
        top_model(Top((65_536, 65_536)), 1, 1, DRAWS)


@pytest.mark.parametrize(("size", "stride"), [(3, 1), (3, 2), (1, 2)])
def test_a_narrow_convolution_is_a_convolution(size: int, stride: int) -> None:
    """Outputs and gradients are those of PyTorch's, within rounding: only the way to compute them differs."""
    draws = np.random.default_rng(5)
    x, weight = (torch.from_numpy(draws.normal(size=shape)) for shape in ((5, 2, 6, 5), (3, 2, size, size)))
    layer = architectures._conv(2, 3, size, stride).double()
    with torch.no_grad():
        layer.get_parameter("weight").copy_(weight)
    weight.requires_grad_()
    found, expected = layer(x), functional.conv2d(x, weight, stride=stride, padding=size // 2)
    torch.testing.assert_close(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(layer.get_parameter("weight").grad, weight.grad)
