"""The parts of the services profile that are started only when asked for: GCS with Pub/Sub, Hive Metastore, Spark."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import obstore
import pyspark
import pytest
from obstore.exceptions import AlreadyExistsError
from obstore.store import GCSStore

from dev.services import Services, kill, running, up
from dev.services.cleaning import clean
from dev.services.folder import PROJECT
from dev.services.spark_cluster import MASTER, WORKERS

pytestmark = pytest.mark.timeout(180)
PI = 'from pyspark import SparkContext as S; s = S(); print("sum", s.parallelize(range(100), 4).sum()); s.stop()'


@pytest.fixture
def bucket(gcs_services: Services, monkeypatch: pytest.MonkeyPatch) -> GCSStore:
    clean(gcs_services)
    for name in ("GCE_METADATA_HOST", "GCE_METADATA_IP"):  # nobody asks a cloud who we are
        monkeypatch.setenv(name, "127.0.0.1:1")
    nobody = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    key = {"type": "service_account", "gcs_base_url": gcs_services.gcs_endpoint, "disable_oauth": True, **nobody}
    return GCSStore("mirror", service_account_key=json.dumps(key), client_options={"allow_http": True})


def test_gcs_keeps_objects_and_the_first_writer_wins(bucket: GCSStore, gcs_services: Services) -> None:
    obstore.put(bucket, "a=b/c d+e%25/ü", b"first", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(bucket, "a=b/c d+e%25/ü", b"second", mode="create")

    assert bytes(obstore.get(bucket, "a=b/c d+e%25/ü").bytes()) == b"first"
    assert bytes(obstore.get_range(bucket, "a=b/c d+e%25/ü", start=1, end=3)) == b"ir"
    assert [one["path"] for page in obstore.list(bucket) for one in page] == ["a=b/c d+e%25/ü"]
    clean(gcs_services)
    assert [one for page in obstore.list(bucket) for one in page] == []


def test_gcs_takes_objects_in_parts(bucket: GCSStore) -> None:
    content = bytes(range(256)) * 65536  # 16 MB
    obstore.put(bucket, "large", content, use_multipart=True, chunk_size=5 * 1024 * 1024)

    assert bytes(obstore.get(bucket, "large").bytes()) == content


def test_pubsub_hands_messages_on(gcs_services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    from google.cloud import pubsub_v1

    assert gcs_services.pubsub_endpoint is not None
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", gcs_services.pubsub_endpoint)
    topic, subscription = "projects/lab/topics/t", "projects/lab/subscriptions/s"
    publisher = pubsub_v1.PublisherClient()
    with pubsub_v1.SubscriberClient() as subscriber:
        publisher.create_topic(name=topic)
        subscriber.create_subscription(name=subscription, topic=topic)
        publisher.publish(topic, b"hello").result(timeout=10)
        received = subscriber.pull(subscription=subscription, max_messages=1, timeout=10).received_messages
        subscriber.delete_subscription(subscription=subscription)
        publisher.delete_topic(topic=topic)
    publisher.stop()

    assert [one.message.data for one in received] == [b"hello"]


def test_the_metastore_listens_and_can_be_emptied(hms_services: Services) -> None:
    assert hms_services.hms_uri is not None
    port = int(hms_services.hms_uri.rpartition(":")[2])
    clean(hms_services)

    socket.create_connection(("127.0.0.1", port), timeout=5).close()
    assert hms_services.postgres.execute("hms", 'SELECT "NAME" FROM "DBS"') == [("default",)]


def test_a_job_runs_on_the_cluster_and_a_killed_worker_comes_back(spark_services: Services, tmp_path: Path) -> None:
    assert spark_services.spark_master_uri is not None
    job = tmp_path / "job.py"
    job.write_text(PI)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    conf = ("spark.pyspark.python", sys.executable), ("spark.cores.max", "2"), ("spark.executor.memory", "512m")
    options = [word for name, value in conf for word in ("--conf", f"{name}={value}")]
    said = subprocess.run(
        [submit, "--master", spark_services.spark_master_uri, *options, job],
        capture_output=True,
        text=True,
        timeout=170,
        check=True,
    )
    assert "sum 4950" in said.stdout

    assert kill(WORKERS[0])
    again = up()

    assert again.started == (WORKERS[0],)
    assert set(running()) >= {MASTER, *WORKERS}
    ports = json.loads((PROJECT / ".services" / "ports.json").read_text())
    with urllib.request.urlopen(f"http://127.0.0.1:{ports[f'{MASTER}/web']}/json/", timeout=10) as answer:
        workers = json.load(answer)["workers"]
    alive = sorted(one["port"] for one in workers if one["state"] == "ALIVE")
    assert alive == sorted(ports[f"{name}/rpc"] for name in WORKERS)
