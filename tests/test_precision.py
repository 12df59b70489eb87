"""How weights travel: exact in float32, bounded in bfloat16 and int8."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedshot.precision import pack, unpack

STATE = {
    "conv": torch.randn(8, 3, 3, 3, generator=torch.Generator().manual_seed(0)),
    "matrix": torch.randn(5, 7, generator=torch.Generator().manual_seed(1)) * 100,
    "bias": torch.randn(5, generator=torch.Generator().manual_seed(2)),
    "scalar": torch.tensor(3.7),
    "counter": torch.tensor(12345),
    "empty": torch.zeros(0),
}


def test_float32_is_the_tensors_themselves() -> None:
    packed = pack(STATE, "fp32")
    assert packed.keys() == STATE.keys()
    assert all(torch.equal(unpack(packed)[name], tensor) for name, tensor in STATE.items())


def test_bfloat16_rounds_matrices_to_eight_bits_and_leaves_the_rest() -> None:
    packed = pack(STATE, "bf16")
    assert {name: t.dtype for name, t in packed.items()} == {
        "conv": torch.bfloat16,
        "matrix": torch.bfloat16,
        "bias": torch.float32,
        "scalar": torch.float32,
        "counter": torch.int64,
        "empty": torch.float32,
    }
    back = unpack(packed)
    for name in ("conv", "matrix"):
        assert back[name].dtype == torch.float32
        assert ((back[name] - STATE[name]).abs() <= 2.0**-8 * STATE[name].abs()).all()
        assert not torch.equal(back[name], STATE[name])
    assert all(torch.equal(back[name], STATE[name]) for name in ("bias", "scalar", "counter", "empty"))


def test_int8_is_within_half_a_step_of_each_row_and_leaves_vectors() -> None:
    packed = pack(STATE, "int8")
    assert packed["conv"].dtype == packed["matrix"].dtype == torch.int8
    assert packed["conv"].shape == STATE["conv"].shape
    assert packed["conv#scale"].shape == (8,)
    back = unpack(packed)
    assert back.keys() == STATE.keys()
    for name in ("conv", "matrix"):
        step = STATE[name].flatten(1).abs().amax(1) / 127
        error = (back[name] - STATE[name]).flatten(1).abs().amax(1)
        assert (error <= step / 2 * (1 + 1e-5)).all()
        assert (error > 0).all()
    assert all(torch.equal(back[name], STATE[name]) for name in ("bias", "scalar", "counter", "empty"))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=4, max_size=4), min_size=1, max_size=5))
def test_int8_of_any_rows_stays_finite_and_within_half_a_step(rows: list[list[float]]) -> None:
    tensor = torch.tensor(rows)
    back = unpack(pack({"w": tensor}, "int8"))["w"]
    step = tensor.double().abs().amax(1, keepdim=True) / 127
    slack = 1e-6 * tensor.double().abs().amax(1, keepdim=True) + 3e-43  # of float32, down to its smallest number
    assert ((back.double() - tensor.double()).abs() <= step / 2 + slack).all()


def test_a_row_of_zeros_comes_back_as_zeros() -> None:
    tensor = torch.tensor([[0.0, 0.0], [1.0, -1.0]])
    assert torch.equal(unpack(pack({"w": tensor}, "int8"))["w"], tensor)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_packing_what_was_unpacked_gives_the_same_again(precision: str) -> None:
    once = unpack(pack(STATE, precision))  # type: ignore[arg-type]
    twice = unpack(pack(once, precision))  # type: ignore[arg-type]
    assert all(torch.allclose(twice[name], once[name], rtol=1e-6, atol=0) for name in STATE)


def test_a_scale_belongs_to_an_int8_tensor_only() -> None:
    plain = {"bias": torch.ones(3), "bias#scale": torch.full((3,), 100.0)}
    assert torch.equal(unpack(plain)["bias"], torch.ones(3))
