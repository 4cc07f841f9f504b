import sys
from pathlib import Path

import pytest

from dev.services import gcsemu, hms, iceberg_rest
from dev.services.builds import Build
from dev.services.tools import GO, JAVAC, MAVEN, Tool, run
from dev.services.trouble import ServicesError, ToolMissing


@pytest.mark.parametrize(
    ("tool", "sentence"),
    [
        (MAVEN, "the part needs Maven for it, and 'mvn' is not there: install Maven 3.8 or newer and put it on PATH."),
        (
            JAVAC,
            "the part needs a Java compiler for it, and 'javac' is not there: "
            "install a JDK 17 (more than a runtime), on PATH or at JAVA_HOME.",
        ),
        (
            GO,
            "the part needs Go 1.26 for it, and 'go' is not there: "
            "install Go 1.26 or newer and put it on PATH, or leave GCS=1 away.",
        ),
    ],
)
def test_a_missing_tool_is_a_sentence_with_the_part_that_needs_it(tool: Tool, sentence: str) -> None:
    with pytest.raises(ToolMissing) as caught:
        tool.need("the part", "for it", which=lambda name: None)

    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("build", "beginning"),
    [
        (iceberg_rest.BUILD, "the Iceberg REST catalogs need Maven to fetch"),
        (gcsemu.BUILD, "the emulator of GCS and Pub/Sub (GCS=1) needs Go 1.26 to be built"),
        (hms.BUILD, "the Hive Metastore (HMS=1) needs Maven to fetch"),
    ],
)
def test_each_part_names_itself(build: Build, beginning: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissing) as caught:
        build.check()

    assert str(caught.value).startswith(beginning)


@pytest.mark.parametrize(
    ("build", "beginning"),
    [
        (iceberg_rest.BUILD, "the Iceberg REST catalogs need a Java compiler for"),
        (hms.BUILD, "the Hive Metastore (HMS=1) needs a Java compiler for"),
    ],
)
def test_with_maven_alone(build: Build, beginning: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "mvn").touch(mode=0o755)
    with pytest.raises(ToolMissing) as caught:
        build.check()

    assert str(caught.value).startswith(beginning)


def test_a_compiler_is_looked_for_where_java_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setenv("JAVA_HOME", "/java")
    JAVAC.find(lambda name: asked.append(name))
    MAVEN.find(lambda name: asked.append(name))

    assert asked == ["/java/bin/javac", "mvn"]


def test_words_are_shown_only_when_it_fails(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run([sys.executable, "-c", "print('chatter')"], what="this", folder=tmp_path, timeout_s=20)
    with pytest.raises(ServicesError, match=r"(?s)that failed \(exit 3\):\nlast words"):
        run([sys.executable, "-c", "print('last words'); exit(3)"], what="that", folder=tmp_path, timeout_s=20)

    assert capfd.readouterr() == ("", "")


def test_it_ends(tmp_path: Path) -> None:
    with pytest.raises(ServicesError, match="this did not end in 0 s"):
        run([sys.executable, "-c", "import time; time.sleep(30)"], what="this", folder=tmp_path, timeout_s=0.2)
