"""Where things lie in a table's folder of the mirror bucket: the only bridge between the two sides."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakemirror.errors import PermanentError
from lakemirror.model.table import TableRef

# Folders of a mirror table of its own. Files of the source are in `_roots` too, those of further roots, and in `_maps`,
# those of later maps of its places.
CONTROL_FOLDERS = frozenset(
    ("_plan", "_ledger", "_inprogress", "_ready", "_gc", "_control", "_trash", "_roots", "_maps")
)
INDEX_FOLDER = "_ledger/index"
_MAX_DIGITS = 18
_ORDINAL = re.compile(r"/v([1-9][0-9]*)\.(ready|demoted|restored|dropped|marker)\.json$")


@dataclass(frozen=True, slots=True)
class TableLayout:
    """URIs below `<mirror location>/<namespace>/<table>`."""

    root: str

    @classmethod
    def of(cls, location: str, table: TableRef) -> TableLayout:
        return cls(f"{location.rstrip('/')}/{table.folder}")

    @property
    def ready_folder(self) -> str:
        return f"{self.root}/_ready/"

    @property
    def staged_folder(self) -> str:
        return f"{self.root}/_inprogress/"

    @property
    def current(self) -> str:
        """Says as of when the newest version was the source's head."""
        return f"{self.root}/_control/current.json"

    @property
    def copy_deadline(self) -> str:
        """Says by when the copying of a run must be done."""
        return f"{self.root}/_control/copying.json"

    @property
    def lease(self) -> str:
        """Of runs that publish."""
        return f"{self.root}/_control/lease.json"

    @property
    def swap_lease(self) -> str:
        """Of followers, where a catalog can only swap a head without comparing it."""
        return f"{self.root}/_control/swap.json"

    def ready(self, version: int) -> str:
        return f"{self.ready_folder}v{version}.ready.json"

    def staged(self, version: int) -> str:
        return f"{self.staged_folder}v{version}.marker.json"

    def demoted(self, version: int) -> str:
        return f"{self.ready_folder}v{version}.demoted.json"

    def restored(self, version: int) -> str:
        """Says that what was demoted counts again."""
        return f"{self.ready_folder}v{version}.restored.json"

    def dropped(self, version: int) -> str:
        """Says that the mirror was dropped when this was the last ordinal in use."""
        return f"{self.ready_folder}v{version}.dropped.json"

    def plan(self, plan_id: str) -> str:
        return f"{self.root}/_plan/{plan_id}"

    def ledger(self, plan_id: str) -> str:
        return f"{self.root}/_ledger/{plan_id}"

    def started(self, version: int) -> str:
        """Says that files of this version may lie in the mirror already, whichever try put them there."""
        return f"{self.root}/_ledger/v{version}.started"

    @property
    def index_folder(self) -> str:
        return f"{self.root}/{INDEX_FOLDER}/"

    def index(self, digest: str) -> str:
        return f"{self.index_folder}{digest}.parquet"

    def metadata(self, file_name: str) -> str:
        return f"{self.root}/metadata/{file_name}"

    def home(self, generation: str) -> str:
        """Where the files of the table's own location go: a later map of the source's places has its own folder."""
        return f"{self.root}/_maps/{generation}" if generation else self.root

    def further_root(self, name: str, generation: str = "") -> str:
        return f"{self.home(generation)}/_roots/{name}"


def ordinal(uri: str) -> tuple[int, str] | None:
    """Version and kind (the word before `.json`) that a marker's name claims; None for other names."""
    found = _ORDINAL.search(uri)
    if found is not None and len(found.group(1)) > _MAX_DIGITS:
        raise PermanentError(
            "read marker", uri, "its version is absurd", "it was not written by Lakemirror: see who did, and remove it"
        )
    return (int(found.group(1)), found.group(2)) if found else None
