import io
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from mgclust import plots
from mgclust.base.errors import InputError
from mgclust.plots import clusters
from mgclust.results.result import Result


def blobs(k=4, n=200, d=2, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n)
    return rng.normal(size=(n, d)) + 10 * rng.normal(size=(k, d))[labels], labels


def peaks(n=200, k=3, **parameters):
    rng = np.random.default_rng(0)
    rho, delta = rng.random(n) + 0.1, 0.01 * rng.random(n)
    rho[:k], delta[:k] = 2.0, np.arange(k, 0, -1.0)
    arrays = {"rho": rho, "delta": delta, "centers": np.arange(k)}
    return Result("density-peaks", np.arange(n) % k, arrays, parameters=parameters)


@pytest.mark.parametrize("k", [0, 1, 10, 11, 31, 100, 1000])
def test_colors_are_distinct_and_keep_neighbours_apart(k):
    colors = plots.cluster_colors(k)
    assert colors.shape == (k, 3) and (colors >= 0).all() and (colors <= 1).all()
    assert len(np.unique(colors.round(4), axis=0)) == k
    if k > 1:
        assert np.linalg.norm(np.diff(colors, axis=0), axis=1).min() > 0.2


def test_a_cluster_has_one_color_in_every_picture():
    X, labels = blobs(k=3)
    result = peaks(k=3)
    centers = X[:3]
    marks = [
        [tuple(c.get_facecolor()[0]) for c in ax.collections if len(c.get_offsets()) == 1]
        for ax in (plots.decision_graph(result), plots.scatter(X, labels, centers))
    ]
    assert len(marks[0]) == 3 and marks[0] == marks[1]


def test_pictures_are_png_and_leave_no_global_state():
    code = (
        "import sys, numpy as np; from mgclust import plots;"
        "data = plots.png(plots.scatter(np.eye(4), np.arange(4)));"
        "assert data[:4] == b'\\x89PNG'; assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_draws_on_given_axes():
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plots.decision_graph(peaks(), ax=left) is left
    assert plots.scatter(*blobs(), ax=right) is right


@pytest.mark.parametrize("d", [1, 2, 3, 40])
def test_scatter_of_any_width(d):
    X, labels = blobs(d=d)
    labels[:5] = -1
    halo = np.arange(len(X)) % 7 == 0
    ax = plots.scatter(X, labels, X[:4], halo)
    assert ("principal component 1" in ax.get_xlabel()) == (d > 2)
    assert sum(len(c.get_offsets()) for c in ax.collections) == len(X) + 4


def test_the_same_picture_every_time_and_told_when_sampled(monkeypatch):
    monkeypatch.setattr(plots.style, "MAX_POINTS", 100)
    X, labels = blobs(d=5)
    first, second = (plots.png(plots.scatter(X, labels), dpi=50) for _ in range(2))
    assert first == second
    assert "200 points (100 drawn)" in plots.scatter(X, labels).get_title()
    assert "drawn)" in plots.decision_graph(peaks()).get_title()
    assert "4,000 points (100 drawn)" in plots.scatter(X, labels, total=4000).get_title()


def test_decision_graph_draws_what_separated_the_centres():
    assert len(plots.decision_graph(peaks(rho_min=1.5, delta_min=0.5)).lines) == 2
    (hyperbola,) = plots.decision_graph(peaks(), log=False).lines
    x, y = hyperbola.get_data()
    assert np.allclose(x * y, x[0] * y[0])
    assert 1.1 * 0.01 < x[0] * y[0] < 2.0


def test_decision_graph_says_which_density_it_shows():
    for parameters, words in (
        ({}, "Gaussian"),
        ({"density": "cutoff"}, "within"),
        ({"density": "knn"}, "nearest rows"),
    ):
        assert words in plots.decision_graph(peaks(**parameters)).get_xlabel()
    tested = replace(peaks(density="knn"), arrays={**peaks().arrays, "significance": np.ones(3)})
    assert not plots.decision_graph(tested, log=False).lines


def test_decision_graph_of_duplicates_on_logarithmic_axes():
    result = peaks()
    result.arrays["delta"][10:] = 0
    ax = plots.decision_graph(result, log=True)
    assert ax.get_yscale() == "log"
    assert plots.png(ax, dpi=40)


def test_one_cluster_and_two_points():
    result = Result(
        "density-peaks",
        np.zeros(2, int),
        {"rho": np.array([0.4, 0.4]), "delta": np.array([1.0, 1.0]), "centers": np.array([0])},
    )
    assert plots.png(plots.decision_graph(result), dpi=40)
    assert plots.png(plots.scatter(np.zeros((2, 2)), result.labels, np.zeros((1, 2))), dpi=40)


def test_png_is_readable():
    from PIL import Image

    image = Image.open(io.BytesIO(plots.png(plots.scatter(*blobs()), dpi=100)))
    assert image.size == (660, 560)


def silhouettes_of(n=300, k=5):
    labels = np.sort(np.random.default_rng(0).integers(0, k, n))
    return np.clip(np.random.default_rng(1).normal(0.4, 0.3, n), -1, 1), labels


@pytest.mark.parametrize(("n", "k", "named"), [(300, 8, [1, 4, 8]), (300, 1, [1]), (2, 2, [1, 2]), (1, 3, [1, 2, 3])])
def test_distances_to_neighbors_are_sorted(n, k, named, monkeypatch):
    monkeypatch.setattr(plots.style, "MAX_POINTS", 100)
    distances = np.sort(np.random.default_rng(n).exponential(size=(n, k)), axis=1).astype(np.float32)
    ax = plots.neighbor_distances(distances)
    assert plots.png(ax, dpi=40)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [f"neighbour {each}" for each in named]
    for line, each in zip(ax.lines, named, strict=True):
        values = np.sort(distances[:, each - 1])
        x, y = line.get_data()
        np.testing.assert_array_equal(y, values[np.asarray(x, int) - 1])
        assert (y[0], y[-1], len(y)) == (values[0], values[-1], min(n, 100))
    with pytest.raises(InputError, match=r"distances has shape \(3,\)"):
        plots.neighbor_distances([1.0, 2.0, 3.0])


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k"), [(4, 2), (300, 5), (3000, 200), (3000, 34), (3000, 35)])
def test_silhouettes_of_any_number_of_clusters(n, k):
    samples, labels = silhouettes_of(n, k)
    ax = plots.silhouettes(samples, labels)
    assert plots.png(ax, dpi=40)
    assert f"Silhouettes: {len(np.unique(labels))} clusters, {n:,} points" in ax.get_title()
    assert f"mean of all rows, {samples.mean():.3f}" in ax.get_xlabel()
    assert 0 < len(ax.get_yticks()) <= 34
    left, right = ax.get_xlim()
    assert left <= samples.min() and right == 1


def test_silhouettes_show_the_means_of_the_clusters():
    samples, labels = silhouettes_of()
    means = [samples[labels == k].mean() for k in range(5)]
    (marks,) = plots.silhouettes(samples, labels).collections
    np.testing.assert_allclose([path.vertices[:, 0] for path in marks.get_paths()], np.column_stack([means, means]))
    many, several = silhouettes_of(3000, 100)
    profile = plots.silhouettes(many, several).patches[-1].get_data().values
    np.testing.assert_allclose(profile, sorted((many[several == k].mean() for k in range(100)), reverse=True))


def test_silhouettes_are_thinned_and_say_so(monkeypatch):
    monkeypatch.setattr(plots.style, "MAX_POINTS", 100)
    samples, labels = silhouettes_of(1000, 2)
    ax = plots.silhouettes(samples, labels)
    assert "1,000 points (99 drawn)" in ax.get_title()
    drawn = ax.patches[0].get_data().values
    own = samples[labels == 0]
    assert drawn[0] == own.max() and drawn[-1] == own.min() and (np.diff(drawn) <= 0).all()


def test_silhouettes_take_names_and_leave_out_what_has_no_cluster():
    samples, labels = silhouettes_of()
    figure = Figure()
    ax = figure.subplots()
    assert plots.silhouettes(samples, np.array(list("abcde"))[labels], ax=ax) is ax
    assert [tick.get_text() for tick in ax.get_yticklabels()] == list("abcde")
    labels[:10] = -1
    assert "290 points" in plots.silhouettes(samples, labels).get_title()


def candidates(k=(2, 3, 4, 9), best=1):
    k = np.array(k)
    score = np.linspace(0.3, 0.2, len(k))
    score[best] = 0.6
    return {
        "n_clusters": k, "preference": -1.0 * k, "damping": np.full(len(k), 0.5), "n_iter": 100 * k, 
        "silhouette": score,
        "min_cluster_silhouette": score - 0.1, "net_similarity": -2.0 * k, "min_cluster_size": 30 - k,
    }  # fmt: skip


def marked(ax):
    return [text.get_text() for text in ax.texts]


def test_scan_marks_the_largest_silhouette_or_what_a_result_chose():
    table = candidates()
    assert marked(plots.scan(table)) == ["K = 3: 0.600"]
    arrays = {f"scan_{name}": column[::-1] for name, column in table.items()}
    result = Result("adaptive-affinity-propagation", arrays=arrays, scores={"n_clusters": 4})
    ax = plots.scan(result)
    assert (
        marked(ax) == [f"K = 4: {table['silhouette'][2]:.3f}"] and "4 candidates, 4 clusters chosen" in ax.get_title()
    )
    assert ax.get_xscale() == "linear" and plots.png(ax, dpi=40)
    strict = replace(result, parameters={"min_cluster_size": 27})
    assert [line.get_label() for line in plots.scan(result).lines].count("mean of all rows") == 1
    (small,) = [line for line in plots.scan(strict).lines if "not eligible" in str(line.get_label())]
    assert small.get_xdata().tolist() == [4, 9]
    figure = Figure()
    given = figure.subplots()
    assert plots.scan(table, ax=given) is given


def test_a_scan_of_another_method_is_refused():
    scan = {"n_clusters": np.array([2, 3]), "xie_beni": np.array([0.1, 0.2])}
    with pytest.raises(InputError, match=r"the scan has no silhouette of candidates; .*plots\.validity draws the"):
        plots.scan(scan)
    with pytest.raises(InputError, match="the scan has no n_clusters and no silhouette of candidates; give a result"):
        plots.scan({})


def test_scan_of_few_and_of_many_and_without_some_figures():
    many = candidates(range(2, 900))
    assert plots.scan(many).get_xscale() == "log" and plots.png(plots.scan(many), dpi=40)
    undefined = candidates()
    undefined["silhouette"] = np.full(4, np.nan)
    assert marked(plots.scan(undefined)) == [] and plots.png(plots.scan(undefined), dpi=40)
    for length in (0, 1):
        few = {name: column[:length] for name, column in candidates().items()}
        assert plots.png(plots.scan(few), dpi=40)
    assert plots.png(plots.scan({name: many[name] for name in ("n_clusters", "silhouette")}), dpi=40)


def history_of(length=31, level=1000.0):
    return level + 4000 * 0.7 ** np.arange(length)


def test_objective_shows_every_iteration_and_what_it_changed():
    history = history_of()
    ax = plots.objective(history)
    (line,) = ax.lines
    np.testing.assert_array_equal(line.get_xdata(), np.arange(31))
    np.testing.assert_array_equal(line.get_ydata(), history)
    right = next(other for other in ax.figure.axes if other is not ax)
    assert right.get_yscale() == "log" and ax.get_yscale() == "linear"
    np.testing.assert_allclose(right.lines[0].get_ydata(), 1 - history[1:] / history[:-1])
    assert ax.get_title() == f"Objective: {history[-1]:.6g} after 30 iterations"
    assert plots.objective(history_of(level=0.0)).get_yscale() == "log"


@pytest.mark.parametrize(("reason", "words"), [("tol", "(converged)"), ("max_iter", "(max_iter reached)")])
def test_objective_of_a_result_says_why_it_ended(reason, words):
    arrays = {"objective_history": history_of()}
    result = Result("fuzzy-c-means", arrays=arrays, diagnostics={"stop_reason": reason})
    axes = Figure().subplots()
    assert plots.objective(result, ax=axes) is axes
    assert axes.get_title().endswith(words)


@pytest.mark.parametrize("history", [[3.0], [0.0, 0.0], [5.0, 5.0], [5.0, 0.0], history_of(400)])
def test_objective_of_few_of_many_and_of_nothing_left(history):
    ax = plots.objective(history)
    assert plots.png(ax, dpi=40)
    count = len(history) - 1
    assert f"after {count} iteration" in ax.get_title() and ax.get_title().endswith("s") == (count != 1)


@pytest.mark.parametrize("n", [2, 3, 30, 60])
def test_the_plane_of_fewer_rows_than_features(n, monkeypatch):
    """Many runs have thousands of features; the time is cubic in the size of the matrix."""
    sizes, eigh = [], np.linalg.eigh
    X = np.random.default_rng(n).normal(size=(n, 60)) * np.geomspace(9, 0.1, 60)
    monkeypatch.setattr(np.linalg, "eigh", lambda matrix: sizes.append(len(matrix)) or eigh(matrix))
    plane, centers, names = clusters._plane(X, X[:2])
    assert sizes == [n]
    centred = X - X.mean(axis=0)
    variance, axes = eigh(centred.T @ centred)
    expected = centred @ axes[:, [-1, -2]]
    assert np.allclose(abs(plane), abs(expected), atol=1e-6) and np.allclose(centers, plane[:2])
    assert f"({100 * variance[-1] / variance.sum():.0f} %" in names[0]


def test_the_plane_of_equal_rows():
    plane, _, names = clusters._plane(np.ones((5, 9)), None)
    assert (plane == 0).all() and "(0 %" in names[0]
