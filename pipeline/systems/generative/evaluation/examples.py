"""Arrays for figures: templates, samples of the prior, the mean image and mean parts of each object, and an image
rotated by many angles, with reconstructions and parts.
"""

import colorsys

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pipeline.data import warps
from pipeline.layers import poses
from pipeline.layers.rendering import render
from pipeline.probes.features import batches
from pipeline.systems.generative.model.distributions import Capsules
from pipeline.systems.generative.model.generative_model import GenerativeModel

Arrays = dict[str, NDArray[np.float32]]

OWNED_BY = 2000
"""Maximum number of test images that `object_examples` averages over."""
_BATCH = 250
STEP = 5
"""Degrees between two images in `turning`."""


def part_colours(count: int) -> NDArray[np.float32]:
    """RGB colours `[count, 3]`. The hue grows by the golden ratio, so that neighbours differ. Saturations alternate."""
    golden = 0.618034
    colours = [colorsys.hsv_to_rgb((i * golden) % 1, 0.75 if i % 2 else 1.0, 1.0) for i in range(count)]
    return np.asarray(colours, dtype=np.float32)


def arrange(model: GenerativeModel, posterior: Capsules) -> Tensor:
    """Reconstructions without noise, with parts in different colours, `[B, S, S, 3]` in [0, 1]."""
    presence = (posterior.part_logits / model.temperature).sigmoid()
    colour, alpha = model.templates.unbind(1)  # (P, h, w)
    tints = torch.from_numpy(part_colours(model.params.parts)).to(colour)
    tinted = [torch.stack([colour * tint[:, None, None], alpha], dim=1) for tint in tints.T]  # per RGB channel
    channels = [render(templates, posterior.part_poses, presence, model.image_size) for templates in tinted]
    return torch.stack(channels, dim=-1)


def turned(image: NDArray[np.uint8], angles: NDArray[np.float32], device: torch.device) -> Tensor:
    """One uint8 image `[1, S, S]` rotated by each of N `angles` (degrees): `[N, 1, S, S]` in [0, 1]."""
    batch = torch.from_numpy(image).to(device).expand(len(angles), *image.shape)
    return warps.warp(batch, poses.rotation(torch.from_numpy(angles).to(device)))


def arrays_of(**tensors: Tensor) -> Arrays:
    """Tensors as float32 arrays, by name."""
    return {name: tensor.detach().cpu().numpy().astype(np.float32) for name, tensor in tensors.items()}


@torch.no_grad()
def evaluation_examples(model: GenerativeModel, seed: int) -> Arrays:
    """Intensities and opacities of the templates (Figure 6), and 16 samples of the prior, without pixel noise."""
    with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
        torch.manual_seed(seed)
        samples = model.model(None, 16)
    return arrays_of(templates=model.templates[:, 0], alphas=model.templates[:, 1], prior_samples=samples)


@torch.no_grad()
def object_examples(model: GenerativeModel, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> Arrays:
    """For each object, the mean image and the mean rendering of its parts, over the images that the object owns.

    An object's share of a part is the exact posterior probability that the object is the part's parent, times the
    part's presence. The object whose shares have the largest sum over parts owns the image. Images are uint8
    `[N, 1, S, S]`, of which the first `OWNED_BY` are used. Labels are classes `[N]`.

    Returns:
        arrays by name, for O objects: object_images `[O, S, S]`, mean images; object_parts `[O, S, S]`, mean renderings
        with shares as presences; object_classes `[O, classes]`, numbers of images. Objects without images have zeros.
    """
    found = []
    for pixels in batches(images[:OWNED_BY], model.device, _BATCH):
        posterior = model.encode(pixels)
        owned = model.routing(posterior)[..., 1:] * model.states(posterior)[..., :1].sigmoid()  # (B, P, O)
        owner = owned.sum(1).argmax(-1)  # (B,)
        presence = owned.take_along_dim(owner[:, None, None], dim=-1).squeeze(-1)
        parts = render(model.templates, posterior.part_poses, presence, model.image_size)
        found.append((owner, pixels[:, 0], parts))
    owners, drawn, parts = (torch.cat(each).double().cpu() for each in zip(*found, strict=True))
    owns = F.one_hot(owners.long(), model.params.objects).double()  # (N, O)
    classes = owns.T @ F.one_hot(torch.from_numpy(labels))[: len(owns)].double()
    share = owns / owns.sum(0).clamp_min(1)
    images_of, parts_of = (torch.einsum("no,nhw->ohw", share, each) for each in (drawn, parts))
    return arrays_of(object_images=images_of, object_parts=parts_of, object_classes=classes)


@torch.no_grad()
def turning(model: GenerativeModel, image: NDArray[np.uint8]) -> dict[str, NDArray[np.generic]]:
    """Encode and reconstruct a uint8 image `[1, S, S]` rotated in N steps of `STEP` degrees.

    Returns:
        arrays by name: angles `[N]`, degrees; images and reconstructions `[N, S, S]`, uint8; arrangements
        `[N, S, S, 3]`, reconstructions with a colour per part, uint8; presences `[N, P]` of P parts; frames
        `[N, P, 4, 2]`, positions (x, y) of templates' corners in the image's frame; colours `[P, 3]` of parts, RGB;
        pixel_errors `[N]`, squared errors summed over pixels.
    """
    angles = np.arange(-180, 180, STEP, dtype=np.float32)
    images = turned(image, angles, model.device)
    posterior = model.encode(images)
    drawn = model.draw(model.states(posterior))
    matrices = poses.to_matrix(posterior.part_poses)  # (N, P, 2, 3)
    corners = matrices.new_tensor([[-1, -1], [1, -1], [1, 1], [-1, 1]])  # of a template, in its frame
    found = arrays_of(
        presences=(posterior.part_logits / model.temperature).sigmoid(),
        frames=torch.einsum("npij,cj->npci", matrices[..., :2], corners) + matrices[..., None, :, 2],
        pixel_errors=((images[:, 0] - drawn) ** 2).sum((-1, -2)),
    )
    pictures = {"images": images[:, 0], "reconstructions": drawn, "arrangements": arrange(model, posterior)}
    seen = {name: (255 * tensor.clamp(0, 1)).round().to(torch.uint8).cpu().numpy() for name, tensor in pictures.items()}
    return {**found, **seen, "angles": angles, "colours": part_colours(model.params.parts)}
