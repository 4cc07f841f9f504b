from pathlib import Path

import pytest

from dev import spark_classes


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_classes, "FOLDER", tmp_path / "classes")
    monkeypatch.setattr(spark_classes, "STAMP", tmp_path / "stamp")
    (tmp_path / "classes").mkdir()
    (tmp_path / "stamp").write_text("one")


def test_a_jvm_is_told_of_an_archive_only_where_there_is_one() -> None:
    """One that is named and missing would make it slower than none."""
    assert spark_classes.java_options() == spark_classes.QUICK
    spark_classes.archive().touch()
    assert spark_classes.java_options().endswith(f" -XX:SharedArchiveFile={spark_classes.archive()}")


def test_another_environment_has_another_archive(tmp_path: Path) -> None:
    before = spark_classes.archive()
    (tmp_path / "stamp").write_text("two")

    assert spark_classes.archive() != before


def test_what_is_there_is_not_made_again(capsys: pytest.CaptureFixture[str]) -> None:
    spark_classes.archive().touch()

    assert spark_classes.main() == 0
    assert capsys.readouterr() == ("", "")


def test_a_java_that_cannot_make_one_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spark-submit").write_text("#!/bin/sh\necho no such option >&2\nexit 1\n")
    (tmp_path / "spark-submit").chmod(0o755)
    monkeypatch.setattr(spark_classes.sys, "executable", str(tmp_path / "python"))

    assert spark_classes.main() == 0
    said = capsys.readouterr().err
    assert said == "spark: no archive of its classes could be made; tests only start slower\nno such option\n\n"
    assert spark_classes.java_options() == spark_classes.QUICK
