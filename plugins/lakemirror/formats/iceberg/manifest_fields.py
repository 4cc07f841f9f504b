"""The fields of manifest entries that somebody looks at, by Iceberg field id, and which of them each reader needs.

All other fields are skipped and copied as they are. To look at one more, add it here: the walkers find it by its id.
"""

from __future__ import annotations

STATUS, FILE_PATH, FILE_FORMAT, FILE_SIZE, CONTENT = 0, 100, 101, 104, 134
LOWER_BOUNDS, UPPER_BOUNDS, KEY_METADATA, REFERENCED_DATA_FILE = 125, 128, 131, 143

TO_READ_DATA = (STATUS, FILE_PATH, FILE_FORMAT, FILE_SIZE, CONTENT, KEY_METADATA, REFERENCED_DATA_FILE)
TO_READ_DELETES = (*TO_READ_DATA, LOWER_BOUNDS, UPPER_BOUNDS)
TO_REWRITE_DATA = (FILE_PATH, REFERENCED_DATA_FILE)
TO_REWRITE_DELETES = (STATUS, FILE_PATH, FILE_SIZE, CONTENT, REFERENCED_DATA_FILE, LOWER_BOUNDS, UPPER_BOUNDS)
