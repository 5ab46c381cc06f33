"""EM routing by a compiled kernel (`em_routing.cpp`), with the results and gradients of `em_routing.route`.

Training steps with the kernel are 14 times as fast as with `route`. Shapes are as in `em_routing`, but transformations
are `[places, c, I, D, I]`. I is the side of a matrix pose, or the length of a vector pose. `places` is k, the number of
positions in a receptive field, or 1 if all these positions share transformations.
"""

from pathlib import Path

import torch
from torch import Tensor

from pipeline import kernels
from pipeline.systems.matrix_capsules.model.em_routing import Routing

_SOURCE = Path(__file__).with_name("em_routing.cpp")
_FORMS = ((4, 4), (1, 16))
"""The sizes of poses, (rows, columns), for which the kernel is compiled. A vector pose has one row."""
_MOST_ITERATIONS = 8
_ACTIVATIONS = ("mdl", "mixing", "bayes")


def supported(poses: Tensor, transformations: Tensor, routing: Routing) -> bool:
    """Whether the kernel is compiled and can route capsules with these poses, transformations and settings."""
    inner = transformations.shape[-1]
    return (
        poses.device.type == "cpu"
        and poses.dtype == torch.float32
        and (poses.shape[-1] // inner, inner) in _FORMS
        and routing.iterations <= _MOST_ITERATIONS
        and kernels.load(_SOURCE) is not None
    )


def route(
    poses: Tensor,
    activations: Tensor,
    transformations: Tensor,
    beta_a: Tensor,
    beta_u: Tensor,
    routing: Routing,
    form: kernels.Kernel | None = None,
) -> tuple[Tensor, Tensor]:
    """Same as `em_routing.route`, but with transformations `[places, c, I, D, I]`. The arguments must be `supported`.

    Args:
        form: the compiled kernel. By default, the one for this processor's instruction set.

    Raises:
        MemoryError: the kernel ran out of memory.
    """
    tensors = (poses, activations, transformations, beta_a, beta_u)
    return _CompiledRoute.apply(routing, form or kernels.load(_SOURCE), *tensors)


class _CompiledRoute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, routing, kernel, poses, activations, transformations, *betas):  # type: ignore[no-untyped-def]
        fields, D = routing.fields, transformations.shape[3]
        inverse = list(map(routing.inverse_temperature, range(routing.iterations)))
        lanes = kernel.lanes if D > 8 else 8
        beta_a, beta_u, padded = (
            torch.nn.functional.pad(each, (0, -D % lanes)) for each in (*betas, transformations.transpose(3, 4))
        )
        groups = padded.unflatten(-1, (-1, lanes)).permute(0, 1, 4, 2, 3, 5)  # (places, c, groups, I, I, lanes)
        tensors = {
            "inverse_temperatures": torch.tensor(inverse, dtype=torch.float32),
            "children": fields.children.int(),
            "slots": fields.slots.where(fields.slots < fields.children.numel(), -1).int(),
            "even": routing.first_shares(D),
            "offsets": routing.offsets,
            "poses": poses,
            "activations": activations,
            "transformations": groups,
            "beta_a": beta_a,
            "beta_u": beta_u,
        }
        ctx.tensors = {name: None if each is None else each.contiguous() for name, each in tensors.items()}
        ctx.layer, ctx.kernel = _layer(routing, D, ctx.tensors), kernel
        shape = (len(poses), len(fields.children), D)
        found_poses, found_activations = poses.new_empty(*shape, poses.shape[-1]), poses.new_empty(shape)
        ctx.kept = None
        if any(ctx.needs_input_grad):
            ctx.kept = poses.new_empty(len(poses), kernel.kept_floats(ctx.layer))
        kernel.call("em_routing_forward", ctx.layer, ctx.kept, found_poses, found_activations)
        return found_poses, found_activations

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_poses, grad_activations):  # type: ignore[no-untyped-def]
        grads = grad_poses.contiguous(), grad_activations.contiguous()
        below = [torch.zeros_like(ctx.tensors[name]) for name in ("poses", "activations")]
        packed = torch.zeros_like(ctx.tensors["transformations"]) if ctx.needs_input_grad[4] else None
        betas = grad_poses.new_zeros(2, len(ctx.tensors["beta_a"]))
        gradients = kernels.struct(
            poses=grads[0], activations=grads[1], child_poses=below[0], child_activations=below[1],
            transformations=packed, betas=betas,
        )  # fmt: skip
        ctx.kernel.call("em_routing_backward", ctx.layer, ctx.kept, gradients)
        D = ctx.layer.types
        unpacked = None if packed is None else packed.permute(0, 1, 3, 2, 5, 4).flatten(3, 4)[..., :D, :]
        return None, None, *below, unpacked, *betas[:, :D]


def _layer(routing: Routing, types: int, tensors: dict[str, Tensor]) -> kernels.Struct:
    """Make the kernel's `struct Layer`. `tensors` has the struct's pointers by name, in the order of the struct."""
    params, priors = routing.params, routing.params.bayes
    images, positions, types_below, size = tensors["poses"].shape
    places, _, groups, inner, _, lanes = tensors["transformations"].shape
    parents, field = tensors["children"].shape
    pointers = list(tensors.items())
    return kernels.struct(
        images=images, positions=positions, types_below=types_below, rows=size // inner, inner=inner, parents=parents,
        field=field, types=types, groups=groups, lanes=lanes, iterations=routing.iterations, places=places,
        competition=params.competition == "position", activation=_ACTIVATIONS.index(params.activation),
        threads=torch.get_num_threads(), wishart=priors.precisions == "wishart",
        shares_of_position=priors.shares_of == "position", logits=params.batch_norm,
        variance_floor=params.variance_floor, damping=params.damping,
        first_damping=params.damping if params.damped_first else 0.0,
        **{name: getattr(priors, name) for name in ("alpha0", "kappa0", "nu0", "psi0")},
        **dict(pointers[:3]), most=tensors["slots"].shape[1], **dict(pointers[3:]),
    )  # fmt: skip
