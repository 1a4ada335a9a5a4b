"""A run as JUnit XML: one test case per notebook."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from mlsys_grading.report.result import NotebookResult, RunResult

# XML 1.0 has no way to write these, escaped or not, and tracebacks may hold any of them.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(run: RunResult) -> str:
    """Return a run as JUnit XML, as CI systems read it.

    A failing cell is a ``failure``; a notebook that could not run at all is an ``error``; one that Ctrl-C left out is
    ``skipped``. Reference: the schema of the Jenkins xUnit plugin.
    """
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite")
    for notebook in run.notebooks:
        _add_case(suite, notebook)
    counts = {
        "tests": len(run.notebooks),
        "failures": len(suite.findall("testcase/failure")),
        "errors": len(suite.findall("testcase/error")),
        "skipped": len(suite.findall("testcase/skipped")),
    }
    numbers = {name: str(count) for name, count in counts.items()} | {"time": f"{run.seconds:.3f}"}
    suites.attrib.update({"name": "labkit run", **numbers})
    suite.attrib.update({"name": "labs", "timestamp": run.started, **numbers})
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _add_case(suite: ElementTree.Element, notebook: NotebookResult) -> None:
    attributes = {"classname": "labs", "name": notebook.name, "time": f"{notebook.seconds:.3f}"}
    case = ElementTree.SubElement(suite, "testcase", attributes)
    failure = notebook.failure
    if failure is not None:
        tag = "error" if failure.cell is None else "failure"
        node = ElementTree.SubElement(case, tag, type=failure.exception or failure.kind)
        node.set("message", _clean(": ".join(part for part in (failure.where, failure.message) if part)))
        node.text = _clean("\n".join(part for part in (failure.source_line, failure.traceback) if part))
    elif notebook.status != "passed":
        ElementTree.SubElement(case, "skipped", message=notebook.status)


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
