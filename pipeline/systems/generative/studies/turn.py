"""One digit rotated through 360 degrees: its reconstruction from the encoder's output, its parts and their frames.

The page shows the arrays with a slider. The numbers are pixel errors over the rotation (document 000, Figures 3 and 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline.context import Context
from pipeline.results.outcome import Outcome

if TYPE_CHECKING:
    import torch

    from pipeline.systems.generative.model.generative_model import GenerativeModel

STEP = 5
"""Degrees between two images."""
DIGIT = 2
"""The class of the digit. A 2 shows which way is up."""


def turning(model: GenerativeModel, image: NDArray[np.uint8], device: torch.device) -> dict[str, NDArray[np.generic]]:
    """Encode and reconstruct an image rotated in N steps of `STEP` degrees.

    Args:
        image: uint8 `[1, S, S]`.

    Returns:
        arrays by name: angles `[N]`, degrees; images and reconstructions `[N, S, S]`, uint8; arrangements
        `[N, S, S, 3]`, parts in colour, uint8; presences `[N, P]` of parts; frames `[N, P, 4, 2]`, corners of templates
        in the image's frame; colours `[P, 3]` of parts; pixel_errors `[N]`, squared and summed over pixels.
    """
    import torch

    from pipeline.layers import poses
    from pipeline.systems.generative.evaluation.examples import arrange, arrays_of, part_colours, turned

    angles = np.arange(-180, 180, STEP, dtype=np.float32)
    with torch.no_grad():
        images = turned(image, angles, device)
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


def measure(context: Context) -> Outcome:
    """Rotate the first test digit of class `DIGIT`, and encode it by the trained run of an entry of `optimise`. The
    arrays are from the first replica.
    """
    import pandas as pd

    from pipeline.results.spread import spread_each, stack_replicas
    from pipeline.systems.generative.model.generative_model import GenerativeModel

    run = context.params.section("optimise")[context.item].run
    images, labels = context.evaluated(context.params.runs[run].dataset).part("test")
    image = images[int(np.argmax(labels == DIGIT))]
    found = [turning(model, image, context.device) for model in context.models(run, GenerativeModel)]
    tables = [
        pd.DataFrame({"angle": each["angles"], "pixel_error": each["pixel_errors"]}).assign(
            parts_on=(each["presences"].astype(float) > 0.5).sum(1)
        )
        for each in found
    ]
    errors = [table.set_index("angle")["pixel_error"] for table in tables]
    numbers = {"pixel_error": spread_each([{"upright": e[0.0], "mean": e.mean(), "worst": e.max()} for e in errors])}
    headline = tuple(f"pixel_error.{name}" for name in numbers["pixel_error"])
    return Outcome("turning", stack_replicas(tables), numbers, headline, found[0])
