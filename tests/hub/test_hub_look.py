"""The look of the Hub's pages and of the course's service: the kit's colours and type, and no finding of axe."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import pytest

from mlsys_labkit._base.light_dark_colours import COLOURS
from tests.hub.hub_process import Hub, needs_hub

pytest.importorskip("wrapspawner")


def background(scheme: str) -> str:
    """Return the palette's colour of a page as a browser writes it."""
    code = getattr(COLOURS["page"], scheme).lstrip("#")
    return f"rgb({', '.join(str(int(code[at : at + 2], 16)) for at in (0, 2, 4))})"


def look(page: Any) -> tuple[str, str]:
    body = "getComputedStyle(document.body)"
    return page.evaluate(f"{body}.backgroundColor"), page.evaluate(f"{body}.fontFamily").split(",")[0]


def findings(page: Any, rules: str = "") -> list[tuple[str, str]]:
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
    found = page.evaluate(f"axe.run({rules}).then(result => result.violations)")
    return [(each["id"], each["nodes"][0]["html"][:160]) for each in found]


def test_choice_of_a_server_has_a_label_around_each_button() -> None:
    from mlsys_grading.hub.profiles import ProfileSpawner

    titles = {"small": "Small", "large": "Large & <wide>"}
    form = ProfileSpawner._options_form_default(SimpleNamespace(order=["large", "small"], titles=titles))
    form = form.replace("required checked>", "checked='true'/>").replace("required >", "/>")
    labels = ElementTree.fromstring(form).findall("label")
    buttons = [label.find("input") for label in labels]
    assert [label.get("for") for label in labels] == [button.get("id") for button in buttons]
    assert ["".join(label.itertext()).strip() for label in labels] == ["Large & <wide>", "Small"]
    assert [button.get("checked") for button in buttons] == ["true", None]


@needs_hub
@pytest.mark.browser
@pytest.mark.xdist_group("hub")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_have_the_kits_look(hub: Hub, browser: Any, scheme: str) -> None:
    narrow = {"width": 390, "height": 844}
    stranger = browser.new_context(color_scheme=scheme, viewport=narrow).new_page()
    stranger.goto(f"{hub.url}/hub/login")
    grace = hub.open_page(browser, "grace", color_scheme=scheme, viewport=narrow)
    for page in (stranger, grace):
        assert look(page) == (background(scheme), "system-ui"), page.url
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, page.url
        assert findings(page) == [], page.url
    grace.goto(f"{hub.url}/services/mlsys/formgrader/manage_assignments")
    grace.wait_for_selector(".page-header")
    assert look(grace) == (background(scheme), "system-ui")
    assert findings(grace, "{runOnly: ['color-contrast']}") == []
    for page in (stranger, grace):
        page.context.close()
