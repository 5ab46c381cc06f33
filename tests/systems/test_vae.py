"""The variational autoencoder's bound against densities written out."""

import numpy as np
import pytest
import torch
from scipy import stats
from small import SIZE

from pipeline.systems.vae.model.vae import VAE
from pipeline.systems.vae.settings import VAEModelParams

EPOCH = torch.tensor(0.0)


@pytest.fixture
def vae() -> VAE:
    return VAE(VAEModelParams(latent=3, hidden=8, pixels="normal", pixel_sd=0.3), SIZE).double()


def test_each_term_is_the_density_it_is_named_after(vae: VAE) -> None:
    images = torch.rand(4, 1, SIZE, SIZE, dtype=torch.float64)
    noise = torch.randn(4, 3, dtype=torch.float64)
    with torch.no_grad():
        mu, sigma = vae.encode(images)
        z = mu + sigma * noise
        mean = vae.decoder(z).numpy()
        loss, terms = vae(images, noise, EPOCH)
    mu, sigma, z = (each.numpy() for each in (mu, sigma, z))
    pixels = stats.norm(mean, 0.3).logpdf(images.flatten(1).numpy()).sum(1)
    prior, posterior = stats.norm(0, 1).logpdf(z).sum(1), stats.norm(mu, sigma).logpdf(z).sum(1)
    assert terms["log_pixels"].item() == pytest.approx(pixels.mean())
    assert terms["log_latent"].item() == pytest.approx(prior.mean())
    assert terms["entropy"].item() == pytest.approx(-posterior.mean())
    assert loss.item() == pytest.approx(-(pixels + prior - posterior).mean())
    assert terms["pixel_error"].item() == pytest.approx(((images.flatten(1).numpy() - mean) ** 2).sum(1).mean())
    code = vae.features(images)["mu_sigma"].detach()
    np.testing.assert_allclose(code, np.concatenate([mu, sigma], axis=1))
    drawn = vae.draw_noise((20_000,), torch.Generator().manual_seed(0))
    assert stats.kstest(drawn.flatten(), "norm").pvalue > 1e-4


def test_bernoulli_pixels_have_the_cross_entropy_of_grey_values_and_a_finite_gradient() -> None:
    vae = VAE(VAEModelParams(latent=3, hidden=8, pixels="bernoulli", pixel_sd=0.3), SIZE).double()
    images = torch.rand(4, 1, SIZE, SIZE, dtype=torch.float64)
    images[0], images[1] = 0.0, 1.0
    noise = torch.randn(4, 3, dtype=torch.float64)
    with torch.no_grad():
        mu, sigma = vae.encode(images)
        mean = vae.decoder(mu + sigma * noise).numpy()
    values = images.flatten(1).numpy()
    pixels = (values * np.log(mean) + (1 - values) * np.log1p(-mean)).sum(1)
    assert vae(images, noise, EPOCH)[1]["log_pixels"].item() == pytest.approx(pixels.mean())
    with torch.no_grad():
        vae.decoder[-2].bias.fill_(1000.0)
    loss, _ = vae(images, noise, EPOCH)
    loss.backward()
    assert all(torch.isfinite(each.grad).all() for each in vae.parameters() if each.grad is not None)
