"""Compare Gaussian posteriors of poses with point posteriors, called delta (document 000, section 2.3)."""

from pipeline.context import Context
from pipeline.results.outcome import Outcome
from pipeline.shared_params import SharedParams
from pipeline.systems.generative.settings import GenerativeRun, PosteriorParams

SETTINGS = PosteriorParams


def check(params: SharedParams, where: str, study: PosteriorParams) -> None:
    """Require a generative run with delta poses and enough replicas. Otherwise raise ValueError."""
    run = params.runs.get(study.run)
    if not isinstance(run, GenerativeRun) or run.model.pose_posterior != "delta":
        raise ValueError(f"{where}.run: '{study.run}' is not a generative run with delta poses")
    if study.replicas > run.replicas:
        raise ValueError(f"{where}.replicas: at most {run.replicas}, as many as '{study.run}' has")


def measure(context: Context) -> Outcome:
    """Train a run's encoder further, and a new model from scratch. Measure bounds and probes of all models."""
    from pipeline.systems.generative.experiments import posteriors

    return posteriors.measure(context)
