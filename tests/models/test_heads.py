import pytest
import torch

from fedshot.models import DualHead, EtfHead, LinearHead, PrototypeHead, unit


def test_unit_is_safe_at_zero():
    features = torch.tensor([[0.0, 0.0], [3.0, -4.0]], requires_grad=True)
    result = unit(features)
    assert torch.equal(result[0], torch.zeros(2))
    torch.testing.assert_close(result[1], torch.tensor([0.6, -0.8]))
    result.sum().backward()
    assert features.grad.isfinite().all()


def test_prototype_head_normalises_features_and_never_prototypes():
    head = PrototypeHead(2, 3)
    with torch.no_grad():
        head.prototypes.copy_(torch.tensor([[10.0, 0.0], [0.0, 5.0], [1.0, 1.0]]))
    torch.testing.assert_close(head(torch.tensor([[30.0, 40.0]])), torch.tensor([[6.0, 4.0, 1.4]]))
    torch.testing.assert_close(head(torch.tensor([[0.3, 0.4]])), torch.tensor([[6.0, 4.0, 1.4]]))


def test_prototypes_start_standard_normal():
    torch.manual_seed(0)
    prototypes = PrototypeHead(512, 100).prototypes
    assert prototypes.shape == (100, 512)
    assert prototypes.std().item() == pytest.approx(1, abs=0.02)
    assert prototypes.mean().item() == pytest.approx(0, abs=0.02)


def test_linear_head_reads_raw_features():
    head = LinearHead(2, 2)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        head.bias.copy_(torch.tensor([0.5, -0.5]))
    torch.testing.assert_close(head(torch.tensor([[10.0, 1.0]])), torch.tensor([[12.5, 33.5]]))


def test_etf_head():
    etf = torch.tensor([[1.0, 0.0], [0.0, -1.0]])
    head = EtfHead(3, etf, scale=5.0)
    with torch.no_grad():
        head.project.weight.copy_(torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
    torch.testing.assert_close(head(torch.tensor([[6.0, 8.0, 7.0]])), torch.tensor([[3.0, -4.0]]))
    assert EtfHead(3, etf)(torch.tensor([[6.0, 8.0, 7.0]])).norm().item() == pytest.approx(10.0, rel=1e-5)
    assert {name for name, _ in head.named_parameters()} == {"project.weight", "log_scale"}
    assert set(head.state_dict()) == {"project.weight", "log_scale"}  # the frame is common knowledge
    assert dict(head.named_buffers())["etf"] is not etf


def test_dual_head_predicts_by_prototypes():
    head = DualHead(4, 3)
    features = torch.randn(2, 4)
    assert torch.equal(head(features), head.prototype(features))
    assert torch.equal(head.linear_logits(features), head.linear(features))
    assert not torch.allclose(head(features), head.linear_logits(features))


@pytest.mark.parametrize(
    "head",
    [PrototypeHead(7, 5), LinearHead(7, 5), EtfHead(7, torch.eye(5)), DualHead(7, 5)],
    ids=lambda head: type(head).__name__,
)
def test_heads_say_which_entries_run_over_classes_and_features(head):
    entries = {name: entry for name, entry in head.state_dict().items() if entry.ndim}
    assert set(head.feature_columns) == {name for name, entry in entries.items() if entry.shape[1:] == (7,)}
    rows = {name for name, entry in entries.items() if entry.shape[0] == 5}
    # The rows of the ETF head's map are coordinates of the frame, not classes.
    assert set(head.class_rows) == (set() if isinstance(head, EtfHead) else rows)
