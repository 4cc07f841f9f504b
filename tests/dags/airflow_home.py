"""An Airflow home for this test session alone: the developer's own Airflow is neither read nor written.

Must run before the first import of Airflow, which reads its settings once.
"""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_MADE = "LAKEMIRROR_TEST_AIRFLOW_HOME"


def use_private_airflow_home() -> None:
    """Make it, once for the session and the processes it starts, and remove it at the end.

    Processes that run tests side by side have one each.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if os.environ.get(_MADE) == f"made {worker}":
        return
    assert "airflow" not in sys.modules, "Airflow was imported before its home was chosen"
    home = tempfile.mkdtemp(prefix="lakemirror-airflow-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for name in [name for name in os.environ if name.startswith("AIRFLOW_")]:
        del os.environ[name]
    os.environ |= {
        _MADE: f"made {worker}",
        "AIRFLOW_HOME": home,
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
