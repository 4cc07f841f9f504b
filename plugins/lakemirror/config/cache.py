"""Settings of the metadata cache, under the names its design gave them. Validated and shown; no code reads them yet.

L1 is a table, L2 a version, L3 a schema, L4 partitions and files. `…_expire_seconds` is how long an unused entry stays
in memory, `…_refresh_seconds` how long a reader may trust a pointer before it is looked at again.
"""

from __future__ import annotations

from typing import Any

from lakemirror.config.quantities import Count, Seconds
from lakemirror.config.section import Section, knob

# Settings of the cache that came before, and what took their place.
SUPERSEDED = {
    "external_cache_expire_time_seconds_after_access": "table_metadata_cache_expire_seconds",
    "external_cache_refresh_time_minutes": "table_metadata_cache_refresh_seconds",
    "max_external_table_cache_num": "table_metadata_cache_max_size",
    "max_external_cache_loader_thread_pool_size": "unified_cache_loader_thread_pool_size",
    "enable_tiered_cache": "enable_unified_metadata_cache",
    "tiered_cache_compatibility_mode": "unified_cache_compatibility_mode",
}


def _life(default: int | None, description: str, *, is_live: bool = True) -> Any:
    return knob(default, description, requirement="C15", unit="seconds", takes_effect="planned", is_live=is_live, ge=0)


def _size(default: int | None, description: str, *, unit: str = "entries", is_live: bool = True) -> Any:
    return knob(default, description, requirement="C15", unit=unit, takes_effect="planned", is_live=is_live, ge=0)


def _switch(default: bool, description: str) -> Any:
    return knob(default, description, requirement="C15, C20", takes_effect="planned")


class CacheConfig(Section):
    """The metadata cache that all table formats share."""

    enable_unified_metadata_cache: bool = _switch(True, "Whether metadata is cached at all.")
    unified_cache_compatibility_mode: bool = _switch(True, "Read past the cache as well, and report differences.")
    tiered_cache_rollout_percentage: Count = knob(
        100,
        "The share of tables that use the cache.",
        requirement="C20",
        unit="percent",
        takes_effect="planned",
        ge=0,
        le=100,
    )

    table_metadata_cache_expire_seconds: Seconds = _life(86400, "L1: life of an unused entry.")
    table_metadata_cache_refresh_seconds: Seconds = _life(3600, "L1: how long a pointer is trusted.")
    table_metadata_cache_max_size: Count = _size(10000, "L1: entries at most.")
    version_cache_expire_seconds: Seconds = _life(7200, "L2: life of an unused entry.")
    version_cache_refresh_seconds: Seconds = _life(1800, "L2: how long a pointer is trusted.")
    version_cache_max_size: Count = _size(50000, "L2: entries at most.")
    historical_version_cache_expire_seconds: Seconds = _life(1800, "L2: life of a version that is not current.")
    schema_cache_expire_seconds: Seconds = _life(43200, "L3: life of an unused entry.")
    schema_cache_refresh_seconds: Seconds = _life(3600, "L3: how long a pointer is trusted.")
    schema_cache_max_size: Count = _size(5000, "L3: entries at most.")
    partition_cache_expire_seconds: Seconds = _life(3600, "L4: life of an unused entry.")
    partition_cache_refresh_seconds: Seconds = _life(600, "L4: how long a pointer is trusted.")
    partition_cache_max_size: Count = _size(10000, "L4: entries at most.")
    partition_cache_incremental_load: bool = _switch(True, "L4: apply added and removed manifests to the entry before.")
    partition_cache_max_files_per_partition: Count = _size(
        10000, "L4: a partition with more files keeps no file detail.", unit="files", is_live=False
    )

    unified_cache_loader_thread_pool_size: Count = _size(20, "Threads that load.", unit="threads", is_live=False)
    unified_cache_warm_up_thread_pool_size: Count = _size(10, "Threads that warm up.", unit="threads", is_live=False)
    unified_cache_enable_metrics: bool = _switch(True, "Count hits, misses, loads and evictions.")
    unified_cache_metrics_report_interval_seconds: Seconds = _life(60, "How often counts are written.", is_live=False)

    iceberg_manifest_cache_enabled: bool = _switch(True, "Iceberg: cache manifests.")
    hudi_timeline_cache_enabled: bool = _switch(True, "Hudi: cache timelines.")
    hudi_fsview_cache_enabled: bool = _switch(True, "Hudi: cache file-system views.")
    paimon_snapshot_cache_enabled: bool = _switch(True, "Paimon: cache snapshots.")

    iceberg_table_metadata_cache_expire_seconds: Seconds | None = _life(None, "Iceberg's own L1 life; null: as above.")
    iceberg_table_metadata_cache_max_size: Count | None = _size(None, "Iceberg's own L1 size; null: as above.")
    iceberg_snapshot_cache_expire_seconds: Seconds | None = _life(None, "Iceberg's own L2 life; null: as above.")
    iceberg_snapshot_cache_max_size: Count | None = _size(None, "Iceberg's own L2 size; null: as above.")
    iceberg_schema_cache_expire_seconds: Seconds | None = _life(None, "Iceberg's own L3 life; null: as above.")
    iceberg_schema_cache_max_size: Count | None = _size(None, "Iceberg's own L3 size; null: as above.")
    iceberg_partition_cache_expire_seconds: Seconds | None = _life(None, "Iceberg's own L4 life; null: as above.")
    iceberg_partition_cache_max_size: Count | None = _size(None, "Iceberg's own L4 size; null: as above.")
