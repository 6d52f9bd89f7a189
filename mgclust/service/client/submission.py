"""Submission of jobs and sweeps to the service: the client uploads their files, and then sends the request."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mgclust.algorithms import declarations
from mgclust.base.errors import InputError, MgclustError
from mgclust.service.client.connection import list_of
from mgclust.service.client.in_memory import array_content, file_of
from mgclust.service.client.remote_job import RemoteJob
from mgclust.service.client.remote_sweep import RemoteSweep
from mgclust.service.client.uploads import Uploads, with_subject

__all__ = ["Submissions"]


class Submissions(Uploads):
    """Methods of `mgclust.Service` that submit jobs."""

    def submit(
        self,
        method: str,
        sources: Any,
        *,
        mask: str | os.PathLike[str] | None = None,
        confounds: Sequence[str | os.PathLike[str]] | None = None,
        surfaces: Sequence[str | os.PathLike[str]] | None = None,
        atlas: Sequence[str | os.PathLike[str]] | None = None,
        options: dict[str, Any] | None = None,
        resources: dict[str, float] | None = None,
        priority: int = 0,
        report: bool = True,
        remote: bool = False,
        results_to: str | None = None,
        name: str | None = None,
        tags: Sequence[str] = (),
        **parameters: Any,
    ) -> RemoteJob:
        """Submit a job.

        Parameters
        ----------
        method : str
            Name of the method on the command line, e.g. "density-peaks".
        sources : path, sequence of paths, array or table
            Local files to cluster, which are uploaded; or, with `remote`, files on the service's machine. An array
            (NumPy, Dask, or a sparse matrix of a graph) or a table (pandas, polars, pyarrow) is uploaded as a file.
            The service itself reads a path ``"store:NAME/PATH"`` from a store that the administrator has named.
        mask : path, optional
            Mask of a volume; see `mgclust.open_dataset`.
        confounds : sequence of paths, optional
            Table of confounds of each run of a BOLD series; see `mgclust.open_dataset`.
        surfaces : sequence of paths, optional
            Surfaces of a CIFTI file; see `mgclust.open_dataset`.
        atlas : sequence of paths, optional
            Files of labels with which the clusters are compared, and the table of the names of the labels; see
            `mgclust.open_dataset`.
        options : dict, optional
            Options for reading the files: ``columns``, ``standardize``, ``detrend``, ``n_nodes`` and others. Options
            that name columns are given as text, as on the command line: for example, ``{"weight": "none"}`` for a graph
            without weights.
        resources : dict, optional
            Resources and limits of the job:

            - ``gpus`` or ``workers``: number of GPUs or workers to use on the service's machine or cluster. By default,
              one GPU of the machine, or all GPUs or workers of a cluster.
            - ``max_seconds``: time limit of an attempt, in seconds.
            - ``memory``: memory limit of all processes of the job on the service's machine, in bytes.
        priority : int, default=0
            From -100 to 100. Jobs of higher priority run first among your own jobs. With a priority above 0
            (administrators only), a job runs before all other jobs.
        report : bool, default=True
            Whether the result has pictures and ``report.html``.
        remote : bool, default=False
            Whether the paths are files on the service's machine. They must be below a folder that the service may read.
        results_to : str, optional
            ``"store:NAME/PREFIX"``: when the job has succeeded, the service copies the files of the result to this
            place in a store that the administrator has opened for results. ``result_copy`` in ``info`` of the job has
            the state of the copy.
        name : str, optional
            Name of the job in lists.
        tags : sequence of str
            Tags of the job in lists, without spaces, commas and ``#``.
        **parameters : object
            Parameters of the method. Arrays and files are uploaded. If a parameter may be a file, give the path of the
            file; for labels, the path may also be a result directory. A
            `mgclust.service.client.remote_job.RemoteJob` stands for the labels of its result.

        Returns
        -------
        RemoteJob
            The job, which waits in the queue.

        Raises
        ------
        InputError
            A file does not exist, or the service rejects the job.
        RunFailed
            The service does not answer.
        """
        more = {"mask": mask, "confounds": confounds, "surfaces": surfaces, "atlas": atlas}
        record = {
            "method": method, "options": options or {}, "resources": resources or {}, "priority": priority,
            "report": report, **({"results_to": results_to} if results_to is not None else {}),
            **({"name": name} if name else {}), **({"tags": tags} if tags else {}),
        }  # fmt: skip
        return RemoteJob(self, self._send("/jobs", record, sources, more, parameters, remote))

    def sweep(
        self, method: str, sources: Any, vary: Mapping[str, Sequence[Any]], *, remote: bool = False, **given: Any
    ) -> RemoteSweep:
        """Submit a job for each combination of values of some parameters: all jobs, or none.

        Parameters
        ----------
        method, sources, remote
            As in `submit`.
        vary : dict
            Values of each parameter that varies, for example ``{"dc_fraction": [0.01, 0.02]}``. A sweep has at most 100
            jobs.
        **given : object
            Other arguments of `submit`, for all jobs.

        Returns
        -------
        mgclust.service.client.remote_sweep.RemoteSweep

        Raises
        ------
        InputError
            A file does not exist, or the service rejects one of the jobs.
        """
        more = {name: given.pop(name, None) for name in ("mask", "confounds", "surfaces", "atlas")}
        plain = ("options", "resources", "priority", "report", "results_to", "name", "tags")
        record = {name: value for name in plain if (value := given.pop(name, None)) is not None}
        if not isinstance(vary, Mapping):
            raise InputError(f"vary={vary!r} should be a dict of lists, such as {{'n_clusters': [9, 15]}}.")
        values = {
            name: [each.item() if hasattr(each, "item") else each for each in list_of(name, given)]
            for name, given in vary.items()
        }
        record |= {"method": method, "vary": values}
        return RemoteSweep(self, self._send("/sweeps", record, sources, more, given, remote))

    def _send(
        self, path: str, record: dict[str, Any], sources: Any, more: dict[str, Any], parameters: dict[str, Any],
        remote: bool,
    ) -> dict[str, Any]:  # fmt: skip
        """Upload the files of a request, and send the request; a rejected request leaves no new upload."""
        made: list[str] = []  # ids of new uploads
        file = file_of(sources)
        paths = [] if file else [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)

        if "tags" in record:
            record["tags"] = list_of("tags", record["tags"])
        if not all(isinstance(path, (str, os.PathLike)) for path in paths):
            raise InputError("sources should be paths, an array or a table; give rows as numpy.array(rows).")

        declared = declarations().get(record["method"])
        types = {option.name: option.constraint.type for option in declared.options()} if declared else {}

        def is_path(name: str, value: Any) -> bool:
            """Return whether a value is the path of a file; texts of other parameters are words or numbers."""
            kind = types.get(name, "")
            return isinstance(value, str) and (kind == "file" or (kind.endswith("|FILE") and value.endswith(".npy")))

        def source(path: str | os.PathLike[str]) -> dict[str, str]:
            if isinstance(path, str) and path.startswith("store:"):
                return {"upload": self._read_stored(path, made), "name": path.rpartition("/")[2][:255]}
            read = {"path": os.fspath(path)} if remote else {"upload": self._upload(path, made)}
            name = Path(path).name if remote else with_subject(Path(path))
            return read | {"name": "".join(c if c.isprintable() else "_" for c in name)[:255]}

        def content(name: str, data: bytes) -> dict[str, str]:
            return {"upload": self._put(name, lambda: iter([data]), made), "name": name}

        def plain(name: str, value: Any) -> Any:
            if isinstance(value, RemoteJob):
                return {"job": value.id, "name": f"labels of job {value.id[:8]}"}
            if isinstance(value, os.PathLike) or is_path(name, value):
                labels = types.get(name) == "file" and not remote and os.path.isdir(value)
                return source(Path(value, "labels.npy") if labels else value)
            if isinstance(value, (list, tuple)) and types.get(name, "").lower().endswith("file"):
                value = np.asarray(value)
            if not hasattr(value, "__array__") or np.ndim(value) == 0:
                return value
            return content(f"{name}.npy", array_content(value, name))

        try:
            request = record | {
                "sources": [content(*file)] if file else [source(path) for path in paths],
                "parameters": {name: plain(name, value) for name, value in parameters.items()},
                "key": secrets.token_hex(16),
            }
            for name, several in more.items():
                if several is not None:
                    paths = [several] if isinstance(several, (str, os.PathLike)) else list_of(name, several)
                    if not all(isinstance(path, (str, os.PathLike)) for path in paths):
                        raise InputError(f"{name}={several!r} should be the path of a file, or a list of paths.")
                    request[name] = source(several) if name == "mask" else [source(path) for path in paths]
            return dict(self.call("POST", path, json=request))
        except InputError:
            for id_ in made:
                with contextlib.suppress(MgclustError):
                    self.delete_upload(id_)
            raise
