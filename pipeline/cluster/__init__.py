"""Stages on several workers through Dask: `python -m pipeline fan-out`.

The head reads DVC's graph and decides which stages are out of date (`repository`), dispatches each as soon as what it
needs is recorded (`dispatch`), and records what comes back. A worker runs one bundle at a time in a folder of its own
(`worker`, `supervise`); `workers` is the head's side of Dask. The ledger says what was dispatched, so that a second
head takes over what the first one left (`ledger`).
"""
