"""Buckets that tell of their objects by real servers: moto's S3 to its SQS, the emulator of GCS to its Pub/Sub.

Of the services profile these two servers alone are started, each by whoever needs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch
from urllib.parse import quote, quote_plus

from dev.airflow_standalone import free_ports
from dev.services import ToolMissing, gcsemu, moto
from dev.services.builds import Cache
from dev.services.servers import Server
from dev.services.waiting import until
from tests.services.fixtures import give_up

SECRET = "any"  # pragma: allowlist secret
REGION = "us-east-1"
PROJECT, SUBSCRIPTION = "lakemirror", "ready-markers"
ACK_DEADLINE_S = 10  # the least that Pub/Sub takes
TOPIC = f"projects/{PROJECT}/topics/ready"


@dataclass(frozen=True)
class Bucket:
    """As the configuration and the environment of an installation name it."""

    location: str
    properties: dict[str, str]  # of the mirror's catalog
    events: dict[str, dict[str, str]]  # how its notifications are read
    environment: dict[str, str]  # Airflow's connection, and secrets
    put: Callable[[str], None]  # an object of this key, written by somebody else
    tell: Callable[[str], None]  # a message about an object of this key, whether there is one or not
    left: Callable[[], int]  # messages that nobody is done with; to be asked when nobody reads any more

    @property
    def prefix(self) -> str:
        return self.location.split("/", 3)[3]


@contextmanager
def _running(server: Server) -> Iterator[None]:
    process = subprocess.Popen(server.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(server.is_healthy, timeout_s=60, is_possible=lambda: process.poll() is None)
        yield
    finally:
        process.kill()
        process.wait(timeout=10)


@contextmanager
def aws() -> Iterator[str]:
    """The endpoint of S3 and SQS."""
    (port,) = free_ports(1)
    with _running(moto.server(port)):
        yield moto.endpoint(port)


@contextmanager
def google() -> Iterator[tuple[str, str]]:
    """The endpoints of GCS and of Pub/Sub."""
    port, pubsub_port = free_ports(2)
    try:
        build = gcsemu.BUILD.ensure(Cache(), lambda line: None)
    except ToolMissing as err:
        give_up(err, os.environ)
    with _running(gcsemu.server(port, pubsub_port, build)):
        yield gcsemu.endpoint(port), f"127.0.0.1:{pubsub_port}"


def s3_with_sqs(endpoint: str) -> Bucket:
    """A new bucket and a new queue; all that was at the endpoint is gone."""
    import boto3

    moto.reset(endpoint)
    login = {"aws_access_key_id": "any", "aws_secret_access_key": SECRET, "region_name": REGION}
    s3, sqs = (boto3.client(kind, endpoint_url=endpoint, **login) for kind in ("s3", "sqs"))
    s3.create_bucket(Bucket="cloud")
    queue_url = sqs.create_queue(QueueName="ready", Attributes={"VisibilityTimeout": "5"})["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    only_markers = {"Key": {"FilterRules": [{"Name": "suffix", "Value": ".ready.json"}]}}
    told = {"QueueArn": arn, "Events": ["s3:ObjectCreated:*"], "Filter": only_markers}
    s3.put_bucket_notification_configuration(Bucket="cloud", NotificationConfiguration={"QueueConfigurations": [told]})
    extra = {"endpoint_url": endpoint, "region_name": REGION}
    connection = {"conn_type": "aws", "login": "any", "password": SECRET, "extra": extra}
    login_of_mirror = {"s3.access-key-id": "any", "s3.secret-access-key": "${MOTO_SECRET}"}

    def tell(key: str) -> None:
        about = {"eventSource": "aws:s3", "eventTime": datetime.now(UTC).isoformat(), "eventName": "ObjectCreated:Put"}
        record = {**about, "s3": {"bucket": {"name": "cloud"}, "object": {"key": quote_plus(key)}}}
        sqs.send_message(QueueUrl=queue_url, MessageBody=json.dumps({"Records": [record]}))

    def left() -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        told = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=names)["Attributes"]
        return sum(map(int, told.values()))

    return Bucket(
        location="s3://cloud/lake",
        properties={"s3.endpoint": endpoint, "s3.region": REGION, **login_of_mirror},
        events={"sqs": {"conn_id": "queue", "queue_url": queue_url}},
        environment={"AIRFLOW_CONN_QUEUE": json.dumps(connection), "MOTO_SECRET": SECRET},
        put=lambda key: s3.put_object(Bucket="cloud", Key=key, Body=b"{}"),
        tell=tell,
        left=left,
    )


@contextmanager
def gcs_with_pubsub(endpoints: tuple[str, str], folder: str) -> Iterator[Bucket]:
    """A folder of the emulator's bucket, whose topic and subscription are taken away at the end."""
    endpoint, pubsub_endpoint = endpoints
    gcsemu.make_bucket(endpoint)
    nobody = {"extra": {"is_anonymous": True, "project": PROJECT}}
    environment = {
        "PUBSUB_EMULATOR_HOST": pubsub_endpoint,
        "GCE_METADATA_HOST": "127.0.0.1:1",  # nobody asks a cloud who we are
        "GCE_METADATA_IP": "127.0.0.1:1",
        "AIRFLOW_CONN_GOOGLE": json.dumps({"conn_type": "google_cloud_platform", **nobody}),
    }
    with patch.dict(os.environ, environment):
        from google.api_core.exceptions import DeadlineExceeded
        from google.cloud import pubsub_v1

        api = f"{endpoint}/storage/v1/b/{gcsemu.BUCKET}/notificationConfigs"
        publisher = pubsub_v1.PublisherClient()
        path = f"projects/{PROJECT}/subscriptions/{SUBSCRIPTION}"
        with pubsub_v1.SubscriberClient() as subscriber:
            publisher.create_topic(name=TOPIC)
            subscriber.create_subscription(name=path, topic=TOPIC, ack_deadline_seconds=ACK_DEADLINE_S)
            made = _call(api, {"topic": f"//pubsub.googleapis.com/{TOPIC}", "payload_format": "JSON_API_V1"})

            def tell(key: str) -> None:
                about = {"bucketId": gcsemu.BUCKET, "objectId": key, "eventType": "OBJECT_FINALIZE"}
                publisher.publish(TOPIC, b"", **about).result(10)

            def put(key: str) -> None:
                where = f"{endpoint}/upload/storage/v1/b/{gcsemu.BUCKET}/o?uploadType=media&name={quote(key, safe='')}"
                _call(where, {})

            def left() -> int:
                """Pub/Sub tells no number: what is not acknowledged is delivered again when its reader's time is up."""
                end = time.monotonic() + ACK_DEADLINE_S + 2
                while (rest_s := end - time.monotonic()) > 0:
                    with suppress(DeadlineExceeded):
                        got = subscriber.pull(subscription=path, max_messages=100, timeout=rest_s).received_messages
                        if got:
                            handles = [one.ack_id for one in got]
                            subscriber.modify_ack_deadline(subscription=path, ack_ids=handles, ack_deadline_seconds=0)
                            return len(got)
                return 0

            yield Bucket(
                location=f"gs://{gcsemu.BUCKET}/{folder}",
                properties={"gcs.service.host": endpoint},
                events={"pubsub": {"conn_id": "google", "project_id": PROJECT, "subscription": SUBSCRIPTION}},
                environment=environment,
                put=put,
                tell=tell,
                left=left,
            )
            urllib.request.urlopen(urllib.request.Request(f"{api}/{made['id']}", method="DELETE"), timeout=10).close()
            subscriber.delete_subscription(subscription=path)
            publisher.delete_topic(topic=TOPIC)
        publisher.stop()


def _call(url: str, body: dict[str, str]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found
