import io

from rich.console import Console

from fedshot.report import run_summary


def printed(record, width=80):
    console = Console(width=width, file=io.StringIO())
    console.print(run_summary(record))
    return console.file.getvalue()


def test_a_run_tells_quality_cost_and_clients(make_record):
    text = printed(make_record("aurora", seed=4, findings=["lambda grows in client 1"]))
    assert "80.0 %  after 2 local epochs, 1 seed (4)" in text
    for told in ("worst class", "25.0 %", "oracle routing", "90.0 %", "12.5 %", "1.50 MB", "400 MB", "0.25 s"):
        assert told in text
    first = next(line for line in text.splitlines() if line.strip().startswith("0 "))
    assert first.split() == ["0", "35", "2", "40.0", "%", "1.00", "MB", "1.5", "s"]
    assert "→ lambda grows in client 1" in text
    assert "skipped" not in text


def test_a_curve_is_drawn_only_if_there_is_one(make_record):
    assert "▁█▄ 20.0 % after epoch 1 → 50.0 % after epoch 3" in printed(make_record(curve=(0.2, 0.8, 0.5)))
    assert "curve" not in printed(make_record(curve=(0.5,)))


def test_a_skipped_client_says_why(make_record):
    text = printed(make_record(skipped={1: "1 sample: BatchNorm needs two"}, inductive=False), width=100)
    assert "1 of 2 clients skipped" in text
    assert "1 sample: BatchNorm needs two" in text
    assert "transductive" in text


def test_skipped_clients_are_shown_first_among_many(make_record):
    record = make_record(class_counts=[(3, 4)] * 50, skipped={49: "no samples"})
    text = printed(record)
    assert "no samples" in text
    assert "20 more clients not shown" in text
    assert max(map(len, text.splitlines())) <= 80
