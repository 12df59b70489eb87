"""One table over data sets, α and numbers of clients, and the protocol below it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fedshot.errors import UserError
from fedshot.record import Record
from fedshot.report.across import across, against
from fedshot.report.leaderboard import leaderboard
from fedshot.report.protocol import protocol_in_words
from fedshot.study.results import Results
from fedshot.study.rows import row_of


@pytest.fixture
def found(make_record: Callable[..., Record]) -> Callable[..., dict[Path, Record]]:
    """Records of three seeds of each method and setting given, by made-up places; accuracies rise with the seed."""

    def make(*asked: tuple[str, float, dict], seeds: Sequence[int] = (1, 2, 3)) -> dict[Path, Record]:
        records = [
            make_record(method, seed, (0.1, mean + (seed - 2) / 100), **settings)
            for method, mean, settings in asked
            for seed in seeds
        ]
        return {Path(f"kept.jsonl:{number}"): record for number, record in enumerate(records)}

    return make


def test_columns_are_the_cells_and_the_best_of_each_is_bold(found: Callable) -> None:
    sheet = across(
        found(
            ("etf", 0.7, {"data": "svhn"}),
            ("etf", 0.8, {}),
            ("fafi", 0.6, {}),
            ("fafi", 0.75, {"data": "svhn"}),
            ("fafi", 0.5, {"alpha": 0.5}),
        )
    )
    assert sheet.header == ("variant", "data digits, alpha 0.05", "data digits, alpha 0.5", "data svhn, alpha 0.05")
    assert sheet.body == (
        ("fafi", "60.0 ± 1.0", "50.0 ± 1.0", "75.0 ± 1.0"),
        ("etf", "80.0 ± 1.0", "–", "70.0 ± 1.0"),
    ), "in the order of METHODS"
    assert sheet.bold == {(1, 1), (0, 3)}, "one method alone is no best"


def test_rules_on_the_same_training_are_rows_of_their_own(found: Callable) -> None:
    sheet = across(
        found(
            ("fafi", 0.6, {"fusion": "features"}),
            ("fafi", 0.7, {"fusion": "class_weighted"}),
            ("etf", 0.65, {"fusion": "features"}),
        )
    )
    assert sheet.header[:2] == ("variant", "fusion")
    assert [line[:2] for line in sheet.body] == [("fafi", "features"), ("fafi", "class_weighted"), ("etf", "features")]


def test_content_of_a_file_and_an_option_can_be_among_the_settings(found: Callable) -> None:
    """None of them is a field of a spec."""
    weights = [{"pretrained": "w", "files": {"w": digit * 64}} for digit in "12"]
    sheet = across(found(("fafi", 0.6, weights[0]), ("fafi", 0.5, weights[1]), ("fafi", 0.7, weights[1] | {"lr": 0.2})))
    assert sheet.header[:2] == ("variant", "settings")
    assert [line[1] for line in sheet.body] == [
        "content=w=11111111",
        "content=w=22222222",
        "lr=0.2, content=w=22222222",
    ]


def test_a_seed_is_not_counted_twice(make_record: Callable[..., Record]) -> None:
    records = [make_record("fafi", 1, (0.1, 0.5), files={"a/x.npz": "1" * 64, "b/x.npz": d * 64}) for d in "23"]
    sheet = across({Path(f"kept.jsonl:{n}"): record for n, record in enumerate(records)})
    assert len(sheet.body) == 2, "told apart by the path where two files have one name"
    rows = [{**row_of(record, Path("x")), "content": None} for record in records]
    with pytest.raises(UserError, match="one seed twice"):
        Results(tuple(rows)).pivot(["variant"])


def test_several_settings_share_a_column_that_says_what_was_changed(found: Callable) -> None:
    plain, changed = ("fafi", 0.6, {"data": "svhn"}), {"draws": "batch", "momentum_epochs": 1}
    asked = [plain, ("fafi", 0.6, changed), ("fafi", 0.5, {"draws": "batch"}), ("fafi", 0.7, {})]
    sheet = across(found(*asked))
    assert sheet.header[:2] == ("variant", "settings")
    assert [line[1] for line in sheet.body] == ["–", "draws=batch", "draws=batch, momentum_epochs=1"]
    assert sheet.bold == {(0, 2)}
    assert "draws" not in sheet.notes[-1] and "momentum" not in sheet.notes[-1], "the rows say it"
    alone = across(found(("fafi", 0.6, {}), ("fafi", 0.5, {"draws": "batch"})))
    assert alone.header[:2] == ("variant", "draws"), "one setting has a column of its own"


def test_seeds_are_counted_where_they_are_not_the_same_everywhere(found: Callable) -> None:
    runs = found(("fafi", 0.6, {}), ("fafi", 0.6, {"alpha": 0.5}))
    del runs[Path("kept.jsonl:5")]
    sheet = across(runs)
    assert sheet.body[0][1:] == ("60.0 ± 1.0", "59.5 ± 0.7 (2 seeds)")
    assert "3 seeds (1, 2, 3) (α = 0.05), 2 seeds (1, 2) (α = 0.5)" in sheet.notes[-1]


def test_the_protocol_says_which_row_and_which_column_differ_in_what(found: Callable) -> None:
    own = {"lr": 0.1, "schedule": "cosine", "weight_decay": 5e-4, "validation": 0.1, "upload_precision": "bf16"}
    own["validation_most"] = 256
    sheet = across(
        found(
            *[(method, 0.6, {"data": data}) for method in ("fafi", "etf") for data in ("digits", "svhn")],
            *[("recommended", 0.9, {"data": data, **own}) for data in ("digits", "svhn")],
        )
    )
    assert sheet.notes[-1] == (
        "Protocol: 2 clients · dirichlet α = 0.05 · 2 local epochs · cnn · batches of 32 · sgd at 0.05, constant "
        "(recommended: sgd at 0.1, cosine, weight decay 0.0005) · validation share: none "
        "(recommended: 10% held back, 256 at most) · further settings: none (recommended: upload precision bf16) "
        "· 3 seeds (1, 2, 3) · evaluated after the last epoch."
    )


def test_a_column_is_named_by_one_axis_where_that_is_enough(make_record: Callable) -> None:
    cells = {
        ("fafi", (data, alpha)): [make_record(data=data, alpha=alpha, lr=0.1 if data == "svhn" else 0.05)]
        for data in ("digits", "svhn")
        for alpha in (0.05, 0.5)
    }
    cells["etf", ("svhn", 0.5)] = [make_record("etf", data="svhn", alpha=0.5, lr=0.1, public="0.1")]
    cells["etf", ("svhn", 0.05)] = [make_record("etf", data="svhn", lr=0.1)]
    told = protocol_in_words(cells, ["data", "alpha"])
    assert "sgd at 0.05, constant (digits), sgd at 0.1, constant (svhn)" in told
    assert "public images: none (etf at svhn, α = 0.5: public: 0.1)" in told
    assert "dirichlet ·" in told, "α stands in the head"


def test_divisions_that_do_not_read_alpha_stand_beside_those_that_do(found: Callable) -> None:
    runs = found(("fafi", 0.6, {}), ("fafi", 0.7, {"recipe": "iid"}), ("etf", 0.5, {"recipe": "iid", "lr": 0.1}))
    for path, record in runs.items():
        if record.spec.recipe == "iid":
            runs[path] = record.model_copy(
                update={"partition": {**record.partition, "recipe": "iid", "parameters": {}}}
            )
    sheet = across(runs)
    assert [line[0] for line in sheet.body] == ["fafi", "etf"] and "70.0 ± 1.0" in sheet.body[0]
    assert "0.1" in sheet.notes[-1] and "None" not in " ".join(sheet.notes)
    assert "None" not in " ".join(against(runs, "fafi").notes)


def test_differences_come_with_their_protocol(found: Callable) -> None:
    sheet = against(found(("etf", 0.62, {}), ("fafi", 0.6, {})), "fafi")
    assert [line[0] for line in sheet.body] == ["etf"]
    assert "+2.0 [+2.0, +2.0]" in sheet.body[0]
    assert sheet.notes[-1].startswith("Protocol: digits · 2 clients")


def test_the_leaderboard_has_a_table_for_each_cell_in_order_with_the_recipe(
    found: Callable, make_record: Callable
) -> None:
    settings = {"lr": 0.1, "pretrained": "runs/earlier"}
    records = [*found(("fafi", 0.6, {}), ("etf", 0.8, settings)).values(), make_record("fafi", 1, data="svhn")]
    text = leaderboard(records)
    digits, svhn = text.split("\n\n## ")
    assert digits.startswith("## digits · 2 clients · dirichlet α = 0.05 · 2 local epochs\n")
    first, second = (line for line in digits.splitlines() if line.startswith(("| etf", "| fafi")))
    assert first == (
        "| etf | 80.0 ± 1.0 | 3 seeds (1, 2, 3) | features | 1.50 MB | 3.0 s | 0.25 s | cpu | "
        "cnn, pretrained: runs/earlier, batches of 32, sgd at 0.1, constant |"
    )
    assert second.startswith("| fafi | 60.0 ± 1.0 |")
    assert "80.0 (1 seed)" in svhn and "1 of 1 row: fewer than 3 seeds" in svhn
    assert "fewer" not in digits
