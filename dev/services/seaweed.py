"""SeaweedFS as an S3 store: one process with master, volume, filer and S3 gateway, all on 127.0.0.1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.services.folder import ServicesFolder, write_private
from dev.services.servers import Server, bin_folder
from dev.services.trouble import ServicesError
from dev.services.waiting import answers

PORTS = ("s3", "s3.grpc", "filer", "filer.grpc", "master", "master.grpc", "volume", "volume.grpc")
VOLUME_MB = 1024
MOST_VOLUMES = 20


@dataclass(frozen=True, slots=True)
class S3Store:
    """An S3 store and the one bucket of it that the profile uses."""

    endpoint: str
    region: str
    access_key_id: str
    secret_access_key: str
    bucket: str

    def __repr__(self) -> str:
        return f"S3Store({self.endpoint}, {self.bucket})"

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}"

    @property
    def properties(self) -> dict[str, str]:
        """By the names that pyiceberg and Iceberg's Java share."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.region": self.region,
            "s3.access-key-id": self.access_key_id,
            "s3.secret-access-key": self.secret_access_key,
            "s3.path-style-access": "true",
        }

    def client(self) -> Any:
        """A boto3 client; it is for tests and for making the bucket."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 5}, proxies={}),
        )


def server(name: str, folder: ServicesFolder, ports: Mapping[str, int], store: S3Store) -> Server:
    """`ports` by the names of PORTS. The gateway knows one identity, which may do everything."""
    data = folder.data(name)
    identity = {
        "name": "lakemirror",
        "credentials": [{"accessKey": store.access_key_id, "secretKey": store.secret_access_key}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config = data / "s3.json"
    text = json.dumps({"identities": [identity]})
    if not config.exists() or config.read_text(encoding="utf-8") != text:
        write_private(config, text)
    options = {
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "dir": data,
        "master.port": ports["master"],
        "master.port.grpc": ports["master.grpc"],
        "master.volumeSizeLimitMB": VOLUME_MB,
        "master.electionTimeout": "1s",  # it waits for one or two of these when it has data from before
        "master.telemetry": "false",
        "volume.port": ports["volume"],
        "volume.port.grpc": ports["volume.grpc"],
        "volume.max": MOST_VOLUMES,
        "volume.preStopSeconds": 0,
        "filer.port": ports["filer"],
        "filer.port.grpc": ports["filer.grpc"],
        "s3.port": ports["s3"],
        "s3.port.grpc": ports["s3.grpc"],
        "s3.port.iceberg": 0,  # its catalogs are not ours
        "s3.port.lance": 0,
        "s3.config": config,
    }
    return Server(
        name,
        (
            str(bin_folder() / "weed"),
            "-logtostderr=true",  # into our log alone: it would keep files of its own in /tmp as well
            "server",
            "-s3",
            *(f"-{option}={value}" for option, value in options.items()),
        ),
        # The gateway is up before there is a volume server to write to, and that one before anybody knows its volumes.
        lambda: (
            answers(f"{store.endpoint}/healthz")
            and answers(f"http://127.0.0.1:{ports['volume']}/healthz")
            and all(answers(f"http://127.0.0.1:{ports['master']}/dir/lookup?volumeId={one}") for one in _volumes(data))
        ),
        stop_timeout_s=2.0,  # at SIGTERM it waits for connections that it holds to itself; what it was given is written
        leaves=tuple(
            f"/tmp/seaweedfs-{part}-{ports[port]}.sock"
            for port in PORTS
            for part in (port.split(".")[0], f"{port.split('.')[0]}-grpc")
        ),
    )


def _volumes(data: Path) -> set[str]:
    """Those that lie in a folder, from an earlier start: what is in them cannot be read until the master knows them."""
    return {path.stem.rpartition("_")[2] for path in data.glob("*.dat")}


def make_bucket(store: S3Store) -> None:
    """Idempotent; also the proof that the credentials work."""
    from botocore.exceptions import BotoCoreError, ClientError

    client = store.client()
    try:
        if store.bucket not in {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}:
            client.create_bucket(Bucket=store.bucket)
    except (BotoCoreError, ClientError) as err:
        raise ServicesError(f"make bucket {store.bucket} at {store.endpoint}: {err}") from err
    finally:
        client.close()
