"""Familiar and novel viewpoints, and networks matched on familiar ones."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from small import small_run, squares, training

from pipeline.classification.viewpoint_matching import LATE, errors, familiar_views, match, outcome, viewed


def test_a_study_of_viewpoints_trains_to_its_end_on_its_own_data() -> None:
    run = small_run("matrix_capsules", training=training(epochs=4, patience=2).model_dump())
    found = viewed(run, "other", epochs=6, replicas=3)
    assert (found.dataset, found.replicas, found.training.epochs, found.training.patience) == ("other", 3, 6, 6)
    assert type(found) is type(run)
    assert found.model.model_dump(exclude={"margin_epochs"}) == run.model.model_dump(exclude={"margin_epochs"})


def test_only_familiar_viewpoints_are_learnt_from() -> None:
    dataset = squares()
    for axis, familiar in (("azimuth", {300, 320, 340, 0, 20, 40}), ("elevation", {30, 35, 40})):
        views, watched = familiar_views(dataset, axis)  # type: ignore[arg-type]
        for part in ("train", "validation"):
            chosen = views.split[part]
            assert set(dataset.factors[axis][chosen]) <= familiar
            assert 0 < len(chosen) < len(dataset.split[part])
            assert set(chosen) <= set(dataset.split[part])
        images, labels = dataset.part("test")
        seen = np.isin(dataset.factors[axis][dataset.split["test"]], list(familiar))
        assert 0 < seen.sum() < len(seen)
        for name, chosen in (("familiar", seen), ("novel", ~seen)):
            np.testing.assert_array_equal(watched[name][0], images[chosen])
            np.testing.assert_array_equal(watched[name][1], labels[chosen])


def matched(**networks: dict[str, list[float]]) -> pd.DataFrame:
    """Where networks match, given their errors after every epoch of one replica."""
    tables = [
        pd.DataFrame({"replica": 0, "epoch": range(1, len(errors["novel"]) + 1), **errors, "network": network})
        for network, errors in networks.items()
    ]
    return match(pd.concat(tables, ignore_index=True)).query("kind == 'matched'").set_index("network")


def test_networks_match_where_the_worse_is_at_the_end() -> None:
    end = [0.3, 0.4] * (LATE // 2)  # .35 on average, never so
    cnn = {"familiar": [0.6, *end], "novel": [0.8, *(2 * each for each in end)]}
    capsules = {"familiar": [0.5, 0.3, *[0.1] * (LATE - 1)], "novel": [0.6, 0.4, *[0.2] * (LATE - 1)]}
    found = matched(capsules=capsules, cnn=cnn)
    values = ["epoch", "familiar", "novel"]
    np.testing.assert_allclose(found.loc["cnn", values].astype(float), [6.5, 0.35, 0.7])
    # Three quarters of the way from the first epoch to the second.
    np.testing.assert_allclose(found.loc["capsules", values].astype(float), [1.75, 0.35, 0.45])
    better = matched(capsules=capsules | {"familiar": [0.2, 0.3, *[0.1] * (LATE - 1)]}, cnn=cnn)
    assert better.loc["capsules", values].tolist() == [1, 0.2, 0.6]
    equal = {"familiar": [0.02] * LATE, "novel": [0.2] * LATE}  # whose mean is less than 0.02, by rounding
    assert matched(capsules=equal, cnn=equal)["novel"].tolist() == pytest.approx([0.2, 0.2])
    history = pd.DataFrame(
        {"replica": [0], "epoch": [1], "familiar_accuracy": [0.75], "novel_accuracy": [0.5], "train_loss": [1.0]}
    )
    assert errors(history).to_dict("records") == [{"replica": 0, "epoch": 1, "familiar": 0.25, "novel": 0.5}]


def test_errors_on_novel_viewpoints_are_compared_within_a_replica() -> None:
    def table(novel: float, replica: int) -> pd.DataFrame:
        return pd.DataFrame({"replica": replica, "epoch": [1, 2], "familiar": [0.2, 0.2], "novel": novel})

    capsules, cnn = (pd.concat([table(novel, 0), table(0.6, 1)]) for novel in (0.1, 0.4))
    numbers = outcome(capsules, cnn, {"familiar": 30, "novel": 70}).numbers
    assert numbers["novel_ratio"] == {"mean": 0.625, "sd": pytest.approx(0.75 / 2**0.5), "n": 2}
    assert numbers["late"]["cnn"]["novel"] == {"mean": 0.5, "sd": pytest.approx(0.2 / 2**0.5), "n": 2}
    assert numbers["images"] == {"familiar": 30, "novel": 70}
