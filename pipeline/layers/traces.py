"""Computes the terms of the evidence lower bound for a model and a guide (approximate posterior) in Pyro."""

from collections.abc import Callable
from typing import Any

from pyro import poutine

Sites = dict[str, dict[str, Any]]
"""Pyro's entries for sample sites (`fn`, `value`, `log_prob`), by name. The site `_RETURN` has the model's result."""


def traced(model: Callable[[], object], guide: Callable[[], object]) -> tuple[Sites, Sites]:
    """Run the guide, then the model with the guide's samples. Returns the sites of both, the model's first.

    Sample sites have `log_prob`. Pyro's `Trace_ELBO` adds up the same terms, but converts each of them to a Python
    number. Each conversion has to wait for the GPU.
    """
    q = poutine.trace(guide).get_trace()
    p = poutine.trace(poutine.replay(model, trace=q)).get_trace()
    for trace in (q, p):
        trace.compute_log_prob()
    return p.nodes, q.nodes
