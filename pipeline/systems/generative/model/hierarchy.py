"""One layer of the capsule hierarchy: children given their parents, with the choice of parent summed out.

The layer follows equations 3 to 6 of document 000, with relaxed presences (section 2.2). Child j has a presence
t_j = sigmoid(y_j) and a pose A_j. It chooses parent i with probability pi_ij (equation 3). Then gamma_ij are the log
odds that child j is present. The pose of a present child is normal around the vote (I + A_i) M_ij with sd c_ij, where
M_ij is the child's pose in the parent's frame. An absent child's pose is normal around centre_j with sd lambda_off:

    log p(y_j, A_j | parents) = logsumexp_i [ log pi_ij + log RelaxedPresence(y_j; gamma_ij)
                                + t_j log N(A_j; (I + A_i) M_ij, c_ij) + (1 - t_j) log N(A_j; centre_j, lambda_off) ].

The last two terms interpolate between the log pose densities of a present and of an absent child. For 0 < t_j < 1, the
integral Z_ij(t_j) of the interpolated density over A_j is at most 1 (Hölder's inequality). So the ELBO is lower than
that of the normalised model. `log_normaliser` is log Z in closed form. `sample` draws from the normalised model.

In this form (`slots: own`), child j has its own parameters pi_ij, M_ij, gamma_ij, c_ij and centre_j. Together they are
called place j. According to the document, models fail on rotated images because a part cannot take another part's place
(section 5.4). With `slots: any`, each of the m children first takes one of the m places k, with equal probabilities and
independently of the other children:

    log p(y_j, A_j | parents) = logsumexp_k [ -log m + log p(child in place k) ],

with the parameters of place k instead of j. Exchanging the states of any two children then does not change the
likelihood. Two children may take the same place.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.layers import poses
from pipeline.layers.poses import POSE_SIZE
from pipeline.systems.generative.model.distributions import (
    InFull,
    RelaxedPresence,
    join,
    presence_log_prob,
    scale_gradient,
)


def log_parent_probabilities(y: Tensor, log_rho: Tensor) -> Tensor:
    """`log pi_ij`, the log probability that child j chooses parent i (equation 3). Parent 0 is the dummy (always on).

    Args:
        y: presence logits of n parents, `[..., n]`.
        log_rho: log affinities `[m, 1 + n]` of m children to the dummy and the n parents.

    Returns:
        `[..., m, 1 + n]`; its exponentials sum to one over the last dimension.
    """
    log_t = F.pad(F.logsigmoid(y), (1, 0))  # the dummy's log presence is 0
    return (log_t.unsqueeze(-2) + log_rho).log_softmax(dim=-1)


def votes(A: Tensor, M: Tensor, dummy: Tensor) -> Tensor:
    """Votes of each parent for each child, as offsets `(I + A_i) M_ij - I`. Parent 0 is the dummy.

    Args:
        A: parents' poses `[..., n, 6]`.
        M: offsets `M_ij - I` of the children's poses in the parents' frames, `[n, m, 6]`.
        dummy: the dummy's vote for each child, a fixed pose, `[m, 6]`.

    Returns:
        `[..., m, 1 + n, 6]`.
    """
    matrices = poses.compose(poses.to_matrix(A).unsqueeze(-3), poses.to_matrix(M))  # (..., n, m, 2, 3)
    votes = poses.to_offset(matrices).transpose(-3, -2)  # (..., m, n, 6)
    return torch.cat([dummy.unsqueeze(-2).expand(*votes.shape[:-2], 1, POSE_SIZE), votes], dim=-2)


class ChildrenGivenParents(InFull):
    """The joint distribution of m children's states, event shape `[m, 7]`: presence logit, then pose.

    Args:
        log_pi: `[..., m, 1 + n]` from `log_parent_probabilities`.
        gamma: log odds that a child of parent i is present, `[m, 1 + n]`.
        votes: `[..., m, 1 + n, 6]` from `votes`.
        c: sd of a present child's pose around its vote, `[m, 1 + n]`.
        inactive_pose: centre of an absent child's pose, `[m, 6]`.
        inactive_sd: sd of an absent child's pose, lambda_off.
        temperature: temperature of the relaxed presences.
        coupling: factor on the gradient with respect to the children's states; see `GenerativeModel.forward`.
        slots: with "own", child j is in place j. With "any", each child is in one of the m places, and the density sums
            over these places. `log_pi`, `gamma`, `votes`, `c` and `inactive_pose` are then those of the m places.
    """

    has_rsample = False

    def __init__(
        self,
        log_pi: Tensor,
        gamma: Tensor,
        votes: Tensor,
        c: Tensor,
        inactive_pose: Tensor,
        inactive_sd: float,
        temperature: Tensor | float,
        coupling: Tensor | float = 1.0,
        slots: Literal["own", "any"] = "own",
    ) -> None:
        self.log_pi, self.gamma, self.votes, self.c = log_pi, gamma, votes, c
        self.inactive_pose, self.inactive_sd = inactive_pose, inactive_sd
        self.temperature, self.coupling, self.slots = temperature, coupling, slots
        super().__init__(log_pi.shape[:-2], torch.Size([log_pi.shape[-2], 1 + POSE_SIZE]))

    def joint_log_prob(self, value: Tensor, normalised: bool = False) -> Tensor:
        """`log p(child state, chosen parent)`, `[..., m, 1 + n]`, for states `value [..., m, 7]`. If `normalised`, the
        pose density is divided by its integral Z_ij(t_j). `sample` draws from the normalised distribution.
        """
        value, votes, log_pi = scale_gradient(value, self.coupling), self.votes, self.log_pi
        if self.slots == "any":  # broadcast, so that every child is evaluated in every place
            value, votes = value.unsqueeze(-2), votes.unsqueeze(-4)
            log_pi = log_pi.unsqueeze(-3) - math.log(log_pi.shape[-2])
        y, A = value[..., 0], value[..., 1:]
        t = y.sigmoid().unsqueeze(-1)
        active = gaussian_log_density(((A.unsqueeze(-2) - votes) ** 2).sum(-1), self.c)
        off = ((A - self.inactive_pose) ** 2).sum(-1)
        inactive = gaussian_log_density(off, torch.full_like(off, self.inactive_sd))
        present = presence_log_prob(y.unsqueeze(-1), self.gamma, self.temperature)
        joint = log_pi + present + t * active + (1 - t) * inactive.unsqueeze(-1)
        if normalised:
            joint = joint - self.log_normaliser(y, votes)
        return joint if self.slots == "own" else joint.logsumexp(dim=-2)

    def log_prob(self, value: Tensor, normalised: bool = False) -> Tensor:
        """Log density `[...]`, in nats, of states `value [..., m, 7]`. For `normalised`, see `joint_log_prob`."""
        return self.joint_log_prob(value, normalised).logsumexp(dim=-1).sum(dim=-1)

    def parent_posterior(self, value: Tensor) -> Tensor:
        """The exact posterior over each child's parent (the routing), `[..., m, 1 + n]`. Parent 0 is the dummy."""
        return self.joint_log_prob(value).softmax(dim=-1)

    def log_normaliser(self, y: Tensor, votes: Tensor) -> Tensor:
        """`log Z_ij(t_j) <= 0`, `[..., m, 1 + n]`: Z is the integral over A_j of the interpolated pose density."""
        t = y.sigmoid().unsqueeze(-1)
        distance = ((votes - self.inactive_pose.unsqueeze(-2)) ** 2).sum(-1)
        on, off = self.c**2, self.inactive_sd**2
        between = t * off + (1 - t) * on  # the interpolated density's precision times (on * off)
        volume = (1 - t) * on.log() + t * math.log(off) - between.log()  # log(1 / (precision * on^t off^(1 - t)))
        return 0.5 * (POSE_SIZE * volume - t * (1 - t) * distance / between)

    @torch.no_grad()
    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008 (torch's own signature)
        """Draw states `[*sample_shape, ..., m, 7]`: places (with `slots: any`), parents, presences, then poses."""
        shape, n = (*sample_shape, *self.log_pi.shape[:-1]), self.log_pi.shape[-1]
        if self.slots == "any":
            place = torch.randint(shape[-1], shape, device=self.log_pi.device)  # (..., m)
        else:
            place = torch.arange(shape[-1], device=self.log_pi.device).expand(shape)
        logits = self.log_pi.expand(*shape, n).take_along_dim(place.unsqueeze(-1), dim=-2)
        parent = torch.distributions.Categorical(logits=logits).sample()
        votes = self.votes.expand(*shape, n, POSE_SIZE).flatten(-3, -2)
        vote = votes.take_along_dim((place * n + parent).unsqueeze(-1), dim=-2)
        y = RelaxedPresence(self.gamma[place, parent], self.temperature).sample()
        t = y.sigmoid().unsqueeze(-1)
        on, off = self.c[place, parent].unsqueeze(-1) ** 2, self.inactive_sd**2
        precision = t / on + (1 - t) / off
        mean = (t / on * vote + (1 - t) / off * self.inactive_pose[place]) / precision
        return join(y, mean + torch.randn_like(mean) / precision.sqrt())


def gaussian_log_density(squared_distance: Tensor, sd: Tensor) -> Tensor:
    """Log density, in nats, of an isotropic Gaussian pose, given the pose's squared distance from the mean."""
    return -0.5 * squared_distance / sd**2 - POSE_SIZE * (sd.log() + 0.5 * math.log(2 * math.pi))
