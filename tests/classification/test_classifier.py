"""What all classifiers share: the loss of a batch, and images mixed with others."""

from __future__ import annotations

import pytest
import torch
from brightness import Brightness
from torch import Tensor, nn

CPU = torch.device("cpu")


class Mixed(Brightness):
    """Brightness, of mixed images, whose scores take two random numbers to no use."""

    def __init__(self, mixup: float) -> None:
        super().__init__()
        self.mixup, self._noise_of_scores, self.noise_size = mixup, 2, 3

    def scores(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        assert noise is None or noise.shape == (len(images), 2)
        return super().scores(images, noise)


def drawn(mixup: float, count: int, seed: int = 0) -> Tensor:
    return Mixed(mixup).draw_noise((count,), torch.Generator().manual_seed(seed), CPU)


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
