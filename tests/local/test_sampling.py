"""The balanced order of a client's images."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedshot.local.sampling import balanced_order
from fedshot.seeds import stream


@settings(max_examples=50, deadline=None)
@given(labels=st.lists(st.integers(0, 5), min_size=1, max_size=40), seed=st.integers(0, 2**32))
def test_classes_come_equally_often_and_images_repeat_only_after_all_were_shown(labels: list[int], seed: int) -> None:
    given_labels = torch.tensor(labels)
    order = balanced_order(given_labels, stream(seed, "batches"))
    assert order.shape == (len(labels),) and order.dtype == torch.int64
    seen = given_labels[order].tolist()
    held = sorted(set(labels))
    times = [seen.count(label) for label in held]
    assert max(times) - min(times) <= 1
    for label in held:
        shown = [index for index in order.tolist() if labels[index] == label]
        size = labels.count(label)
        for start in range(0, len(shown), size):
            part = shown[start : start + size]
            assert len(set(part)) == len(part)


def test_every_stretch_of_the_order_is_balanced() -> None:
    labels = torch.tensor([3] * 100 + [8] * 10 + [1] * 10)
    seen = labels[balanced_order(labels, stream(1, "batches"))].view(-1, 3)
    assert all(sorted(row) == [1, 3, 8] for row in seen.tolist())
    assert len({tuple(row) for row in seen.tolist()}) == 6  # all orders of three classes


def test_it_depends_on_the_stream_alone() -> None:
    labels = torch.arange(60) % 7
    first, again = (balanced_order(labels, stream(1, "batches", 0)) for _ in range(2))
    assert torch.equal(first, again)
    generator = stream(1, "batches", 0)
    assert not torch.equal(balanced_order(labels, generator), balanced_order(labels, generator))


def test_a_client_whose_classes_are_equally_large_sees_every_image_once() -> None:
    labels = torch.arange(40) % 4
    assert balanced_order(labels, stream(2, "batches")).sort().values.tolist() == list(range(40))
