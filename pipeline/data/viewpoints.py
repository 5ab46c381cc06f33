"""Familiar and novel viewpoints (document 004, section 5.1), and pairs of images from neighbouring viewpoints.

Models are trained on some azimuths or elevations, the familiar ones, and tested on these and on all others (novel).
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError

FAMILIAR = {"azimuth": (300, 320, 340, 0, 20, 40), "elevation": (30, 35, 40)}
"""Angles of training images, in degrees."""
NOVEL = {"azimuth": tuple(range(60, 281, 20)), "elevation": (45, 50, 55, 60, 65, 70)}
"""Angles of images for testing only, in degrees."""
STEPS = {"azimuth": 20, "elevation": 5}
"""Degrees between neighbouring viewpoints."""


def is_familiar(degrees: NDArray[np.integer], by: Literal["azimuth", "elevation"]) -> NDArray[np.bool_]:
    """Mask `[N]` of the images with a familiar viewpoint. All others are novel. `degrees [N]` are the values of the
    factor `by`. `UserError` if an angle is unknown (-1) or neither familiar nor novel.
    """
    familiar = np.isin(degrees, FAMILIAR[by])
    neither = np.flatnonzero(~(familiar | np.isin(degrees, NOVEL[by])))
    if len(neither):
        angles = ", ".join(str(value) for value in np.unique(degrees[neither])[:5])
        raise UserError(
            f"{len(neither)} of {len(degrees)} images cannot be split by {by}: they have {angles} "
            "(-1: unknown; use toys, smallnorb or smallnorb48-posed)"
        )
    return familiar


def neighbours(labels: NDArray[Any], factors: Mapping[str, NDArray[Any]], by: str) -> NDArray[np.int64]:
    """P pairs of images of the same toy in the same light, whose viewpoints differ only by one step (`STEPS`) of `by`.
    Returns the indices `[P, 2]` of the images before and after the step, sorted by the first index.

    `labels` (classes) and the arrays in `factors` are `[N]`. `by` is azimuth or elevation. Azimuth 340 is next to 0. An
    image of unknown viewpoint is in no pair. There are no pairs if `factors` lacks instance, lighting or an angle.
    """
    import pandas as pd

    if not {"instance", "lighting", *STEPS} <= set(factors):
        return np.empty((0, 2), np.int64)
    seen = pd.DataFrame({"class": labels, **{name: factors[name] for name in ("instance", "lighting", *STEPS)}})
    seen = seen.astype(int).rename_axis("image").query("azimuth >= 0 and elevation >= 0")
    before = seen.assign(**{by: seen[by] + STEPS[by]}).assign(azimuth=lambda table: table["azimuth"] % 360)
    pairs = before.reset_index().merge(seen.reset_index(), on=list(seen.columns))
    return pairs[["image_x", "image_y"]].to_numpy(np.int64)
