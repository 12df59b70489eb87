"""One method against the best of all others, cell by cell."""

import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from fedshot.errors import UserError
from fedshot.record import Record
from fedshot.report.standing import standings
from fedshot.report.standing_picture import standing_picture
from fedshot.report.standing_sheet import standing_sheet

Make = Callable[..., list[Record]]
OWN = {"fusion": "routed"}


@pytest.fixture
def ran(make_record: Callable[..., Record]) -> Make:
    """Records of one method in one cell, one a seed from 1 on, with these accuracies."""

    def make(method: str, *accuracies: float, **settings: object) -> list[Record]:
        return [make_record(method, seed, (0.1, value), **settings) for seed, value in enumerate(accuracies, 1)]

    return make


def test_the_best_rival_is_a_method_by_a_rule_and_the_difference_is_paired(ran: Make) -> None:
    records = [
        *ran("recommended", 0.80, 0.90, 0.70, **OWN),
        *ran("fafi", 0.60, 0.70, 0.50, fusion="features"),
        *ran("fafi", 0.70, 0.80, 0.75, fusion="typicality"),
        *ran("etf", 0.71, 0.72, 0.73, fusion="features"),
    ]
    (found,) = standings(records, "recommended")
    assert found.rival.label == "fafi by typicality"
    assert found.ahead == 2
    sheet = standing_sheet([found], "recommended")
    assert sheet.header[:5] == ("data", "clients", "division", "epochs", "encoder")
    assert sheet.header[5:] == ("fafi", "best rival", "of", "recommended", "difference"), "no part of it was tried"
    assert sheet.body[0][5:9] == ("60.0 ± 10.0", "fafi by typicality: 75.0 ± 5.0", "3", "80.0 ± 10.0")
    assert sheet.body[0][9].startswith("+5.0 [")
    assert sheet.bold == {(0, 8)}
    assert "ahead of the best rival in 1 of 1 cells by the mean, and in 2 of 3 seeds" in sheet.notes[0]


def test_a_part_that_is_better_than_the_whole_is_shown_as_such(ran: Make) -> None:
    records = [
        *ran("recommended", 0.80, 0.80, **OWN),
        *ran("recommended", 0.85, 0.85, fusion="common"),
        *ran("fafi", 0.60, 0.60, fusion="features"),
    ]
    found = standings(records, "recommended")
    sheet = standing_sheet(found, "recommended")
    assert found[0].rival.label == "fafi by features", "a rule on its own uploads is no rival"
    place = sheet.header.index("its part")
    assert sheet.body[0][place] == "common: 85.0 ± 0.0 (2 seeds)"
    assert sheet.bold == {(0, place)}
    assert any("ahead of in 0 of 1 cells" in note for note in sheet.notes)


def test_cells_apart_and_rivals_with_fewer_seeds(ran: Make) -> None:
    records = [
        *ran("recommended", 0.8, 0.8, **OWN),
        *ran("fafi", 0.6, 0.6, fusion="features"),
        *ran("etf", 0.9, fusion="features"),  # at one of the two seeds
        *ran("recommended", 0.8, alpha=0.5, **OWN),  # alone in its cell
        *ran("recommended", 0.8, data="svhn", **OWN),
        *ran("etf", 0.9, data="svhn", fusion="features"),
    ]
    found = standings(records, "recommended")
    assert [(each.place[0], each.rival.label) for each in found] == [
        ("digits", "fafi by features"),
        ("svhn", "etf by features"),
    ]
    sheet = standing_sheet(found, "recommended")
    assert [line[sheet.header.index("fafi")] for line in sheet.body] == ["60.0 ± 0.0 (2 seeds)", "–"]
    assert sheet.bold == {(0, 8), (1, 6)}


def test_the_plain_form_counts_and_another_is_marked(ran: Make) -> None:
    fafi, earlier = ran("fafi", 0.6, fusion="features"), {"options": {"share": 1.5}, **OWN}
    both = [*ran("recommended", 0.7, **OWN), *ran("recommended", 0.9, **earlier), *fafi]
    assert standings(both, "recommended")[0].own.mean == 0.7
    found = standings([*ran("recommended", 0.9, **earlier), *fafi], "recommended")
    sheet = standing_sheet(found, "recommended")
    assert sheet.body[0][8] == "90.0 (1 seed) †"
    assert sheet.notes[-1] == "† in the form share=1.5."


def test_several_settings_of_the_method_are_a_choice_that_nobody_makes_for_the_user(ran: Make) -> None:
    records = [*ran("recommended", 0.7, **OWN), *ran("recommended", 0.9, lr=0.2, **OWN), *ran("fafi", 0.6)]
    with pytest.raises(UserError, match=r"several forms on digits \(lr 0.05 and 0.2\): choose one with --where"):
        standings(records, "recommended")
    with pytest.raises(UserError, match=r"unknown method among these runs 'etf'\. Allowed: fafi, recommended"):
        standings(records, "etf")
    with pytest.raises(UserError, match="no run of fafi by its own rule lies beside"):
        standings(ran("fafi", 0.6, fusion="features"), "fafi")


def test_a_method_in_a_file_stands_by_the_rule_that_it_ran_by_most_often(ran: Make) -> None:
    method, plain = "mine.py", ran("fafi", 0.6, 0.6, fusion="features")
    mine = [*ran(method, 0.7, 0.7, fusion="logits"), *ran(method, 0.9, fusion="average"), *plain]
    (found,) = standings(mine, method)
    assert (found.own.mean, found.rival.label) == (0.7, "fafi by features")
    tied = [*ran(method, 0.7, fusion="logits"), *ran(method, 0.9, fusion="average"), *plain]
    with pytest.raises(
        UserError, match=r"mine\.py ran by logits and average as often: choose its own rule with --where"
    ):
        standings(tied, method)


def test_a_rival_saw_one_image_at_a_time_and_had_the_same_clients(
    ran: Make, make_record: Callable[..., Record]
) -> None:
    own = ran("recommended", 0.8, **OWN)
    across_images = make_record("fafi", 1, (0.1, 0.95), fusion="batch_moments", inductive=False)
    others = make_record("etf", 1, (0.1, 0.9), fusion="features", fingerprint="f" * 64)
    (found,) = standings([*own, across_images, others, *ran("fafi", 0.6, fusion="features")], "recommended")
    assert (found.rival.label, found.rivals) == ("fafi by features", 1)
    with pytest.raises(UserError, match="beside one of another method on the same clients"):
        standings([*own, across_images, others], "recommended")


def test_settings_that_a_rival_did_not_share_are_told_and_a_part_shares_all(ran: Make) -> None:
    records = [
        *ran("recommended", 0.8, **OWN),
        *ran("recommended", 0.85, fusion="common", options={"sharpness": 2.0}),  # read by `routed` alone
        *ran("recommended", 0.99, fusion="common", lr=0.7),
        *ran("fafi", 0.6, fusion="features", lr=0.7, upload_precision="bf16"),
    ]
    (found,) = standings(records, "recommended")
    assert found.rival.label == "fafi by features (lr=0.7)"
    assert found.plain is None, "of another rate it is not the plain one"
    assert found.part is not None and found.part.reached.mean == 0.85


def test_more_seeds_than_anybody_else_and_equal_rivals(ran: Make) -> None:
    records = [
        *ran("recommended", 0.8, 0.6, 0.9, **OWN),
        *ran("etf", 0.7, 0.7, fusion="features"),
        *ran("fafi", 0.9, 0.5, fusion="features"),
    ]
    for order in (records, records[::-1]):
        (found,) = standings(order, "recommended")
        assert (found.own.n, found.own.mean) == (2, 0.7), "the third seed has nobody beside it"
        assert (found.rival.label, found.ahead) == ("etf by features", 1), "of equal ones by name"


def test_fafi_itself_and_an_alias_can_be_asked_about(ran: Make) -> None:
    records = [*ran("fafi", 0.6, fusion="features"), *ran("aurora", 0.5, fusion="features")]
    sheet = standing_sheet(standings(records, "fafi"), "fafi")
    assert sheet.header[5:] == ("best rival", "of", "fafi", "difference")
    assert len(sheet.body[0]) == len(sheet.header) and sheet.bold == {(0, 7)}
    assert "its part" not in standing_picture(standings(records, "fafi"), "fafi")
    assert standings(records, "V14")[0].own.mean == 0.5


def test_the_picture_has_a_dot_for_each_figure_at_its_place(ran: Make) -> None:
    records = [
        *ran("recommended", 1.0, **OWN),
        *ran("recommended", 0.5, fusion="common"),
        *ran("fafi", 0.0, fusion="features"),
        *ran("etf", 0.25, fusion="features"),
    ]
    text = standing_picture(standings(records, "recommended"), "recommended")
    root = ElementTree.fromstring(text)
    dots = [e for e in root.iter() if e.tag.endswith("circle")]
    legend, drawn = dots[:4], dots[4:]
    places = [float(dot.attrib["cx"]) for dot in drawn]
    left, right = places[0], places[-1]
    assert [round((x - left) / (right - left), 2) for x in places] == [0.0, 0.25, 0.5, 1.0]
    assert [dot.attrib["fill"] for dot in drawn] == [dot.attrib["fill"] for dot in legend]
    assert re.search(r">digits · K=2 · α = 0.05 · cnn · 2 epochs<", text)
