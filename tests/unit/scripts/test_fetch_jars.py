import hashlib
import sys

import pytest

from tests.unit.scripts.conftest import House

CONTENT = "a jar"
SHA256 = hashlib.sha256(CONTENT.encode()).hexdigest()
MAVEN = f"""
echo "$*" >>calls
for word in "$@"; do
    case $word in
        -DoutputDirectory=*) printf '{CONTENT}' >"${{word#*=}}/tool-1.2.jar" ;;
    esac
done
"""
JAR = ".cache/jars/tool-1.2.jar"


@pytest.fixture
def online(house: House) -> House:
    house.tool("mvn", MAVEN)
    house.write("include/jars.txt", f"# comment\n\norg.acme:tool:1.2 {SHA256}\n")
    (house.bin / "python").symlink_to(sys.executable)
    return house


def fetch(house: House) -> tuple[int, str, str]:
    done = house.run("scripts/fetch_jars.sh", env={"PYTHON": str(house.bin / "python")})
    return done.returncode, done.stdout, done.stderr


def kept(house: House) -> list[str]:
    return [str(path.relative_to(house.folder)) for path in (house.folder / ".cache/jars").iterdir()]


def test_fetches_what_the_list_names(online: House) -> None:
    assert fetch(online) == (0, "jars: fetching org.acme:tool:1.2\n", "")
    assert kept(online) == [JAR]
    assert (online.folder / JAR).read_text() == CONTENT


def test_second_time_is_silent_and_needs_no_maven(online: House) -> None:
    fetch(online)
    (online.bin / "mvn").unlink()

    assert fetch(online) == (0, "", "")


def test_without_maven_one_sentence(online: House) -> None:
    (online.bin / "mvn").unlink()

    code, stdout, stderr = fetch(online)

    assert (code, stdout) == (2, "")
    assert "'mvn' is not on PATH" in stderr
    assert stderr.count("\n") == 1


def test_another_content_is_refused_and_not_kept(online: House) -> None:
    online.write("include/jars.txt", f"org.acme:tool:1.2 {'0' * 64}\n")

    code, _, stderr = fetch(online)

    assert code == 1
    assert f"got {SHA256}" in stderr
    assert kept(online) == []


def test_a_failed_download_keeps_nothing_and_shows_mavens_words(online: House) -> None:
    online.tool("mvn", "echo 'unknown host'; exit 1")

    code, _, stderr = fetch(online)

    assert code == 1
    assert stderr.startswith("unknown host\nMaven could not fetch org.acme:tool:1.2")
    assert kept(online) == []
