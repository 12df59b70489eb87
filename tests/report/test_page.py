import json
import re
from html.parser import HTMLParser

import pytest

from fedshot.errors import UserError
from fedshot.report import write_page
from fedshot.report.comparison import comparison
from fedshot.report.page import lead
from fedshot.report.reproduce import python_lines
from fedshot.spec import make_spec

VOID = {"meta", "path", "use", "rect", "image", "br", "link"}


class Structure(HTMLParser):
    """Collects tags, and fails when one is closed that is not open."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def parsed(path):
    page = Structure()
    page.feed(path.read_text())
    assert page.open == []
    return page


@pytest.fixture
def folders(runs, tmp_path):
    """Run folders, where only the second method has an alignment weight."""
    made = {}
    for label, records in runs.items():
        made[label] = [tmp_path / label / str(record.spec.seed) for record in records]
        for folder in made[label]:
            folder.mkdir(parents=True)
            weight = 0.0 if label == "fafi" else 3.5
            rows = [
                {"client": k, "epoch": e, "lambda_raw": weight, "lambda_effective": weight, "lambda_equilibrium": None}
                for k in (0, 1)
                for e in (1, 2)
            ]
            (folder / "telemetry.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return made


def test_the_page_holds_table_figures_specs_and_command(runs, folders, tmp_path):
    path = write_page(runs, folders, tmp_path / "new" / "report.html", command="fedshot compare fafi V14 --epochs 2")
    text = path.read_text()
    assert "70.0 ± 10.0" in text and "+2.0 [−0.5, +4.5]" in text
    assert "fedshot compare fafi V14 --epochs 2" in text
    assert "V14: weight of the alignment loss" in text
    assert "fafi: weight of the alignment loss" not in text
    assert text.count("Full spec of seed") == 6
    assert "client 0 · 35 · 1.00 bit" in text
    assert [file.name for file in path.parent.iterdir()] == ["report.html"], "no part file stays behind"
    page = parsed(path)
    assert sum(tag == "svg" for tag, _ in page.seen) == 5


def test_the_page_needs_no_network(runs, folders, tmp_path):
    text = write_page(runs, folders, tmp_path / "report.html").read_text()
    without_names = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert "http" not in without_names
    assert "@import" not in text and "<link" not in text
    assert all("src" not in attrs for _, attrs in parsed(tmp_path / "report.html").seen)


def test_the_page_is_accessible(runs, folders, tmp_path):
    page = parsed(write_page(runs, folders, tmp_path / "report.html"))
    assert all(attrs.get("scope") in ("col", "row") for tag, attrs in page.seen if tag == "th")
    assert all(attrs.get("aria-label") and attrs["role"] == "img" for tag, attrs in page.seen if tag == "svg")
    names = [attrs["id"] for _, attrs in page.seen if "id" in attrs]
    assert len(names) == len({*names}), "identifiers of the figures must not meet"
    used = {attrs["xlink:href"][1:] for tag, attrs in page.seen if tag == "use"}
    assert used <= {*names}


def test_twelve_runs_stay_under_a_megabyte_and_equal_runs_give_equal_pages(make_record, tmp_path):
    wide = [[k + c for c in range(100)] for k in range(20)]
    runs = {m: [make_record(m, s, class_counts=wide) for s in (1, 2, 3)] for m in ("fafi", "etf", "aurora", "fedavg")}
    first = write_page(runs, {}, tmp_path / "1.html").read_bytes()
    assert len(first) < 1_000_000
    assert write_page(runs, {}, tmp_path / "2.html").read_bytes() == first


def test_one_run_of_one_method_without_telemetry_makes_a_page(make_record, tmp_path):
    record = make_record(curve=(0.5,), skipped={1: "no samples"}, findings=["client 1 held nothing"])
    text = write_page({"fafi": [record]}, {"fafi": [tmp_path / "gone"]}, tmp_path / "report.html").read_text()
    assert "50.0 (1 seed)" in text
    assert "1 of 2 clients skipped" in text
    assert "client 1 held nothing (seed 1)" in text
    assert "Accuracy over local epochs" not in text


def test_what_the_user_typed_is_text_and_never_markup(make_record, tmp_path):
    label = '<script>alert("x")</script>'
    path = write_page({label: [make_record()]}, {}, tmp_path / "report.html", command=label)
    assert sum(tag == "script" for tag, _ in parsed(path).seen) == 1
    assert label not in path.read_text()


def test_a_folder_is_not_a_page(runs, tmp_path):
    with pytest.raises(UserError, match="is a folder"):
        write_page(runs, {}, tmp_path)


def test_a_failure_leaves_the_old_page(runs, tmp_path):
    path = write_page(runs, {}, tmp_path / "report.html")
    before = path.read_bytes()
    with pytest.raises(UserError):
        write_page({}, {}, path)
    assert path.read_bytes() == before


def test_the_lead_claims_no_more_than_the_seeds_give(runs, make_record):
    assert lead(comparison(runs)).endswith("These seeds do not tell the two apart.")
    clear = [make_record("etf", s, (0.5, v)) for s, v in {1: 0.901, 2: 0.70, 3: 0.80}.items()]
    assert lead(comparison({"fafi": runs["fafi"], "etf": clear})).endswith("[+9.9, +10.2].")
    assert "Against" not in lead(comparison({"etf": clear, "fafi": runs["fafi"]}))
    assert (
        lead(comparison({"fafi": [make_record()]})) == "Accuracy on the test images, in percent: fafi, 80.0 (1 seed)."
    )
    assert lead(comparison({"fafi": runs["fafi"], "etf": clear[:1]})).startswith("The methods ran on different seeds")


def test_the_python_lines_give_the_same_specs(make_record):
    records = [make_record(seed=s, options={"weight": 2.0}, evaluate_at=(1, 2), fusion="logits") for s in (1, 2)]
    for group in (records, [records[0], make_record("etf", seed=2)]):
        code = "\n".join(line for line in python_lines(group).splitlines() if not line.startswith("from"))
        made = []

        class Done:
            class final:
                accuracy = 1.0

        scope = {"make_spec": make_spec, "run": lambda spec: made.append(spec) or Done, "print": lambda *_: None}  # noqa: B023
        exec(code, scope)
        assert made == [record.spec for record in group]
