"""moto: SQS (with events of its own S3) and Glue. It lets everybody in and checks no checksum: good for neither."""

from __future__ import annotations

from dev.services.servers import Server, bin_folder
from dev.services.waiting import answers, status

NAME = "moto"


def server(port: int) -> Server:
    command = (str(bin_folder() / "moto_server"), "-H", "127.0.0.1", "-p", str(port))
    return Server(NAME, command, lambda: answers(f"{endpoint(port)}/moto-api/data.json"), stop_timeout_s=3.0)


def endpoint(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def reset(endpoint: str) -> bool:
    """Forgets all that it was told."""
    return status(f"{endpoint}/moto-api/reset", method="POST", data=b"") == 200
