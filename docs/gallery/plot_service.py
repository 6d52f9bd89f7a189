"""
The service client
==================

The job service runs jobs that outlive the session that submitted them. This example starts a service of its own,
submits a job, follows its progress, fetches the result and ends the service.
"""

# %%
# 1. Start a service
# ------------------
# ``mgclust serve`` usually runs on a workstation, or near a cluster. Here its data folder is temporary.

import atexit
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris

from mgclust import Service, plots

folder = tempfile.TemporaryDirectory()
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
data = Path(folder.name, "service")
command = [sys.executable, "-m", "mgclust", "serve", "--cpu", "--data", str(data), "--port", str(port)]
process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
atexit.register(process.kill)  # should an error end the example early
url = f"http://127.0.0.1:{port}"
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    try:
        httpx.get(f"{url}/healthz").raise_for_status()
        break
    except httpx.TransportError:
        time.sleep(0.1)

# %%
# 2. Submit a job
# ---------------
# ``submit`` uploads the file. Its further arguments are the parameters of the method.

iris = load_iris()
np.save(Path(folder.name, "iris.npy"), iris.data)
service = Service(url, token=(data / "token").read_text())
job = service.submit("fuzzy-c-means", Path(folder.name, "iris.npy"), n_clusters=3, random_state=0, report=False)
print(job)

# %%
# 3. Follow it and fetch the result
# ---------------------------------
# ``watch`` yields an event whenever the job changes. ``job.wait()`` only waits for the end.

for event in job.watch():
    print(event["state"], event.get("stage") or "")
result = job.result(Path(folder.name, "result"))
print(result.scores)

# %%
# 4. Draw the result and end the service
# --------------------------------------
# Left: the objective after each iteration (solid), and the relative decrease in each iteration (dotted, right axis). A
# flat end means that the fit has converged. Right: each point is a flower in the colour of its cluster, in the plane of
# the first two principal components.

fig, (left, right) = plt.subplots(1, 2, figsize=(12, 4.8), layout="constrained")
plots.objective(result, ax=left)
plots.scatter(iris.data, result.labels, ax=right)
plt.show()

job.delete()
process.terminate()
process.wait(timeout=30)
folder.cleanup()
