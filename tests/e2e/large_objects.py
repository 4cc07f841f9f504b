"""Large objects as engines write them."""

from __future__ import annotations

from dev.services import S3Store
from tests.faults.scene import PART_BYTES


def in_parts(store: S3Store, key: str) -> None:
    """Write an object again as engines write large files: its ETag is of parts that several tasks can compare."""
    client = store.client()
    place = {"Bucket": store.bucket, "Key": key}
    data = client.get_object(**place)["Body"].read()
    upload = {**place, "UploadId": client.create_multipart_upload(**place)["UploadId"]}
    parts = []
    for number, start in enumerate(range(0, len(data), PART_BYTES), 1):
        sent = client.upload_part(**upload, PartNumber=number, Body=data[start : start + PART_BYTES])
        parts.append({"PartNumber": number, "ETag": sent["ETag"]})
    client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
