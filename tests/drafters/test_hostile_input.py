"""Nothing that is handed to a session ends the process."""

import subprocess
import sys
from pathlib import Path


def test_no_call_of_a_session_crashes():
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.drafters.hostile", "0", "12"]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=600, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.endswith(" calls\n")
