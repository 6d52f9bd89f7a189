"""Draw the README's picture: ``python docs/images/draw.py`` writes demo.png beside this file.

D31 with the default parameters: nothing told the method that there are 31 clusters.
"""

from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from mgclust import DensityPeaks, plots
from mgclust.data import samples


def draw(path: Path) -> DensityPeaks:
    """Cluster D31 and write the picture; return the fitted model."""
    data = samples.load("d31")
    model = DensityPeaks(client=None, device="cpu").fit(data)
    X = data.read(0, data.shape[0])
    figure = Figure(figsize=(11.4, 4.9), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    plots.scatter(X, model.labels_, centers=X[model.cluster_centers_indices_], ax=left)
    plots.decision_graph(model.result_, ax=right)
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    # 256 colours are enough for it, and a third of the bytes.
    Image.open(buffer).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    return model


if __name__ == "__main__":
    draw(Path(__file__).with_name("demo.png"))
