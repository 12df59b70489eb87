"""What leaves a client: exact bytes, a hash of the content, and a door that lets nothing malformed in."""

import json
import pickle
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save as to_safetensors
from torch import Tensor

from fedshot.admission import size_limit, validate
from fedshot.departure import Departure, flattened, make_upload
from fedshot.errors import UploadRefused
from fedshot.local.familiarity import familiarity
from fedshot.local.pixels import class_pixels
from fedshot.models import Classifier, PrototypeHead, build, unit
from fedshot.precision import pack, unpack
from fedshot.sections import Sizes
from fedshot.spec import Precision
from fedshot.task import Task
from fedshot.upload import SECTIONS, Header, Upload, parse

COUNTS = (7, 0, 5, 0, 0, 0, 0, 0, 0, 8)
HEADER = Header(client=2, samples=20, class_counts=COUNTS, method="fafi", validation_accuracy=0.5)
PRECISIONS: list[Precision] = ["fp32", "bf16", "int8"]


@pytest.fixture(scope="module")
def model(task: Task) -> Classifier:
    return build(task, PrototypeHead)


@pytest.fixture(scope="module")
def statistics(model: Classifier) -> dict[str, dict[str, Tensor]]:
    draw = torch.Generator().manual_seed(3)
    features = torch.rand(20, model.encoder.width, generator=draw)
    labels = torch.repeat_interleave(torch.arange(10), torch.tensor(COUNTS))
    held_out = unit(torch.rand(4, model.encoder.width, generator=draw))
    return {
        "moments": {"mean": features.mean(0), "std": features.std(0)},
        "class_means": {"means": torch.rand(10, model.encoder.width, generator=draw)},
        "familiarity": familiarity(unit(features), labels, held_out, 10),
        "class_confidence": {"confidence": torch.rand(10, generator=draw) * (torch.tensor(COUNTS) > 0)},
        "class_pixels": class_pixels(torch.randint(256, (20, 1, 8, 8), generator=draw).byte(), labels, 10),
    }


@pytest.fixture(scope="module")
def upload(model: Classifier, statistics: dict[str, dict[str, Tensor]]) -> Upload:
    return make_upload(HEADER, {"weights": model.state_dict(), **statistics})


def sizes_of(model: Classifier) -> Sizes:
    return Sizes(model.encoder.width, 10, (1, 8, 8))


Check = Callable[[Upload], None]


@pytest.fixture(scope="module")
def check(model: Classifier) -> Check:
    """What the server does with the bytes of an upload."""
    state, sizes = model.state_dict(), sizes_of(model)

    def through(upload: Upload) -> None:
        validate(parse(upload.to_bytes(), size_limit(state, sizes, 1000)), state, sizes, SECTIONS)

    return through


def with_tensor(upload: Upload, name: str, tensor: Tensor) -> Upload:
    return replace(upload, tensors={**upload.tensors, name: tensor})


def without_tensor(upload: Upload, name: str) -> Upload:
    return replace(upload, tensors={key: t for key, t in upload.tensors.items() if key != name})


def with_header(upload: Upload, **changes: Any) -> Upload:
    """An upload whose header says what a header never would."""
    return replace(upload, header=upload.header.model_copy(update=changes))


def message(header: Any, tensors: bytes = b"") -> bytes:
    """A safetensors file with any metadata."""
    text = json.dumps({"__metadata__": header} if header is not None else {}).encode()
    return struct.pack("<Q", len(text)) + text + tensors


@pytest.mark.parametrize("precision", PRECISIONS)
def test_bytes_bring_back_the_header_and_every_tensor(
    precision: Precision, model: Classifier, statistics: dict[str, dict[str, Tensor]], check: Check
) -> None:
    header = HEADER.model_copy(update={"precision": precision})
    sent = make_upload(header, {"weights": model.state_dict(), **statistics})
    back = parse(sent.to_bytes())
    assert back.header == header
    assert back.sections == set(SECTIONS)
    assert back.sha256 == sent.sha256
    assert back.tensors.keys() == sent.tensors.keys()
    assert all(
        torch.equal(back.tensors[name], t) and back.tensors[name].dtype == t.dtype for name, t in sent.tensors.items()
    )
    rounded = unpack(pack(model.state_dict(), precision))
    assert all(torch.equal(back.section("weights")[name], t) for name, t in rounded.items())
    for section, known in statistics.items():  # statistics are exact, whatever the precision of the weights
        assert all(torch.equal(back.section(section)[name], t) for name, t in known.items())
    check(sent)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_message_is_the_same_made_at_once_or_tensor_by_tensor(
    precision: Precision, model: Classifier, statistics: dict[str, dict[str, Tensor]]
) -> None:
    header = HEADER.model_copy(update={"precision": precision})
    halves = {"a": torch.rand(3, 2).bfloat16(), "b": torch.rand(4).half(), "none": torch.zeros(0), "ü": torch.zeros(())}
    for more in ({}, {"mine": halves}):  # with further bf16 tensors beside those that become it
        departure = Departure(header, flattened({"weights": model.state_dict(), **statistics, **more}, precision))
        message = departure.to_bytes()
        assert message == departure.wait().to_bytes()
        assert len(message) == departure.wait().size


def test_smaller_precisions_are_smaller_by_their_ratio(model: Classifier) -> None:
    weights = {"weights": model.state_dict()}
    sizes = {p: len(make_upload(HEADER.model_copy(update={"precision": p}), weights).to_bytes()) for p in PRECISIONS}
    assert sizes["fp32"] == pytest.approx(4 * sum(t.numel() for t in model.state_dict().values()), rel=0.02)
    assert sizes["bf16"] == pytest.approx(sizes["fp32"] / 2, rel=0.05)
    assert sizes["int8"] == pytest.approx(sizes["fp32"] / 4, rel=0.08)


def test_equal_uploads_have_equal_bytes_whatever_the_order_of_tensors(upload: Upload) -> None:
    reversed_order = replace(upload, tensors=dict(reversed(list(upload.tensors.items()))))
    assert reversed_order.to_bytes() == upload.to_bytes() == parse(upload.to_bytes()).to_bytes()
    assert reversed_order.sha256 == upload.sha256


def test_making_an_upload_copies_the_live_model(task: Task) -> None:
    live = build(task, PrototypeHead)
    sent = make_upload(HEADER, {"weights": live.state_dict()})
    before = sent.sha256
    with torch.no_grad():
        live.head.prototypes.add_(1.0)  # type: ignore[operator, union-attr]
    assert sent.sha256 == before


def test_the_hash_ignores_who_made_it_and_sees_everything_else(upload: Upload) -> None:
    assert with_header(upload, method="etf").sha256 == upload.sha256
    assert with_header(upload, fedshot="9.9").sha256 == upload.sha256
    changes: list[dict[str, Any]] = [
        {"client": 3},
        {"samples": 21},
        {"class_counts": (8, 0, 4, 0, 0, 0, 0, 0, 0, 8)},
        {"precision": "bf16"},
        {"validation_accuracy": 0.25},
        {"validation_accuracy": None},
    ]
    assert all(with_header(upload, **change).sha256 != upload.sha256 for change in changes)
    seen = {upload.sha256}
    for name, tensor in upload.tensors.items():
        other = tensor.clone()
        other.view(-1)[-1] += 1
        seen.add(with_tensor(upload, name, other).sha256)
        seen.add(without_tensor(upload, name).sha256)
    assert len(seen) == 1 + 2 * len(upload.tensors)


def test_the_hash_tells_types_and_shapes_apart() -> None:
    def of(tensor: Tensor) -> str:
        return Upload(HEADER, {"weights/w": tensor}).sha256

    bits = torch.arange(4, dtype=torch.int32)
    assert len({of(bits), of(bits.view(2, 2)), of(bits.view(torch.float32))}) == 3


def test_only_the_sections_that_a_rule_needs_travel(upload: Upload) -> None:
    small = upload.only(("weights", "moments"))
    assert small.sections == {"weights", "moments"}
    assert len(small.to_bytes()) < len(upload.to_bytes())
    assert small.sha256 != upload.sha256


WEIGHT = "weights/head.prototypes"


def first_vector(upload: Upload) -> str:
    return next(name for name, t in upload.tensors.items() if name.startswith("weights/") and t.ndim == 1)


def nan_in(tensor: Tensor, value: float) -> Tensor:
    changed = tensor.clone()
    changed.view(-1)[0] = value
    return changed


Change = Callable[[Upload], Upload]
COVARIANCE, DISTANCES = "familiarity/covariance", "familiarity/distances"
MALFORMED: dict[str, tuple[Change, str]] = {
    "a missing tensor": (lambda u: without_tensor(u, WEIGHT), "missing tensor 'weights/head.prototypes'$"),
    "an extra tensor": (lambda u: with_tensor(u, "weights/spy", torch.ones(2)), "unknown tensor 'weights/spy'"),
    "a missing section": (lambda u: u.only(("weights",)), "section class_.*, familiarity, moments is missing"),
    "an extra section": (lambda u: with_tensor(u, "secrets/key", torch.ones(2)), "unknown section secrets"),
    "a tensor without section": (lambda u: with_tensor(u, "naked", torch.ones(2)), "unknown section naked"),
    "another shape": (lambda u: with_tensor(u, WEIGHT, torch.ones(10, 3)), r"shape \(10, 3\), expected \(10, 512\)"),
    "another rank": (lambda u: with_tensor(u, WEIGHT, torch.ones(10, 512, 1)), "shape"),
    "double precision": (lambda u: with_tensor(u, WEIGHT, torch.ones(10, 512).double()), "float64, expected float32"),
    "half precision": (lambda u: with_tensor(u, WEIGHT, torch.ones(10, 512).half()), "type float16, expected float32"),
    "bf16 that says fp32": (lambda u: with_tensor(u, WEIGHT, torch.ones(10, 512).bfloat16()), "type bfloat16"),
    "integers for weights": (lambda u: with_tensor(u, WEIGHT, torch.ones(10, 512, dtype=torch.int64)), "type int64"),
    "NaN in a weight": (lambda u: with_tensor(u, WEIGHT, nan_in(u.tensors[WEIGHT], torch.nan)), "not finite"),
    "inf in a weight": (lambda u: with_tensor(u, WEIGHT, nan_in(u.tensors[WEIGHT], torch.inf)), "not finite"),
    "NaN in a statistic": (lambda u: with_tensor(u, COVARIANCE, nan_in(torch.eye(512), torch.nan)), "not finite"),
    "a stray scale": (
        lambda u: with_tensor(u, f"{first_vector(u)}#scale", torch.ones_like(u.tensors[first_vector(u)])),
        "unknown tensor .*#scale",
    ),
    "a scale of nothing": (lambda u: with_tensor(u, "weights/ghost#scale", torch.ones(3)), "unknown tensor .*ghost"),
    "a scale of a statistic": (lambda u: with_tensor(u, "moments/std#scale", torch.ones(512)), "unknown tensor"),
    "fp32 that says int8": (lambda u: with_header(u, precision="int8"), "missing tensor .* more"),
    "counts that do not add up": (lambda u: with_header(u, samples=21), "add up to 20, not to 21"),
    "negative counts": (lambda u: with_header(u, class_counts=(-1, 1, *COUNTS[2:], 7)), "class_counts = -1"),
    "no samples": (lambda u: with_header(u, samples=0, class_counts=(0,) * 10), "samples = 0"),
    "a huge count": (lambda u: with_header(u, samples=10**30, class_counts=(10**30,)), "samples = 1000"),
    "a fractional count": (lambda u: with_header(u, samples=20.0), "samples = 20.0"),
    "a count in words": (lambda u: with_header(u, samples="20"), "samples = '20'"),
    "a negative client": (lambda u: with_header(u, client=-1), "client = -1"),
    "an accuracy above 1": (lambda u: with_header(u, validation_accuracy=1.5), "validation_accuracy = 1.5"),
    "an unknown precision": (lambda u: with_header(u, precision="fp64"), "precision = 'fp64'"),
    "a negative deviation": (lambda u: with_tensor(u, "moments/std", -torch.ones(512)), "std is negative"),
    "a pixel brighter than white": (
        lambda u: with_tensor(u, "class_pixels/mean", torch.full((10, 1, 8, 8), 1.1)),
        "mean lies outside",
    ),
    "a negative deviation of pixels": (
        lambda u: with_tensor(u, "class_pixels/std", -torch.ones(10, 1, 8, 8)),
        "std is negative",
    ),
    "pixels of another image": (lambda u: with_tensor(u, "class_pixels/std", torch.ones(10, 3, 8, 8)), "shape"),
    "distances out of order": (
        lambda u: with_tensor(u, DISTANCES, torch.tensor([2.0, 1.0])),
        "not ascending",
    ),
    "a negative distance": (lambda u: with_tensor(u, DISTANCES, torch.tensor([-2.0, 1.0])), "not ascending"),
    "an impossible covariance": (lambda u: with_tensor(u, COVARIANCE, -torch.eye(512)), "not the covariance"),
    "a lopsided covariance": (
        lambda u: with_tensor(u, COVARIANCE, torch.eye(512) + torch.triu(torch.ones(512, 512), 1)),
        "not the covariance",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", MALFORMED)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # these headers are wrong on purpose
def test_a_malformed_upload_is_refused_with_its_reason(kind: str, upload: Upload, check: Check) -> None:
    check(upload)
    change, reason = MALFORMED[kind]
    with pytest.raises(UploadRefused, match=reason) as refused:
        check(change(upload))
    assert "\n" not in str(refused.value)


def test_an_int8_upload_cannot_overflow_or_lack_its_scales(model: Classifier) -> None:
    sent = make_upload(HEADER.model_copy(update={"precision": "int8"}), {"weights": model.state_dict()})
    state, sizes = model.state_dict(), sizes_of(model)
    validate(sent, state, sizes, ("weights",))
    scale = f"{WEIGHT}#scale"
    for change, reason in (
        (without_tensor(sent, scale), "missing tensor"),
        (with_tensor(sent, scale, torch.ones(3)), "shape"),
        (with_tensor(sent, scale, torch.full((10,), 3e38)), "not finite"),
        (with_tensor(sent, WEIGHT, torch.ones(10, 512)), "type float32, expected int8"),
    ):
        with pytest.raises(UploadRefused, match=reason):
            validate(change, state, sizes, ("weights",))


def test_bytes_that_are_no_upload_are_refused(upload: Upload) -> None:
    good = upload.to_bytes()
    header = json.loads(upload.header.model_dump_json())
    for bad in (
        b"",
        b"hello",
        bytes(100),
        b"\xff" * 100,
        good[: len(good) // 2],
        good[:-1],
        good + b"more",
        pickle.dumps({"weights": [1, 2, 3]}),
        struct.pack("<Q", 2**63) + b"{}",
        message(None),
        message({}),
        message({"other": "tool"}),
        message({"fedshot": "not json"}),
        message({"fedshot": "[1, 2]"}),
        message({"fedshot": json.dumps({**header, "admin": True})}),
        message({"fedshot": json.dumps({k: v for k, v in header.items() if k != "client"})}),
        message({"fedshot": '{"client": 1' + "0" * 5000 + "}"}),
        message({"fedshot": "[" * 10_000}),
    ):
        with pytest.raises(UploadRefused, match=r"^not a fedshot upload: ") as refused:
            parse(bad)
        assert "\n" not in str(refused.value)


def test_the_reason_names_the_field_of_the_header(upload: Upload) -> None:
    header = json.loads(upload.header.model_dump_json())
    with pytest.raises(UploadRefused, match="header: admin = True: Extra inputs are not permitted"):
        parse(message({"fedshot": json.dumps({**header, "admin": True})}))
    with pytest.raises(UploadRefused, match="header: client: Field required"):
        parse(message({"fedshot": json.dumps({k: v for k, v in header.items() if k != "client"})}))


def test_an_upload_that_executes_code_when_unpickled_is_only_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return print, ("exploded",)

    with pytest.raises(UploadRefused):
        parse(pickle.dumps(Bomb()))
    assert capsys.readouterr().out == ""


def test_an_oversized_upload_is_refused_unread_and_a_full_one_passes(
    model: Classifier, upload: Upload, statistics: dict[str, dict[str, Tensor]]
) -> None:
    state = model.state_dict()
    limit = size_limit(state, sizes_of(model), images=4)
    for precision in PRECISIONS:
        header = HEADER.model_copy(update={"precision": precision})
        parse(make_upload(header, {"weights": state, **statistics}).to_bytes(), limit)
    assert limit < 1.1 * len(upload.to_bytes())
    with pytest.raises(UploadRefused, match=f"{limit + 1:,} bytes exceed the limit of {limit:,}"):
        parse(bytes(limit + 1), limit)


def test_damaged_bytes_are_refused_or_change_the_hash_but_never_crash(upload: Upload, check: Check) -> None:
    draw, good = random.Random(0), upload.only(("weights",)).to_bytes()
    head = struct.unpack("<Q", good[:8])[0] + 8
    refused = 0
    for _ in range(150):
        bad = bytearray(good)
        bad[draw.randrange(head)] ^= 1 << draw.randrange(8)  # the table of contents and the header
        try:
            found = parse(bytes(bad))
            assert found.sha256 != upload.only(("weights",)).sha256 or found.header != upload.header
        except UploadRefused:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("sections", [("weights",), ("weights", "moments"), SECTIONS])
def test_the_bytes_are_those_of_safetensors_and_the_size_is_known_before(
    precision: Precision, sections: tuple[str, ...], model: Classifier, statistics: dict[str, dict[str, Tensor]]
) -> None:
    header = HEADER.model_copy(update={"precision": precision, "method": 'mine "é".py'})
    part = make_upload(header, {"weights": model.state_dict(), **statistics}).only(sections)
    tensors = {name: t for name, t in part.tensors.items() if isinstance(t, Tensor)}
    assert part.to_bytes() == to_safetensors(tensors, {"fedshot": header.model_dump_json()})
    assert part.size == len(part.to_bytes())


def test_a_stored_upload_is_read_when_asked_for(upload: Upload, tmp_path: Path) -> None:
    file, message = tmp_path / "upload", upload.to_bytes()
    file.write_bytes(message)
    stored = parse(message).stored(file, message)
    assert stored.header == upload.header and stored.sections == upload.sections
    for name in SECTIONS:
        expected = upload.section(name)
        assert all(torch.equal(tensor, expected[key]) for key, tensor in stored.section(name).items())
    assert stored.to_bytes() == message
    file.unlink()
    for part in (SECTIONS, ("weights",)):  # what is counted and compared needs no reading
        assert stored.only(part).size == upload.only(part).size
        assert stored.only(part).sha256 == upload.only(part).sha256


def test_an_empty_tensor_is_stored_too(tmp_path: Path) -> None:
    empty = make_upload(HEADER, {"familiarity": {"distances": torch.empty(0)}})
    (tmp_path / "upload").write_bytes(message := empty.to_bytes())
    assert empty.stored(tmp_path / "upload", message).section("familiarity")["distances"].shape == (0,)


def test_tensors_of_every_type_and_layout_travel_as_safetensors_would_send_them() -> None:
    wide = torch.arange(12.0).view(3, 4)
    kinds = (torch.int64, torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int8)
    content = {f"{number}": wide.to(kind) for number, kind in enumerate((*kinds, *reversed(kinds)))}
    content |= {"turned": wide.T, "part": wide[:, 1:3], "scalar": torch.tensor(7), "none": torch.empty(0, 3)}
    sent = make_upload(HEADER, {"mine": content})
    dense = {f"mine/{name}": t.clone(memory_format=torch.contiguous_format) for name, t in content.items()}
    assert sent.to_bytes() == to_safetensors(dense, {"fedshot": HEADER.model_dump_json()})
    back = parse(sent.to_bytes())
    assert all(torch.equal(back.tensors[name], t) and back.tensors[name].dtype == t.dtype for name, t in dense.items())
    wide.zero_()  # an upload is a copy
    assert back.sha256 == sent.sha256
