"""Client of a job service for Python programs: ``mgclust.Service(url, token)``.

::

    service = Service("https://cluster.example:8700", token)
    job = service.submit("density-peaks", "points.npy", n_clusters=15)
    job.wait()
    result = job.result("out")
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mgclust.base.errors import InputError
from mgclust.service.client.accounts import Accounts
from mgclust.service.client.connection import check_id, list_of
from mgclust.service.client.remote_job import RemoteJob
from mgclust.service.client.remote_sweep import RemoteSweep
from mgclust.service.client.submission import Submissions

__all__ = ["Service"]


class Service(Submissions, Accounts):
    """Client of a job service, to submit jobs, disconnect, and fetch the results later.

    Parameters
    ----------
    url : str, optional
        URL of the service. By default the value of ``MGCLUST_URL``, else the URL of a service on this machine.
    token : str, optional
        Token of the user. By default the value of ``MGCLUST_TOKEN``, else the content of the file that
        ``MGCLUST_TOKEN_FILE`` names, else the token in the data folder of a service of this account on this machine.
        The token in the data folder is sent to no other service.

    Raises
    ------
    InputError
        The URL or the token is invalid.
    """

    def job(self, id_: str) -> RemoteJob:
        """Get a job.

        Parameters
        ----------
        id_ : str
            Id of the job, or its first characters (at least 4) if no other job that you see begins with them.

        Returns
        -------
        mgclust.service.client.remote_job.RemoteJob

        Raises
        ------
        InputError
            The job does not exist, several jobs begin with `id_`, or `id_` is not an id.
        """
        return RemoteJob(self, self.call("GET", f"/jobs/{self._whole_id(id_)}"))

    def _whole_id(self, id_: str, kind: str = "job") -> str:
        lists = {"job": "mgclust jobs", "sweep": "mgclust jobs --json"}[kind]
        if len(id_) == 32 or not re.fullmatch("[0-9a-f]{4,31}", id_):
            return check_id(id_, lists, or_part=", or the first 4 or more of them")
        ids = self.call("GET", f"/{kind}-ids/{id_}")
        if not ids:
            raise InputError(f"id={id_!r} is not the beginning of a {kind}'s id; '{lists}' lists ids.")
        if len(ids) > 1:
            raise InputError(f"id={id_!r} is the beginning of several ids: {', '.join(ids)}; give more characters.")
        return str(ids[0])

    def jobs(
        self,
        state: str | None = None,
        limit: int = 50,
        *,
        search: str | None = None,
        method: str | None = None,
        tag: str | None = None,
        sort: str | None = None,
    ) -> list[RemoteJob]:
        """List the latest jobs, without their requests.

        `mgclust.service.client.remote_job.RemoteJob.refresh` gets the request of a job.

        Parameters
        ----------
        state : str, optional
            List only jobs in this state. By default, jobs in any state.
        limit : int, default=50
            Largest number of jobs to list.
        search : str, optional
            Words that must occur in a job's name, ``#tags``, id, method, files or parameters.
        method, tag : str, optional
            List only jobs of this method, or with this tag.
        sort : str, optional
            Order by "name", "method", "state", "seconds" or "score:NAME" instead of the time; "-" before it reverses
            the order. The order is made among the newest 1,000 jobs that match.

        Returns
        -------
        list of mgclust.service.client.remote_job.RemoteJob
            The jobs, the latest first.
        """
        given = {"state": state, "search": search, "method": method, "tag": tag, "sort": sort}
        wanted: dict[str, Any] = {name: value for name, value in given.items() if value}
        found: list[dict[str, Any]] = []
        while len(found) < limit:  # a page may have fewer jobs than its limit
            last: dict[str, Any] = {}
            if found:
                last = {"skip": len(found)} if sort else {"before": f"{found[-1]['created']!r},{found[-1]['id']}"}
            page = self.call("GET", "/jobs", params=wanted | last | {"limit": min(limit - len(found), 1000)})
            if not page:
                break
            found += page
        return [RemoteJob(self, job) for job in found]

    def rename(self, id_: str, name: str | None = None, tags: Sequence[str] | None = None) -> RemoteJob:
        """Change the name and the tags of a job.

        Parameters
        ----------
        id_ : str
            Id of the job, as in `job`.
        name : str, optional
            New name; "" removes the name. By default, the name stays.
        tags : sequence of str, optional
            New tags; ``[]`` removes all tags. By default, the tags stay.
        """
        changes: dict[str, Any] = {} if name is None else {"name": name}
        changes |= {} if tags is None else {"tags": list_of("tags", tags)}
        return RemoteJob(self, self.call("PATCH", f"/jobs/{self._whole_id(id_)}", json=changes))

    def compare(self, ids: Sequence[str | RemoteJob]) -> dict[str, Any]:
        """Compare the labels of 2 to 10 jobs.

        Parameters
        ----------
        ids : sequence of str or mgclust.service.client.remote_job.RemoteJob
            The jobs, or their ids, as in `job`.

        Returns
        -------
        dict
            ``ari``: the adjusted Rand index of each pair of jobs, as a list of rows, or None for a pair without one;
            ``notes``: the reasons, and doubts that the rows are the same.
        """
        whole = [each.id if isinstance(each, RemoteJob) else self._whole_id(each) for each in list_of("ids", ids)]
        return dict(self.call("POST", "/jobs/compare", json={"ids": whole}))

    def find_sweep(self, id_: str) -> RemoteSweep:
        """Get a sweep.

        Parameters
        ----------
        id_ : str
            Id of the sweep, which is ``info["sweep"]`` of its jobs, or its first characters (at least 4) if no other
            sweep that you see begins with them.

        Returns
        -------
        mgclust.service.client.remote_sweep.RemoteSweep
        """
        return RemoteSweep(self, self.call("GET", f"/sweeps/{self._whole_id(id_, 'sweep')}"))
