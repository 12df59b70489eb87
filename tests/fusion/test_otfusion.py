from itertools import permutations

import pytest
import torch
from torch import nn

from fedshot.errors import UserError
from fedshot.fusion.otfusion import align, otfusion_state, permute
from fedshot.models import DualHead, EtfHead, LinearHead, PrototypeHead, Wiring, build
from fedshot.models.resnet import ResNet, basic_block, bottleneck
from fedshot.task import Task

IMAGES = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(9))


def model_of(encoder, norm="batch", head=PrototypeHead, seed=1):
    """A network in eval mode whose normalisation layers have neither trivial weights nor trivial statistics."""
    model = build(Task(4, (3, 8, 8), (0.5,) * 3, (0.5,) * 3, encoder, norm, seed), head)
    return unsettled(model, seed)


def unsettled(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d | nn.GroupNorm):
            module.weight.data.uniform_(0.5, 1.5, generator=generator)
            module.bias.data.normal_(0, 0.3, generator=generator)
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.3, generator=generator)
            module.running_var.uniform_(0.5, 2.0, generator=generator)
            module.num_batches_tracked.fill_(seed)
    return model.eval()


def random_orders(state, wiring, seed=0):
    """A random renumbering of every group that keeps GroupNorm's blocks together."""
    generator = torch.Generator().manual_seed(seed)
    orders = {}
    for name, axes in wiring.weights.items():
        for axis, group in enumerate(axes):
            if group is None or group in orders:
                continue
            blocks = wiring.blocks.get(group, 1)
            size = state[name].shape[axis] // blocks
            outer = torch.randperm(blocks, generator=generator)
            orders[group] = torch.cat([b * size + torch.randperm(size, generator=generator) for b in outer])
    return orders


def scores(model, state):
    """What the model says with that state; its own state is put back."""
    own = {name: entry.clone() for name, entry in model.state_dict().items()}
    model.load_state_dict(state)
    with torch.no_grad():
        result = model(IMAGES)
    model.load_state_dict(own)
    return result


def equal(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def etf_head(width, classes):
    return EtfHead(width, torch.eye(classes))


NETWORKS = [
    ("cnn", "batch", PrototypeHead),
    ("cnn", "group", LinearHead),
    ("cnn", "batch", DualHead),
    ("cnn", "batch", etf_head),
    ("resnet18", "batch", LinearHead),
    ("resnet18", "group", PrototypeHead),
    ("resnet34", "batch", PrototypeHead),
    ("resnet50", "batch", PrototypeHead),
    ("resnet50", "group", LinearHead),
]


@pytest.mark.parametrize(("encoder", "norm", "head"), NETWORKS)
def test_renumbering_channels_keeps_the_function(encoder, norm, head):
    model = model_of(encoder, norm, head)
    state, wiring = model.state_dict(), model.wiring()
    moved = permute(state, wiring, random_orders(state, wiring))
    changed = {name for name in state if not torch.equal(state[name], moved[name])}
    assert changed == {*wiring.weights, *wiring.statistics}
    torch.testing.assert_close(scores(model, moved), scores(model, state), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("encoder", ["cnn", "resnet18", "resnet50"])
def test_every_entry_with_a_channel_axis_is_wired(encoder):
    model = model_of(encoder, head=LinearHead)
    wiring = model.wiring()
    loose = {name for name in model.state_dict() if name not in wiring.weights and name not in wiring.statistics}
    assert all(name.endswith("num_batches_tracked") or name == "head.bias" for name in loose)
    assert set(wiring.weights) == {name for name, _ in model.named_parameters()} - {"head.bias"}


@pytest.mark.parametrize(("encoder", "norm"), [("cnn", "batch"), ("cnn", "group"), ("resnet18", "batch")])
def test_align_undoes_a_renumbering_exactly(encoder, norm):
    model = model_of(encoder, norm)
    state, wiring = model.state_dict(), model.wiring()
    moved = permute(state, wiring, random_orders(state, wiring))
    assert not equal(moved, state)
    assert equal(align(state, moved, wiring), state)


@pytest.mark.parametrize("block", [basic_block, bottleneck])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_align_undoes_a_renumbering_through_shortcuts(block, norm):
    torch.manual_seed(0)
    encoder = unsettled(ResNet(3, norm, block, (2, 2), (32, 64)), seed=1)
    state, wiring = encoder.state_dict(), encoder.wiring()
    moved = permute(state, wiring, random_orders(state, wiring))
    assert equal(align(state, moved, wiring), state)


def test_fusing_a_network_with_its_renumbered_copy_keeps_its_function():
    model = model_of("cnn")
    state, wiring = model.state_dict(), model.wiring()
    moved = permute(state, wiring, random_orders(state, wiring))
    fused = otfusion_state([state, moved, state], [0.2, 0.5, 0.3], wiring)
    torch.testing.assert_close(scores(model, fused), scores(model, state), rtol=1e-4, atol=1e-5)
    plain = {name: (entry + moved[name]) / 2 if entry.is_floating_point() else entry for name, entry in state.items()}
    assert (scores(model, plain) - scores(model, state)).abs().max() > 0.1


def test_align_finds_a_perturbed_copy():
    model = model_of("cnn")
    state, wiring = model.state_dict(), model.wiring()
    generator = torch.Generator().manual_seed(3)
    near = {
        name: entry + 0.01 * torch.randn(entry.shape, generator=generator) if entry.is_floating_point() else entry
        for name, entry in state.items()
    }
    moved = permute(near, wiring, random_orders(state, wiring))
    assert equal(align(state, moved, wiring), near)


def gap(one, two, wiring):
    return sum((one[name] - two[name]).square().sum().item() for name in wiring.weights)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_align_brings_strangers_closer_by_a_renumbering(norm):
    one, two = model_of("cnn", norm, seed=1), model_of("cnn", norm, seed=2)
    wiring = one.wiring()
    pivot, other = one.state_dict(), two.state_dict()
    aligned = align(pivot, other, wiring)
    assert gap(pivot, aligned, wiring) < 0.9 * gap(pivot, other, wiring)
    torch.testing.assert_close(scores(two, aligned), scores(two, other), rtol=1e-3, atol=1e-4)
    assert equal(align(pivot, aligned, wiring), aligned)


def test_align_equals_exhaustive_search_on_one_group():
    wiring = Wiring({"first": ("hidden", None), "second": (None, "hidden")})
    generator = torch.Generator().manual_seed(0)
    pivot, other = (
        {"first": torch.randn(4, 3, generator=generator), "second": torch.randn(2, 4, generator=generator)}
        for _ in range(2)
    )
    best = min(
        (permute(other, wiring, {"hidden": torch.tensor(order)}) for order in permutations(range(4))),
        key=lambda state: gap(pivot, state, wiring),
    )
    assert equal(align(pivot, other, wiring), best)


def test_blocks_stay_together():
    wiring = Wiring({"only": ("hidden", None)}, blocks={"hidden": 2})
    pivot = {"only": torch.tensor([[1.0], [2.0], [3.0], [4.0]])}
    other = {"only": torch.tensor([[4.0], [1.0], [2.0], [2.5]])}
    # Unbound, the result would be 1, 2, 2.5, 4; a block {4, 1} or {2, 2.5} moves only as a whole.
    assert align(pivot, other, wiring)["only"].flatten().tolist() == [2.0, 2.5, 1.0, 4.0]


def test_the_mean_is_weighted_and_keeps_the_largest_count():
    model = model_of("cnn")
    state, wiring = model.state_dict(), model.wiring()
    doubled = {name: 2 * entry for name, entry in state.items()}
    fused = otfusion_state([state, doubled], [3, 1], wiring)
    for name, entry in state.items():
        if entry.is_floating_point():
            torch.testing.assert_close(fused[name], 1.25 * entry)
            assert fused[name].dtype == entry.dtype
        else:
            assert torch.equal(fused[name], 2 * entry)


def test_the_order_of_the_networks_does_not_matter():
    models = [model_of("cnn", seed=seed) for seed in (1, 2, 3)]
    states, wiring = [model.state_dict() for model in models], models[0].wiring()
    forward = otfusion_state(states, [1, 3, 2], wiring)
    backward = otfusion_state(states[::-1], [2, 3, 1], wiring)
    for name, entry in forward.items():
        torch.testing.assert_close(backward[name], entry)


@pytest.mark.parametrize("encoder", ["mobilenet_v2", "vit"])
def test_encoders_without_wiring_are_refused(encoder):
    with pytest.raises(UserError, match=f"'{encoder}' .* cnn, resnet18, resnet34, resnet50"):
        build(Task(4, (3, 8, 8), (0.5,) * 3, (0.5,) * 3, encoder), PrototypeHead).wiring()


@pytest.mark.parametrize("weights", [[], [1.0], [-1.0, 2.0], [0.0, 0.0]])
def test_wrong_weights_are_refused(weights):
    with pytest.raises(UserError, match="otfusion got 2 networks"):
        otfusion_state([{}, {}], weights, Wiring({}))


def test_networks_of_different_shape_are_refused():
    one, two = model_of("cnn"), model_of("resnet18")
    with pytest.raises(UserError, match="one architecture"):
        align(one.state_dict(), two.state_dict(), one.wiring())
