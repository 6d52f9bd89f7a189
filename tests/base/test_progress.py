import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgclust import AffinityPropagation, DensityPeaks, open_dataset
from mgclust.base.progress import COMPILING, ProgressLine, details_text, pace_text, paced, progress_text, worded
from mgclust.cli.output import ShownProgress

EVENT = {"stage": "scan", "fraction": 0.12, "elapsed": 3.0}
EVENT |= {"rate": 811.7, "damping": 0.5, "preference": -0.41, "n_clusters": 34}
FORMATS = AffinityPropagation.presentation.progress | {"warning": ""}
EVENT["details"] = details_text(EVENT, FORMATS)


def line(event):
    """What is shown of an event that a rank sends."""
    shown = []
    worded(lambda event: shown.append(progress_text(event)), FORMATS)(event)
    return shown[0]


def test_a_line_says_how_far_and_where():
    assert progress_text(EVENT) == "12% K=34 clusters preference=-0.41 damping=0.50 812 it/s"
    assert details_text({"stage": "rho", "fraction": 0.5}, FORMATS) == ""
    assert progress_text({"stage": "rho", "fraction": 0.5}) == "50%"
    assert progress_text({"stage": "write"}) == ""


def test_unknown_and_missing_figures():
    assert line({"fraction": 1.0, "passes": 3, "error": 0.123456, "n_clusters": None}) == "100% passes=3 error=0.1235"


@pytest.mark.parametrize("value", ["x", {}, [1], True, None, 10**18, 1e300, float("nan"), "\x1b[2J", "x" * 63_000])
@pytest.mark.parametrize("name", [*FORMATS, "stage", "fraction", "elapsed", "stage_rate", "stage_eta", "other"])
def test_what_is_no_figure(name, value):
    """Another machine may have told it."""
    event = {"stage": "evil", "fraction": 0.5, "stage_rate": 0.01, "stage_eta": 3.0, name: value}
    for text in (line(event), progress_text(event)):
        assert len(text) < 1000 and text.isprintable()
    from_elsewhere = progress_text(event | {"details": value})
    assert len(from_elsewhere) < 1100 and from_elsewhere.isprintable()


def test_many_figures_are_cut():
    assert len(line({f"x{i}": "y" * 63_000 for i in range(63)})) < 1100
    assert line({"stage": "evil", "iteration": "x", "damping": {}}) == "iteration=x damping={}"


def test_the_bar_obeys_no_markup(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with ShownProgress() as progress:
        progress({"stage": "[/evil]", "fraction": 0.5, "note": "[/x]"})
        progress.bar.refresh()


def test_verbose_prints_a_line_a_stage(capsys):
    shown = "scan: 12% K=34 clusters preference=-0.41 damping=0.50 812 it/s (3.0 s)\n"
    with ProgressLine() as line:
        for event in (EVENT, EVENT, EVENT | {"fraction": 0.13}):
            line(event)
        assert capsys.readouterr().err == shown
        line({"stage": "labels", "fraction": 0.0, "elapsed": 3.5})
        line({"stage": "labels", "elapsed": 3.5, "warning": "w", "details": "warning: w"})
    assert capsys.readouterr().err == "labels: 0% (3.5 s)\nlabels: warning: w (3.5 s)\n"


def test_verbose_draws_one_line_that_moves_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    with ProgressLine() as line:
        line(EVENT)
        line({"stage": "labels", "fraction": 0.5, "elapsed": 3.5})
        line({"stage": "\x1b[2J", "elapsed": 3.5})
    empty, first, second, third = capsys.readouterr().err.split("\r")
    assert (empty, first) == ("", "scan: 12% K=34 clusters preference=-0.…")
    assert second == f"{'labels: 50% (3.5 s)':39}"
    assert third == "\\x1b[2J:  (3.5 s)".ljust(19) + "\n"


def test_verbose_of_a_fit(capsys):
    DensityPeaks(n_clusters=2, client=None, verbose=True).fit(np.random.default_rng(0).normal(size=(50, 2)))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) < 10 and lines[-1].startswith("labels: ")


def test_what_ends_once_it_has_converged_takes_that_long_at_most():
    event = {"stage": "scan", "fraction": 0.5, "stage_rate": 0.01, "stage_eta": 50.0, "iteration": 25, "max_iter": 50}
    assert line(event) == "50% iteration 25 of at most 50 (60%/min, at most 50 s left in this stage)"


@pytest.mark.parametrize("shown", [ProgressLine, ShownProgress])
def test_a_log_says_at_once_that_kernels_are_compiled(shown, capsys):
    with shown() as progress:
        for figures in ({}, {"compiling": 1}, {"compiling": 2}, {"compiling": 3}):
            event = {"stage": "scan", "fraction": 0.0, "elapsed": 0.1, **figures}
            progress({**event, "details": details_text(event, {})})
    first, second = capsys.readouterr().err.splitlines()
    assert "scan" in first and f"scan: 0% {COMPILING.format(1)}" in second and "mgclust warmup" in second


@pytest.mark.slow
def test_kernels_that_are_compiled_are_counted(monkeypatch, tmp_path):
    script = (
        "import numpy as np, mgclust\n"
        "seen = []\n"
        "model = mgclust.FuzzyCMeans(2, client=None, device='cpu')\n"
        "data = mgclust.open_dataset(np.random.default_rng(0).normal(size=(50, 2)))\n"
        "for _ in range(2):\n"
        "    seen.append([])\n"
        "    model.fit_dataset(data, lambda event: seen[-1].append(event.get('details', '')))\n"
        "told = [[words for words in run if 'compiling kernels (once)' in words] for run in seen]\n"
        "print(len(told[0]), len(told[1]), told[0][0])\n"
    )
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=150)
    first, second, words = done.stdout.split(maxsplit=2)
    assert int(first) > 0 == int(second) and words.strip() == COMPILING.format(1)


@pytest.mark.parametrize("terminal", [False, True])
def test_the_command_line_shows_them(terminal, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    monkeypatch.setattr("mgclust.cli.output.LINE_SECONDS", -1)
    with ShownProgress() as progress:
        progress({"stage": "scan", "fraction": 0.0})
        progress(EVENT)
        if terminal:
            (task,) = progress.bar.tasks
            assert (
                task.fields["details"] == "K=34 clusters preference=-0.41 damping=0.50 812 it/s"
                and task.completed == 12
            )
        progress({"stage": "labels", "fraction": 0.0})
        if terminal:
            (task,) = progress.bar.tasks
            assert task.fields["details"] == "" and task.description == "labels"
    if not terminal:
        first, second, third = capsys.readouterr().err.splitlines()
        assert first.endswith(" scan") and third.endswith(" labels")
        assert second.endswith(" scan: 12% K=34 clusters preference=-0.41 damping=0.50 812 it/s")


def told(events):
    """What a receiver gets of each event: (rate of the stage, seconds until it ends)."""
    heard = []
    report = paced(heard.append)
    for event in events:
        report(event)
    assert [{name: event[name] for name in given} for event, given in zip(heard, events, strict=True)] == events
    return [(event["stage_rate"], event["stage_eta"]) for event in heard]


def steady(stage, begin, seconds, first=0.0, step=1.0):
    """Events of a stage that takes so many seconds, and begins with a share that is done."""
    times = np.arange(0.0, seconds + step / 2, step)
    return [
        {"stage": stage, "fraction": min(1.0, first + (1 - first) * t / seconds), "elapsed": begin + t} for t in times
    ]


def test_a_steady_stage():
    heard = told(steady("rho", 3.0, 200.0))
    assert heard[:2] == [(None, None)] * 2  # two shares make a rate
    for at, (rate, eta) in enumerate(heard[2:], start=2):
        assert rate == pytest.approx(1 / 200)
        assert eta == pytest.approx(200 - at, abs=1e-6)


def test_what_another_run_did_is_not_counted():
    heard = told([{"stage": "scan", "fraction": 0.0, "elapsed": 0.0}, *steady("scan", 1.0, 100.0, first=0.9)])
    assert heard[1] == (None, None)
    assert heard[-1] == (pytest.approx(0.1 / 100), 0.0)
    assert heard[51][1] == pytest.approx(50.0)


def test_a_stage_that_slows_down_is_followed():
    fast = steady("rho", 0.0, 100.0)[:51]  # half of it
    slow = [{"stage": "rho", "fraction": 0.5 + 0.001 * t, "elapsed": 50.0 + t} for t in range(1, 301)]
    rates = [rate for rate, _ in told([*fast, *slow])]
    assert rates[50] == pytest.approx(0.01)
    assert 0.001 < rates[80] < 0.006  # half a minute later it is on its way, smoothly
    assert all(after <= before + 1e-9 for before, after in itertools.pairwise(rates[50:]))
    assert rates[-1] == pytest.approx(0.001, rel=0.02)


@pytest.mark.parametrize(
    "events",
    [
        [{"stage": "write"}, {"stage": "write"}],
        [{"stage": "waiting", "fraction": 0.0, "elapsed": 0.0}] * 3,
        [{"stage": "rho", "fraction": 0.3, "elapsed": t} for t in (1.0, 2.0, 60.0)],
        [{"stage": "rho", "fraction": f, "elapsed": 1.0} for f in (0.1, 0.2, 0.3)],
        [{"stage": name, "fraction": 0.5, "elapsed": t} for t, name in enumerate("abab")],
        [{"stage": "pass", "fraction": f, "elapsed": t} for t, f in enumerate((0.4, 0.2, 0.0, 0.1))],
        [{"stage": "pass", "fraction": f, "elapsed": t} for t, f in ((5.0, 0.4), (3.0, 0.6))],
    ],
)
def test_unknown_is_none(events):
    assert told(events) == [(None, None)] * len(events)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries({
            "stage": st.sampled_from(["a", "b"]),
            "fraction": st.none() | st.floats(0.0, 1.1),
            "elapsed": st.none() | st.floats(0.0, 1e7),
        })
    )
)  # fmt: skip
def test_never_negative(events):
    for rate, eta in told(events):
        assert (rate is None) == (eta is None)
        assert rate is None or (rate > 0 and eta >= 0)


@pytest.mark.parametrize(
    ("rate", "eta", "text"),
    [
        (1 / 1500, 180.0, "4%/min, 3 min left in this stage"),
        (0.01, 0.0, "60%/min, 0 s left in this stage"),
        (0.03, 12.4, "3%/s, 12 s left in this stage"),
        (1e-5, 86_000.0, "0.06%/min, 24 h left in this stage"),
        (1e-6, 900_000.0, "0.006%/min, 10 days left in this stage"),
        (2.0, 0.4, "200%/s, 0 s left in this stage"),
        (None, None, ""),
    ],
)
def test_pace_in_words(rate, eta, text):
    event = {"stage": "rho", "fraction": 0.5, "stage_rate": rate, "stage_eta": eta}
    assert pace_text(event) == text
    assert line({**event, "iteration": 7}) == ("50% iteration 7" + (f" ({text})" if text else ""))
    assert details_text(event, FORMATS) == ""


def test_without_a_receiver():
    assert paced(None) is None


def test_a_run_tells_them():
    heard = []
    x = np.random.default_rng(0).normal(size=(20_000, 8))
    DensityPeaks(client=None, device="cpu").fit_dataset(open_dataset(x), heard.append, provenance=False)
    assert all({"stage", "fraction", "elapsed", "stage_rate", "stage_eta"} <= event.keys() for event in heard)
