"""The base class of networks that only classify."""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Generator, Tensor

from pipeline.learning.model import Model


class Classifier(Model):
    """A network that maps B images `[B, C, S, S]` (C channels of S x S pixels, in [0, 1]) to scores `[B, n]` of n
    classes. The class with the largest score is the prediction.

    Args:
        noise_of_scores: number of random numbers per image that `scores` takes.
        mixup: parameter of mixup (Zhang et al. 2018), 0 for none. In training, each image is mixed with the previous
            image of its batch. The image's share in the mixture is drawn from Beta(mixup, mixup). Loss and accuracy
            are computed for both images' labels, and averaged with the images' shares as weights.
    """

    scores_are_activations: ClassVar[bool] = False
    """Whether scores are activations between 0 and 1. Otherwise, they are logits."""

    def __init__(self, noise_of_scores: int = 0, mixup: float = 0.0) -> None:
        super().__init__()
        self._noise_of_scores, self.mixup = noise_of_scores, mixup
        self.noise_size = noise_of_scores + (mixup > 0)

    @abstractmethod
    def scores(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        """Scores `[B, n]`. Dropout in training mode uses `noise [B, noise_of_scores]`, uniform in [0, 1)."""

    @abstractmethod
    def losses(self, scores: Tensor, labels: Tensor, epoch: Tensor) -> Tensor:
        """The loss of each image, `[B]`."""

    def logits(self, scores: Tensor) -> Tensor:
        """Convert scores to logits. Unlike activations, logits do not saturate if the network is confident."""
        return scores

    def penalty(self) -> Tensor | float:
        """A term of the loss that does not depend on the images, such as weight decay. By default, it is 0."""
        return 0.0

    def draw_noise(self, shape: tuple[int, ...], generator: Generator) -> Tensor:
        """Noise `[*shape, noise_size]`: uniform numbers in [0, 1) for `scores`; with mixup, also the image's share."""
        uniform = torch.rand((*shape, self._noise_of_scores), generator=generator, device=generator.device)
        if not self.mixup:
            return uniform
        # Beta samples are computed from Gamma samples. For small mixup, these would underflow in single precision.
        concentrations = torch.full((*shape, 2), self.mixup, device=generator.device, dtype=torch.float64)
        shares = torch._sample_dirichlet(concentrations, generator)[..., :1]
        return torch.cat([uniform, shares.to(uniform)], -1)

    def forward(
        self, images: Tensor, noise: Tensor, epoch: Tensor, labels: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean loss of the images plus `penalty`, and their mean `accuracy`. See the class docstring for mixup."""
        assert labels is not None
        if not (self.training and self.mixup):
            scores = self.scores(images, noise[..., : self._noise_of_scores])
            loss = self.losses(scores, labels, epoch).mean() + self.penalty()
            return loss, {"accuracy": (scores.argmax(-1) == labels).float().mean()}
        share, others = noise[:, -1], labels.roll(1, 0)
        scores = self.scores(images.roll(1, 0).lerp(images, share[:, None, None, None]), noise[:, :-1])
        of_both = self.losses(scores, others, epoch).lerp(self.losses(scores, labels, epoch), share)
        found = scores.argmax(-1)
        accuracy = (found == others).to(share).lerp((found == labels).to(share), share)
        return of_both.mean() + self.penalty(), {"accuracy": accuracy.mean()}
