"""The probabilistic capsule model against an independent formulation, finite differences and its own theory."""

import math
from unittest.mock import patch

import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch.func import functional_call

from benchmarks.enumerated import EnumeratedModel
from pipeline import kernels
from pipeline.layers import attention, poses, rendering
from pipeline.systems.generative.model.distributions import join, joint_information, presence_kl
from pipeline.systems.generative.model.generative_model import GenerativeModel


def test_bound_and_gradient_equal_trace_enum_elbo_over_an_explicit_choice_of_parent(model, images, noise):
    parameters = list(model.parameters())
    ours = model.trace_bound(images, noise).bound
    theirs = -EnumeratedModel(model).loss(images, noise)
    assert ours.shape == (5,)
    torch.testing.assert_close(ours.sum(), theirs, rtol=1e-9, atol=1e-8)
    gradients = (torch.autograd.grad(bound, parameters) for bound in (ours.sum(), theirs))
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-7)


def test_a_gaussian_guide_begins_as_the_delta_one_with_the_stated_sds(small_params, images):
    """A seed gives both guides the same weights; the sds begin at `pose_posterior_sd_start`, whatever the image."""
    torch.manual_seed(5)
    delta = GenerativeModel(small_params, 12).double()
    torch.manual_seed(5)
    gaussian = GenerativeModel(small_params.model_copy(update={"pose_posterior": "gaussian"}), 12).double()
    values = dict(gaussian.named_parameters())
    for name, value in delta.named_parameters():
        assert torch.equal(value, values.pop(name))
    assert values
    assert all("_sd_head." in name for name in values)
    assert gaussian.noise_size == 7 * delta.noise_size == 49
    noise = gaussian.draw_noise((5,), torch.Generator().manual_seed(2)).double()
    trace = poutine.trace(gaussian.guide).get_trace(images, noise)
    posterior = gaussian.encode(images)
    sampled = trace.nodes["parts"]["value"][..., 1:]
    eps = noise[:, 7:].unflatten(1, (7, 6))
    torch.testing.assert_close(sampled, posterior.part_poses + 0.05 * eps[:, :4], rtol=1e-6, atol=1e-8)
    _, A0 = gaussian.encode_objects(trace.nodes["parts"]["value"][..., 0], sampled)
    torch.testing.assert_close(trace.nodes["A0"]["value"], A0 + 0.05 * eps[:, 4:], rtol=1e-6, atol=1e-8)


def test_the_bound_of_a_gaussian_guide_is_that_of_its_samples_less_their_density(changed, images):
    """Written out with torch's own distributions; the generative terms are those of the delta guide's referee."""
    model = changed(pose_posterior="gaussian")
    noise = model.draw_noise((5,), torch.Generator().manual_seed(2)).double()
    found = model.trace_bound(images, noise)
    trace = poutine.trace(model.guide).get_trace(images, noise)
    values = {name: trace.nodes[name]["value"] for name in ("parts", "y0", "A0")}
    part_sd, object_sd = trace.nodes["parts"]["fn"].A.sd, trace.nodes["A0"]["fn"].base_dist.sd
    assert part_sd.std() > 0
    assert object_sd.std() > 0
    logits, A1 = model.encode_parts(images)
    logits0, A0 = model.encode_objects(values["parts"][..., 0], values["parts"][..., 1:])
    log_q = torch.distributions.Normal(A1, part_sd).log_prob(values["parts"][..., 1:]).sum((-1, -2))
    log_q += torch.distributions.Normal(A0, object_sd).log_prob(values["A0"]).sum((-1, -2))
    for log_odds, y in ((logits, values["parts"][..., 0]), (logits0, values["y0"])):
        log_q += dist.Logistic(log_odds / 0.8, 1 / 0.8).log_prob(y).sum(-1)
    torch.testing.assert_close(found.entropy, -log_q)
    replayed = poutine.trace(poutine.condition(model.model, values)).get_trace(images, 5)
    torch.testing.assert_close((found.bound - found.entropy).sum(), replayed.log_prob_sum())


@pytest.mark.parametrize(("epoch", "expected"), [(0.0, 0.8), (2.0, 0.8 / 2**0.5), (4.0, 0.4), (100.0, 0.4)])
def test_the_temperature_falls_by_equal_factors_and_is_the_last_one_in_evaluation(
    changed, images, noise, epoch, expected
):
    model = changed(final_temperature=0.4, temperature_epochs=4)
    at = torch.tensor(epoch, dtype=torch.float64)
    constant = changed(temperature=expected, final_temperature=expected)
    loss, _ = model(images, noise, at)
    torch.testing.assert_close(loss, constant(images, noise, at)[0])
    assert model.temperature == 0.4
    model.eval()
    last = changed(temperature=0.4, final_temperature=0.4)
    torch.testing.assert_close(model(images, noise, at)[0], last(images, noise, at)[0])
    torch.testing.assert_close(model.trace_bound(images, noise).bound, last.trace_bound(images, noise).bound)
    torch.testing.assert_close(model.encode(images).object_logits, last.encode(images).object_logits)


@pytest.mark.parametrize(
    "name", ["template_weights", "M", "c_excess", "gamma", "log_rho", "part_head.2.bias", "embed.weight"]
)
def test_gradients_agree_with_finite_differences(model, images, noise, name):
    values = dict(model.named_parameters())
    epoch = torch.tensor(100.0, dtype=torch.float64)

    def loss(value):
        return functional_call(model, {**values, name: value}, (images, noise, epoch))[0]

    value = values[name].detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(loss, (value,), eps=1e-6, atol=1e-4, rtol=1e-3, fast_mode=True)
    (gradient,) = torch.autograd.grad(loss(value), value)
    assert gradient.abs().max() > 0


@pytest.mark.skipif(
    any(kernels.find(module._SOURCE) is None for module in (attention, rendering)),
    reason="the kernels are not compiled here",
)
def test_a_training_step_by_the_kernels_is_that_of_pytorchs_operators(changed, images, noise):
    model = changed(hidden=32, heads=2).float()

    def step():
        loss = model(images.float(), noise.float(), torch.tensor(5.0))[0]
        return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]

    ours = step()
    with patch.object(kernels, "load", return_value=None):
        theirs = step()
    assert not all(map(torch.equal, ours, theirs)), "kernels are used"
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4 * float(other.abs().max().clamp_min(1)))


def test_turning_the_objects_turns_the_parts_and_the_picture(model):
    """Equation 5: the parts' votes, hence the picture, are equivariant to the objects' poses."""
    A0 = torch.randn(1, 3, 6, dtype=torch.float64) * 0.1
    turn = poses.rotation(torch.tensor(90.0, dtype=torch.float64))
    turned = poses.to_offset(poses.compose(turn, poses.to_matrix(A0)))
    y0 = torch.zeros(1, 3, dtype=torch.float64)
    votes = model.parts_given_objects(y0, A0).votes[:, :, 1:]
    votes_turned = model.parts_given_objects(y0, turned).votes[:, :, 1:]
    expected = poses.to_offset(poses.compose(turn, poses.to_matrix(votes)))
    torch.testing.assert_close(votes_turned, expected)
    y1 = torch.full((1, 4), 2.0, dtype=torch.float64)
    picture = model.draw(join(y1, votes[:, :, 0]))
    picture_turned = model.draw(join(y1, votes_turned[:, :, 0]))
    torch.testing.assert_close(picture_turned, torch.rot90(picture, 1, (1, 2)))


def test_early_coupling_scales_the_gradient_into_the_parts_only(model, images, noise):
    """The hierarchy's gradient into the part encoder is proportional to the coupling; into M it is not touched."""

    def gradients(coupling):
        trace = model.trace_bound(images, noise, coupling)
        loss = -(trace.log_parts + trace.log_objects).sum()
        wanted = [model.part_head[2].bias, model.M]
        return torch.autograd.grad(loss, wanted, allow_unused=True)

    full, quarter, none = gradients(1.0), gradients(0.25), gradients(0.0)
    torch.testing.assert_close(quarter[0], full[0] * 0.25)
    assert none[0] is None or none[0].abs().max() == 0
    torch.testing.assert_close(quarter[1], full[1])


def test_without_coupling_only_pixels_change_the_sds_of_gaussian_parts(changed, images):
    """Their entropy is held by the prior alone: without its gradient the sds of absent parts would only grow."""
    model = changed(pose_posterior="gaussian")
    noise = model.draw_noise((5,), torch.Generator().manual_seed(2)).double()
    wanted = model.part_sd_head[2].bias

    def gradients(coupling):
        trace = model.trace_bound(images, noise, coupling)
        return [
            torch.autograd.grad(term.sum(), wanted, retain_graph=True)[0]
            for term in (trace.bound, trace.log_pixels, trace.entropy)
        ]

    bound, pixels, entropy = gradients(0.0)
    torch.testing.assert_close(bound, pixels)
    assert entropy.abs().max() == 0
    assert pixels.abs().max() > 0
    full, _, entropy = gradients(1.0)
    half, pixels, half_entropy = gradients(0.5)
    assert entropy.min() > 0
    torch.testing.assert_close(half_entropy, entropy / 2)
    torch.testing.assert_close(half - pixels, (full - pixels) / 2)


@pytest.mark.parametrize(("epoch", "coupling"), [(0.0, 0.25), (2.0, 0.25), (3.0, 0.625), (4.0, 1.0), (9.0, 1.0)])
def test_coupling_rises_after_the_early_epochs(model, epoch, coupling):
    assert model.coupling(torch.tensor(epoch)).item() == pytest.approx(coupling)


def test_seeding_sets_each_objects_arrangement_to_one_of_the_images(model):
    images = torch.rand(6, 1, 12, 12, dtype=torch.float64)
    model.begin_epoch(images)
    posterior = model.encode(images[:3])
    for i in range(3):
        votes = model.parts_given_objects(posterior.object_logits, posterior.object_poses).votes
        torch.testing.assert_close(votes[i, :, 1 + i], posterior.part_poses[i], rtol=1e-3, atol=1e-3)


def test_metrics_tell_an_object_that_owns_everything(model, images, noise):
    """`objects_in_use` runs from 1, one owner, to the number of objects, an even share."""

    with torch.no_grad():
        model.M.copy_(model.M[0].clone())
        model.log_rho[:, 1] = 30.0
        owned = model.trace_bound(images, noise).metrics(model.c[:, 1:])
        model.log_rho[:, 1] = 0.0
        shared = model.trace_bound(images, noise).metrics(model.c[:, 1:])
    assert owned["objects_in_use"].item() == pytest.approx(1, abs=1e-3)
    assert owned["most_children"].item() == pytest.approx(model.params.parts, abs=1e-2)
    assert 1 < shared["objects_in_use"].item() <= model.params.objects + 1e-5
    assert shared["most_children"] < owned["most_children"]


def test_the_paper_sized_model_has_fewer_than_30000_generative_parameters(small_params):
    paper = small_params.model_copy(update={"objects": 16, "parts": 16, "template_size": 12})
    model = GenerativeModel(paper, 28)
    assert model.generative_parameters() == 16 * 2 * 144 + 16 * 16 + 16 * 17 + 16 * 16 * 6 + 16 * 16 < 30_000


def test_uniform_affinities_are_not_learned_and_an_objects_presence_alone_decides(small_params, images, noise):
    torch.manual_seed(0)
    model = GenerativeModel(small_params.model_copy(update={"affinities": "uniform"}), 12).double()
    learned = GenerativeModel(small_params, 12)
    assert "log_rho" not in dict(model.named_parameters())
    assert learned.generative_parameters() - model.generative_parameters() == small_params.parts * small_params.objects
    y0 = torch.tensor([[8.0, -8.0, -8.0]], dtype=torch.float64)
    pi = model.parts_given_objects(y0, torch.zeros(1, 3, 6, dtype=torch.float64)).log_pi.exp()
    torch.testing.assert_close(pi[0, :, 1], torch.full((4,), 1 / 1.05, dtype=torch.float64), rtol=1e-3, atol=0)
    assert model.trace_bound(images, noise).bound.isfinite().all()


def test_evaluation_tells_the_information_of_presences(model, images, noise):
    """Its noise is that of the presences of objects; in training, where it would cost time, it is not measured."""
    now = torch.tensor(3.0)
    assert not {"presence_information", "presence_kl"} & set(model(images, noise, now)[1])
    found = model.eval()(images, noise, now)[1]
    logits = model.encode(images).object_logits
    torch.testing.assert_close(found["presence_information"], joint_information(logits, noise[:, 4:7]))
    torch.testing.assert_close(found["presence_kl"], presence_kl(logits, math.log(0.2 / 0.8)).sum(1).mean())


@pytest.mark.parametrize("opacity", [0.02, 0.5])
def test_templates_start_at_their_opacity(small_params, opacity):
    templates = GenerativeModel(small_params.with_changes({"parts": 64, "template_opacity": opacity}), 12).templates
    assert templates[:, 1].detach().median() == pytest.approx(opacity, rel=0.1)


def test_settings_older_than_the_opacity_of_templates_are_those_of_a_half(small_params):
    """Results and weights keep the record, and so the hash, that they have."""
    given = small_params.with_changes({"template_opacity": 0.5})
    older = {name: value for name, value in small_params.model_dump().items() if name != "template_opacity"}
    assert given.model_dump() == older
    assert type(given).model_validate(older) == given
    assert small_params.model_dump()["template_opacity"] == small_params.template_opacity


def test_expected_children_are_those_of_the_bound_without_noise(model, images, noise):
    children = model.trace_bound(images, torch.zeros_like(noise)).children
    torch.testing.assert_close(model.features(images)["children"], children)


def test_the_dummy_and_absent_parts_stand_where_the_settings_say(changed):
    """The referee of the bound takes both from the model."""
    model = changed(dummy_pose_sd=2.0, dummy_affinity=0.1, inactive_pose="zero")
    assert (model.c[:, 0] == 2).all()
    torch.testing.assert_close(model.log_affinity[:, 0].exp(), torch.full((4,), 0.1, dtype=torch.float64))
    assert not model.inactive_pose.any()
    assert torch.equal(changed().inactive_pose, model.initial_pose)
