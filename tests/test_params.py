"""Bad parameters: every message names the field as written in the file, what it allows, and what was found."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from pipeline.errors import UserError
from pipeline.files import DEEPEST, parse_yaml, read_yaml
from pipeline.params import Params, ParamsError, load_params, parse_params
from pipeline.profiles import Profiles
from pipeline.settings import Section, flatten
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import GenerativeModelParams

ROOT = Path(__file__).parents[1]
PROFILES = {profile.name: Profiles(ROOT).params_path(profile.name) for profile in Profiles(ROOT).all()}


@pytest.fixture
def values() -> dict[str, Any]:
    return json.loads(json.dumps(read_yaml(PROFILES["quick"])))  # lists that merged sections share become separate


def put(values: dict[str, Any], where: str, value: Any) -> dict[str, Any]:
    """A copy of `values` with the entry at the dotted name `where` set."""
    changed = copy.deepcopy(values)
    *path, last = where.split(".")
    at(changed, ".".join(path))[last] = value
    return changed


def at(values: dict[str, Any], where: str) -> Any:
    """The entry of `values` at the dotted name `where`."""
    level: Any = values
    for key in where.split(".") if where else ():
        level = level[key]
    return level


def refused(values: Any) -> list[str]:
    """The lines of the message that `values` are refused with, without the first."""
    with pytest.raises(ParamsError) as caught:
        parse_params(values, "params.yaml")
    first, *lines = str(caught.value).splitlines()
    assert first == "params.yaml has bad parameters:"
    return [line.strip() for line in lines]


RUN, SCAE, VAE = "runs.capsules-digits", "runs.scae-digits", "runs.vae-digits"
CAPSNET = "runs.capsnet-routed-digits"


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (f"{RUN}.training.epochs", 0, "at least 1 and at most 10000"),
        (f"{RUN}.training.epochs", 10_001, "at least 1 and at most 10000"),
        (f"{RUN}.training.learning_rate", 0.0, "above 0 and at most 1"),
        (f"{RUN}.training.learning_rate", 1.5, "above 0 and at most 1"),
        (f"{RUN}.training.gradient_clip", -1.0, "above 0 and at most 1e+30"),
        (f"{RUN}.augmentation.rotation", 181, "at least 0 and at most 180"),
        (f"{RUN}.augmentation.shift", 15.0, "at least 0 and at most 14"),
        (f"{RUN}.model.object_presence", 1.0, "above 0 and below 1"),
        (f"{RUN}.model.objects", 0, "at least 1 and at most 256"),
        (f"{RUN}.model.early_coupling", 1.1, "at least 0 and at most 1"),
        (f"{RUN}.model.final_temperature", 0.0, "above 0 and at most 10"),
        (f"{RUN}.model.pose_posterior_sd_start", 11.0, "above 0 and at most 10"),
        (f"{CAPSNET}.model.kernel", 32, "at least 1 and at most 31"),
        (f"{CAPSNET}.model.strides", [1, 17], "at least 1 and at most 16"),
        (f"{CAPSNET}.model.present_margin", 1.0, "above 0 and below 1"),
        (f"{CAPSNET}.model.iterations", 101, "at least 0 and at most 100"),
        ("runs.cnn-toys.augmentation.rotation", 181, "at least 0 and at most 180"),
        ("runs.matrix-toys.augmentation.scale", 1.5, "at least 0 and at most 1"),
        ("runs.cnn-toys.augmentation.shift", 65.0, "at least 0 and at most 64"),
        ("infer.capsnet-routed-digits.rate", 0.0, "above 0 and at most 1"),
        ("posterior.capsules-digits.samples", 0, "at least 1 and at most 100000"),
        ("posterior.capsules-digits.sd_grid", [0.0], "above 0 and at most 10"),
        (f"{VAE}.model.pixel_sd", 0.0, "above 0 and at most 1"),
        (f"{SCAE}.model.parts", 257, "at least 1 and at most 256"),
        (f"{SCAE}.model.prior_sum", 0.0, "above 0 and at most 256"),
        (f"{SCAE}.model.presence_noise", 11.0, "at least 0 and at most 10"),
        ("sweep.training_share", 1.5, "above 0 and at most 1"),
        (f"{VAE}.replicas", 0, "at least 1 and at most 1000"),
        (f"{VAE}.seed", -1, "at least 0 and at most 4000000000"),
        ("datasets.digits.canvas", 27, "at least 28 and at most 256"),
        ("evaluate.affine_versions", 33, "at least 1 and at most 32"),
        ("optimise.capsules-digits.engines.adam.steps", 100_001, "at least 1 and at most 100000"),
        ("optimise.capsules-digits.engines.gauss-newton.restarts", 101, "at least 0 and at most 100"),
        ("optimise.capsules-digits.refit_images", 9, "at least 10 and at most 10000000"),
        ("evaluate.probe_strengths", [0.0], "above 0 and at most 1e+12"),
        ("sweep.angles", [0.0, 181.0], "at least 0 and at most 180"),
        ("failures.turns", [90.0, 0.0], "above 0 and at most 180"),
        ("failures.threshold", 1.0, "above 0 and below 1"),
        ("sensitivity.hyperparameters.pixel_sd", [0.1, 1.5], "above 0 and at most 1"),
    ],
)
def test_out_of_range_names_the_field_the_range_and_what_was_found(
    values: dict[str, Any], where: str, value: Any, message: str
) -> None:
    place, found = (f"{where}.{len(value) - 1}", value[-1]) if isinstance(value, list) else (where, value)
    assert refused(put(values, where, value)) == [f"{place}: must be {message} (found {found!r})"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"known_share": 1.0}, "known_share: must be at least 0 and below 1 (found 1.0)"),
        ({"value": -1}, "value: must be at least 0 and at most 360 (found -1)"),
        (
            {"factor": "colour"},
            "factor: must be 'instance', 'azimuth', 'elevation' or 'lighting' (found 'colour')",
        ),
        ({"share": 0.5}, "share: unknown parameter"),
    ],
)
def test_what_is_held_out_is_checked_where_it_is_not_null(
    values: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    holdout = {"factor": "instance", "value": 4, "known_share": 0.05}
    held_out = parse_params(put(values, "runs.cnn-toys.holdout", holdout)).runs["cnn-toys"].held_out
    assert held_out is not None
    assert held_out.model_dump() == holdout
    assert refused(put(values, "runs.cnn-toys.holdout", {**holdout, **changes})) == [f"runs.cnn-toys.holdout.{message}"]


def test_every_number_can_say_what_it_allows(values: dict[str, Any]) -> None:
    """Whichever number is out of range, its message has a bound."""

    def numbers(level: Any, where: str = "") -> Iterator[str]:
        if isinstance(level, dict):
            for key, value in level.items():
                yield from numbers(value, f"{where}.{key}" if where else key)
        elif isinstance(level, int | float) and not isinstance(level, bool):
            yield where

    names = list(numbers(values))
    assert len(names) > 50
    bad = {name: -1e30 if isinstance(at(values, name), float) else -(10**9) for name in names}
    everything = copy.deepcopy(values)
    for name in names:
        place, _, last = name.rpartition(".")
        at(everything, place)[last] = bad[name]
    lines = {line.partition(":")[0]: line for line in refused(everything)}
    for name in names:
        if name not in lines:  # what is checked only where all else is right
            (lines[name],) = refused(put(values, name, bad[name]))
        assert re.match(rf"{re.escape(name)}: must be (at least|above) [\d.e+-]+.* \(found ", lines[name]), lines[name]


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("evaluate.angles", [], "must have at least 1 entry (found 0)"),
        ("device", "tpu", "must be 'auto', 'cpu' or 'cuda' (found 'tpu')"),
        (
            "sources",
            ["digits", "norb"],
            "must be 'digits', 'mnist', 'fashion-mnist', 'affnist', 'cifar10', 'smallnorb', 'smallnorb48', "
            "'smallnorb48-posed' or 'toys' (found 'norb')",
        ),
        (
            RUN,
            {"variant": "cnm"},
            "'variant' must be one of 'generative', 'scae', 'vae', 'capsnet', 'matrix_capsules', 'cnn' (found 'cnm')",
        ),
        ("profile", "Quick", "must be lower-case letters, digits and hyphens (found 'Quick')"),
    ],
)
def test_what_is_no_number_is_answered_with_what_is_allowed(
    values: dict[str, Any], where: str, value: Any, message: str
) -> None:
    (line,) = refused(put(values, where, value))
    assert line.startswith(where)
    assert line.endswith(f": {message}")


@pytest.mark.parametrize("name", ["vae", "generative", "runs", "training"])
def test_a_run_may_have_any_name_and_is_called_by_it(values: dict[str, Any], name: str) -> None:
    values["runs"][name] = put(values, f"{VAE}.training.epochs", 0)["runs"]["vae-digits"]
    assert refused(values) == [f"runs.{name}.training.epochs: must be at least 1 and at most 10000 (found 0)"]


@pytest.mark.parametrize(("index", "value"), [(1, -5), (0, 180.5)])
def test_an_entry_of_a_list_is_named_by_its_place(values: dict[str, Any], index: int, value: float) -> None:
    values["evaluate"]["angles"][index] = value
    (line,) = refused(values)
    assert line == f"evaluate.angles.{index}: must be at least 0 and at most 180 (found {value!r})"


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (f"{RUN}.training.epochs", "40", "must be a valid integer (found '40')"),
        (f"{RUN}.training.optimiser", "sgd", "must be 'adam' or 'rmsprop' (found 'sgd')"),
        (f"{SCAE}.model.attention", "none", "must be 'published' or 'presence' (found 'none')"),
        (f"{RUN}.training.epochs", 40.0, "must be a valid integer (found 40.0)"),
        (f"{RUN}.training.epochs", True, "must be a valid integer (found True)"),
        (f"{RUN}.training.learning_rate", "1e-3", "must be a valid number (found '1e-3')"),
        (f"{RUN}.training.epochs", None, "must be a valid integer"),
        ("evaluate.angles", 45, "must be a valid list (found 45)"),
        ("profile", 3, "must be a valid string (found 3)"),
        (f"{RUN}.augmentation", [0, 0], "must be a section, with a line `name: value` for each entry"),
    ],
)
def test_a_wrong_type_is_not_coerced(values: dict[str, Any], where: str, value: Any, message: str) -> None:
    """A number in quotes is text, and 40.0 is not 40."""
    (line,) = refused(put(values, where, value))
    assert line.startswith(f"{where}: {message}")


GRID = "regression_sets.digits.studies.grid-digits"


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (f"{GRID}.features", 0, f"{GRID}.features: must be at least 1 and at most 65536 (found 0)"),
        (f"{GRID}.schedule.momentum", 1.0, f"{GRID}.schedule.momentum: must be at least 0 and below 1 (found 1.0)"),
        (f"{GRID}.size", 4, f"{GRID}.size: unknown parameter"),
        ("attention_sets.small.studies.toy.step", 4, "attention_sets.small.studies.toy.step: unknown parameter"),
        (
            "regression_sets.digits.studies",
            {},
            "regression_sets.digits.studies: must have at least 1 entry (found 0)",
        ),
        (f"{GRID}.dataset", "toys", "regression_sets.digits: studies.grid-digits.dataset: must be the set's, digits"),
        (
            "regression_sets.digits.dataset",
            "cats",
            "regression_sets.digits: studies.grid-digits.dataset: must be the set's, cats",
        ),
    ],
)
def test_a_study_in_a_set_is_named_by_its_place(values: dict[str, Any], where: str, value: Any, message: str) -> None:
    (line,) = refused(put(values, where, value))
    assert line.startswith(message)


@pytest.mark.parametrize("system", ["regression", "attention"])
def test_no_two_studies_have_one_name(values: dict[str, Any], system: str) -> None:
    """Their figures and tables are called by it."""
    ((item, together),) = values[f"{system}_sets"].items()
    name, study = next(iter(together["studies"].items()))
    message = f"there is another study called '{name}'"
    assert refused({**values, system: {name: study}}) == [f"{system}_sets.{item}: {message}"]
    assert refused({**values, f"{system}_sets": {item: together, "more": together}}) == [
        f"{system}_sets.more: {message}"
    ]


def test_whole_numbers_serve_where_a_number_is_asked_for(values: dict[str, Any]) -> None:
    params = parse_params(put(values, f"{RUN}.augmentation.rotation", 45))
    assert params.runs["capsules-digits"].augmentation.rotation == 45.0


@pytest.mark.parametrize(
    "where",
    [
        "lr",
        "datasets.digits.valdiation",
        f"{RUN}.sede",
        f"{RUN}.training.epoch",
        f"{RUN}.model.latent",
        f"{VAE}.model.objects",
        "evaluate.angle",
        "optimise.capsules-digits.engines.adam.step",
        "sweep.seed",
    ],
)
def test_an_unknown_key_is_named(values: dict[str, Any], where: str) -> None:
    assert refused(put(values, where, 1)) == [f"{where}: unknown parameter"]


@pytest.mark.parametrize(
    ("where", "item", "message"),
    [
        ("generative.table_1.vae", "capsules-digits", "'capsules-digits' is not one of ['vae-digits']"),
        ("generative.optimise", "nobody", "'nobody' is not one of ['capsules-digits']"),
        ("generative.table_1.gan", "vae-digits", "unknown role"),
        ("generative.sweep.capsules", "scae-digits", "'scae-digits' is not one of ['capsules-digits']"),
        ("regression.ridge.mnist", "grid-digits", "'grid-digits' is not one of ['ridge-digits']"),
        ("attention.toy", "parsing", "'parsing' is not one of ['toy']"),
        ("matrix_capsules.viewpoint.azimuth", "elevation", "'elevation' is not one of ['azimuth']"),
        ("matrix_capsules.votes", "cnn-toys", "'cnn-toys' is not one of ['matrix-digits', 'matrix-toys']"),
        ("comparison.equivariance.0.cnn", "matrix-toys", "'matrix-toys' is not one of ['cnn-digits', 'cnn-toys']"),
        ("capsnet.middle.0.inference", "toys", "'toys' is not one of ['capsnet-middle-digits', "),
        ("matrix_capsules.table_1.mixing", "toys/no-such", "'toys/no-such' is not one of ['matrix-digits', "),
        ("capsnet.routed", "capsnet-routed-digits", "unknown parameter"),
    ],
)
def test_evidence_names_what_is_there_and_fits(values: dict[str, Any], where: str, item: str, message: str) -> None:
    """The message names the role, which in lists has no number, and what there is."""
    *path, last = where.split(".")
    level: Any = values["evidence"]
    for key in path:
        level = level[int(key) if key.isdigit() else key]
    level[last] = item
    (line,) = refused(values)
    assert line.startswith(f"evidence.{where.replace('.0', '')}: {message}")


def test_roles_may_be_left_out(values: dict[str, Any]) -> None:
    assert list(parse_params({**values, "evidence": {}}).evidence.roles()) == []


@pytest.mark.parametrize("where", ["device", "evaluate.seed", f"{RUN}.training.patience", f"{RUN}.model.code"])
def test_a_missing_key_is_named(values: dict[str, Any], where: str) -> None:
    level = values
    *path, last = where.split(".")
    for key in path:
        level = level[key]
    del level[last]
    assert refused(values) == [f"{where}: missing"]


def test_a_variant_that_is_not_there_is_answered_with_those_that_are(values: dict[str, Any]) -> None:
    (line,) = refused(put(values, f"{VAE}.variant", "gan"))
    assert line.startswith(VAE)
    assert "'generative', 'scae', 'vae'" in line
    assert "gan" in line


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (f"{VAE}.dataset", "mnist", "runs.vae-digits.dataset: 'mnist' is not one of ['digits', 'toys']"),
        ("datasets.digits.source", "mnist", "datasets.digits.source: 'mnist' is not one of sources ['digits', 'toys']"),
        (
            "optimise.capsules-digits.run",
            "vae-digits",
            "optimise.capsules-digits.run: 'vae-digits' is not one of ['capsules-digits']",
        ),
        (
            "optimise.capsules-digits.run",
            "capsules",
            "optimise.capsules-digits.run: 'capsules' is not one of ['capsules-digits']",
        ),
        (
            "infer.capsnet-middle-digits.run",
            "vae-digits",
            "infer.capsnet-middle-digits.run: 'vae-digits' is not one of ['capsnet-middle-digits', "
            "'capsnet-routed-digits', 'capsnet-routed-margin-digits', 'capsnet-unrouted-digits', "
            "'capsnet-unrouted-margin-digits']",
        ),
        (
            "routing.matrix-toys.run",
            "capsnet-unrouted-digits",
            "routing.matrix-toys.run: 'capsnet-unrouted-digits' does not route (model.iterations is 0)",
        ),
        (
            "routing.capsnet-routed-digits.iterations",
            3,
            "routing.capsnet-routed-digits.iterations: must be at least 4, those of 'capsnet-routed-digits'",
        ),
        (
            "routing.matrix-toys.run",
            "vae-digits",
            "routing.matrix-toys.run: 'vae-digits' is not one of ['capsnet-middle-digits', 'capsnet-routed-digits', "
            "'capsnet-routed-margin-digits', 'capsnet-unrouted-digits', 'capsnet-unrouted-margin-digits', "
            "'matrix-digits', 'matrix-toys']",
        ),
        (
            "sweep.runs",
            ["nothing"],
            "sweep.runs: 'nothing' is not one of ['capsnet-middle-digits', 'capsnet-routed-digits', "
            "'capsnet-routed-margin-digits', 'capsnet-unrouted-digits', 'capsnet-unrouted-margin-digits', "
            "'capsules-digits', 'scae-digits', 'vae-digits']",
        ),
        (
            f"{CAPSNET}.model.absent_margin",
            0.95,
            "runs.capsnet-routed-digits.model: absent_margin must be below present_margin (0.9)",
        ),
        (
            "infer.capsnet-routed-digits.conditions",
            [{"output": "free", "label": "free", "penalty": "L1", "weight": 0.0}],
            "infer.capsnet-routed-digits.conditions.0: weight must be 0 if penalty is none, and above 0 otherwise",
        ),
        (
            f"{CAPSNET}.augmentation",
            {"rotation": 0.0, "shift": 1.5, "whole_pixels": True},
            "runs.capsnet-routed-digits.augmentation: if whole_pixels is true, shift must be a whole number and "
            "rotation 0",
        ),
        (
            "posterior.capsules-digits.run",
            "vae-digits",
            "posterior.capsules-digits.run: 'vae-digits' is not a generative run with delta poses",
        ),
        (
            f"{RUN}.model.pose_posterior",
            "gaussian",
            "optimise.capsules-digits.run: 'capsules-digits' must have slots: own and pose_posterior: delta",
        ),
        (
            "optimise.capsules-digits.chosen",
            "newton",
            "optimise.capsules-digits: chosen must be one of ['adam', 'adam-analytic', 'gauss-newton', 'l-bfgs']",
        ),
        (
            "ablation.toys.run",
            "cnn-toys",
            "ablation.toys.run: 'cnn-toys' is not one of ['matrix-digits', 'matrix-toys']",
        ),
        (
            "ablation.toys.conditions.vector",
            {"pose": "vector", "posse": 1},
            "ablation.toys.conditions.vector.posse: Extra inputs are not permitted (found 1)",
        ),
        (
            "ablation.toys.conditions.mixing.iterations",
            0,
            "ablation.toys.conditions.mixing.iterations: must be at least 1 and at most 100 (found 0)",
        ),
        (
            "ablation.toys.conditions",
            {},
            "ablation.toys.conditions: must have at least 1 entry (found 0)",
        ),
        ("optimise.capsules-digits.replicas", 2, "optimise.capsules-digits.replicas: 'capsules-digits' has 1"),
        ("posterior.capsules-digits.replicas", 2, "posterior.capsules-digits.replicas: 'capsules-digits' has 1"),
        (
            "sensitivity.run",
            "vae-digits",
            "sensitivity.run: 'vae-digits' is not one of ['capsules-digits']",
        ),
        (
            "evaluate.official_affnist",
            True,
            "evaluate.official_affnist: 'affnist' is not one of sources ['digits', 'toys']",
        ),
        (
            "runs.matrix-toys.augmentation.crop",
            31,
            "attack.toys: 'matrix-toys' and 'cnn-toys' must see the same images: their augmentation differs",
        ),
    ],
)
def test_a_reference_to_nothing_is_answered_with_what_there_is(
    values: dict[str, Any], where: str, value: Any, message: str
) -> None:
    assert refused(put(values, where, value)) == [message]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("pose_sd_start", 0.05, r"pose_sd_start must exceed pose_sd_floor \([\d.]+\)"),
        ("heads", 3, r"heads must divide hidden \(\d+\)"),
    ],
)
def test_values_that_do_not_go_together_are_named(values: dict[str, Any], name: str, value: Any, message: str) -> None:
    (line,) = refused(put(values, f"{RUN}.model.{name}", value))
    assert re.fullmatch(rf"{re.escape(RUN)}\.model: {message}", line)


def test_a_hyperparameters_value_must_make_a_model(values: dict[str, Any]) -> None:
    """The start moves along with the floor: in range itself, a floor can carry the start out of it."""
    line = put(values, "sensitivity.hyperparameters.pose_sd_floor", [0.2, 8.0])
    assert refused(line) == [
        "sensitivity.hyperparameters.pose_sd_floor: 8 does not give a valid model "
        "(pose_sd_start: must be less than or equal to 10)"
    ]


def test_a_floor_moves_the_start_and_the_sd_of_absent_parts_along_and_nothing_else(values: dict[str, Any]) -> None:
    model = parse_params(values).runs["capsules-digits"].model
    assert isinstance(model, GenerativeModelParams)
    changed = model.varied("pose_sd_floor", 2 * model.pose_sd_floor)
    assert changed == model.model_copy(
        update={name: 2 * getattr(model, name) for name in ("pose_sd_floor", "pose_sd_start", "inactive_pose_sd")}
    )


def test_a_temperature_holds_from_the_first_step_to_the_last(values: dict[str, Any]) -> None:
    model = parse_params(values).runs["capsules-digits"].model
    assert isinstance(model, GenerativeModelParams)
    model = model.model_copy(update={"temperature": 1.0, "final_temperature": 1.0})
    changed = model.varied("temperature", 0.5)
    assert changed == model.model_copy(update={"temperature": 0.5, "final_temperature": 0.5})
    built = GenerativeModel(changed, 28)
    assert [built.train(mode).temperature_at(torch.tensor(3.0)) for mode in (True, False)] == [0.5, 0.5]
    falling = model.model_copy(update={"temperature": 2.0, "final_temperature": 1.0})
    assert falling.varied("temperature", 0.5).final_temperature == 0.25, "the schedule's ratio is kept"


def test_all_mistakes_are_told_at_once(values: dict[str, Any]) -> None:
    bad = put(put(put(values, "device", "tpu"), f"{RUN}.training.epochs", 0), "colour", "red")
    assert {line.split(":")[0] for line in refused(bad)} == {"device", f"{RUN}.training.epochs", "colour"}


@pytest.mark.parametrize("content", ["just text", "[1, 2]", "3"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "params.yaml").write_text(content)
    with pytest.raises(ParamsError, match=r"params\.yaml has bad parameters"):
        load_params(tmp_path / "params.yaml")


def test_a_file_that_is_missing_or_no_yaml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"params\.yaml: no such file"):
        load_params(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_text("runs: {a: [}")
    with pytest.raises(ParamsError, match=r"(?s)params\.yaml is not valid YAML.*line 1"):
        load_params(tmp_path / "params.yaml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"# nothing but a comment\n", "is empty"),
        (b"profile: qu\xefck\n", r"is not UTF-8 text \(byte 11\)"),
        ("profile: quick\n".encode("utf-16"), r"is not UTF-8 text \(byte 0\)"),
        (bytes(range(128, 256)), r"is not UTF-8 text \(byte 0\)"),
        (b"profile: 2024-99-99\n", "is not valid YAML: month must be in 1..12"),
        # Python's stack is used up by a thousand levels, and the process ended by libyaml at a hundred thousand.
        (b"runs: " + b"[" * 1000, f"is nested more than {DEEPEST} levels deep"),
        (b"- " * 200_000, f"is nested more than {DEEPEST} levels deep"),
        (b"{a: " * 200_000, f"is nested more than {DEEPEST} levels deep"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "params.yaml").write_bytes(content)
    with pytest.raises(ParamsError, match=rf"^{re.escape(str(tmp_path))}/params\.yaml {message}$"):
        load_params(tmp_path / "params.yaml")


def test_a_folder_and_a_file_that_the_system_does_not_open_are_named(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(ParamsError, match=r"folder\.yaml is a folder, not a file"):
        load_params(tmp_path / "folder.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(ParamsError, match=r"pipe\.yaml is a pipe, not a file"):
        load_params(tmp_path / "pipe.yaml")
    (tmp_path / "circle.yaml").symlink_to("circle.yaml")  # permissions would not stop root
    with pytest.raises(ParamsError, match=r"circle\.yaml cannot be read: Too many levels of symbolic links"):
        load_params(tmp_path / "circle.yaml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("runs:\n  a: {seed: 0}\n  b: {seed: 1}\n  a: {seed: 2}\n", "runs.a occurs twice, in lines 2 and 4"),
        ("runs: {a: {seed: 0, seed: 0}}", "runs.a.seed occurs twice, in lines 1 and 1"),
        ("profile: quick\n'profile': paper\n", "profile occurs twice, in lines 1 and 2"),
        ("a: [{b: 1, c: {d: 1}, b: 2}]", "a.b occurs twice, in lines 1 and 1"),
        ("a: &a {x: 1}\nb:\n  <<: *a\n  <<: *a\n", "b.<< occurs twice, in lines 3 and 4"),
        ("a: &a {x: 1}\nb:\n  <<: *a\n  x: 2\n  x: 3\n", "b.x occurs twice, in lines 4 and 5"),
    ],
)
def test_a_key_that_stands_twice_is_named(tmp_path: Path, content: str, message: str) -> None:
    """PyYAML takes the last without a word."""
    (tmp_path / "params.yaml").write_text(content)
    with pytest.raises(ParamsError, match=re.escape(f"params.yaml: {message}")):
        load_params(tmp_path / "params.yaml")


def test_a_merged_section_may_set_again_what_it_merges(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "a: &a {seed: 0, epochs: 4, model: &model {code: 3}}\n"
        "b: &b {<<: *a, seed: 1, model: {<<: *model, code: 5}}\n"
        "c: {<<: *b, epochs: 9}\n"
        "d: {<<: [*model, *b]}\n"
        "a.b: [{seed: 1}, {seed: 2}]\n"
    )
    assert read_yaml(tmp_path / "a.yaml") == {
        "a": {"seed": 0, "epochs": 4, "model": {"code": 3}},
        "b": {"seed": 1, "epochs": 4, "model": {"code": 5}},
        "c": {"seed": 1, "epochs": 9, "model": {"code": 5}},
        "d": {"seed": 1, "epochs": 4, "model": {"code": 5}, "code": 3},
        "a.b": [{"seed": 1}, {"seed": 2}],
    }


def test_bad_parameters_have_an_exit_code_of_their_own() -> None:
    assert ParamsError.exit_code == 2
    assert issubclass(ParamsError, UserError)
    assert UserError.exit_code == 1


# ---- what does not fit

HELD_OUT = {"factor": "azimuth", "value": 20, "known_share": 0.0}


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("runs.matrix-toys.augmentation.crop", 49, "runs.matrix-toys: augmentation.crop is 49 pixels: toys has 48x48"),
        (f"{CAPSNET}.model.classes", 5, f"{CAPSNET}: model.classes is 5, but digits has 10 classes"),
        (
            "runs.cnn-toys.model.views",
            1,
            "runs.cnn-toys: images of toys have 2 channels, but model.views is 1",
        ),
        (f"{VAE}.dataset", "toys", f"{VAE}: images of toys have 2 channels, but a model of variant vae takes 1"),
        (
            "datasets.toys.canvas",
            28,
            "datasets.toys.canvas: must be at least 48, the side of the images of toys (found 28)",
        ),
        (
            "datasets.digits.train",
            1201,
            "datasets.digits: train + validation + test must be at most 1797, the images of digits (found 1798)",
        ),
        (
            "datasets.toys.train",
            24_200,
            "datasets.toys: train + validation must be at most 24300, the images of toys (found 24400)",
        ),
        ("datasets.toys.test", 24_301, "datasets.toys: test must be at most 24300, the images of toys (found 24301)"),
        ("datasets.digits.test", 9, "datasets.digits.test: must be at least 10, the number of classes (found 9)"),
        ("datasets.toys.train", 1, "datasets.toys.train: must be at least 5, the number of classes (found 1)"),
        (
            "runs.matrix-digits.holdout",
            HELD_OUT,
            "runs.matrix-digits.holdout.factor: the azimuth of images of digits is not known (known: none)",
        ),
        (
            "recipe.toys.run",
            "matrix-digits",
            "recipe.toys.factor: the instance of images of digits is not known (known: none)",
        ),
        (
            "viewpoint.azimuth.dataset",
            "digits",
            "viewpoint.azimuth.axis: the azimuth of images of digits is not known (known: none)",
        ),
        ("sources", ["digits", "toys", "toys"], "sources: 'toys' is listed twice"),
        (
            "recipe.toys.conditions.unchanged",
            {"augmentation": {"crop": 50}},
            "recipe.toys.conditions.unchanged: augmentation.crop is 50 pixels: toys has 48x48",
        ),
        (
            "ablation.toys.conditions.vector",
            {"classes": 4},
            "ablation.toys.conditions.vector: model.classes is 4, but toys has 5 classes",
        ),
        (
            "attention_sets.small.studies.parsing.kept",
            13,
            "attention_sets.small.studies.parsing: kept: must be at most starts (12), found 13",
        ),
        ("sweep.runs", ["vae-digits", "vae-digits"], "sweep.runs: 'vae-digits' is listed twice"),
        ("sweep.angles", [0, 45, 45], "sweep.angles: '45' is listed twice"),
        ("sweep.angles", [0, 0.0], "sweep.angles: '0' is listed twice"),
        ("sweep.angles", [33.3333333, 33.3333334], "sweep.angles: '33.3333' is listed twice"),
        ("evaluate.angles", [30, 30.0000001], "evaluate.angles: '30' is listed twice"),
        ("failures.turns", [90, 90.0], "failures.turns: '90' is listed twice"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(
    values: dict[str, Any], where: str, value: Any, message: str
) -> None:
    assert refused(put(values, where, value)) == [message]


def test_images_are_moved_about_the_middle_of_what_a_run_sees(values: dict[str, Any]) -> None:
    for run in ("matrix-toys", "cnn-toys"):
        values = put(values, f"runs.{run}.augmentation.crop", 31)
    (line,) = refused(values)
    assert line.endswith(
        "toys.run: images of 48 pixels are moved about their middle, which is not that of a crop of 31: the difference "
        "must be even"
    )


def test_capsule_regression_takes_one_channel(values: dict[str, Any]) -> None:
    together = json.loads(
        json.dumps(values["regression_sets"]["digits"]).replace('"dataset": "digits"', '"dataset": "toys"')
    )
    assert refused(put(values, "regression_sets.digits", together)) == [
        "regression_sets.digits.studies.grid-digits.dataset: images of toys have 2 channels: capsule regression takes 1"
    ]


def test_capsule_regression_has_as_many_inputs_as_singular_vectors_at_most(values: dict[str, Any]) -> None:
    name = next(iter(values["regression_sets"]["digits"]["studies"]))
    most = min(values["datasets"]["digits"]["canvas"] ** 2, values["datasets"]["digits"]["train"])
    place = f"regression_sets.digits.studies.{name}.features"
    assert refused(put(values, place, most + 1)) == [
        f"{place}: must be at most {most}, the smaller one of pixels and training images of digits (found {most + 1})"
    ]
    parse_params(put(values, place, most))


def test_attacked_networks_must_see_the_same_images(values: dict[str, Any]) -> None:
    crops = {**values["runs"]["cnn-toys"]["augmentation"], "crop": 44}
    assert refused(put(values, "runs.cnn-toys.augmentation", crops)) == [
        "attack.toys: 'matrix-toys' and 'cnn-toys' must see the same images: their augmentation differs"
    ]


def test_the_networks_of_a_viewpoint_study_must_take_its_images(values: dict[str, Any]) -> None:
    assert refused(put(values, "viewpoint.azimuth.capsules", "matrix-digits")) == [
        "viewpoint.azimuth.capsules: images of toys have 2 channels, but model.views is 1"
    ]


@pytest.mark.parametrize("where", [f"{VAE}.seed", "evaluate.seed", "failures.seed", "datasets.toys.split_seed"])
@pytest.mark.parametrize("seed", [4_000_000_001, 2**63, 2**70])
def test_seeds_are_such_as_every_generator_takes(values: dict[str, Any], where: str, seed: int) -> None:
    """scikit-learn's end at 2^32."""
    assert refused(put(values, where, seed)) == [f"{where}: must be at least 0 and at most 4000000000 (found {seed})"]
    parse_params(put(values, where, 4_000_000_000))


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize(
    "where", [f"{VAE}.training.gradient_clip", f"{SCAE}.model.deformation", "runs.matrix-toys.model.variance_floor"]
)
def test_numbers_are_finite(values: dict[str, Any], where: str, value: float) -> None:
    (line,) = refused(put(values, where, value))
    assert line == f"{where}: must be a finite number (found {value})"


def test_a_name_fits_into_the_name_of_a_file(values: dict[str, Any]) -> None:
    values["runs"]["a" * 100] = values["runs"]["vae-digits"]
    parse_params(values)
    values["runs"]["a" * 101] = values["runs"]["vae-digits"]
    (line,) = refused(values)
    assert "String should have at most 100 characters" in line


def test_every_number_has_an_upper_bound(values: dict[str, Any]) -> None:
    """None is so large that single precision loses it."""

    def unbounded(node: Any, where: str) -> Iterator[str]:
        if isinstance(node, dict):
            if node.get("type") in ("number", "integer") and not {"maximum", "exclusiveMaximum"} & node.keys():
                yield where
            for key, value in node.items():
                yield from unbounded(value, f"{where}.{key}")
        elif isinstance(node, list):
            for value in node:
                yield from unbounded(value, where)

    # Changes of a study are checked as settings of the run that they change.
    assert [where for where in unbounded(Params.model_json_schema(), "") if ".conditions." not in where] == []


# ---- own images

OWN: dict[str, Any] = {
    "path": "data/own/pets", "format": "folder", "test_part": False, "classes": ["cat", "dog"], "channels": 1,
    "side": 28, "fit": "crop",
}  # fmt: skip


def with_pets(values: dict[str, Any], **changes: Any) -> dict[str, Any]:
    values["datasets"]["pets"] = {**values["datasets"]["digits"], "source": "pets"}
    return {**values, "own_images": {"pets": {**OWN, **changes}}}


def test_own_images_are_a_source(values: dict[str, Any]) -> None:
    params = parse_params(with_pets(values))
    assert params.own_images[params.datasets["pets"].source].classes == ["cat", "dog"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"path": ""}, "path: String should have at least 1 character (found '')"),
        ({"path": "s3://bucket/pets"}, "path: must be a path on this machine, written out (no URL, no ~, no control "
         "characters) (found 's3://bucket/pets')"),
        ({"path": "~/pets"}, "path: must be a path on this machine, written out (no URL, no ~, no control characters) "
         "(found '~/pets')"),
        ({"format": "zip"}, "format: must be 'folder' or 'npz' (found 'zip')"),
        ({"fit": "keep"}, "fit: must be 'pad', 'crop' or 'stretch' (found 'keep')"),
        ({"side": 7}, "side: must be at least 8 and at most 256 (found 7)"),
        ({"channels": 4}, "channels: must be at least 1 and at most 3 (found 4)"),
        ({"classes": ["cat"]}, "classes: must have at least 2 entries (found 1)"),
        ({"classes": ["no", False]}, "classes.1: must be a valid string (found False)"),
        ({"classes": ["cat", "a/b"]}, "classes: 'a/b' cannot name a class: no /, no control characters, no dot at the "
         "start"),
        ({"classes": ["cat", "a\nb"]}, "classes: 'a\\nb' cannot name a class: no /, no control characters, no dot at "
         "the start"),
        ({"classes": ["cat", "cat"]}, "classes: 'cat' is listed twice"),
        ({"sides": 28}, "sides: unknown parameter"),
    ],
)  # fmt: skip
def test_own_images_are_checked(values: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    assert refused(with_pets(values, **changes)) == [f"own_images.pets.{message}"]


def test_own_images_must_fit_what_uses_them(values: dict[str, Any]) -> None:
    assert refused(with_pets(values, channels=2)) == ["own_images.pets: channels must be 1 or 3 with format: folder"]
    assert refused(with_pets(values, side=32)) == [
        "datasets.pets.canvas: must be at least 32, the side of the images of pets (found 28)"
    ]
    assert refused(put(with_pets(values), "datasets.pets.source", "dogs")) == [
        "datasets.pets.source: 'dogs' is not one of sources ['digits', 'toys'] or own_images ['pets']"
    ]
    assert refused({**values, "own_images": {"mnist": OWN, "pets": OWN}}) == [
        "own_images.mnist: this is the name of a published source: choose another"
    ]


def test_affnist_is_for_tests_only(values: dict[str, Any]) -> None:
    values["sources"].append("affnist")
    assert refused(put(values, "datasets.digits.source", "affnist")) == [
        "datasets.digits.source: 'affnist' is not one of sources ['digits', 'toys', 'affnist']"
    ]


# ---- what is in the repository


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_of_the_repository_loads(name: str) -> None:
    params = load_params(PROFILES[name])
    assert isinstance(params, Params)
    assert params.profile == name


def fields(params: Params) -> dict[str, set[str]]:
    """The names of all fields by section; runs and models by variant, entries of other mappings by any."""
    values = params.model_dump()
    found = {"": set(values)}
    for section in ("evaluate", "sweep", "failures", "sensitivity"):
        found[section] = set(values[section])
    for section in ("datasets", "optimise", "infer"):
        for entry in values[section].values():
            found[section] = set(entry)
    for section in ("regression", "attention"):
        for entry in values[section].values():
            found[f"{section}, {entry['study']}"] = set(entry)
        for together in values[f"{section}_sets"].values():
            found[f"{section}_sets"] = set(together)
            for study in together["studies"].values():
                found[f"{section}, {study['study']}"] = set(study)
    for run in values["runs"].values():
        for part in ("augmentation", "training", "model"):
            found[f"{run['variant']}.{part}"] = set(run[part])
    return found


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_spell_out_the_same_parameters_as_the_current_one(name: str) -> None:
    """No default hides anywhere: `dvc params diff` between profiles compares like with like."""
    current, other = fields(load_params(ROOT / "params.yaml")), fields(load_params(PROFILES[name]))
    for section in current.keys() & other.keys():
        assert other[section] == current[section]


def sections(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Every section of a file's content, lists left out, with its dotted name."""
    if isinstance(value, dict):
        yield where, value
        for key, each in value.items():
            yield from sections(each, f"{where}.{key}" if where else key)


@pytest.mark.parametrize("name", PROFILES)
def test_no_section_belongs_to_two_entries(name: str) -> None:
    """`dvc exp run -S` would set a value in both, or (where the other comes later) silently in neither.

    A section that is to be as another's is merged by itself: `training: {<<: *training}`.
    """
    found: dict[int, str] = {}
    for where, section in sections(read_yaml(PROFILES[name])):
        assert id(section) not in found, f"{where} is {found[id(section)]}"
        found[id(section)] = where


@pytest.mark.parametrize("which", ["routed", "unrouted", "middle"])
def test_an_experiment_sets_one_value_of_one_run(tmp_path: Path, which: str) -> None:
    """As `dvc exp run -S` sets it, whether others merge the section from this run or this run merges it."""
    from dvc.utils.hydra import apply_overrides

    path = tmp_path / "params.yaml"
    shutil.copy(PROFILES["quick"], path)
    before = flatten(read_yaml(path))
    name = f"runs.capsnet-{which}-digits.training.epochs"
    apply_overrides(str(path), [f"{name}=3"])
    assert flatten(read_yaml(path)) == {**before, name: 3}
    load_params(path)


def test_every_parameter_is_described() -> None:
    """The description holds the unit or the meaning; there are no defaults in the code."""

    def kinds(kind: type[Section]) -> Iterator[type[Section]]:
        for each in kind.__subclasses__():
            yield each
            yield from kinds(each)

    def holds_sections(annotation: Any) -> bool:
        if isinstance(annotation, type):
            return issubclass(annotation, Section)
        return any(holds_sections(each) for each in get_args(annotation))

    found = [kind for kind in kinds(Section) if kind.__module__.startswith("pipeline.")]
    found = [kind for kind in found if kind.__module__ != "pipeline.results.settings"]  # a role may be left out
    assert len(found) > 30
    for kind in found:
        for name, field in kind.model_fields.items():
            assert field.is_required(), f"{kind.__name__}.{name} has a default"
            described = field.description or name in ("variant", "method", "study")
            assert described or holds_sections(field.annotation), f"{kind.__name__}.{name} has no description"


def test_numbers_are_read_as_dvc_writes_them() -> None:
    assert parse_yaml("[1e-05, 1e5, -2.5E+3, '1e-5', 1e]", "params.yaml") == [1e-5, 1e5, -2500.0, "1e-5", "1e"]
