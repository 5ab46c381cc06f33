"""The compiled kernel of EM routing against the PyTorch form in double precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from em_loop import PUBLISHED, routing
from gradients import assert_near, assert_same_for_any_number_of_threads, forms_here, with_gradients
from small import BAYES
from torch import Tensor

from pipeline import kernels
from pipeline.systems.matrix_capsules.model import compiled_routing, em_routing
from pipeline.systems.matrix_capsules.model.compiled_routing import _SOURCE, supported
from pipeline.systems.matrix_capsules.model.em_routing import Routing
from pipeline.systems.matrix_capsules.model.matrix_capsules import of_whole_poses
from pipeline.systems.matrix_capsules.settings import BayesParams

FORMS = forms_here(_SOURCE)
pytestmark = pytest.mark.skipif(kernels.find(_SOURCE) is None, reason="the kernel is not compiled here")

SIZES = {
    "one position, coordinates": {"height": 3, "kernel": 3, "stride": 1, "below": 3, "types": 5, "shared": True},
    "stride 2, edges left over": {"height": 6, "kernel": 3, "stride": 2, "below": 4, "types": 16, "shared": False},
    "more types than lanes": {"height": 4, "kernel": 3, "stride": 1, "below": 5, "types": 19, "shared": False},
    "one child, one parent": {"height": 1, "kernel": 1, "stride": 1, "below": 1, "types": 1, "shared": False},
}


def case(name: str, pose: str, images: int = 3, iterations: int = 3, **changes: Any) -> tuple[list[Tensor], Routing]:
    """Children, transformations and betas (float32), and how they are routed."""
    size: dict[str, Any] = SIZES[name]
    generator = torch.Generator().manual_seed(len(name))
    k, inner = size["kernel"] ** 2, 4 if pose == "matrix" else 16

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    places = 1 if size["shared"] else k
    offsets = 0.1 * normal(k, 16) if size["shared"] else None
    tensors = [
        normal(images, size["height"] ** 2, size["below"], 16) + 1,
        torch.rand(images, size["height"] ** 2, size["below"], generator=generator),
        0.3 * normal(places, size["below"], inner, size["types"], inner) / (inner / 4) ** 0.5,
        normal(size["types"]),
        0.3 * normal(size["types"]),
    ]
    changes = {"variance_floor": 0.1, "inverse_temperature": 0.03, **changes}
    return tensors, routing(size["height"], size["kernel"], size["stride"], iterations, offsets, **changes)


def compiled(tensors: Sequence[Tensor], how: Routing, form: str | None = None) -> list[Tensor]:
    leaves = [each.clone().requires_grad_() for each in tensors]
    poses, activations, *learnt = leaves
    return with_gradients(compiled_routing.route(poses, activations, *learnt, how, kernels.find(_SOURCE, form)), leaves)


def plain(tensors: Sequence[Tensor], how: Routing) -> list[Tensor]:
    """The PyTorch form in double precision."""
    leaves = [each.double().requires_grad_() for each in tensors]
    poses, activations, transformations, *betas = leaves
    full = of_whole_poses(transformations, how.fields.children.shape[1], 16)
    how = replace(how, offsets=None if how.offsets is None else how.offsets.double())
    return with_gradients(em_routing.route(poses, activations, full, *betas, how), leaves)


WAYS: list[dict[str, Any]] = [
    *(
        {"activation": activation, "competition": competition, "iterations": iterations}
        for activation, competition, iterations in product(("mdl", "mixing"), ("all", "position"), (1, 2, 3))
    ),
    *({**PUBLISHED, "iterations": iterations} for iterations in (1, 3)),
]
PRIORS = [
    {},
    {"alpha0": 0.5, "kappa0": 2.0, "nu0": 17.0, "psi0": 0.5, "precisions": "wishart", "shares_of": "position"},
    {"nu0": 20.0, "precisions": "wishart"},
    {"shares_of": "position"},
]


@pytest.mark.parametrize(
    ("size", "pose", "changes"),
    [
        *product(SIZES, ("matrix", "vector"), WAYS),
        ("stride 2, edges left over", "matrix", {"iterations": 6}),  # for which there is no special form
    ],
)
def test_values_and_gradients_are_those_of_the_pytorch_form_in_double_precision(
    size: str, pose: str, changes: dict[str, Any]
) -> None:
    tensors, how = case(size, pose, **changes)
    expected = plain(tensors, how)
    for form in FORMS:
        limit = 2e-4 if how.iterations > 3 else 2e-5 if pose == "vector" else 1e-5  # a vector's votes are longer sums
        assert_near(compiled(tensors, how, form), expected, limit, least=0.01)


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("priors", PRIORS)
@pytest.mark.parametrize("size", SIZES)
def test_variational_bayes_is_that_of_the_pytorch_form_in_double_precision(
    size: str, priors: dict[str, Any], batch_norm: bool
) -> None:
    changes = {"activation": "bayes", "bayes": BayesParams.model_validate({**BAYES, **priors}), "iterations": 2}
    for pose, competition in (("matrix", "all"), ("vector", "position")):
        tensors, how = case(size, pose, competition=competition, batch_norm=batch_norm, **changes)
        assert_near(compiled(tensors, how), plain(tensors, how), 1e-5, least=0.01)


def test_votes_that_agree_far_from_zero_keep_their_small_variance() -> None:
    tensors, how = case("stride 2, edges left over", "matrix", variance_floor=5e-4, iterations=2)
    # About 100 with an sd of 0.01: squares in single precision are off by 6e-4, more than the variance of 1e-4.
    poses = 100 + 0.01 * tensors[0]
    tensors = [poses, tensors[1], torch.eye(4)[:, None].expand(9, 4, 4, 16, 4).contiguous(), *tensors[3:]]
    found, expected = compiled(tensors, how)[:2], plain(tensors, how)[:2]
    assert_near(found, expected, 1e-4, least=0.01)


@pytest.mark.parametrize("images", [1, 21, 150])
def test_any_number_of_threads_gives_the_same(images: int) -> None:
    tensors, how = case("stride 2, edges left over", "matrix", images=images)
    assert_same_for_any_number_of_threads(lambda: compiled(tensors, how))


def test_children_of_a_frozen_layer_get_gradients() -> None:
    tensors, how = case("stride 2, edges left over", "matrix")
    poses = tensors[0].clone().requires_grad_()
    found = with_gradients(compiled_routing.route(poses, *tensors[1:], how), [poses])
    torch.testing.assert_close(found, compiled(tensors, how)[:3])


def test_what_the_kernel_supports() -> None:
    tensors, how = case("stride 2, edges left over", "matrix")
    assert supported(tensors[0], tensors[2], how)
    assert not supported(tensors[0].double(), tensors[2], how)
    assert not supported(tensors[0][..., :9], tensors[2][:, :, :3, :, :3], how)
    assert not supported(tensors[0], tensors[2], replace(how, iterations=9))
