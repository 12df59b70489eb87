"""The parts from which the convolutional encoders are made."""

from collections.abc import Callable
from contextvars import ContextVar

from torch import Tensor, nn

from fedshot.errors import unknown
from fedshot.models.wiring import Wiring


def group_count(channels: int) -> int:
    """GroupNorm's number of groups: the largest divisor of `channels` up to 32 that leaves 8 channels a group.

    Eight channels keep a group meaningful where the map has shrunk to one pixel.

    >>> [group_count(channels) for channels in (4, 24, 64, 512, 1280)]
    [1, 3, 8, 32, 32]
    """
    return next(count for count in range(max(1, min(32, channels // 8)), 0, -1) if channels % count == 0)


def group_norm(channels: int) -> nn.Module:
    """GroupNorm (Wu & He 2018, arXiv:1803.08494): no running statistics, so nothing to average or to leak."""
    return nn.GroupNorm(group_count(channels), channels)


FUSED: ContextVar[bool] = ContextVar("fused", default=False)  # whether a norm and what follows it are one kernel

NORMS: dict[str, Callable[[int], nn.Module]] = {"batch": nn.BatchNorm2d, "group": group_norm}


def norm_of(name: str) -> Callable[[int], nn.Module]:
    """From channels to the normalisation layer of that name."""
    if name not in NORMS:
        raise unknown("norm", name, NORMS)
    return NORMS[name]


class ConvNorm(nn.Module):
    """Activation(norm(convolution)), the convolution without bias and padded to keep the map's size at stride 1."""

    def __init__(
        self,
        channels: tuple[int, int],  # in, out
        norm: str,
        kernel: int = 3,
        stride: int = 1,
        groups: int = 1,
        activation: type[nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(*channels, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_out", nonlinearity="relu")
        self.norm = norm_of(norm)(channels[1])  # weight 1, bias 0
        self.activation = activation()

    def forward(self, maps: Tensor, added: Tensor | None = None) -> Tensor:
        """What is `added` comes in before the activation."""
        maps, relu = self.conv(maps), isinstance(self.activation, nn.ReLU)
        if FUSED.get() and isinstance(self.norm, nn.BatchNorm2d) and (relu or isinstance(self.activation, nn.Identity)):
            from fedshot.kernels.norm import norm_add_relu

            return norm_add_relu(maps, self.norm, added, relu)
        normalised = self.norm(maps)
        return self.activation(normalised if added is None else normalised + added)

    def wiring(self, source: str | None, target: str) -> Wiring:
        """Reads the group `source` and makes the group `target`."""
        moments = ("norm.running_mean", "norm.running_var") if isinstance(self.norm, nn.BatchNorm2d) else ()
        return Wiring(
            weights={"conv.weight": (target, source), "norm.weight": (target,), "norm.bias": (target,)},
            statistics=dict.fromkeys(moments, (target,)),
            blocks={target: self.norm.num_groups if isinstance(self.norm, nn.GroupNorm) else 1},
        )


class Residual(nn.Module):
    """relu(body(x) + shortcut(x)); without a shortcut the addition is to x itself (He et al. 2016, arXiv:1512.03385).

    The addition comes in before the activation of the body's last layer.
    """

    def __init__(self, body: list[ConvNorm], shortcut: ConvNorm | None) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)
        self.shortcut = shortcut

    def forward(self, maps: Tensor) -> Tensor:
        carried = maps
        if FUSED.get():
            from fedshot.kernels.norm import fork

            maps, carried = fork(maps)
        *first, last = self.layers()
        for layer in first:
            maps = layer(maps)
        return last(maps, carried if self.shortcut is None else self.shortcut(carried))

    def wiring(self, source: str, target: str, name: str) -> Wiring:
        """Reads `source`, makes `target` (the same group if there is no shortcut), has its own groups between.

        `name` tells this block's inner groups from those of the others.
        """
        wiring, reading = Wiring({}), source
        for index, layer in enumerate(self.layers()):
            making = target if index == len(self.body) - 1 else f"{name}.{index}"
            wiring |= layer.wiring(reading, making).within(f"body.{index}")
            reading = making
        if self.shortcut is not None:
            wiring |= self.shortcut.wiring(source, target).within("shortcut")
        return wiring

    def layers(self) -> list[ConvNorm]:
        """The body's layers, in order."""
        return [layer for layer in self.body if isinstance(layer, ConvNorm)]


def shortcut(channels: tuple[int, int], stride: int, norm: str) -> ConvNorm | None:
    """A 1x1 projection where the shape changes, nothing where it does not."""
    if channels[0] == channels[1] and stride == 1:
        return None
    return ConvNorm(channels, norm, kernel=1, stride=stride, activation=nn.Identity)


def basic_block(channels: tuple[int, int], stride: int, norm: str) -> Residual:
    """Two 3x3 convolutions."""
    body = [
        ConvNorm(channels, norm, stride=stride),
        ConvNorm((channels[1], channels[1]), norm),
    ]
    return Residual(body, shortcut(channels, stride, norm))


def bottleneck(channels: tuple[int, int], stride: int, norm: str) -> Residual:
    """1x1, 3x3 with the stride, 1x1; the middle has a quarter of the output channels."""
    inside = channels[1] // 4
    body = [
        ConvNorm((channels[0], inside), norm, kernel=1),
        ConvNorm((inside, inside), norm, stride=stride),
        ConvNorm((inside, channels[1]), norm, kernel=1),
    ]
    return Residual(body, shortcut(channels, stride, norm))
