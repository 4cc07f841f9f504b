"""Every knob with its exact default (M17), and how an entry's knobs lie over the defaults."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import BaseModel, ValidationError

from lakemirror.config.cache import SUPERSEDED, CacheConfig
from lakemirror.config.knobs import GcKnobs, Knobs, knob_names
from lakemirror.config.section import About

DEFAULTS = {
    "schedule": "*/5 * * * *",
    "follow_schedule": "*/10 * * * *",
    "follow_trigger": "asset",
    "mirror_trigger": "schedule",
    "retries": 3,
    "retry_delay_seconds": 60,
    "execution_timeout_seconds": 21600,
    "priority": 1,
    "group": None,
    "max_concurrency": 64,
    "rate_limit": 0.75,
    "peak_bandwidth_bytes_per_s": None,
    "peak_requests_per_s": None,
    "small_change_files": 256,
    "small_change_bytes": 256_000_000,
    "bin_files": 1000,
    "bin_bytes": 1024**3,
    "ledger_flush_files": 64,
    "copy_split_bytes": 512 * 1024**2,
    "copy_part_bytes": 16 * 1024**2,
    "copy_whole_bytes": 64 * 1024**2,
    "copy_memory_bytes": 256_000_000,
    "copy_attempts": 8,
    "copy_retry_budget": 1000,
    "object_deadline_seconds": 1800,
    "copy_deadline_seconds": 86400,
    "max_replans": 3,
    "source_pin_seconds": None,
    "p": 0.02,
    "k_min": 100,
    "k_max": 2000,
    "fence": True,
    "lease_seconds": 300,
    "clock_skew_seconds": 10,
    "enable_L0_quick_publish": True,
    "enable_L1_async_audit": True,
    "mode": "A",
    "history_versions": 1000,
    "history_age": None,
    "history_bytes": None,
    "history_retention": None,
    "hist_catchup": timedelta(days=7),
    "lag_threshold_seconds": 900,
    "pending_objects_threshold": 100_000,
    "on_source_rollback": "follow",
    "on_source_recreated": "follow",
    "mirror_lag_alert_seconds": 900,
    "level_yellow_lag_seconds": 300,
    "level_orange_lag_seconds": 900,
    "level_red_lag_seconds": 3600,
    "level_green_error_rate": 0.001,
    "level_yellow_throughput_drop": 0.5,
    "level_orange_error_seconds": 300,
    "critical": False,
    "gc": {
        "sot_gc_grace": timedelta(days=1),
        "cloud_gc_grace": timedelta(days=7),
        "delete_history": False,
        "trash": False,
        "approval_bytes": 10**12,
        "approval_objects": 100_000,
    },
}

CACHE_DEFAULTS = {
    "enable_unified_metadata_cache": True,
    "unified_cache_compatibility_mode": True,
    "tiered_cache_rollout_percentage": 100,
    "table_metadata_cache_expire_seconds": 86400,
    "table_metadata_cache_refresh_seconds": 3600,
    "table_metadata_cache_max_size": 10000,
    "version_cache_expire_seconds": 7200,
    "version_cache_refresh_seconds": 1800,
    "version_cache_max_size": 50000,
    "historical_version_cache_expire_seconds": 1800,
    "schema_cache_expire_seconds": 43200,
    "schema_cache_refresh_seconds": 3600,
    "schema_cache_max_size": 5000,
    "partition_cache_expire_seconds": 3600,
    "partition_cache_refresh_seconds": 600,
    "partition_cache_max_size": 10000,
    "partition_cache_incremental_load": True,
    "partition_cache_max_files_per_partition": 10000,
    "unified_cache_loader_thread_pool_size": 20,
    "unified_cache_warm_up_thread_pool_size": 10,
    "unified_cache_enable_metrics": True,
    "unified_cache_metrics_report_interval_seconds": 60,
    "iceberg_manifest_cache_enabled": True,
    "hudi_timeline_cache_enabled": True,
    "hudi_fsview_cache_enabled": True,
    "paimon_snapshot_cache_enabled": True,
    "iceberg_table_metadata_cache_expire_seconds": None,
    "iceberg_table_metadata_cache_max_size": None,
    "iceberg_snapshot_cache_expire_seconds": None,
    "iceberg_snapshot_cache_max_size": None,
    "iceberg_schema_cache_expire_seconds": None,
    "iceberg_schema_cache_max_size": None,
    "iceberg_partition_cache_expire_seconds": None,
    "iceberg_partition_cache_max_size": None,
}

TAKE_EFFECT_NOW = {
    *(
        "schedule",
        "mirror_trigger",
        "follow_schedule",
        "follow_trigger",
        "retries",
        "retry_delay_seconds",
        "execution_timeout_seconds",
    ),
    *("max_concurrency", "rate_limit", "peak_bandwidth_bytes_per_s", "small_change_files", "small_change_bytes"),
    *("bin_files", "bin_bytes", "ledger_flush_files", "p", "k_min", "k_max", "enable_L0_quick_publish", "mode"),
    *("on_source_rollback", "on_source_recreated", "priority", "history_versions", "history_age", "history_bytes"),
    *("peak_requests_per_s", "copy_split_bytes", "copy_part_bytes", "copy_memory_bytes", "copy_attempts"),
    "copy_whole_bytes",
    *("copy_retry_budget", "object_deadline_seconds", "copy_deadline_seconds", "max_replans"),
    "source_pin_seconds",
    *("fence", "lease_seconds", "clock_skew_seconds", "group"),
}


def test_defaults() -> None:
    assert Knobs().model_dump() == DEFAULTS
    assert CacheConfig().model_dump() == CACHE_DEFAULTS


def test_names_are_those_of_the_models() -> None:
    flat = {(name,) for name in DEFAULTS if name != "gc"}
    assert set(knob_names()) == flat | {("gc", name) for name in GcKnobs.model_fields}
    assert len(list(knob_names())) == 60


@pytest.mark.parametrize("model", [Knobs, GcKnobs, CacheConfig])
def test_every_knob_tells_what_it_is_for(model: type[BaseModel]) -> None:
    for name, info in model.model_fields.items():
        if name == "gc":
            continue
        about = About.of(info)
        assert about is not None, name
        assert info.description, name
        assert info.description.endswith("."), name
        assert about.requirement, name
        takes_effect = "now" if name in TAKE_EFFECT_NOW else "planned"
        assert about.takes_effect == takes_effect, name


def test_live_knobs() -> None:
    live = {name for name, info in Knobs.model_fields.items() if (about := About.of(info)) and about.is_live}
    assert live == {"max_concurrency", "rate_limit", "peak_bandwidth_bytes_per_s", "peak_requests_per_s"}


def test_a_given_knob_wins_even_if_it_says_the_default() -> None:
    defaults = Knobs(k_min=7, p=0.5, gc=GcKnobs(trash=True, cloud_gc_grace=timedelta(days=30)))
    entry = Knobs(k_min=100, gc=GcKnobs(trash=False))
    in_force = defaults.overridden_by(entry)
    assert (in_force.k_min, in_force.p, in_force.k_max) == (100, 0.5, 2000)
    assert (in_force.gc.trash, in_force.gc.cloud_gc_grace) == (False, timedelta(days=30))


def test_an_entry_without_knobs_changes_nothing() -> None:
    defaults = Knobs(k_min=7)
    assert defaults.overridden_by(Knobs()) is defaults
    assert defaults.overridden_by(Knobs(gc=GcKnobs())) is defaults


@pytest.mark.parametrize(
    ("peak", "rate", "limit"), [(None, 0.75, None), (1000, 0.75, 750), (1, 0.5, 1), (125_000_000, 1.0, 125_000_000)]
)
def test_the_bandwidth_limit_is_a_share_of_the_declared_peak(peak: int | None, rate: float, limit: int | None) -> None:
    assert Knobs(peak_bandwidth_bytes_per_s=peak, rate_limit=rate).bandwidth_limit_bytes_per_s == limit


def test_the_total_grace_is_the_sum() -> None:
    assert GcKnobs(sot_gc_grace=timedelta(hours=2), cloud_gc_grace=timedelta(days=3)).total_grace == timedelta(hours=74)


def test_knobs_never_change() -> None:
    knobs = Knobs()
    with pytest.raises(ValidationError, match="frozen"):
        knobs.k_min = 5


def test_superseded_names_lead_to_keys_that_exist() -> None:
    assert set(SUPERSEDED.values()) <= set(CacheConfig.model_fields)
    assert set(SUPERSEDED).isdisjoint(CacheConfig.model_fields)
