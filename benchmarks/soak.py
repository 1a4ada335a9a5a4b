"""Long runs and kill tests, whose outcome is written with the machine's description; `make soak` calls it.

python benchmarks/soak.py [pytest arguments]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from record import write_result


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "soak.xml"
        command = [sys.executable, "-m", "pytest", "-m", "soak", f"--junitxml={report}", *sys.argv[1:]]
        code = subprocess.run(command).returncode
        if not report.exists():
            return code
        cases = [_case(case) for case in ElementTree.parse(report).iter("testcase")]
    write_result("soak", {"exit_code": code, "tests": cases})
    return code


def _case(case: ElementTree.Element) -> dict[str, object]:
    outcome = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
    return {
        "test": f"{case.get('classname')}::{case.get('name')}",
        "outcome": outcome,
        "seconds": float(case.get("time", 0)),
    }


if __name__ == "__main__":
    sys.exit(main())
