"""Familiar and novel viewpoints (document 004, section 5.1), and pairs of images from neighbouring viewpoints.

Models are trained on some azimuths or elevations: the familiar ones. They are tested on these and on novel ones.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError

FAMILIAR = {"azimuth": (300, 320, 340, 0, 20, 40), "elevation": (30, 35, 40)}
"""Angles of familiar viewpoints, in degrees."""
NOVEL = {"azimuth": tuple(range(60, 281, 20)), "elevation": (45, 50, 55, 60, 65, 70)}
"""Angles of novel viewpoints, in degrees."""
STEPS = {"azimuth": 20, "elevation": 5}
"""Degrees between neighbouring viewpoints."""


def is_familiar(degrees: NDArray[np.integer], by: Literal["azimuth", "elevation"]) -> NDArray[np.bool_]:
    """Mask `[N]` of the images with a familiar viewpoint. All others are novel. `degrees [N]` are the values of the
    factor `by`. Raises `UserError` if an angle is unknown (-1), or neither familiar nor novel.
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
    """Find P pairs of images that differ only by one step (`STEPS`) of the angle `by`, which is azimuth or elevation.
    Returns the indices `[P, 2]` of the images before and after the step, sorted by the first index.

    Both images show the same toy in the same lighting. `labels` (classes) and the arrays in `factors` are `[N]`. The
    step from azimuth 340 leads to 0. Images of unknown viewpoint are in no pair. There are no pairs if `factors` lacks
    instance, lighting, azimuth or elevation.
    """
    import pandas as pd

    if not {"instance", "lighting", *STEPS} <= set(factors):
        return np.empty((0, 2), np.int64)
    seen = pd.DataFrame({"class": labels, **{name: factors[name] for name in ("instance", "lighting", *STEPS)}})
    seen = seen.astype(int).rename_axis("image").query("azimuth >= 0 and elevation >= 0")
    before = seen.assign(**{by: seen[by] + STEPS[by]}).assign(azimuth=lambda table: table["azimuth"] % 360)
    pairs = before.reset_index().merge(seen.reset_index(), on=list(seen.columns))
    return pairs[["image_x", "image_y"]].to_numpy(np.int64)
