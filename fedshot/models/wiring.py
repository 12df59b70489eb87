"""How the channels of a network hang together: which axis of which state entry runs over which group of channels.

Channels joined by a residual addition, and those of a normalisation layer, are one group: renumbering
a group on all its axes at once leaves the network's function as it was. Matching networks channel by
channel (`fedshot.fusion.otfusion`) needs nothing else to know about an architecture.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedshot.errors import UserError

Axes = tuple[str | None, ...]  # one channel group per leading axis; None is an axis that keeps its numbering

FEATURES = "features"  # the group of an encoder's output, hence of a head's input columns
WIRED = ("cnn", "resnet18", "resnet34", "resnet50")  # names in ENCODERS whose encoder has a wiring


@dataclass(frozen=True)
class Wiring:
    """The channel groups of a network, its entries listed in forward order."""

    weights: Mapping[str, Axes]  # trained entries: they say which channels resemble each other
    statistics: Mapping[str, Axes] = field(default_factory=dict)  # running moments: they follow their channels
    blocks: Mapping[str, int] = field(default_factory=dict)  # group -> blocks that GroupNorm must keep together

    def __or__(self, later: "Wiring") -> "Wiring":
        """The two parts, one after the other."""
        return Wiring(
            {**self.weights, **later.weights},
            {**self.statistics, **later.statistics},
            {**self.blocks, **later.blocks},
        )

    def within(self, prefix: str) -> "Wiring":
        """The same part as a child of that name: entries are renamed, groups are not.

        >>> Wiring({"weight": ("out", "in")}).within("conv").weights
        {'conv.weight': ('out', 'in')}
        """
        return Wiring(
            {f"{prefix}.{name}": axes for name, axes in self.weights.items()},
            {f"{prefix}.{name}": axes for name, axes in self.statistics.items()},
            self.blocks,
        )

    def groups(self) -> tuple[str, ...]:
        """Every group once, in the order in which a forward pass makes its channels.

        >>> Wiring({"a": ("x", None), "b": ("y", "x"), "c": ("x", "y")}).groups()
        ('x', 'y')
        """
        return tuple(dict.fromkeys(axes[0] for axes in self.weights.values() if axes[0] is not None))


def not_wired(encoder: str) -> UserError:
    """The error of an encoder whose channels cannot be matched."""
    return UserError(f"the encoder {encoder!r} cannot be aligned channel by channel: choose one of {', '.join(WIRED)}.")
