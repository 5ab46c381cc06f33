"""Attention against loops over heads, elements and pixels, and the invariances a set asks for."""

import math

import torch
from torch import Tensor, nn

from pipeline.layers.attention import (
    AttentionPooling,
    MultiheadAttentionBlock,
    PerElement,
    SetTransformer,
)


def shaken(module: nn.Module) -> nn.Module:
    """`module` in float64 with every parameter away from its start, LayerNorm's and biases too."""
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return module


def test_per_element_is_one_linear_map_for_each_element() -> None:
    layer = shaken(PerElement(3, 4, 5))
    x = torch.randn(7, 3, 4, dtype=torch.float64)
    expected = torch.stack([x[:, i] @ layer.weight[i] + layer.bias[i] for i in range(3)], dim=1)
    torch.testing.assert_close(layer(x), expected)


def test_attention_pooling_is_a_softmax_over_space_for_each_part() -> None:
    layer = shaken(AttentionPooling(3, parts=2, features=4))
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    weight = layer.project.weight[:, :, 0, 0]  # (parts * (features + 1), channels)
    pooled = torch.zeros(2, 2, 4, dtype=torch.float64)
    for image in range(2):
        for part in range(2):
            rows = weight[part * 5 : part * 5 + 5], layer.project.bias[part * 5 : part * 5 + 5]
            values = [rows[0] @ x[image, :, r, c] + rows[1] for r in range(5) for c in range(6)]
            share = [math.exp(value[-1].item()) for value in values]
            pooled[image, part] = sum(s * v[:-1] for s, v in zip(share, values, strict=True)) / sum(share)
    torch.testing.assert_close(layer(x), pooled.detach())


def naive_block(block: MultiheadAttentionBlock, x: Tensor, y: Tensor) -> Tensor:
    """The block's own formula, one image, head and query at a time. x `[n, d]`, y `[m, d]`."""
    width = x.shape[-1]
    size = width // block.heads
    query = block.query(block.norm_query(x))
    both = block.key_value(block.norm_key(y))
    key, value = both[:, :width], both[:, width:]
    attended = torch.zeros_like(x)
    for head in range(block.heads):
        own = slice(head * size, (head + 1) * size)
        for i in range(len(x)):
            scores = torch.stack([query[i, own] @ key[j, own] / math.sqrt(size) for j in range(len(y))])
            share = scores.exp() / scores.exp().sum()
            attended[i, own] = sum(share[j] * value[j, own] for j in range(len(y)))
    h = x + attended
    return h + torch.clamp(block.feed(block.norm_feed(h)), min=0)


def test_multihead_attention_block_is_its_formula_head_by_head() -> None:
    block = shaken(MultiheadAttentionBlock(8, 4))
    assert isinstance(block, MultiheadAttentionBlock)
    x, y = torch.randn(2, 3, 8, dtype=torch.float64), torch.randn(2, 5, 8, dtype=torch.float64)
    with torch.no_grad():
        expected = torch.stack([naive_block(block, x[b], y[b]) for b in range(2)])
    torch.testing.assert_close(block(x, y), expected)


def test_the_set_transformer_is_its_blocks_one_after_the_other_for_each_image_by_itself() -> None:
    """Lee et al. 2019: ISAB(X) = MAB(X, MAB(points, X)), then MAB(seeds, X). Here a norm comes before the codes.

    The inducing points and seeds have a batch dimension of one.
    """
    transformer = shaken(SetTransformer(8, 2, inducing=3, blocks=2, outputs=4, code=5))
    assert isinstance(transformer, SetTransformer)
    images = torch.randn(2, 7, 8, dtype=torch.float64)
    for x, found in zip(images, transformer(images), strict=True):
        for block in transformer.blocks:
            x = naive_block(block.spread, x, naive_block(block.gather, block.points[0], x))
        pooled = naive_block(transformer.pool, transformer.seeds[0], x)
        torch.testing.assert_close(found, transformer.code(transformer.norm(pooled)))
