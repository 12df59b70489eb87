import pytest
import torch
from safetensors.torch import save_file

from fedshot.local.anchors import anchors
from fedshot.precision import pack
from fedshot.report.geometry import geometry, read_prototypes


def test_prototypes_that_are_the_anchors_are_an_etf(make_record):
    record = make_record("aurora", seed=3, options={"alignment.anchors": "etf"})
    etf = anchors("etf", 4, 8, seed=3)
    told = geometry({0: etf, 1: 5 * etf}, record)
    assert told["apart"] < 1e-6 and told["etf"] == -0.3333
    assert told["anchor"] == [1, 1, 1, 1]
    assert told["cosines"][0] == [100, -33, -33, -33]
    assert len(told["plane"]) == 3 * 4 and told["plane"][0][:2] == [-1, 0]
    assert told["share"] == pytest.approx(2 / 3, abs=1e-3), (
        "a simplex of four corners is equally wide in three directions"
    )


def test_without_known_anchors_or_prototypes_nothing_is_made_up(make_record):
    rows = torch.eye(3, 5)
    assert geometry({0: rows}, make_record("fafi"))["anchor"] is None
    assert geometry({}, make_record("fedavg")) is None
    assert geometry({0: rows[:1]}, make_record("fafi")) is None


@pytest.mark.parametrize("name", ["head.prototypes", "head.prototype.prototypes"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_prototypes_are_read_from_uploads_of_any_precision(name, precision, make_record, tmp_path):
    rows = torch.tensor([[1.0, -2.0, 0.5], [0.25, 4.0, 1.0]])
    (tmp_path / "clients" / "0").mkdir(parents=True)
    packed = {f"weights/{key}": tensor for key, tensor in pack({name: rows}, precision).items()}
    save_file(packed, tmp_path / "clients" / "0" / "upload.safetensors")
    found = read_prototypes(tmp_path, make_record())
    assert list(found) == [0], "the upload of client 1 is gone"
    torch.testing.assert_close(found[0], rows, atol=0.02, rtol=0.01)


def test_uploads_without_prototypes_or_damaged_ones_give_none(make_record, tmp_path):
    for client in ("0", "1"):
        (tmp_path / "clients" / client).mkdir(parents=True)
    (tmp_path / "clients" / "0" / "upload.safetensors").write_bytes(b"no upload")
    save_file({"weights/head.weight": torch.ones(2, 3)}, tmp_path / "clients" / "1" / "upload.safetensors")
    assert read_prototypes(tmp_path, make_record()) == {}
