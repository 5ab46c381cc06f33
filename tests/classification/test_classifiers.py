"""What all classifiers share: the loss of a batch, images mixed with others, and errors by crops and factors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from brightness import Brightness
from pydantic import ValidationError
from small import small_run, squares
from torch import Tensor, nn

from pipeline.classification.errors import classification_errors, crop_places, crop_scores

CROP = 8


@pytest.mark.parametrize("free", [7, 16])
def test_thirteen_crops_span_the_image_and_begin_in_the_middle(free: int) -> None:
    places = crop_places(32 + free, 32)
    assert len(set(places)) == len(places) == 13
    assert places[0] == (free // 2, free // 2)
    assert {(0, 0), (0, free), (free, 0), (free, free)} < set(places)
    if free == 16:
        assert {(4, 4), (4, 12), (12, 4), (12, 12), (0, 8), (8, 16)} < set(places)


def test_scores_of_crops_are_those_of_the_images_cut() -> None:
    images = squares().images
    model = Brightness()
    found = crop_scores(model, images, CROP)
    for crop, (row, column) in zip(found, crop_places(12, 8), strict=True):
        cut = torch.from_numpy(images[..., row : row + 8, column : column + 8]).float() / 255
        torch.testing.assert_close(crop, model.scores(cut))


def test_errors_by_crops_and_by_factor_are_counted() -> None:
    dataset = squares(test=200)
    noise = np.random.default_rng(0).integers(0, 256, dataset.images.shape, np.uint8)
    views = dataset.factors | {"azimuth": np.where(np.arange(len(noise)) % 9, dataset.factors["azimuth"], -1)}
    dataset = replace(dataset, images=noise, factors=views)  # about half of all crops are bright
    model = Brightness(400.0)  # so sure of each crop that the mean of its probabilities is not that of its scores
    table = classification_errors(model, dataset, CROP).set_index("metric")["value"]
    images, labels = dataset.part("test")
    right = (images[..., 2:10, 2:10].mean((1, 2, 3)) > 127.5).astype(int) == labels
    assert table["centre"] == pytest.approx(1 - right.mean())
    each = crop_scores(model, images, CROP)
    voted = each.softmax(-1).mean(0).argmax(-1).numpy()
    assert table["crops"] == pytest.approx((voted != labels).mean())
    model.scores_are_activations = True  # type: ignore[misc]
    averaged = each.mean(0).argmax(-1).numpy()
    again = classification_errors(model, dataset, CROP).set_index("metric")["value"]
    assert again["crops"] == pytest.approx((averaged != labels).mean())
    azimuths = dataset.factors["azimuth"][dataset.split["test"]]
    assert -1 in azimuths
    assert "azimuth--1" not in table, "unknown"
    for azimuth in set(azimuths) - {-1}:
        assert table[f"azimuth-{azimuth}"] == pytest.approx(1 - right[azimuths == azimuth].mean())


def test_light_that_standardising_undoes_is_refused() -> None:
    augmentation = small_run("cnn").augmentation.model_dump()
    for name in ("gain", "offset"):
        with pytest.raises(ValidationError, match="images of one channel"):
            small_run("cnn", augmentation={**augmentation, name: 0.1})


class Mixed(Brightness):
    """Brightness, of mixed images, whose scores take two random numbers to no use."""

    def __init__(self, mixup: float) -> None:
        super().__init__()
        self.mixup, self._noise_of_scores, self.noise_size = mixup, 2, 3

    def scores(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        assert noise is None or noise.shape == (len(images), 2)
        return super().scores(images, noise)


def drawn(mixup: float, count: int, seed: int = 0) -> Tensor:
    return Mixed(mixup).draw_noise((count,), torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("mixup", [0.02, 1.0])
def test_shares_follow_a_symmetric_beta_distribution(mixup: float) -> None:
    n = 50_000
    shares = drawn(mixup, n)[:, 2].double()
    assert ((shares >= 0) & (shares <= 1)).all()
    variance = 1 / (4 * (2 * mixup + 1))
    assert shares.mean().item() == pytest.approx(0.5, abs=5 * (variance / n) ** 0.5)
    # The square of a number within 1/2 of its mean has an sd of no more than its root mean square, 1/4 at most.
    assert shares.var().item() == pytest.approx(variance, abs=5 * 0.25 * (variance / n) ** 0.5)


def test_the_loss_of_a_mixed_image_is_that_of_both_classes_by_their_shares() -> None:
    model = Mixed(0.5)
    images, labels = torch.rand(4, 1, 3, 3), torch.tensor([0, 1, 1, 0])
    share = torch.tensor([1.0, 0.75, 0.0, 0.3])
    noise = torch.cat([torch.rand(4, 2), share[:, None]], 1)
    loss, metrics = model(images, noise, torch.tensor(0.0), labels)
    losses, hits = [], []
    for i in range(4):
        j = i - 1  # the neighbour; the last one's for the first
        mixed = share[i] * images[i] + (1 - share[i]) * images[j]
        scores = model.scores(mixed[None])
        each = [nn.functional.cross_entropy(scores, labels[k : k + 1] if k >= 0 else labels[-1:]) for k in (i, j)]
        losses.append(share[i] * each[0] + (1 - share[i]) * each[1])
        right = [float(scores.argmax() == labels[k]) for k in (i, j)]
        hits.append(share[i] * right[0] + (1 - share[i]) * right[1])
    torch.testing.assert_close(loss, torch.stack(losses).mean())
    torch.testing.assert_close(metrics["accuracy"], torch.stack(hits).mean())


def test_nothing_is_mixed_in_evaluation() -> None:
    images, labels, noise = torch.rand(6, 1, 3, 3), torch.arange(6) % 2, drawn(0.5, 6)
    found, _ = Mixed(0.5).eval()(images, noise, torch.tensor(0.0), labels)
    plain, _ = Brightness()(images, noise, torch.tensor(0.0), labels)
    torch.testing.assert_close(found, plain)
    mixed, _ = Mixed(0.5)(images, noise, torch.tensor(0.0), labels)
    assert not torch.allclose(mixed, plain)
