from pathlib import Path

import pytest

from lakemirror.airflow import tables_file
from lakemirror.errors import UsageError


def test_it_lies_next_to_the_configuration() -> None:
    assert tables_file.path_for("/etc/lm/prod.yaml", {}) == "/etc/lm/prod.tables.json"


def test_the_environment_may_put_it_elsewhere() -> None:
    assert tables_file.path_for("/etc/lm/prod.yaml", {"LAKEMIRROR_TABLES_FILE": "/var/lm.json"}) == "/var/lm.json"


def test_round_trip_sorted(tmp_path: Path) -> None:
    path = str(tmp_path / "t.json")
    tables_file.write(path, ["sales.b", "sales.a", "crm.ü"])
    assert tables_file.read(path) == ("crm.ü", "sales.a", "sales.b")


def test_a_file_never_written_names_no_table(tmp_path: Path) -> None:
    assert tables_file.read(str(tmp_path / "none.json")) == ()


def test_the_draft_does_not_stay(tmp_path: Path) -> None:
    tables_file.write(str(tmp_path / "t.json"), ["a.b"])
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"other": 1}', '{"tables": null}'])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"t\.json: not a list of tables; delete it"):
        tables_file.read(str(path))


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="set LAKEMIRROR_TABLES_FILE"):
        tables_file.write(str(tmp_path / "no" / "t.json"), ["a.b"])


def test_a_failed_write_leaves_the_old_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "t.json")
    tables_file.write(path, ["a.b"])

    def refuse(self: Path, target: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(UsageError, match="Permission denied"):
        tables_file.write(path, ["a.b", "a.c"])
    assert tables_file.read(path) == ("a.b",)
    assert [found.name for found in tmp_path.iterdir()] == ["t.json"]
