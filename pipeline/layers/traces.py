"""Computes the terms of the evidence lower bound for a model and a guide (approximate posterior) in Pyro."""

from collections.abc import Callable
from typing import Any

from pyro import poutine

Sites = dict[str, dict[str, Any]]
"""Pyro's entries for sample sites (`fn`, `value`, `log_prob`), by name. The site `_RETURN` has the model's result."""


def traced(model: Callable[[], object], guide: Callable[[], object]) -> tuple[Sites, Sites]:
    """The sites of the model, run with the guide's samples, and the sites of the guide. Sample sites have `log_prob`.

    Pyro's `Trace_ELBO` adds up the same terms, but turns each into a Python number, for which it waits for the GPU.
    """
    q = poutine.trace(guide).get_trace()
    p = poutine.trace(poutine.replay(model, trace=q)).get_trace()
    for trace in (q, p):
        trace.compute_log_prob()
    return p.nodes, q.nodes
