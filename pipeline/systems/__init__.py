"""All systems: the model families of the documents, one package each. CONTRIBUTING.md says how to add a system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Field

from pipeline.classification.settings import ClassifierRun
from pipeline.systems.attention import SYSTEM as ATTENTION
from pipeline.systems.capsnet import SYSTEM as CAPSNET
from pipeline.systems.cnn import SYSTEM as CNN
from pipeline.systems.generative import SYSTEM as GENERATIVE
from pipeline.systems.matrix_capsules import SYSTEM as MATRIX_CAPSULES
from pipeline.systems.regression import SYSTEM as REGRESSION
from pipeline.systems.scae import SYSTEM as SCAE
from pipeline.systems.system import System
from pipeline.systems.vae import SYSTEM as VAE

if TYPE_CHECKING:
    from pipeline.learning.model import Model
    from pipeline.learning.settings import RunSettings

SYSTEMS: dict[str, System] = {
    system.name: system for system in (GENERATIVE, SCAE, VAE, CAPSNET, ATTENTION, MATRIX_CAPSULES, CNN, REGRESSION)
}
"""Systems by name, in the order in which they are shown."""
MODELS = {name: system.run for name, system in SYSTEMS.items() if system.run is not None}
"""The run class of each system whose models are trained by gradient descent, by the system's name."""
CLASSIFIERS = tuple(name for name, run in MODELS.items() if issubclass(run, ClassifierRun))
"""Names of the systems in `MODELS` that learn from labels."""
SWEPT = tuple(name for name, system in SYSTEMS.items() if system.swept)
"""Names of the systems that the study `sweep` can train on several ranges of rotation."""
ROUTED = tuple(name for name, system in SYSTEMS.items() if system.has("routing"))
"""Names of the systems whose routing the stage `routing` can measure."""
REPORTS = {name: system for name, system in SYSTEMS.items() if system.has("report")}
"""Systems with figures, tables and claims of their own, by name. Others appear only in comparisons of systems."""

if TYPE_CHECKING:
    Run = RunSettings
else:
    Run = Annotated[Union[tuple(MODELS.values())], Field(discriminator="variant")]  # noqa: UP007 (of a tuple)
"""The type of an entry of `runs` in params.yaml. The field `variant` of an entry names its system."""


def build_model(run: RunSettings, image_size: int) -> Model:
    """A freshly initialised model of a run whose data set has square images, `image_size` pixels a side.

    If the run crops images, the model is for the crop's size. Initial values come from torch's global random state.
    """
    module, name = SYSTEMS[run.variant].model.split(".")
    build: type[Any] = getattr(SYSTEMS[run.variant].part(f"model.{module}"), name)
    model: Model = build(run.model, run.augmentation.seen_size(image_size))
    return model
