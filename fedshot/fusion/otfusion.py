"""OTFusion (Singh & Jaggi 2020, arXiv:1910.05653): match all networks' channels to one network's, then average.

The transport between two layers of equal width with uniform masses is a linear program over the doubly
stochastic matrices, whose corners are the permutations (Birkhoff): the exact plan is an assignment.
Beyond the paper: BatchNorm, GroupNorm and shortcuts, through a network's `Wiring`; and coordinate descent
over the groups after the layer-wise pass, as a layer's outgoing weights tell about its channels too.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from fedshot.errors import UserError
from fedshot.fusion.average import average_states
from fedshot.models.wiring import Axes, Wiring

State = Mapping[str, Tensor]
Orders = dict[str, Tensor]  # group -> (n,) int64: channel i of the result is channel order[i] of the network


def permute(state: State, wiring: Wiring, orders: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same network with its channels renumbered; groups without an order stay as they are.

    >>> wiring = Wiring({"first": ("hidden", None), "second": (None, "hidden")})
    >>> state = {"first": torch.tensor([[1.0], [2.0]]), "second": torch.tensor([[3.0, 4.0]])}
    >>> permute(state, wiring, {"hidden": torch.tensor([1, 0])})
    {'first': tensor([[2.],
            [1.]]), 'second': tensor([[4., 3.]])}
    """
    axes = {**wiring.weights, **wiring.statistics}
    return {name: _permuted(entry, axes.get(name, ()), orders) for name, entry in state.items()}


def align(pivot: State, other: State, wiring: Wiring) -> dict[str, Tensor]:
    """The other network with its channels numbered like the pivot's.

    Minimises sum |pivot_w - P(other_w)|^2 over the trained entries w: layer by layer in forward order with
    inputs already aligned, then group by group, incoming and outgoing weights together, until nothing
    changes. The descent also starts from the numbering as it is, and the closer of the two ends is taken,
    so that alignment never moves a network away from the pivot.
    """
    _check(pivot, other, wiring)
    matched = _layer_by_layer(pivot, other, wiring)
    unmoved = {group: torch.arange(len(order)) for group, order in matched.items()}
    ends = [_descend(pivot, other, wiring, start) for start in (matched, unmoved)]
    return min((permute(other, wiring, orders) for orders in ends), key=lambda state: _gap(pivot, state, wiring))


def otfusion_state(states: Sequence[State], weights: Sequence[float], wiring: Wiring) -> dict[str, Tensor]:
    """The weighted mean of the networks after alignment to the one of largest weight (the first of equals).

    Running BatchNorm moments are averaged like weights; of integer entries, such as the number of batches
    seen, the largest is kept. Weights need not sum to one. The networks are read one after the other.

    >>> wiring = Wiring({"first": ("hidden", None), "second": (None, "hidden")})
    >>> one = {"first": torch.tensor([[1.0], [5.0]]), "second": torch.tensor([[3.0, 4.0]])}
    >>> two = {"first": torch.tensor([[5.0], [3.0]]), "second": torch.tensor([[4.0, 3.0]])}
    >>> otfusion_state([one, two], [1, 1], wiring)
    {'first': tensor([[2.],
            [5.]]), 'second': tensor([[3., 4.]])}
    """
    if len(states) != len(weights) or min(weights, default=-1.0) < 0 or sum(weights) <= 0:
        raise UserError(
            f"otfusion got {len(states)} networks with weights {list(weights)}: "
            "give each network one weight of at least 0, and at least one a weight above 0."
        )
    heaviest = max(range(len(weights)), key=lambda k: weights[k])
    pivot = states[heaviest]
    aligned = (pivot if k == heaviest else align(pivot, states[k], wiring) for k in range(len(states)))
    return average_states(aligned, torch.tensor([weight / sum(weights) for weight in weights], dtype=torch.float64))


def _permuted(entry: Tensor, axes: Axes, orders: Mapping[str, Tensor]) -> Tensor:
    for axis, group in enumerate(axes):
        if group is not None and group in orders:
            entry = entry.index_select(axis, orders[group].to(entry.device))
    return entry


def _check(pivot: State, other: State, wiring: Wiring) -> None:
    differs = next((name for name in pivot if name not in other or pivot[name].shape != other[name].shape), None)
    missing = next((name for name in (*wiring.weights, *wiring.statistics) if name not in pivot), differs)
    if missing is not None:
        raise UserError(f"otfusion needs networks of one architecture: {missing!r} is not the same in all of them.")


def _gap(pivot: State, other: State, wiring: Wiring) -> float:
    """Squared distance of the trained entries."""
    return sum(float((pivot[name].double() - other[name].double()).square().sum()) for name in wiring.weights)


def _layer_by_layer(pivot: State, other: State, wiring: Wiring) -> Orders:
    """Each group by the incoming weights whose own inputs are already aligned, in forward order."""
    orders: Orders = {}
    for group in wiring.groups():
        incoming = [
            (name, 0)
            for name, axes in wiring.weights.items()
            if axes[0] == group and all(source is None or source in orders for source in axes[1:])
        ]
        orders[group] = _assign(_similarity(pivot, other, wiring, incoming, orders), wiring.blocks.get(group, 1))
    return orders


def _descend(pivot: State, other: State, wiring: Wiring, start: Orders) -> Orders:
    """Groups re-assigned with all others held, until no assignment brings the networks closer."""
    orders = dict(start)
    pending = dict.fromkeys(wiring.groups())  # an ordered set
    while pending:
        group = next(iter(pending))
        del pending[group]
        touching = [(name, axes.index(group)) for name, axes in wiring.weights.items() if group in axes]
        similarity = _similarity(pivot, other, wiring, touching, orders)
        order = _assign(similarity, wiring.blocks.get(group, 1))
        before, after = (float(similarity.gather(1, o[:, None]).sum()) for o in (orders[group], order))
        # Only a gain beyond rounding counts: the distance then falls at each change, and the descent ends.
        if after > before + 1e-9 * abs(before):
            orders[group] = order
            neighbours = {near for name, _ in touching for near in wiring.weights[name]} - {group, None}
            pending |= dict.fromkeys(near for near in wiring.groups() if near in neighbours)
    return orders


def _similarity(
    pivot: State, other: State, wiring: Wiring, entries: Iterable[tuple[str, int]], orders: Orders
) -> Tensor:
    """Inner products (n, n) of the pivot's channels with the other's, summed over entries and the group's axis in each.

    |p - q|^2 = |p|^2 + |q|^2 - 2 p.q, of which an assignment moves only the last term.
    """
    total = torch.zeros(())
    for name, axis in entries:
        group = wiring.weights[name][axis]
        rest = {other_group: order for other_group, order in orders.items() if other_group != group}
        both = pivot[name], _permuted(other[name], wiring.weights[name], rest)
        ours, theirs = (entry.movedim(axis, 0).flatten().view(entry.shape[axis], -1).double() for entry in both)
        total = total + (ours @ theirs.T).cpu()  # (n, m) @ (m, n)
    return total


def _assign(similarity: Tensor, blocks: int) -> Tensor:
    """The order (n,) of largest total similarity (n, n) among those that keep each of the equal blocks together.

    First the best assignment inside each pair of blocks, then the best assignment of blocks. One block is
    the plain assignment; GroupNorm pools its blocks, so that its channels may not leave them singly.
    """
    scores = similarity.numpy()
    size = len(scores) // blocks
    inside = np.empty((blocks, blocks, size), dtype=np.int64)
    gains = np.empty((blocks, blocks))
    for i, j in np.ndindex(blocks, blocks):
        part = scores[i * size : (i + 1) * size, j * size : (j + 1) * size]
        rows, inside[i, j] = linear_sum_assignment(part, maximize=True)
        gains[i, j] = part[rows, inside[i, j]].sum()
    pairs = zip(*linear_sum_assignment(gains, maximize=True), strict=True)
    return torch.from_numpy(np.concatenate([j * size + inside[i, j] for i, j in pairs]))
