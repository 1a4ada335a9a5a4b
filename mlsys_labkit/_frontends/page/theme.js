const root = document.documentElement;
root.classList.remove("no-js");
const dark = () =>
  root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
try {
  if (localStorage.labkitTheme) root.dataset.theme = localStorage.labkitTheme;
} catch {
  /* private mode */
}
document.addEventListener("DOMContentLoaded", () => {
  // What scrolls sideways can be reached by keyboard, as long as it does.
  const reach = () =>
    document.querySelectorAll("pre, .out, .md table, math[display=block]").forEach((box) => {
      if (box.scrollWidth > box.clientWidth) box.setAttribute("tabindex", "0");
      else box.removeAttribute("tabindex");
    });
  addEventListener("resize", reach);
  reach();
  const button = document.querySelector(".theme");
  if (!button) return;
  const say = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to the ${dark() ? "light" : "dark"} theme`);
  };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try {
      localStorage.labkitTheme = root.dataset.theme;
    } catch {
      /* private mode */
    }
    say();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", say);
  say();
});
