import pytest
from airflow.sdk import Param
from airflow.sdk.exceptions import ParamValidationError

from lakemirror.airflow.params import FORM, RunParams
from lakemirror.errors import UsageError


@pytest.mark.parametrize("name", sorted(FORM))
def test_every_default_of_the_form_fits_its_own_schema(name: str) -> None:
    default, schema = FORM[name]
    assert Param(default, **schema).resolve() == default
    assert schema["title"]
    assert schema["description"].endswith(".")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dry_run", "yes"),
        ("dry_run", 1),
        ("full_verify", None),
        ("target_snapshot_id", "v7"),
        ("target_snapshot_id", ""),
        ("target_snapshot_id", "-1"),
        ("target_snapshot_id", 8830000000000000001),
        ("target_snapshot_id", True),
        ("target_snapshot_id", "12345678901234567890"),
    ],
)
def test_the_schema_refuses(name: str, value: object) -> None:
    default, schema = FORM[name]
    with pytest.raises(ParamValidationError):
        Param(default, **schema).resolve(value)


def test_a_snapshot_id_keeps_all_its_digits() -> None:
    default, schema = FORM["target_snapshot_id"]
    value = Param(default, **schema).resolve("8830000000000000001")
    assert RunParams.of({"target_snapshot_id": value}).target_snapshot_id == 8830000000000000001


def test_values_as_sent() -> None:
    sent = {"dry_run": True, "target_snapshot_id": None, "full_verify": True}
    assert RunParams.of(sent, sent) == RunParams(dry_run=True, target_snapshot_id=None, full_verify=True)


def test_defaults_do_a_real_run_of_the_current_snapshot() -> None:
    assert RunParams.of({}, None) == RunParams(dry_run=False, target_snapshot_id=None, full_verify=False)


def test_a_misspelt_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="'dryrun': unknown parameter; did you mean dry_run"):
        RunParams.of({"dryrun": True, "dry_run": False}, {"dryrun": True})


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="known are dry_run, target_snapshot_id, full_verify"):
        RunParams.of({}, {"x": 1})
