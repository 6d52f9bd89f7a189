"""Draw pictures for the pages of the methods: ``python docs/images/methods.py`` writes them beside this file."""

from pathlib import Path

import nibabel
import numpy as np
from draw import write
from matplotlib.figure import Figure
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from mgclust import Canopy, FuzzyCMeans, Parcellation, nearest_neighbors, open_dataset, plots, silhouette_samples
from mgclust.data import samples
from mgclust.datasets import make_bold, make_gaussian_clusters, make_gaussian_rings

HERE = {"client": None, "device": "cpu"}


def draw_canopies(path: Path) -> None:
    """Draw the canopies of 15 clusters: the thresholds of the page on the left, larger ones on the right."""
    X = make_gaussian_rings().X
    figure = Figure(figsize=(11.4, 5.2), layout="constrained", facecolor="white")
    for ax, (t1, t2) in zip(figure.subplots(1, 2), ((3.0, 2.1), (6.0, 4.2)), strict=True):
        model = Canopy(t1, t2, **HERE).fit(X)
        plots.canopies(X, model.labels_, model.cluster_centers_, t1, t2, ax=ax)
        ax.set_title(f"t1 = {t1:g}, t2 = {t2:g}: {model.n_canopies_} canopies")
    write(figure, path)


def draw_neighbors(path: Path) -> None:
    """Draw the distances to the tenth neighbour, sorted, and the rows where they are largest."""
    clusters = make_gaussian_clusters(7, 143, random_state=0).X
    margin = np.ptp(clusters, axis=0) / 2
    low, high = clusters.min(axis=0) - margin, clusters.max(axis=0) + margin
    X = np.concatenate([clusters, np.random.default_rng(0).uniform(low, high, (25, 2))])
    last = nearest_neighbors(X, 10, **HERE).distances[:, -1]
    alone = last > np.quantile(last, 0.98)
    figure = Figure(figsize=(11.4, 4.2), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    left.plot(np.sort(last))
    left.set(xlabel="rows, sorted", ylabel="distance to the 10th neighbour")
    right.plot(*X[~alone].T, ".", color="0.6", markersize=3)
    right.plot(*X[alone].T, "rx", markersize=6)
    right.set(xlabel="feature 0", ylabel="feature 1", title="The 2% of the rows with the largest distance")
    write(figure, path)


def draw_silhouettes(path: Path) -> None:
    """Draw the silhouettes of 178 wines in three and in five clusters."""
    X = scale(load_wine().data)
    figure = Figure(figsize=(11.4, 4.8), layout="constrained", facecolor="white")
    for ax, k in zip(figure.subplots(1, 2), (3, 5), strict=True):
        labels = FuzzyCMeans(k, m=1.3, random_state=0, **HERE).fit(X).labels_
        plots.silhouettes(silhouette_samples(X, labels, **HERE), labels, ax=ax)
    write(figure, path)


def draw_parcellation(path: Path) -> None:
    """Draw the eight parcels of a made series, and the evaluation that chose their number."""
    bold, mask, _ = made = make_bold(shape=(12, 14, 10), n_parcels=8)
    dataset = open_dataset(nibabel.Nifti1Image(bold, made.affine), mask=mask, detrend=True)
    model = Parcellation([4, 6, 8, 12, 16, 32], **HERE).fit(dataset)
    grid = dataset.label_volume(model.labels_)
    figure = Figure(figsize=(11.4, 5.0), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.1))
    plots.label_slices(**grid, ax=left, colors=plots.parcel_colors(grid["volume"], grid["affine"]))
    plots.parcel_evaluation(model, ax=right)
    write(figure, path)


def draw_localizer(path: Path) -> None:
    """Draw 100 parcels of the sample localizer, and the evaluation of four numbers of parcels."""
    bold = samples.path("localizer")
    dataset = open_dataset(bold, mask=samples.mask_path(), detrend=True)
    model = Parcellation([50, 100, 200, 400], **HERE).fit(dataset)
    grid = dataset.label_volume(model.labels_for(100))
    figure = Figure(figsize=(11.4, 5.0), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.1))
    plots.label_slices(**grid, ax=left, colors=plots.parcel_colors(grid["volume"], grid["affine"]))
    left.set_title("100 parcels")
    plots.parcel_evaluation(model, ax=right)
    write(figure, path)


if __name__ == "__main__":
    draw_canopies(Path(__file__).with_name("canopies.png"))
    draw_neighbors(Path(__file__).with_name("neighbors.png"))
    draw_silhouettes(Path(__file__).with_name("silhouettes.png"))
    draw_parcellation(Path(__file__).with_name("parcellation.png"))
    draw_localizer(Path(__file__).with_name("localizer-parcels.png"))
