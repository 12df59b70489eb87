import pytest
import torch

from fedshot.local.losses import proximal


def test_half_the_squared_distance_to_the_start() -> None:
    draw = torch.Generator().manual_seed(1)
    now = [torch.randn(shape, generator=draw, requires_grad=True) for shape in ((3, 2), (4,))]
    start = [torch.randn(t.shape, generator=draw) for t in now]
    expected = 0.0
    for a, b in zip(now, start, strict=True):
        for x, y in zip(a.detach().double().flatten().tolist(), b.double().flatten().tolist(), strict=True):
            expected += (x - y) ** 2 / 2
    found = proximal(now, start)
    assert found.item() == pytest.approx(expected, rel=1e-6)
    found.backward()
    for a, b in zip(now, start, strict=True):
        torch.testing.assert_close(a.grad, a.detach() - b)
