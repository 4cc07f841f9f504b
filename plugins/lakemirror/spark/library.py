"""The library as one archive, so that executors run the same code as the driver without anything installed there.

Executors need Python 3.11 with the pinned packages; `lakemirror` itself comes with the job and is unpacked there.
"""

from __future__ import annotations

import hashlib
import tarfile
from io import BytesIO
from pathlib import Path

FOLDER = "lakemirror_lib"


def build_archive(folder: Path) -> Path:
    """`lakemirror-<hash of its sources>.tar.gz` in `folder`; made once for the same sources."""
    package = Path(__file__).resolve().parents[1]
    sources = sorted(path for path in package.rglob("*") if path.is_file() and path.suffix in (".py", ".so"))
    digest = hashlib.sha256()
    for path in sources:
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    archive = folder / f"lakemirror-{digest.hexdigest()[:16]}.tar.gz"
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        buffer = BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for path in sources:
                tar.add(path, arcname=str(Path("lakemirror") / path.relative_to(package)))
        unfinished = archive.with_suffix(f".{hashlib.sha256(buffer.getvalue()).hexdigest()[:8]}")
        unfinished.write_bytes(buffer.getvalue())
        unfinished.replace(archive)
    return archive


def spark_conf(archive: Path) -> dict[str, str]:
    """What spark-submit needs to unpack the archive on every executor and to import from it first."""
    return {"spark.archives": f"{archive}#{FOLDER}", "spark.executorEnv.PYTHONPATH": FOLDER}
