"""A small vision transformer (Dosovitskiy et al. 2021, arXiv:2010.11929)."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedshot.errors import UserError
from fedshot.models.encoder import Encoder, Stage
from fedshot.models.layers import norm_of
from fedshot.models.wiring import Wiring, not_wired


def patch_side(side: int) -> int:
    """The side of a patch: at least 4 x 4 and about 8 x 8 patches an image.

    >>> [patch_side(side) for side in (8, 28, 32, 64)]
    [2, 4, 4, 8]
    """
    return 2 if side <= 16 else 4 if side <= 32 else side // 8


class Attention(nn.Module):
    """Multi-head self-attention over tokens (B, N, dim)."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Linear(dim, 3 * dim)
        self.project = nn.Linear(dim, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        qkv = self.to_qkv(tokens).unflatten(2, (3, self.heads, -1))  # (B, N, 3, heads, dim / heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, heads, N, dim / heads)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return self.project(mixed.transpose(1, 2).flatten(2))  # (B, N, dim)


class TransformerBlock(nn.Module):
    """Attention and an MLP, each reading a LayerNorm of the tokens and added to them."""

    def __init__(self, dim: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.before_mlp = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attention(self.before_attention(tokens))
        return tokens + self.mlp(self.before_mlp(tokens))


class VisionTransformer(Encoder):
    """9 blocks of dimension 192, 3 heads, MLP 768; the feature is the class token after the last LayerNorm.

    Positions are learned, so that an encoder belongs to one image shape.
    """

    width = 192

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__()
        channels, height, width = shape
        patch = patch_side(min(height, width))
        if height % patch or width % patch:
            raise UserError(
                f"the encoder 'vit' cuts {height}x{width} images into patches of {patch}x{patch}, "
                "which must fit exactly: use another encoder, such as resnet18."
            )
        count = (height // patch) * (width // patch)
        self.embed = nn.Conv2d(channels, self.width, patch, stride=patch)
        self.token = nn.Parameter(torch.empty(1, 1, self.width))
        self.positions = nn.Parameter(torch.empty(1, count + 1, self.width))
        self.blocks = nn.Sequential(*(TransformerBlock(self.width, 3, 768) for _ in range(9)))
        self.last_norm = nn.LayerNorm(self.width)
        self.apply(start_small)
        nn.init.trunc_normal_(self.token, std=0.02)
        nn.init.trunc_normal_(self.positions, std=0.02)

    def in_order(self) -> tuple[Stage, ...]:
        *blocks, last = (Stage((f"blocks.{index}",), block) for index, block in enumerate(self.blocks))
        embedding = Stage(("embed", "token", "positions"), self._tokens)
        return embedding, *blocks, Stage((*last.parts, "last_norm"), self._feature)

    def _tokens(self, images: Tensor) -> Tensor:
        patches = self.embed(images).flatten(2).transpose(1, 2)  # (B, N, 192)
        return torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1) + self.positions

    def _feature(self, tokens: Tensor) -> Tensor:
        """The class token after the last block, (B, 192)."""
        return self.last_norm(self.blocks[-1](tokens)[:, 0])

    def wiring(self) -> Wiring:
        raise not_wired("vit")


def start_small(module: nn.Module) -> None:
    """The usual start of a transformer's linear maps: weights of deviation 0.02, biases 0."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)


def vit(shape: tuple[int, int, int], norm: str) -> VisionTransformer:
    """192 features. `norm` must be a known name and changes nothing: a transformer normalises by LayerNorm."""
    norm_of(norm)
    return VisionTransformer(shape)
