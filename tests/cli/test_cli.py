"""The command line from outside: what it prints, where it writes, how it ends.

Most tests call it in this process with a small estimator in place of the real ones (`Fake`): they are about
the command line. Those of the last part run the real ones.
"""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import click
import numpy as np
import pytest

import mgclust.algorithms
from mgclust import DensityPeaks, cli, load_result, open_dataset
from mgclust.algorithms import Option
from mgclust.algorithms.declaration import PLACE
from mgclust.base.errors import InsufficientMemoryError, RetryWarning, RunCancelled, WorkerLost
from mgclust.params import Anything, Boolean, Bytes, Choice, Integer, Real, check_parameters
from mgclust.results.result import Result
from oracles import density_peaks as reference


class Fake:
    """A method as the command line sees it.

    Cuts the rows in `n_clusters` runs.
    """

    method = "fake"
    presentation = DensityPeaks.presentation
    opens = "rows"
    constraints = {  # noqa: RUF012
        "n_clusters": Integer(at_least=1, optional=True, help="How many."),
        "dc": Real(above=0, optional=True),
        "metric": Choice("euclidean", "cosine"),
        "halo": Boolean(),
        "dtype": Choice("float32", "float64"),
        "memory_limit": Bytes(optional=True),
        "device": Choice("auto", "cpu", "cuda"),
        "client": Anything(),
    }
    defaults = {"n_clusters": None, "dc": None, "metric": "euclidean", "halo": False, "dtype": "float32"}  # noqa: RUF012
    error = None

    def __init__(self, **parameters):
        self.parameters = {**self.defaults, **check_parameters(self.constraints, parameters)}

    @classmethod
    def options(cls):
        named = {name: c for name, c in cls.constraints.items() if name not in PLACE}
        return [Option(name, cls.defaults.get(name), c) for name, c in named.items()]

    @classmethod
    def summary(cls):
        return "A method as the command line sees it."

    def fit_dataset(self, dataset, on_progress=None, checkpoint=None):
        for fraction in (0.0, 0.5, 1.0):
            on_progress({"stage": "rho", "fraction": fraction, "elapsed": 0.1})
        if self.error is not None:
            raise self.error
        n, k = dataset.shape[0], self.parameters["n_clusters"] or 2
        arrays = {"rho": np.arange(n, 0, -1.0), "delta": np.ones(n), "centers": np.arange(0, n, n // k)[:k]}
        parameters = {name: value for name, value in self.parameters.items() if name != "client"}
        return Result(
            method="fake",
            labels=np.arange(n) * k // n,
            arrays=arrays,
            scores={"n_clusters": k, "dc": 0.5},
            parameters=parameters,
            source=dataset.describe(),
            timings={"rho": 0.25},
            warnings=["a warning."],
        )


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MGCLUST_DEBUG", raising=False)
    monkeypatch.setitem(mgclust.algorithms.METHODS, "fake", Fake)
    monkeypatch.setattr(Fake, "error", None)
    rng = np.random.default_rng(0)
    labels = np.arange(60) * 3 // 60
    X = (rng.normal(size=(60, 2)) + 20 * labels[:, None]).astype("float32")
    np.savez("points.npz", X=X, y=labels)
    np.save("points.npy", X)
    return tmp_path


@pytest.fixture
def mgclust_(capsys):
    def call(*args):
        code = cli.run_command([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def refused(call, *args, code=2):
    """Call; expect one error line, no output and nothing new in the directory; return the line."""
    before = sorted(os.listdir())
    got, out, err = call(*args)
    lines = [line for line in err.splitlines() if not re.match(r"\d\d:\d\d:\d\d ", line)]
    assert got == code, err
    assert out == "" and len(lines) == 1 and lines[0].startswith("error: "), (out, err)
    assert "Traceback" not in err
    assert sorted(os.listdir()) == before
    return lines[0]


def test_warnings_during_a_run_are_lines_without_the_place_in_the_code(mgclust_, monkeypatch):
    plain = Fake.fit_dataset

    def fit_dataset(self, *arguments, **named):
        warnings.warn("worker w of rank 1 was lost.", RetryWarning, stacklevel=2)
        return plain(self, *arguments, **named)

    monkeypatch.setattr(Fake, "fit_dataset", fit_dataset)
    shown = warnings.showwarning
    code, _, err = mgclust_("run", "fake", "points.npz", "-o", "out", "--n-clusters", 3)
    assert code == 0, err
    assert [line[9:] for line in err.splitlines() if "lost" in line] == ["warning: worker w of rank 1 was lost."]
    assert warnings.showwarning is shown


def test_run_writes_a_whole_result_and_says_so(mgclust_):
    code, out, err = mgclust_("run", "fake", "points.npz", "-o", "out", "--n-clusters", 3)
    assert code == 0, err
    assert "3, of 20 rows" in out and "ARI 1.000" in out and "rho 250 ms" in out and " warning: a warning.\n" in err
    assert "out/report.html" in out
    assert sorted(os.listdir("out")) == [
        "centers.npy", "decision_graph.png", "delta.npy", "labels.csv", "labels.npy", "report.html",
        "result.json", "rho.npy", "scatter.png",
    ]  # fmt: skip
    result = load_result("out")
    same = {"ari": 1.0, "nmi": 1.0, "fowlkes_mallows": 1.0, "purity": 1.0, "error_rate": 0.0}
    assert result.scores == {"n_clusters": 3, "dc": 0.5, **same}
    page = Path("out/report.html").read_text()
    assert "mgclust run fake points.npz -o out --n-clusters 3" in page
    assert re.sub(r"^\S+ ", "", err.splitlines()[0]) == "rho" and len(err.splitlines()) == 3


def test_options_come_from_the_method(mgclust_):
    code, out, _ = mgclust_("run", "fake", "--help")
    assert code == 0
    for text in ("--n-clusters INTEGER", "How many.", "--metric euclidean|cosine", "--halo / --no-halo", "--scheduler"):
        assert text in out
    assert "--client" not in out and "--device" not in out
    mgclust_("run", "fake", "points.npy", "-o", "out", "--metric", "cosine", "--halo", "--memory-limit", "4GB",
             "--dc", "0.3", "--dtype", "float64", "--cpu", "--no-report")  # fmt: skip
    assert load_result("out").parameters == {
        "n_clusters": None, "dc": 0.3, "metric": "cosine", "halo": True, "dtype": "float64",
        "memory_limit": 4 * 10**9, "device": "cpu",
    }  # fmt: skip
    assert not Path("out/report.html").exists() and not Path("out/scatter.png").exists()


def test_json_is_all_that_stdout_gets(mgclust_):
    code, out, _ = mgclust_("run", "fake", "points.npz", "-o", "out", "--json")
    assert code == 0
    content = json.loads(out)
    assert content["scores"]["n_clusters"] == 2 and content["timings"] == {"rho": 0.25}
    assert content["output"] == os.path.abspath("out")


def test_standard_output_is_one_screen_wide(mgclust_):
    for args in (["--help"], ["run", "--help"], ["run", "fake", "--help"], ["demo", "--help"]):
        code, out, _ = mgclust_(*args)
        assert code == 0 and max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["run", "fake", "points.npy"], "Missing option '-o' / '--output'"),
        (["run", "fake", "-o", "out"], "Missing argument 'INPUT...'"),
        (["run", "fale", "points.npy", "-o", "out"], "method='fale' should be one of 'density-peaks', "),
        (["run", "fale", "--help"], "; 'mgclust methods' describes them."),
        (["rum"], "No such command 'rum'"),
        (["run", "fake", "points.npy", "-o", "out", "--nonsense"], "No such option"),
        (["run", "fake", "points.npy", "-o", "out", "--n-clusters", "0"], "n_clusters=0 should be an integer >= 1"),
        (["run", "fake", "points.npy", "-o", "out", "--n-clusters", "3.5"], "n_clusters='3.5' should be"),
        (["run", "fake", "points.npy", "-o", "out", "--dc", "-1"], "dc=-1.0 should be"),
        (["run", "fake", "points.npy", "-o", "out", "--dc", "nan"], "dc=nan should be"),
        (["run", "fake", "points.npy", "-o", "out", "--metric", "euclidian"], "did you mean 'euclidean'"),
        (["run", "fake", "points.npy", "-o", "out", "--memory-limit", "4 goats"], "memory_limit='4 goats' should be"),
        (["run", "fake", "points.npy", "-o", "out", "--gpus", "2", "--cpu"], "--gpus cannot be combined with --cpu"),
        (["run", "fake", "points.npy", "-o", "out", "--workers", "2"], "--workers needs --cpu or --scheduler"),
        (["run", "fake", "points.npy", "-o", "out", "--gpus", "2", "--workers", "2"], "or --workers"),
        (["run", "fake", "points.npy", "-o", "out", "--gpus", "0"], "--gpus"),
        (["run", "fake", "missing.npy", "-o", "out"], "missing.npy"),
        (["run", "fake", "points.npy", "-o", "missing/out"], "does not exist"),
        (["run", "fake", "points.npy", "-o", "points.npz/out"], "is not a directory"),
        (["run", "fake", "points.npy", "-o", "/proc/out"], "cannot be made in '/proc'"),
        (["run", "fake", "points.npy", "-o", "out", "--mask", "m.nii"], "mask"),
        (["demo", "-o", "missing/out"], "does not exist"),
    ],
)  # fmt: skip
def test_wrong_use(mgclust_, args, expected):
    assert expected in refused(mgclust_, *args)


@pytest.mark.parametrize("args", [[], ["run"], ["token"]])
def test_no_command_is_answered_with_the_help(mgclust_, args):
    """As it is written, not as one line of an error."""
    code, out, err = mgclust_(*args)
    assert (code, out) == (2, "") and err == mgclust_(*args, "--help")[1]


def test_every_option_has_help():
    def options(command, parent=None):
        context = click.Context(command, parent=parent, info_name=command.name)
        for each in command.get_params(context):
            if isinstance(each, click.Option):
                yield context.command_path, each.opts[0], (each.help or "").split("[")[0].strip()
        for name in command.list_commands(context) if isinstance(command, click.Group) else ():
            yield from options(command.get_command(context, name), context)

    listed = list(options(cli.commands))
    assert len(listed) > 200
    assert not [each for each in listed if not each[2] and " fake" not in each[0]]


def test_an_existing_output_is_refused_before_computing(mgclust_, monkeypatch):
    os.mkdir("out")
    Path("out/notes.txt").write_text("mine")
    monkeypatch.setattr(Fake, "error", AssertionError("computed"))
    assert "exists; choose another name" in refused(mgclust_, "run", "fake", "points.npy", "-o", "out")
    args = ("run", "fake", "points.npy", "-o", "out", "--overwrite")
    assert "not a result directory" in refused(mgclust_, *args)
    assert Path("out/notes.txt").read_text() == "mine"


def test_overwrite_replaces_a_result(mgclust_):
    for k in (2, 3):
        code, _, err = mgclust_("run", "fake", "points.npy", "-o", "out", "--n-clusters", k, "--overwrite")
        assert code == 0, err
    assert load_result("out").scores["n_clusters"] == 3
    assert sorted(os.listdir()) == ["out", "points.npy", "points.npz"]


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (InsufficientMemoryError("needed 3 GiB, there 2 GiB."), 2, "needed 3 GiB, there 2 GiB."),
        (WorkerLost("worker tcp://a:1 was lost."), 1, "worker tcp://a:1 was lost."),
        (KeyError("x\ny"), 1, "KeyError: 'x\\ny' (use --debug to see where)"),
        (RuntimeError("two\nlines"), 1, "RuntimeError: two lines"),
    ],
)
def test_failures_are_one_line(mgclust_, monkeypatch, error, code, expected):
    monkeypatch.setattr(Fake, "error", error)
    assert expected in refused(mgclust_, "run", "fake", "points.npy", "-o", "out", code=code)


def test_debug_shows_the_traceback(mgclust_, monkeypatch):
    monkeypatch.setattr(Fake, "error", RuntimeError("inside"))
    monkeypatch.setenv("MGCLUST_DEBUG", "0")  # restored afterwards
    code, _, err = mgclust_("run", "fake", "points.npy", "-o", "out", "--debug")
    assert code == 1 and "Traceback" in err and err.splitlines()[-1] == "error: RuntimeError: inside"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RunCancelled("stopped")])
def test_cancelling_a_run(mgclust_, monkeypatch, error):
    monkeypatch.setattr(Fake, "error", error)
    code, out, err = mgclust_("run", "fake", "points.npy", "-o", "out")
    assert code == 130 and out == "" and err.splitlines()[-1] == "cancelled"
    assert sorted(os.listdir()) == ["points.npy", "points.npz"]


def test_an_interrupt_while_writing_leaves_nothing(mgclust_, monkeypatch):
    import mgclust.output.report

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(mgclust.output.report, "write_report", interrupt)
    code, _, err = mgclust_("run", "fake", "points.npy", "-o", "out")
    assert code == 130 and err.splitlines()[-1] == "cancelled"
    assert sorted(os.listdir()) == ["points.npy", "points.npz"]


def test_methods_lists_every_parameter(mgclust_):
    code, out, _ = mgclust_("methods")
    assert code == 0
    assert "fake  A method as the command line sees it." in out and "--memory-limit" in out
    code, out, _ = mgclust_("methods", "--json")
    names = [p["name"] for p in json.loads(out)["fake"]["parameters"]]
    assert names == ["n_clusters", "dc", "metric", "halo", "dtype", "memory_limit"]


def test_info_works_without_a_gpu(mgclust_):
    code, out, err = mgclust_("info")
    assert code == 0 and err == ""
    assert "cores" in out and "available" in out and "GPU" in out and "numpy" in out
    code, out, _ = mgclust_("info", "--json")
    assert json.loads(out)["cpu"]["cores"] >= 1


def test_version(mgclust_):
    assert mgclust_("--version") == (0, f"mgclust {mgclust.__version__}\n", "")


def start(code, *args):
    """Start the command line in a process of its own, after `code`."""
    script = f"import sys; {code}\nfrom mgclust import cli; cli.main(sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, args)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(mgclust.__file__).parents[1])},
    )  # fmt: skip


def test_help_is_quick_and_loads_nothing_heavy():
    check = (
        "import atexit; heavy = {'numpy', 'dask', 'sklearn', 'matplotlib', 'numba', 'rich'};"
        "atexit.register(lambda: print(sorted(heavy & set(sys.modules))))"
    )
    before = os.times()
    out, err = start(check, "--help").communicate(timeout=60)
    assert out.splitlines()[-1] == "[]", err
    after = os.times()
    # Of a processor: about 0.15 s. A machine that does much else takes longer by the clock.
    assert after.children_user + after.children_system - before.children_user - before.children_system < 2.0


def make_bad_inputs():
    X = np.random.default_rng(0).normal(size=(200, 2)).astype("float32")
    np.save("ok.npy", X)
    np.save("few.npy", X[:5])
    np.save("one.npy", X[:1])
    np.save("none.npy", X[:0])
    np.save("flat.npy", X[:, 0])
    np.save("cube.npy", X.reshape(10, 20, 2))
    np.save("same.npy", np.ones((50, 2)))
    np.save("zeros.npy", np.vstack([X, np.zeros((1, 2), "float32")]))
    np.save("pickle.npy", np.array([{}, {}], dtype=object), allow_pickle=True)
    np.save("text.npy", np.array([["a", "b"], ["c", "d"]]))
    X[17, 1], X[40, 0] = np.nan, np.inf
    np.save("nan.npy", X)
    Path("short.npy").write_bytes(Path("ok.npy").read_bytes()[:500])
    Path("short.npz").write_bytes(Path("points.npz").read_bytes()[:200])
    Path("noise.npy").write_text("hello")
    Path("word.csv").write_text("1,2\n3,x\n5,6\n")
    Path("ragged.csv").write_text("1,2\n3\n5,6\n")
    Path("points.xyz").write_text("1 2")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("nan.npy", "2 of 400 values, the first in row 17"),
        ("flat.npy", "should be 2-dimensional"),
        ("cube.npy", "should be 2-dimensional"),
        ("none.npy", "0 sample"),
        ("one.npy", "n_samples=1 should be >= 2"),
        ("few.npy --n-clusters 8", "n_samples=5 should be >= n_clusters=8"),
        ("same.npy", "duplicate"),
        ("zeros.npy --metric cosine", "metric='cosine' is undefined for all-zero rows"),
        ("ok.npy --metric chebyshev", "metric='chebyshev' should be one of 'euclidean'"),
        ("ok.npy --dc 0", "dc=0.0 should be"),
        ("ok.npy --dc-fraction 2", "dc_fraction=2.0 should be"),
        ("ok.npy --rho-min 1e9", "choose lower thresholds"),
        ("ok.npy --dtype float16", "dtype='float16' should be"),
        ("ok.npy --mask ok.npy", "mask="),
        ("ok.npy --standardize minmax", "standardize='minmax' should be"),
        ("ok.npy --memory-limit 20kB", "What would fit"),
        ("pickle.npy", "pickle"),
        ("text.npy", "text"),
        ("short.npy", "truncated"),
        ("short.npz", "truncated"),
        ("noise.npy", "not a whole .npy"),
        ("word.csv", "line 2"),
        ("ragged.csv", "line 2"),
        ("points.xyz", "'.xyz'"),
        ("missing.npy", "missing.npy does not exist"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(mgclust_, args, expected):
    make_bad_inputs()
    assert expected in refused(mgclust_, "run", "density-peaks", *args.split(), "-o", "out", "--cpu")


@pytest.mark.parametrize("count", [1, 2])
def test_a_gpu_where_there_is_none(mgclust_, monkeypatch, count):
    from mgclust.engine import devices

    monkeypatch.setattr(devices, "gpus", lambda: ())
    assert "device='cuda'" in refused(mgclust_, "run", "density-peaks", "points.npy", "-o", "out", "--gpus", count)


def test_density_peaks_of_generated_points_finds_their_clusters(mgclust_):
    from mgclust.datasets import make_gaussian_rings

    points = make_gaussian_rings(spacing=6.0)
    args = ("run", "density-peaks", points.save("rings.npz"), "-o", "out", "--cpu", "--halo")
    code, out, err = mgclust_(*args)
    assert code == 0, err
    result = load_result("out")
    assert result.scores["n_clusters"] == 15 and result.scores["ari"] > 0.99
    assert result.scores["dc"] == pytest.approx(reference.cutoff_distance(points.X, 0.02), rel=2e-6)
    assert len(result.source["sha256"]) == 64
    assert {"rho", "delta", "nearest_higher", "centers", "halo"} == set(result.arrays)
    assert "clusters  15, of " in out and f"ARI {result.scores['ari']:.3f}" in out
    page = Path("out/report.html").read_text()
    assert page.count("data:image/png;base64,") == 2 and "exact: the same as sorting all distances" in page


def test_fuzzy_c_means_writes_centres_memberships_and_its_pictures(mgclust_):
    args = ("run", "fuzzy-c-means", "points.npz", "--cpu", "--n-clusters", 3, "--random-state", 0)
    code, out, err = mgclust_(*args, "-o", "out", "--m", 1.8, "--n-init", 2)
    assert code == 0, err
    result = load_result("out")
    assert result.method == "fuzzy-c-means" and result.scores["ari"] == 1.0 and result.parameters["m"] == 1.8
    assert {"cluster_centers", "objective_history", "memberships"} == set(result.arrays)
    assert result.arrays["cluster_centers"].shape == (3, 2) and result.arrays["memberships"].shape == (60, 3)
    np.testing.assert_allclose(result.arrays["memberships"].sum(axis=1), 1, rtol=1e-5)
    assert "clusters  3, of 20 rows" in out and "partition coefficient " in out and "ARI 1.000" in out
    assert {"objective.png", "scatter.png", "report.html"} <= set(os.listdir("out"))
    page = Path("out/report.html").read_text()
    assert "Fuzzy c-means: points.npz" in page and "Xie-Beni" in page and page.count("data:image/png;base64,") == 2
    # The centres of one run as the start of the next.
    code, out, err = mgclust_(*args, "-o", "again", "--init", "out/cluster_centers.npy", "--m", 1.8, "--json")
    assert code == 0, err
    assert json.loads(out)["scores"]["n_iter"] <= result.scores["n_iter"]


def test_many_memberships_are_written_by_blocks(mgclust_, monkeypatch):
    import zarr

    from mgclust.algorithms.fuzzy_c_means import memberships

    args = ("run", "fuzzy-c-means", "points.npz", "--cpu", "--n-clusters", 3)
    assert mgclust_(*args, "-o", "small")[0] == 0
    monkeypatch.setattr(memberships, "SMALL", 0)
    code, _, err = mgclust_(*args, "-o", "large")
    assert code == 0, err
    assert "memberships.zarr" in os.listdir("large") and "memberships.npy" not in os.listdir("large")
    stored = load_result("large").arrays["memberships"]
    assert isinstance(stored, zarr.Array)
    np.testing.assert_array_equal(stored[:], load_result("small").arrays["memberships"])
    assert "3 clusters" in Path("large/report.html").read_text()


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("--m 1", "m=1"),
        ("--n-clusters 0", "n_clusters=0"),
        ("--n-clusters 61", "n_clusters=61"),
        ("--n-clusters 4 --init centers.npy", "init"),
        ("--init missing.npy", "init='missing.npy' cannot be read"),
        ("--init middle", "init"),
        ("--n-init 0", "n_init=0"),
    ],
)
def test_fuzzy_c_means_refuses_in_one_sentence(mgclust_, args, expected):
    np.save("centers.npy", np.zeros((3, 2)))
    args = args if "n-clusters" in args else f"{args} --n-clusters 3"
    line = refused(mgclust_, "run", "fuzzy-c-means", "points.npz", "-o", "out", "--cpu", *args.split())
    assert expected in line


def test_demo_shows_points_voxels_and_a_graph(mgclust_):
    code, out, err = mgclust_("demo")
    assert code == 0, err
    (line,) = (line for line in out.splitlines() if line.startswith("reports"))
    reports = [f"mgclust-demo/{name}/report.html" for name in ("points", "voxels", "graph")]
    assert line.split()[1:] == reports and all(Path(report).exists() for report in reports)
    points, voxels, graph = (load_result(Path(report).parent) for report in reports)
    # 4 sqrt(2) deviations lie between neighbours: about 2 Phi(-2.83) = 0.5% of the rows cross over on each axis.
    assert points.scores["n_clusters"] == 100 and 0.97 < points.scores["ari"] < 0.99
    assert f"ARI {points.scores['ari']:.3f}" in out
    assert len(voxels.cluster_sizes) == 6 and voxels.cluster_sizes.sum() == 1983
    assert graph.scores["modularity"] == pytest.approx(0.5667, abs=1e-4)
    assert 'alt="label slices"' in Path(reports[1]).read_text() and "dendrogram" in Path(reports[2]).read_text()
    # The points are there to be run with other methods.
    assert open_dataset("mgclust-demo/points.npz").shape == (100_000, 2)


@pytest.mark.slow
def test_demo_takes_the_next_free_directory_and_says_what_it_leaves_out(mgclust_, monkeypatch):
    from mgclust.cli import demo

    whole = demo.DEMO
    monkeypatch.setattr(demo, "DEMO", whole[2:])
    for directory in ("mgclust-demo", "mgclust-demo-2"):
        code, out, err = mgclust_("demo")
        assert code == 0, err
        assert f"{directory}/graph/report.html" in out and load_result(f"{directory}/graph").scores["n_clusters"] == 6
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "nibabel" else found(name, *more)
    )
    monkeypatch.setattr(demo, "DEMO", whole[1:])
    code, out, _ = mgclust_("demo", "-o", "here")
    assert code == 0 and Path("here/graph/report.html").exists() and not Path("here/voxels").exists()
    assert "voxels: skipped" in out and "mgclust[fmri]" in out


@pytest.mark.slow
def test_on_workers_of_this_machine():
    process = start("", "run", "density-peaks", "points.npz", "-o", "two", "--cpu", "--workers", 2, "--json")
    out, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    assert json.loads(out)["hardware"]["ranks"] == 2
    assert "Traceback" not in err


def test_info_asks_a_cluster(mgclust_):
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        code, out, err = mgclust_("info", "--scheduler", cluster.scheduler_address)
    assert code == 0, err
    assert out.count("1 threads") == 2


SLOW_REPORT = """
import time, mgclust.output.report
def slow(*args, **kwargs):
    print("writing", file=sys.stderr, flush=True)
    time.sleep(300)
mgclust.output.report.write_report = slow
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_service_that_is_stopped_while_it_starts_ends(number, tmp_path):
    """The signal is not lost, whatever it interrupts; the runner's first line may come before that of web."""
    for delay in (0.0, 0.02, 0.1, 0.5):
        process = start("", "serve", "--cpu", "--port", 0, "--data", tmp_path / "served")
        assert process.stderr.readline().startswith(("mgclust serves ", "files are opened below their roots "))
        time.sleep(delay)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert "Traceback" not in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_writing_leaves_nothing(number, code):
    process = start(SLOW_REPORT, "run", "density-peaks", "points.npy", "-o", "out", "--cpu", "--n-clusters", 3)
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line == "writing\n":
            break
    assert any(name.endswith(".partial") for name in os.listdir()), lines
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, lines
    assert err.split() == ["cancelled"]
    assert sorted(os.listdir()) == ["points.npy", "points.npz"]


SLOW_RANK = """
import time
import warnings
from mgclust.engine import context
stage = context.Context.stage
def slow(self, name):
    if name == "rho":
        while True:
            time.sleep(0.05)
            self.progress(0.0)
    return stage(self, name)
context.Context.stage = slow
"""


@pytest.mark.slow
def test_a_signal_while_computing_leaves_nothing():
    process = start(SLOW_RANK, "run", "density-peaks", "points.npy", "-o", "out", "--cpu")
    for line in process.stderr:
        if " dc" in line:
            break
    time.sleep(0.5)
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and err.split()[-1] == "cancelled" and "Traceback" not in err
    assert time.monotonic() - sent < 60  # about 0.2 s on an idle machine, and no end without the signal
    assert sorted(os.listdir()) == ["points.npy", "points.npz"]


def test_an_interrupt_that_a_library_reports_as_another_error(monkeypatch, capsys):
    def import_interrupted(*_):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise ImportError("multiarray failed to import") from error

    monkeypatch.setattr(cli.commands, "main", lambda *_, **how: import_interrupted())
    assert cli.run_command(["methods"]) == 130
    assert capsys.readouterr().err == "cancelled\n"


@pytest.mark.parametrize("module", ["click", "mgclust.cli.run", "mgclust.base.errors"])
def test_ctrl_c_while_the_command_line_is_imported(module):
    """The signal arrives during an import, and must not become an ImportError."""
    program = f"""
import importlib.abc, os, signal, sys

class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, *_):
        if name == {module!r}:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt as error:
                raise ImportError("it failed to import")

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupt())
sys.argv = ["mgclust", "--version"]
from mgclust.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "cancelled\n")
