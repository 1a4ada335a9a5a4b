"""Choice of a profile: a form, and a spawner that passes each choice to this machine's spawner or to Slurm's."""

from __future__ import annotations

from html import escape
from typing import Any

from traitlets import Dict, List
from wrapspawner import WrapSpawner

from mlsys_grading.hub.entries import server_command
from mlsys_grading.hub.settings import HubSettings, ServerProfile
from mlsys_grading.hub.spawner import LabSpawner, refused
from mlsys_labkit.errors import LabkitError

_FORM = '<fieldset class="choices"><legend>What kind of server?</legend>{choices}</fieldset>'
_CHOICE = """<label class="choice" for="profile-{slug}">
<input class="form-check-input" type="radio" name="profile" id="profile-{slug}" value="{slug}" required {checked}>
<span>{title}</span></label>"""


class ProfileSpawner(WrapSpawner):  # type: ignore[misc]
    """Spawner that starts the profile chosen in the form or by the Hub's API.

    wrapspawner's own ProfilesSpawner takes an unknown profile for its default, which is a spawner of its own, and keeps
    changed settings in one dictionary for all people.
    """

    titles = Dict(config=True, help="titles by slug, for the form")
    slurm = Dict(config=True, help="traits by slug, for profiles that are Slurm jobs")
    order: List[str] = List(config=True, help="the slugs; the first is the form's default")

    def _options_form_default(self) -> str:
        choices = (
            _CHOICE.format(slug=slug, title=escape(self.titles[slug]), checked="checked" * (slug == self.order[0]))
            for slug in self.order
        )
        return _FORM.format(choices="".join(choices))

    def options_from_form(self, data: dict[str, list[str]]) -> dict[str, str]:
        return {"profile": data.get("profile", self.order)[0]}

    def construct_child(self) -> Any:
        if self.child_spawner is None:
            self._choose(self.user_options.get("profile", self.order[0]))
        return super().construct_child()

    def load_child_class(self, state: dict[str, Any]) -> None:
        self._choose(state.get("profile", self.order[0]))

    def get_state(self) -> dict[str, Any]:
        """Return the chosen slug for a restarted Hub, which reads the profile's settings again."""
        state: dict[str, Any] = super().get_state()
        state.pop("child_conf", None)
        return state | {"profile": self._slug} if self.child_spawner else state

    def _choose(self, slug: str) -> None:
        if slug not in self.titles:
            raise refused(LabkitError(f"there is no profile {slug!r}; choose one of {', '.join(self.order)}"))
        self._slug = slug
        if slug in self.slurm:
            from mlsys_grading.hub.slurm import SlurmLabSpawner

            self.child_class, self.child_config = SlurmLabSpawner, {"ip": "0.0.0.0"} | self.slurm[slug]
        else:
            # The child takes every other trait that both classes have from this spawner, also cmd.
            self.child_class = LabSpawner
            self.child_config = {"profile": slug, "cmd": server_command()}


def configure_profiles(c: Any, settings: HubSettings) -> None:
    """Choose the spawner: with a single local profile there is no form. Raises LabkitError without Slurm's library."""
    profiles = settings.profiles
    if [profile.spawner for profile in profiles] == ["local"]:
        c.JupyterHub.spawner_class = LabSpawner
        c.LabSpawner.profile = profiles[0].slug
        return
    c.JupyterHub.spawner_class = ProfileSpawner
    c.ProfileSpawner.titles = {profile.slug: _title(profile) for profile in profiles}
    c.ProfileSpawner.order = [profile.slug for profile in profiles]
    if jobs := [profile for profile in profiles if profile.spawner == "slurm"]:
        from mlsys_grading.hub.slurm import slurm_traits

        c.ProfileSpawner.slurm = {profile.slug: slurm_traits(profile) for profile in jobs}


def _title(profile: ServerProfile) -> str:
    """Return the title with the profile's cores, memory and device."""
    parts = [
        f"{profile.cpus:g} core{'s' * (profile.cpus != 1)}" if profile.cpus else "",
        f"{profile.memory_gib:g} GiB" if profile.memory_gib else "",
        profile.device or ("GPU" if profile.gpus else ""),
    ]
    more = ", ".join(filter(None, parts))
    return f"{profile.title} ({more})" if more else profile.title
