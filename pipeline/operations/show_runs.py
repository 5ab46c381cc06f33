"""Sends tracked runs to MLflow, and shows them with MLflow's own server, which only this machine can reach."""

import fcntl
import os
import socket
import sys
from pathlib import Path
from typing import NoReturn

from pipeline.errors import UserError, show_error
from pipeline.layout import JOURNALS, tracking_store
from pipeline.locks import lock_path
from pipeline.tracking.delivery import Delivery

HOST = "127.0.0.1"
VIEW = "mlflow.sharedViewState."
"""MLflow keeps a saved view of an experiment's runs as a tag. The tag's name is this prefix and the view's name."""


def delivery_of(root: Path) -> Delivery:
    """The `Delivery` of a repository's tracked runs to MLflow. Raises `UserError` if MLflow is switched off."""
    store = tracking_store(root)
    if store is None:
        raise UserError("MLflow is switched off by CAPSULES_MLFLOW: unset it first")
    return Delivery(root / JOURNALS, store)


def send(delivery: Delivery) -> None:
    """Send new events to MLflow. Prints the id of each run with new events, and the number of these runs. Raises
    `UserError` if the store cannot be used, or another process is sending events.
    """
    runs = 0
    try:
        for run in delivery.run():
            print(f"{run}: delivered")
            runs += 1
    except TimeoutError:
        raise UserError("another process is delivering runs, which may take minutes: try again later") from None
    print(f"{runs} runs updated at {delivery.store.shown}" if runs else f"nothing to send to {delivery.store.shown}")


def show(root: Path, port: int) -> NoReturn:
    """Send the runs to the repository's database, print links to saved views, and replace this process with MLflow's
    server. Raises `UserError` if the port cannot be used, another server is starting on it, MLflow is switched off, or
    the database is damaged.
    """
    path = lock_path(root, f"ui-{port}")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT)
    os.set_inheritable(lock, True)  # the server inherits the lock, as its port looks free to others until it listens
    try:
        socket.create_server((HOST, port)).close()
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        why = "another server is starting" if isinstance(error, BlockingIOError) else os.strerror(error.errno or 0)
        raise UserError(f"port {port}: {why}. Choose another one: `make ui PORT={port + 1}`") from None
    os.environ.pop("MLFLOW_TRACKING_URI", None)  # show the local store, not a team's server
    os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    delivery = delivery_of(root)
    delivery.store.probe()
    try:
        send(delivery)
        for experiment in delivery.client.search_experiments():
            for view in (tag.removeprefix(VIEW) for tag in experiment.tags if tag.startswith(VIEW)):
                page = f"http://{HOST}:{port}/#/experiments/{experiment.experiment_id}/runs?viewStateShareKey={view}"
                print(f"{experiment.name}, {view}: {page}&workflowType=machine_learning")
    except (UserError, OSError) as error:  # the server still starts, and shows the runs that were sent before
        show_error(error)
    sys.stdout.flush()
    server = ["mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"]
    os.execv(sys.executable, [sys.executable, "-m", *server, "--backend-store-uri", delivery.store.uri])
