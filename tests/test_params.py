"""Bad parameters: every message names the field as written in the file, and what it allows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from records import changed

from pipeline.errors import ParamsError
from pipeline.files import parse_yaml, read_yaml
from pipeline.params import Params, load_params, parse_params
from pipeline.profiles import Profiles
from pipeline.settings import Section

ROOT = Path(__file__).parents[1]
PROFILES = {profile.name: Profiles(ROOT).params_path(profile.name) for profile in Profiles(ROOT).all()}


@cache
def content_of(name: str) -> Any:
    """The content of a profile's file, not to be changed."""
    return read_yaml(PROFILES[name])


@pytest.fixture
def values() -> dict[str, Any]:
    """Of profile quick; lists that merged sections share are separate."""
    content: dict[str, Any] = json.loads(json.dumps(content_of("quick")))
    return content


def refused(values: Any) -> list[str]:
    """The lines of the message that `values` are refused with, without the first."""
    with pytest.raises(ParamsError) as caught:
        parse_params(values, "params.yaml")
    first, *lines = str(caught.value).splitlines()
    assert first == "params.yaml has bad parameters:"
    return [line.strip() for line in lines]


RUN, VAE = "runs.capsules-digits", "runs.vae-digits"
CAPSNET, SETS = "runs.capsnet-routed-digits", "regression_sets.digits"
FLOOR = "sensitivity.hyperparameters.pose_sd_floor"
GRID, OPTIMISE = f"{SETS}.studies.grid-digits", "optimise.capsules-digits"
WARPS = "recipe.toys.conditions.warps"
WHOLE = {"rotation": 0.0, "shift": 1.5, "whole_pixels": True}
FREE = {"output": "free", "label": "free", "penalty": "L1", "weight": 0.0}
OUT = {"factor": "azimuth", "value": 20, "known_share": 0.0}
KNOWN = {"factor": "instance", "value": 4, "known_share": 0.05}

BAD: list[tuple[str, Any, str]] = [
    # out of range, of another kind (a number in quotes is text), or unknown
    (f"{CAPSNET}.model.strides", [1, 17], f"{CAPSNET}.model.strides.1"),
    (f"{GRID}.schedule.momentum", 1.0, ""),
    (f"{RUN}.training.epochs", "40", ""),
    (f"{VAE}.variant", "gan", VAE),
    ("attention_sets.small.studies.toy.step", 4, ""),
    ("ablation.toys.conditions.vector", {"posse": 1}, "ablation.toys.conditions.vector.posse"),
    # a reference to nothing, or to what is of another kind
    (f"{VAE}.dataset", "mnist", ""),
    ("datasets.digits.source", "mnist", ""),
    (f"{OPTIMISE}.run", "vae-digits", ""),
    (f"{OPTIMISE}.chosen", "newton", OPTIMISE),
    ("infer.capsnet-middle-digits.run", "vae-digits", ""),
    ("routing.matrix-toys.run", "capsnet-unrouted-digits", ""),
    ("sweep.runs", ["nothing"], ""),
    ("ablation.toys.run", "cnn-toys", ""),
    ("sensitivity.run", "vae-digits", ""),
    ("evaluate.official_affnist", True, ""),
    ("evidence.generative.table_1.vae", "capsules-digits", ""),
    ("evidence.generative.optimise", "nobody", ""),
    ("evidence.matrix_capsules.viewpoint.azimuth", "elevation", ""),
    ("evidence.comparison.equivariance.0.cnn", "matrix-toys", ""),
    ("evidence.generative.affine.scae", "scae-digits", ""),
    ("evidence.matrix_capsules.table_1.mixing", "toys/no-such", ""),
    # values that do not go together
    (f"{RUN}.model.pose_sd_start", 0.05, f"{RUN}.model"),
    (f"{RUN}.model.pose_posterior", "gaussian", f"{OPTIMISE}.run"),
    (f"{CAPSNET}.model.absent_margin", 0.95, f"{CAPSNET}.model"),
    (f"{CAPSNET}.augmentation", WHOLE, ""),
    ("routing.capsnet-routed-digits.iterations", 3, ""),
    ("infer.capsnet-routed-digits.conditions", [FREE], "infer.capsnet-routed-digits.conditions.0"),
    ("infer.capsnet-routed-digits.conditions", [{**FREE, "weight": 0.5}] * 2, "infer.capsnet-routed-digits"),
    ("ablation.toys.conditions.mixing.iterations", 0, ""),
    ("recipe.toys.conditions.unchanged", {"augmentation": {"crop": 50}}, ""),
    ("ablation.toys.conditions.mixing.saving", 4.0, ""),
    *(("attack.toys.epsilons", epsilons, "attack.toys") for epsilons in ([0.0], [0.1, 0.2])),
    ("attack.toys.epsilons", [0.0, 0.1, 0.1], ""),
    (WARPS, {"model": {"activation": "mixing", "inverse_temperature": 0.5}}, f"{WARPS}.model.inverse_temperature"),
    (f"{OPTIMISE}.replicas", 2, ""),
    (FLOOR, [0.2, 8.0], f"{FLOOR}.pose_sd_start"),
    ("attention_sets.small.studies.parsing.kept", 13, "attention_sets.small.studies.parsing"),
    (f"{GRID}.dataset", "toys", SETS),
    ("sources", ["digits", "toys", "toys"], ""),
    ("evaluate.angles", [30, 30.0000001], ""),
    # a model, or a study, that does not fit its images
    (f"{CAPSNET}.model.classes", 5, CAPSNET),
    (f"{VAE}.dataset", "toys", VAE),
    ("runs.cnn-toys.model.views", 1, "runs.cnn-toys"),
    ("runs.matrix-toys.augmentation.crop", 49, "runs.matrix-toys"),
    ("runs.matrix-toys.augmentation.crop", 31, "attack.toys"),
    ("runs.matrix-digits.holdout", OUT, "runs.matrix-digits.holdout.factor"),
    ("recipe.toys.run", "matrix-digits", "recipe.toys.factor"),
    ("viewpoint.azimuth.dataset", "digits", "viewpoint.azimuth.axis"),
    ("datasets.toys.canvas", 28, ""),
    ("datasets.digits.train", 1201, "datasets.digits"),
    ("datasets.digits.test", 9, ""),
]
"""Where a value is put, the value, and the field that the message names, if another."""


@pytest.mark.parametrize(("where", "value", "named"), BAD)
def test_a_bad_value_is_refused_and_its_field_named(values: dict[str, Any], where: str, value: Any, named: str) -> None:
    (line,) = refused(changed(values, where.replace(".", "/"), value))
    assert line.startswith(f"{named or where}: ")
    assert len(line) > len(f"{named or where}: ") + 5


def test_all_mistakes_are_told_at_once(values: dict[str, Any]) -> None:
    bad = values | {"device": "tpu", "colour": "red"}
    run = bad["runs"]["capsules-digits"]
    run["training"]["epochs"] = 0
    del run["model"]["code"]
    lines = refused(bad)
    named = {line.split(":")[0] for line in lines}
    assert named == {"device", "colour", f"{RUN}.training.epochs", f"{RUN}.model.code"}
    assert f"{RUN}.model.code: missing" in lines


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


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"just text", "must be a section"),
        (b"runs: {a: [}", "not valid YAML"),
        (b"runs: &a {a: *a}", "not valid YAML"),
        (b"profile: qu\xefck\n", "utf-8"),
        (None, "No such file"),
        (b"", "is empty"),
        (b"runs:\n  a: {seed: 0}\n  b: {seed: 1}\n  a: {seed: 2}\n", "runs.a occurs twice, in lines 2 and 4"),
        (b"a: &a {x: 1}\nb:\n  <<: *a\n  x: 2\n  x: 3\n", "b.x occurs twice, in lines 4 and 5"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None, told: str) -> None:
    if content is not None:
        (tmp_path / "params.yaml").write_bytes(content)
    with pytest.raises(ParamsError, match=rf"(?s)params\.yaml.*{told}"):
        load_params(tmp_path / "params.yaml")


def test_a_merged_section_may_set_again_what_it_merges() -> None:
    text = "a: &a {seed: 0, model: &model {code: 3}}\nb: {<<: *a, seed: 1, model: {<<: [*model, *a], code: 5}}\n"
    merged = {"seed": 1, "model": {"code": 5, "seed": 0, "model": {"code": 3}}}
    assert parse_yaml(text, "params.yaml") == {"a": {"seed": 0, "model": {"code": 3}}, "b": merged}


OWN: dict[str, Any] = {
    "path": "data/own/pets", "format": "folder", "test_part": False, "classes": ["cat", "dog"], "channels": 1,
    "side": 28, "fit": "crop",
}  # fmt: skip


def with_pets(values: dict[str, Any], **changes: Any) -> dict[str, Any]:
    pets = {**values["datasets"]["digits"], "source": "pets"}
    return changed(values, "datasets/pets", pets) | {"own_images": {"pets": {**OWN, **changes}}}


@pytest.mark.parametrize(
    ("name", "value"),
    [("path", "s3://bucket/pets"), ("side", 7), ("classes", ["cat", "a/b"]), ("classes", ["cat", "cat"])],
)
def test_own_images_are_checked(values: dict[str, Any], name: str, value: Any) -> None:
    (line,) = refused(with_pets(values, **{name: value}))
    assert line.startswith(f"own_images.pets.{name}: ")


def test_own_images_must_fit_what_uses_them(values: dict[str, Any]) -> None:
    params = parse_params(with_pets(values))
    assert params.own_images[params.datasets["pets"].source].classes == ["cat", "dog"]
    values["sources"].append("affnist")
    held_out = changed(with_pets(values, classes=[*"0123456789"]), "runs/matrix-digits/dataset", "pets")
    for bad, named in (
        (with_pets(values, channels=2), "own_images.pets"),
        (with_pets(values, side=32), "datasets.pets.canvas"),
        (changed(with_pets(values), "datasets/pets/source", "dogs"), "datasets.pets.source"),
        (values | {"own_images": {"mnist": OWN}}, "own_images.mnist"),
        (changed(held_out, "runs/matrix-digits/holdout", OUT), "runs.matrix-digits.holdout.factor"),
        (changed(values, "datasets/digits/source", "affnist"), "datasets.digits.source"),  # for tests only
    ):
        (line,) = refused(bad)
        assert line.startswith(f"{named}: ")


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_of_the_repository_loads(name: str) -> None:
    assert parse_params(content_of(name)).profile == name


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
    for where, section in sections(content_of(name)):
        assert id(section) not in found, f"{where} is {found[id(section)]}"
        found[id(section)] = where


YOUNGER = {"template_opacity", "transformations", "rectified"}
"""Settings that some published weights are older than; left out, they have the value that those were trained with."""


def test_every_parameter_is_described() -> None:
    """The description holds the unit or the meaning; there are no defaults in the code but those of `YOUNGER`."""

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
            assert field.is_required() or name in YOUNGER, f"{kind.__name__}.{name} has a default"
            described = field.description or name in ("variant", "method", "study")
            assert described or holds_sections(field.annotation), f"{kind.__name__}.{name} has no description"


def test_numbers_are_read_as_dvc_writes_them() -> None:
    assert parse_yaml("[1e-05, 1e5, -2.5E+3, '1e-5', 1e]", "params.yaml") == [1e-5, 1e5, -2500.0, "1e-5", "1e"]
