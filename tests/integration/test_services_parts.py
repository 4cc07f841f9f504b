"""The parts of the services profile that are started only when asked for: GCS with Pub/Sub, Hive Metastore, Spark."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import google_crc32c
import obstore
import pyarrow as pa
import pyspark
import pytest
from obstore.exceptions import AlreadyExistsError
from obstore.store import GCSStore
from pyiceberg.catalog import load_catalog

from dev.services import Services, ServicesFolder, gcsemu, hms, kill, running, up
from dev.services.cleaning import clean
from dev.services.spark_cluster import MASTER, WORKERS
from tests.listening import HERE, addresses

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


def ask(method: str, url: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes, Mapping[str, str]]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, body, named, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as err:
        with err:
            return err.code, err.read(), err.headers


def test_gcs_reads_ranges_of_every_kind(bucket: GCSStore, gcs_services: Services) -> None:
    url = f"{gcs_services.gcs_endpoint}/mirror/letters"
    obstore.put(bucket, "letters", b"abcdefghij")

    got = {
        wanted: ask("GET", url, Range=f"bytes={wanted}")[:2] for wanted in ("0-0", "2-4", "7-", "-3", "8-99", "10-11")
    }

    assert got.pop("10-11")[0] == 416
    assert got == {
        "0-0": (206, b"a"),
        "2-4": (206, b"cde"),
        "7-": (206, b"hij"),
        "-3": (206, b"hij"),
        "8-99": (206, b"ij"),
    }
    e_tag = ask("HEAD", url)[2]["ETag"]
    assert ask("GET", url, If_Match=e_tag)[0] == 200
    assert ask("GET", url, If_Match='"other"')[0] == 412
    obstore.put(bucket, "letters", b"")
    assert ask("GET", url)[:2] == (200, b"")


def test_gcs_refuses_damaged_bodies_and_stale_conditions(bucket: GCSStore, gcs_services: Services) -> None:
    url = f"{gcs_services.gcs_endpoint}/mirror/one"
    right = base64.b64encode(google_crc32c.Checksum(b"content").digest()).decode()

    assert ask("PUT", url, b"c0ntent", X_Goog_Hash=f"crc32c={right}")[0] == 400
    assert ask("GET", url)[0] == 404
    status, _, headers = ask("PUT", url, b"content", X_Goog_Hash=f"crc32c={right}", X_Goog_If_Generation_Match="0")
    assert (status, headers["X-Goog-Hash"].split(",")[0]) == (200, f"crc32c={right}")
    assert ask("PUT", url, b"content", X_Goog_If_Generation_Match="0")[0] == 412
    json_url = f"{gcs_services.gcs_endpoint}/storage/v1/b/mirror/o/one"
    assert ask("DELETE", f"{json_url}?ifGenerationMatch=1")[0] == 412
    assert ask("DELETE", f"{json_url}?ifGenerationMatch={headers['X-Goog-Generation']}")[0] in (200, 204)
    assert ask("GET", url)[0] == 404


def test_gcs_completes_an_upload_from_the_parts_that_are_named(bucket: GCSStore, gcs_services: Services) -> None:
    url = f"{gcs_services.gcs_endpoint}/mirror/parts"
    upload = ask("POST", f"{url}?uploads", b"")[1].split(b"<UploadId>")[1].split(b"<")[0].decode()
    part = f"{url}?uploadId={upload}&partNumber="
    tags = [
        ask("PUT", f"{part}{number}", body)[2]["ETag"] for number, body in ((1, b"one"), (2, b"two"), (3, b"three"))
    ]
    wrong = base64.b64encode(google_crc32c.Checksum(b"other").digest()).decode()
    assert ask("PUT", f"{part}4", b"four", X_Goog_Hash=f"crc32c={wrong}")[0] == 400

    def complete(*named: tuple[int, str], **headers: str) -> int:
        parts = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{tag}</ETag></Part>" for n, tag in named)
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        return ask("POST", f"{url}?uploadId={upload}", body, **headers)[0]

    assert complete((1, tags[1])) == 400
    assert complete((4, tags[0])) == 400
    assert complete((2, tags[1]), (1, tags[0])) == 400
    assert complete((1, tags[0]), X_Goog_If_Generation_Match="0") == 400
    unfinished = f"{gcs_services.gcs_endpoint}/mirror?uploads"
    assert upload.encode() in ask("GET", unfinished)[1]
    assert complete((1, tags[0]), (3, tags[2])) == 200
    assert upload.encode() not in ask("GET", unfinished)[1]
    assert ask("GET", url)[1] == b"onethree"
    assert complete((1, tags[0])) == 404


def test_the_mirror_catalog_keeps_tables_on_gcs(bucket: GCSStore, gcs_services: Services) -> None:
    catalog = load_catalog("cloud", **gcs_services.mirror_properties)
    catalog.create_namespace("a")
    made = catalog.create_table("a.t", pa.schema([("id", pa.int64())]), location="gs://mirror/warehouse/a/t")

    assert made.metadata_location.startswith("gs://mirror/warehouse/a/t/metadata/00000-")
    assert bytes(obstore.get(bucket, made.metadata_location.removeprefix("gs://mirror/")).bytes()).startswith(b"{")
    assert catalog.load_table("a.t").location() == "gs://mirror/warehouse/a/t"


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


def test_nobody_outside_this_machine_can_ask_for_objects_and_messages(
    gcs_services: Services, services_folder: ServicesFolder
) -> None:
    assert addresses([running(folder=services_folder)[gcsemu.NAME]]) == HERE


def test_the_metastore_listens_here_and_can_be_emptied(hms_services: Services, services_folder: ServicesFolder) -> None:
    assert hms_services.hms_uri is not None
    port = int(hms_services.hms_uri.rpartition(":")[2])
    clean(hms_services)

    socket.create_connection(("127.0.0.1", port), timeout=5).close()
    assert addresses([running(folder=services_folder)[hms.NAME]]) == HERE
    assert hms_services.postgres.execute("hms", 'SELECT "NAME" FROM "DBS"') == [("default",)]


def test_a_job_runs_on_the_cluster_and_a_killed_worker_comes_back(
    spark_services: Services, services_folder: ServicesFolder, tmp_path: Path
) -> None:
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

    assert addresses(running(folder=services_folder)[name] for name in (MASTER, *WORKERS)) == HERE

    assert kill(WORKERS[0], folder=services_folder)
    again = up(folder=services_folder)

    assert again.started == (WORKERS[0],)
    assert set(running(folder=services_folder)) >= {MASTER, *WORKERS}
    ports = json.loads(services_folder.ports.read_text())
    with urllib.request.urlopen(f"http://127.0.0.1:{ports[f'{MASTER}/web']}/json/", timeout=10) as answer:
        workers = json.load(answer)["workers"]
    alive = sorted(one["port"] for one in workers if one["state"] == "ALIVE")
    assert alive == sorted(ports[f"{name}/rpc"] for name in WORKERS)
