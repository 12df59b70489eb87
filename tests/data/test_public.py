"""Public images: no client keeps one of them, the others keep all they had, and what does not fit is told."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedshot.errors import UserError
from fedshot.experiment import run
from fedshot.holding import _dataset, public_part
from fedshot.prepare import prepare
from fedshot.spec import Spec, make_spec

Quick = Callable[..., Spec]
Pictures = Callable[[int, str], str]


def test_a_share_is_taken_from_whoever_holds_it() -> None:
    plain, shared = prepare(make_spec(method="fafi")), prepare(make_spec(method="fafi", public="0.2"))
    assert shared.task.public is not None and plain.task.public is None
    taken = set(np.concatenate(plain.partition.indices)) - set(np.concatenate(shared.partition.indices))
    assert len(taken) == len(shared.task.public.data) == round(0.2 * 1437)
    for before, after in zip(plain.partition.indices, shared.partition.indices, strict=True):
        assert set(before) - taken == set(after)
    assert shared.task.public.same_labels and shared.task.public.classes == 10
    counts = shared.task.public.data.labels.bincount() / plain.data.train.labels.bincount()
    assert counts.min() > 0.18 and counts.max() < 0.22  # every class gives its share


def test_another_seed_gives_other_public_images() -> None:
    first, same, other = (prepare(make_spec(method="fafi", public="0.1", seed=seed)).task.public for seed in (1, 1, 2))
    assert first and same and other
    assert first.data.images.equal(same.data.images) and not first.data.images.equal(other.data.images)


def test_a_method_that_needs_public_images_gets_a_tenth(quick: Quick) -> None:
    assert prepare(quick("fafi")).spec.public is None
    assert prepare(quick("public_bank")).spec.public == "0.1"
    assert prepare(quick("public_bank", public="0.3")).spec.public == "0.3"


def test_the_clients_own_data_are_not_public(quick: Quick, pictures: Pictures) -> None:
    own = pictures(8, "L")
    for data, public in (("digits", "digits"), ("digits:images=300", "digits"), (own, own)):
        with pytest.raises(UserError, match="the clients' own data set would be public"):
            prepare(make_spec(method="fafi", data=data, public=public))


def test_a_share_can_be_typed_as_a_number() -> None:
    assert make_spec(method="fafi", public=0.1) == make_spec(method="fafi", public="0.1")


def test_an_edited_public_folder_is_another_run(quick: Quick, pictures: Pictures, tmp_path: Path) -> None:
    public = pictures(8, "L")
    before = prepare(quick("fafi", public=public)).spec
    assert list(before.files)[-1] == public
    for file in (tmp_path / "pictures" / "a").glob("*.png"):
        file.unlink()
        break
    _dataset.cache_clear()
    public_part.cache_clear()
    with pytest.raises(UserError, match="has changed since this run began"):
        prepare(before)


def test_another_data_set_can_be_public_and_takes_nothing(quick: Quick, pictures: Pictures) -> None:
    public = pictures(8, "L")
    setting = prepare(quick("fafi", public=public))
    assert setting.task.public is not None
    assert setting.task.public.classes == 2 and not setting.task.public.same_labels
    assert setting.partition.fingerprint == prepare(quick("fafi")).partition.fingerprint


@pytest.mark.parametrize(("size", "mode", "said"), [(9, "L", "1×9×9"), (8, "RGB", "3×8×8")])
def test_public_images_of_another_shape_stop_before_training(
    size: int, mode: str, said: str, quick: Quick, pictures: Pictures, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=f"{said}.*1×8×8"):
        run(quick("public_bank", public=pictures(size, mode)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("public", "said"), [("1.5", "between 0 and 1"), ("0", "between 0 and 1"), ("0.0001", "larger")]
)
def test_an_impossible_share_is_told(public: str, said: str, quick: Quick) -> None:
    with pytest.raises(UserError, match=said):
        prepare(quick("fafi", public=public))
