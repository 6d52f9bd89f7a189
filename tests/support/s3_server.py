"""A server of moto, which tests use as an S3-compatible store."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

boto3 = pytest.importorskip("boto3")
moto_server = pytest.importorskip("moto.server")
pytest.importorskip("botocore")


def client_of(service: str, url: str) -> Any:
    """A client of boto3 for a service of the server at this address."""
    return boto3.client(
        service, endpoint_url=url, aws_access_key_id="k", aws_secret_access_key="s", region_name="us-east-1"
    )


@contextlib.contextmanager
def s3_server() -> Iterator[tuple[str, Any]]:
    """The address of a server without buckets, and a client for it."""
    server = moto_server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    try:
        yield url, client_of("s3", url)
    finally:
        server.stop()


@contextlib.contextmanager
def signatures_checked(url: str, user: str) -> Iterator[tuple[str, str]]:
    """The key and the secret of a new user; meanwhile, the server computes the signature of each request anew."""
    iam = client_of("iam", url)
    iam.create_user(UserName=user)
    rights = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    iam.put_user_policy(UserName=user, PolicyName="all", PolicyDocument=json.dumps(rights))
    key = iam.create_access_key(UserName=user)["AccessKey"]
    httpx.post(f"{url}/moto-api/reset-auth", content=b"0")
    try:
        yield key["AccessKeyId"], key["SecretAccessKey"]
    finally:
        httpx.post(f"{url}/moto-api/reset-auth", content=b"inf")
