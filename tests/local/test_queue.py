"""The memory of past features: what it holds after any row of pushes."""

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from fedshot.local.losses import bank_contrast
from fedshot.local.queue import NOBODY, Queue
from fedshot.seeds import stream

CPU = torch.device("cpu")


def features_of(numbers: range) -> torch.Tensor:
    return torch.tensor([[float(number), 1.0] for number in numbers])


@settings(max_examples=50, deadline=None)
@given(size=st.integers(1, 9), batches=st.lists(st.integers(1, 20), max_size=6))
def test_it_holds_the_last_of_what_was_pushed_in_the_tensors_that_it_began_with(size: int, batches: list[int]) -> None:
    queue = Queue.empty(size, 2, CPU)
    places = [tensor.data_ptr() for tensor in vars(queue).values()]
    pushed = 0
    for batch in batches:
        numbers = range(pushed, pushed + batch)
        queue.push(features_of(numbers), torch.tensor(numbers) % 3)
        pushed += batch
    expected = set(range(max(0, pushed - size), pushed))
    held = queue.features[queue.filled]
    assert {int(number) for number in held[:, 0]} == expected and len(held) == len(expected)
    assert torch.equal(queue.labels[queue.filled], held[:, 0].long() % 3)
    assert int(queue.count) == min(pushed, size)
    assert [tensor.data_ptr() for tensor in vars(queue).values()] == places


def test_the_oldest_goes_first() -> None:
    queue = Queue.empty(4, 2, CPU)
    queue.push(features_of(range(3)), torch.zeros(3, dtype=torch.long))
    queue.push(features_of(range(3, 5)), torch.zeros(2, dtype=torch.long))
    assert queue.features[:, 0].tolist() == [4, 1, 2, 3] and int(queue.place) == 1


def test_random_entries_are_unit_of_no_class_and_of_their_stream() -> None:
    queue, again = (Queue.random(50, 8, CPU, stream(1, "memory bank", 0)) for _ in range(2))
    torch.testing.assert_close(queue.features.norm(dim=1), torch.ones(50))
    assert queue.filled.all() and (queue.labels == NOBODY).all()
    assert torch.equal(queue.features, again.features)
    assert not torch.equal(queue.features, Queue.random(50, 8, CPU, stream(1, "memory bank", 1)).features)


def test_a_push_before_backward_does_not_move_the_gradient() -> None:
    features = F.normalize(torch.randn(6, 4, generator=torch.Generator().manual_seed(1)), dim=1).requires_grad_()
    labels = torch.tensor([0, 1, 0, 1, 2, 2])
    slopes: list[torch.Tensor] = []
    for pushed in (False, True):
        queue = Queue.random(5, 4, CPU, stream(1, "memory bank"))
        loss = bank_contrast(features, labels, queue.features, queue.labels, same_class="repel", filled=queue.filled)
        if pushed:
            queue.push(features, labels)
        slopes += torch.autograd.grad(loss, features)
        assert not queue.features.requires_grad
    assert torch.equal(*slopes)


def test_the_share_of_an_anchor_s_own_class() -> None:
    queue = Queue.empty(8, 2, CPU)
    assert queue.own_share(torch.tensor([0, 1])) == 0  # of nothing
    queue.push(features_of(range(4)), torch.tensor([0, 0, 0, 1]))
    assert queue.own_share(torch.tensor([0, 1, 2, 2])) == (3 + 1) / (4 * 4)


def test_no_value_or_shape_of_a_push_depends_on_the_data() -> None:
    queue = Queue.empty(4, 2, torch.device("meta"))
    for batch in (1, 4, 7):
        queue.push(torch.empty(batch, 2, device="meta"), torch.empty(batch, dtype=torch.long, device="meta"))
    assert queue.filled.shape == (4,)
