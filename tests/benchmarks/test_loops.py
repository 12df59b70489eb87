"""The reference loops do the package's work."""

import random
import time
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from fedshot.benchmarks import eager, pil_views, published
from fedshot.benchmarks.plain import PlainClient, images_per_second, torch_set
from fedshot.data.dataset import Labelled
from fedshot.experiment import run
from fedshot.local import losses
from fedshot.models import prototypes_of, unit
from fedshot.prepare import prepare
from fedshot.store import RunFolder

CPU = torch.device("cpu")


def picture(mode="RGB", size=(12, 10), seed=0):
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


def test_a_published_step_minimises_the_loss_of_fafi(setting):
    plain = PlainClient(setting)
    one, two, labels = next(iter(published.training_loader(plain.client, plain.views)))
    assert one.shape == two.shape == (8, 3, 8, 8) and labels.shape == (8,)
    inputs, twice = torch.cat([one, two]), labels.repeat(2)
    with torch.no_grad():
        features = unit(plain.model.encoder(inputs))
        prototypes = prototypes_of(plain.model)
        expected = (
            2 * losses.cross_entropy(features @ prototypes.T, twice)
            + losses.supcon(features, twice, temperature=0.07)
            + losses.prototype_prototype(prototypes)
        )
    before = [parameter.detach().clone() for parameter in plain.model.parameters()]
    assert plain.step(inputs, labels) == pytest.approx(float(expected), rel=1e-4)
    moved = [float((p.detach() - q).norm()) for p, q in zip(plain.model.parameters(), before, strict=True)]
    # a first step of SGD moves the encoder by the rate times a gradient that is clipped to 1
    encoder = sum(m**2 for m in moved[:-1]) ** 0.5
    assert 0 < encoder <= setting.spec.lr * 1.001


def test_the_eager_loop_trains_what_the_package_trains(case, tmp_path):
    """The same batches and views from the same streams: the weights agree to rounding after an epoch."""
    spec = case.spec(epochs=1)
    run(spec, tmp_path / "run")
    uploaded = load_file(RunFolder(tmp_path / "run").upload(0))
    plain = PlainClient(prepare(spec))
    assert list(islice(eager.training_steps(plain, CPU), 3)) == [8, 8, 4]
    for name, tensor in plain.model.state_dict().items():
        torch.testing.assert_close(tensor, uploaded[f"weights/{name}"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("recipe", ["natural", "characters"])
def test_views_keep_form_and_range_and_differ(recipe, mode):
    draw, whole = random.Random(1), picture(mode)
    views = [pil_views.RECIPES[recipe](whole, draw) for _ in range(20)]
    assert {(view.mode, view.size) for view in views} == {(mode, (12, 10))}
    channels = len(mode) if mode == "RGB" else 1
    tensors = [pil_views.to_tensor(view, torch.zeros(1), torch.ones(1)) for view in views]
    assert all(t.shape == (channels, 10, 12) and t.dtype == torch.float32 for t in tensors)
    assert min(t.min() for t in tensors) >= 0 and max(t.max() for t in tensors) <= 1
    assert len({t.numpy().tobytes() for t in tensors}) > 15


def test_crops_lie_in_the_picture_and_keep_their_share():
    draw = random.Random(2)
    boxes = [pil_views.crop_box((32, 32), draw) for _ in range(500)]
    assert all(0 <= left < right <= 32 and 0 <= top < bottom <= 32 for left, top, right, bottom in boxes)
    areas = [(right - left) * (bottom - top) / 32**2 for left, top, right, bottom in boxes]
    assert min(areas) > 0.17 and max(areas) > 0.9


def test_hue_turns_and_comes_back():
    whole = Image.new("RGB", (2, 2), (200, 40, 40))
    third = np.array(pil_views.shift_hue(whole, 1 / 3))[0, 0]
    assert third.argmax() == 1, "a third of the circle leads from red to green"
    assert np.abs(np.array(pil_views.shift_hue(whole, 0.0)).astype(int) - np.array(whole)).max() <= 2


def test_a_character_without_a_draw_stays_as_it_is():
    class Middle(random.Random):
        def uniform(self, a, b):
            return (a + b) / 2

    whole = picture("L", (8, 8))
    assert np.abs(np.array(pil_views.characters(whole, Middle())).astype(int) - np.array(whole)).max() <= 1


def test_normalisation_is_that_of_the_task(setting):
    part = setting.data.test
    samples = published.Samples(part, setting.task)
    image, label = samples[3]
    torch.testing.assert_close(image, setting.task.prepare(part.images[3:4])[0])
    assert int(label) == int(part.labels[3])


def test_a_grey_image_has_one_channel(setting):
    grey = Labelled(setting.data.test.images[:, :1], setting.data.test.labels)
    task = replace(setting.task, shape=(1, 8, 8), mean=(0.5,), std=(0.5,), augmentation="characters")
    *views, _ = published.Samples(grey, task, views=2)[0]
    assert [tuple(view.shape) for view in views] == [(1, 8, 8)] * 2


def test_training_and_evaluation_add_up_to_an_epoch(setting, monkeypatch):
    speeds = iter([100.0, 1000.0, 300.0])
    monkeypatch.setattr(published, "images_per_second", lambda steps, seconds, device: next(speeds))
    found = published.measure_published(setting, seconds=1.0)
    own, test = 20, 10
    assert found.seconds_per_client_epoch == pytest.approx(own / 100 + (own + test) / 1000)
    assert found.images_per_second == pytest.approx(own / found.seconds_per_client_epoch)
    assert found.peak_memory_bytes > 0 and found.note == "training 100 images/s, evaluation 1,000, loading alone 300"


def test_both_loops_are_timed(setting):
    for measured in (published.measure_published(setting, 0.05), eager.measure_eager(setting, 0.05)):
        assert measured.images_per_second > 0 and measured.peak_memory_bytes > 0
        assert measured.startup_seconds is None


def test_evaluation_counts_all_images_and_trains_nothing(setting):
    plain = PlainClient(setting)
    before = {name: tensor.clone() for name, tensor in plain.model.state_dict().items()}
    assert list(islice(published.evaluation_steps(plain, setting.data.test, CPU), 2)) == [10, 10]
    assert all(torch.equal(before[name], tensor) for name, tensor in plain.model.state_dict().items())


def test_the_warm_up_does_not_count():
    def steps():
        yield from [10**12] * 5
        while True:
            time.sleep(0.001)
            yield 1

    assert 0 < images_per_second(steps(), 0.02, CPU) < 1001


def test_switches_of_torch_are_put_back():
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    with pytest.raises(RuntimeError), torch_set(products="high", search=True):
        assert torch.get_float32_matmul_precision() == "high" and torch.backends.cudnn.benchmark
        raise RuntimeError
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark) == before
