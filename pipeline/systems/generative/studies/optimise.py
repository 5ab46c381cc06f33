"""Free-form inference: optimise the variational parameters of each test image (document 000, section 2.4)."""

from pipeline.context import Context
from pipeline.results.outcome import Outcome
from pipeline.shared_params import SharedParams
from pipeline.systems.generative.settings import GenerativeRun, OptimiseParams

SETTINGS = OptimiseParams


def check(params: SharedParams, where: str, study: OptimiseParams) -> None:
    """Require a generative run with `slots: own`, `pose_posterior: delta` and enough replicas, or raise ValueError."""
    run = params.run_of(f"{where}.run", study.run, "generative")
    assert isinstance(run, GenerativeRun)
    if run.model.slots != "own" or run.model.pose_posterior != "delta":
        raise ValueError(f"{where}.run: '{study.run}' must have slots: own and pose_posterior: delta")
    if study.replicas > run.replicas:
        raise ValueError(f"{where}.replicas: at most {run.replicas}, as many as '{study.run}' has")


def measure(context: Context) -> Outcome:
    """Optimise the posteriors of test images under replicas of a run. Log the mean bound at several rounds."""
    from pipeline.systems.generative.experiments import test_time_inference

    return test_time_inference.measure(context)
