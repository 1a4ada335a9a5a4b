// Remembers in this browser which chapters were read to their end, and marks their cards on the home page.
const KEY = "mlsys-labkit-read";

function read() {
  try {
    return new Set(JSON.parse(localStorage.getItem(KEY) ?? "[]"));
  } catch {
    return new Set(); // storage is off, or holds something else
  }
}

function remember(page) {
  try {
    localStorage.setItem(KEY, JSON.stringify([...read().add(page)]));
  } catch {
    // nothing is remembered where storage is off
  }
}

addEventListener("DOMContentLoaded", () => {
  const pages = read();
  /** @type {NodeListOf<HTMLElement>} */
  const cards = document.querySelectorAll(".card[data-page]");
  for (const card of cards) card.querySelector(".done")?.toggleAttribute("hidden", !pages.has(card.dataset.page));
  const page = location.pathname.match(/chapters\/(\w+)\.html$/)?.[1];
  const end = document.querySelector("#references, #takeaways");
  if (page && end)
    new IntersectionObserver((seen, observer) => {
      if (seen.some((one) => one.isIntersecting)) {
        remember(page);
        observer.disconnect();
      }
    }).observe(end);
});
