"""Every recipe as a property: whole, disjoint, reproducible; and the figures that the literature gives for each."""

import random
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedshot.errors import UserError
from fedshot.partition import RECIPES, Partition, split

DISJOINT = sorted(set(RECIPES) - {"released"})
DRAWN = sorted(set(RECIPES) - {"natural"})  # by the seed, not by a column


def balanced(classes: int, of_each: int) -> np.ndarray:
    return np.repeat(np.arange(classes), of_each)


CIFAR10 = balanced(10, 5000)
CIFAR100 = balanced(100, 500)


def any_split(labels: np.ndarray, recipe: str, clients: int, seed: int, alpha: float) -> Partition:
    """A split that is possible by every recipe: all the parameters are given, one group per client or more."""
    return split(
        labels, recipe, clients, seed, alpha=alpha, classes_per_client=1, groups=np.arange(len(labels)) % (clients + 2)
    )


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, int, int, float]:
    """Labels in any order and balance, a number of clients, a seed and an alpha."""
    sizes = draw(st.lists(st.integers(0, 60), min_size=1, max_size=6))
    sizes[0] += 20
    labels = np.repeat(np.arange(len(sizes)), sizes)
    np.random.RandomState(draw(st.integers(0, 99))).shuffle(labels)
    clients = draw(st.integers(1, len(labels) // 20))
    return labels, clients, draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from([1e-9, 0.01, 0.1, 1.0, 100.0]))


@pytest.mark.parametrize("recipe", sorted(RECIPES))
@given(problem=problems())
@settings(max_examples=25, deadline=None)
def test_the_numbers_of_a_partition_are_those_of_its_index_lists(
    recipe: str, problem: tuple[np.ndarray, int, int, float]
) -> None:
    labels, clients, seed, alpha = problem
    try:
        part = any_split(labels, recipe, clients, seed, alpha)
    except UserError as error:
        assert recipe == "niid-bench" and "found no split" in str(error)
        return
    assert part.clients == clients == len(part.sizes) == len(part.entropy_bits)
    assert part.class_counts.shape == (clients, labels.max() + 1)
    for indices, size, counts, bits in zip(part.indices, part.sizes, part.class_counts, part.entropy_bits, strict=True):
        assert indices.dtype == np.int64 and len(indices) == size
        assert (np.diff(indices) > 0).all()  # ascending, none twice
        assert counts.tolist() == [int((labels[indices] == c).sum()) for c in range(labels.max() + 1)]
        shares = counts[counts > 0] / max(size, 1)
        assert bits == pytest.approx(-sum(share * np.log2(share) for share in shares), abs=1e-12)
    holders = [sum(i in set(indices.tolist()) for indices in part.indices) for i in range(len(labels))]
    assert part.unassigned == holders.count(0)
    several = sum(count > 1 for count in holders)
    assert part.overlap == pytest.approx(several / max(len(labels) - part.unassigned, 1))
    assert any_split(labels, recipe, clients, seed, alpha).fingerprint == part.fingerprint
    if recipe != "released":
        assert part.overlap == 0.0
    if recipe in DISJOINT and recipe != "shards":
        assert part.unassigned == 0


@pytest.mark.parametrize("recipe", DRAWN)
def test_another_seed_gives_another_partition(recipe: str) -> None:
    prints = {any_split(balanced(10, 100), recipe, 5, seed, 0.3).fingerprint for seed in range(5)}
    assert len(prints) == 5


@pytest.mark.parametrize("recipe", ["dirichlet", "niid-bench", "equal-size", "client-prior"])
def test_a_smaller_alpha_is_more_heterogeneous(recipe: str) -> None:
    mild, harsh = (np.mean(split(balanced(10, 500), recipe, 5, 3, alpha=a).entropy_bits) for a in (100.0, 0.05))
    assert mild > 3.2 and harsh < 2.3  # of at most log2(10) = 3.32


@pytest.mark.parametrize(
    ("labels", "seed", "sizes", "bits"),
    [
        (CIFAR10, 1, (15274, 13309, 4729, 9738, 6950), (1.9079, 1.7997, 0.6091, 1.1689, 1.7245)),
        (CIFAR100, 42, (7683, 11957, 7796, 12156, 10408), (4.3034, 4.9924, 4.2952, 4.8742, 4.8721)),
        (CIFAR100, 114514, (8961, 7239, 12354, 10509, 10937), (4.5823, 4.3291, 4.875, 4.6962, 4.7699)),
        (CIFAR100, 350234, (8540, 9531, 11835, 9652, 10442), (4.4512, 4.621, 4.9111, 4.6142, 4.6705)),
    ],
)
def test_dirichlet_is_the_split_of_the_research_notes(
    labels: np.ndarray, seed: int, sizes: tuple[int, ...], bits: tuple[float, ...]
) -> None:
    part = split(labels, "dirichlet", clients=5, seed=seed, alpha=0.05)
    assert part.sizes == sizes
    assert tuple(round(value, 4) for value in part.entropy_bits) == bits


def test_dirichlet_sizes_do_not_depend_on_the_order_of_the_labels() -> None:
    mixed = np.random.RandomState(0).permutation(CIFAR10)
    assert split(mixed, "dirichlet", 5, 1, alpha=0.05).sizes == (15274, 13309, 4729, 9738, 6950)


def test_dirichlet_picks_the_samples_of_a_class_at_random() -> None:
    part = split(CIFAR10, "dirichlet", 5, 1, alpha=0.05)
    of_class_0 = part.indices[0][part.indices[0] < 5000]  # 3651 of 5000
    assert 2350 < of_class_0.mean() < 2650


def test_the_smallest_clients_of_dirichlet_are_those_of_the_fact_sheet() -> None:
    smallest = {(k, a): min(split(CIFAR10, "dirichlet", k, 1, alpha=a).sizes) for k, a in [(10, 0.05), (20, 0.05)]}
    assert smallest == {(10, 0.05): 73, (20, 0.05): 1}


@pytest.mark.parametrize("recipe", ["dirichlet", "niid-bench", "equal-size", "client-prior", "released"])
def test_an_alpha_whose_gammas_underflow_puts_a_draw_on_one_part(recipe: str) -> None:
    part = split(balanced(40, 10), recipe, clients=4, seed=2, alpha=1e-300)
    assert part.unassigned == 0
    if recipe != "equal-size":  # there a client must go on when its one class is exhausted
        assert ((part.class_counts == 10).sum(axis=0) == 1).all()
        assert all((part.class_counts.sum(axis=1) > 0).tolist())  # not always the same client


def test_niid_bench_leaves_nobody_with_fewer_than_ten_and_a_full_client_gets_no_more() -> None:
    labels = balanced(10, 300)
    for seed in range(10):
        part = split(labels, "niid-bench", clients=10, seed=seed, alpha=0.1)
        assert min(part.sizes) >= 10
        before = np.cumsum(part.class_counts, axis=1) - part.class_counts  # (K, C), held when a class is dealt
        assert (part.class_counts[before >= len(labels) / 10] == 0).all()
    assert any(min(split(labels, "dirichlet", 10, seed, alpha=0.1).sizes) < 10 for seed in range(10))


def test_niid_bench_says_what_it_reached_when_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedshot.partition.niid_bench.MOST_DRAWS", 20)
    with pytest.raises(UserError, match=r"in 20 draws at alpha = 1e-06 \(the best had a smallest client of \d\)"):
        split(balanced(2, 100), "niid-bench", clients=5, seed=1, alpha=1e-6)
    with pytest.raises(UserError, match="at most 4 clients"):
        split(balanced(4, 10), "niid-bench", clients=5, seed=1, alpha=1.0)


def test_equal_size_differs_by_at_most_one() -> None:
    sizes = split(balanced(7, 29), "equal-size", clients=6, seed=1, alpha=0.05).sizes
    assert sum(sizes) == 203 and max(sizes) - min(sizes) == 1


def test_client_prior_divides_a_class_in_proportion_to_the_tastes() -> None:
    part = split(balanced(4, 100_000), "client-prior", clients=3, seed=5, alpha=1.0)
    tastes = np.random.RandomState(5).dirichlet([1.0] * 4, size=3)
    assert part.class_counts / 100_000 == pytest.approx(tastes / tastes.sum(axis=0), abs=2e-5)


SPREAD = {
    # (recipe, alpha, K): classes with at least ten samples, variation of the sizes, share of the top class
    ("dirichlet", 0.05, 10): (3.2, 0.72, 0.68),
    ("niid-bench", 0.05, 10): (2.8, 0.51, 0.73),
    ("equal-size", 0.05, 10): (4.7, 0.0, 0.51),
    ("client-prior", 0.05, 10): (3.5, 0.42, 0.69),
    ("dirichlet", 0.1, 5): (5.6, 0.50, 0.49),
    ("niid-bench", 0.1, 5): (5.0, 0.28, 0.49),
    ("equal-size", 0.1, 5): (6.4, 0.0, 0.37),
    ("client-prior", 0.1, 5): (5.7, 0.33, 0.45),
}


@pytest.mark.parametrize(("recipe", "alpha", "clients"), SPREAD)
def test_the_disjoint_recipes_differ_as_surveyed(recipe: str, alpha: float, clients: int) -> None:
    labels = balanced(10, 1000)
    seen = []
    for seed in range(20):
        part = split(labels, recipe, clients, seed, alpha=alpha)
        sizes = np.array(part.sizes)
        top = part.class_counts.max(axis=1) / np.maximum(sizes, 1)
        # the survey counts ten of 5000 samples of a class: two of 1000
        seen.append(((part.class_counts >= 2).sum(axis=1).mean(), sizes.std() / sizes.mean(), top[sizes > 0].mean()))
    held, variation, top_share = np.mean(seen, axis=0)
    expected = SPREAD[recipe, alpha, clients]
    assert held == pytest.approx(expected[0], abs=0.9)
    assert variation == pytest.approx(expected[1], abs=0.12)
    assert top_share == pytest.approx(expected[2], abs=0.12)


@pytest.mark.parametrize(("alpha", "handed_out"), [(0.05, 1.65), (0.1, 1.97), (0.3, 2.72), (0.5, 3.18)])
def test_released_hands_out_what_the_released_code_does(alpha: float, handed_out: float) -> None:
    part = split(CIFAR10, "released", clients=5, seed=1, alpha=alpha)
    assert round(sum(part.sizes) / 50000, 2) == handed_out
    assert part.overlap > 0.4


def test_released_overlaps_as_simulated_over_many_draws() -> None:
    parts = [split(balanced(10, 500), "released", 5, seed, alpha=0.05) for seed in range(100)]
    assert np.mean([sum(part.sizes) / 5000 for part in parts]) == pytest.approx(1.56, abs=0.06)
    assert np.mean([part.overlap for part in parts]) == pytest.approx(0.49, abs=0.05)


def test_released_needs_class_0() -> None:
    with pytest.raises(UserError, match="class 0"):
        split([1, 1, 2, 2], "released", clients=2, seed=1, alpha=1.0)


def test_iid_sizes_differ_by_at_most_one_and_mixtures_by_chance() -> None:
    part = split(CIFAR10, "iid", clients=7, seed=1)
    assert max(part.sizes) - min(part.sizes) == 1
    assert min(part.entropy_bits) > 3.31


@given(
    classes=st.integers(1, 12), clients=st.integers(1, 20), of_each=st.integers(20, 30), seed=st.integers(0, 999),
    data=st.data(),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_shards_are_balanced(classes: int, clients: int, of_each: int, seed: int, data: st.DataObject) -> None:
    wanted = data.draw(st.integers(1, classes))
    if clients > classes * of_each:
        return
    part = split(balanced(classes, of_each), "shards", clients, seed, classes_per_client=wanted)
    assert ((part.class_counts > 0).sum(axis=1) == wanted).all()
    holders = (part.class_counts > 0).sum(axis=0)
    assert holders.max() - holders.min() <= 1
    assert part.unassigned == of_each * max(classes - clients * wanted, 0)
    for column in part.class_counts.T:
        assert not column.any() or column[column > 0].max() - column[column > 0].min() <= 1


def test_natural_gives_each_group_a_client_or_deals_them_evenly() -> None:
    writers = np.random.RandomState(0).choice(np.arange(100, 140), size=4000)
    labels = np.zeros(4000, dtype=int)
    alone = split(labels, "natural", clients=40, seed=1, groups=writers)
    assert [np.unique(writers[part]).tolist() for part in alone.indices] == [[writer] for writer in range(100, 140)]
    dealt = split(labels, "natural", clients=6, seed=1, groups=torch.from_numpy(writers))
    owned = [set(writers[part].tolist()) for part in dealt.indices]
    assert sum(map(len, owned)) == 40  # no group is cut
    assert max(dealt.sizes) - min(dealt.sizes) < 100
    with pytest.raises(UserError, match="at most 40 clients"):
        split(labels, "natural", clients=41, seed=1, groups=writers)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"recipe": "dirichlett"}, "did you mean 'dirichlet'"),
        ({"clients": 0}, "give 1 or more"),
        ({"clients": 21}, "at most 20 clients"),
        ({"alpha": None}, "needs alpha"),
        ({"alpha": 0.0}, "out of range"),
        ({"alpha": -1.0}, "out of range"),
        ({"alpha": float("nan")}, "out of range"),
        ({"alpha": float("inf")}, "out of range"),
        ({"seed": -1}, "seed -1 is out of range"),
        ({"seed": 2**32}, "out of range"),
        ({"recipe": "shards"}, "needs classes_per_client"),
        ({"recipe": "shards", "classes_per_client": 0}, "give 1 to 2"),
        ({"recipe": "shards", "classes_per_client": 3}, "give 1 to 2"),
        ({"recipe": "natural"}, "who owns each sample"),
        ({"recipe": "natural", "groups": [1, 2]}, "one group per sample"),
        ({"labels": []}, "one class number per sample"),
        ({"labels": np.zeros((20, 2), dtype=int)}, "one class number per sample"),
        ({"labels": np.linspace(0, 1, 20)}, "must be class numbers"),
        ({"labels": np.arange(20) - 1}, "must be class numbers"),
        ({"classes": 1}, "needs 2 classes"),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(arguments: dict, words: str) -> None:
    asked = {"labels": balanced(2, 10), "recipe": "dirichlet", "clients": 4, "seed": 1, "alpha": 0.5, **arguments}
    with pytest.raises(UserError, match=words) as caught:
        split(**asked)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("recipe", ["iid", "shards", "natural"])
def test_an_alpha_that_is_not_used_is_neither_checked_nor_recorded(recipe: str) -> None:
    part = split(balanced(2, 10), recipe, 2, 1, alpha=-5.0, classes_per_client=1, groups=np.arange(20) % 2)
    assert set(part.parameters) == {"clients", "seed"} | ({"classes_per_client"} if recipe == "shards" else set())


def test_tensors_are_labels_too_and_absent_classes_can_be_declared() -> None:
    part = split(torch.tensor([0, 1, 1, 0]), "iid", clients=2, seed=1, classes=5)
    assert part.class_counts.shape == (2, 5)
    assert part.fingerprint == split([0, 1, 1, 0], "iid", clients=2, seed=1).fingerprint


def test_one_client_holds_everything() -> None:
    for recipe in DISJOINT:
        part = split(balanced(3, 10), recipe, 1, 1, alpha=0.1, classes_per_client=3, groups=np.zeros(30, dtype=int))
        assert part.indices[0].tolist() == list(range(30)), recipe


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_recipes_do_not_touch_the_global_random_streams(recipe: str) -> None:
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    any_split(balanced(3, 30), recipe, 2, 1, 0.5)
    assert before == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())


def test_clients_of_a_disjoint_recipe_share_nothing_pairwise() -> None:
    parts = split(CIFAR10, "equal-size", clients=4, seed=9, alpha=0.3).indices
    assert all(len(np.intersect1d(a, b)) == 0 for a, b in combinations(parts, 2))
