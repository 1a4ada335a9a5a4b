import { button } from "./dom.js";

/**
 * A button that takes a step at a time until it is pressed again or the widget leaves the page.
 * @param {HTMLElement} el the widget's place in the page
 * @param {number} pace milliseconds a step
 * @param {() => void} step
 * @param {() => void} pressed called after each press of the button
 */
export function player(el, pace, step, pressed) {
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let timer = 0;
  const pause = () => {
    clearInterval(timer);
    timer = 0;
  };
  const toggle = button("Play", () => {
    if (timer) pause();
    else timer = setInterval(() => (el.isConnected ? step() : pause()), pace);
    pressed();
  });
  const draw = () => {
    toggle.textContent = timer ? "Pause" : "Play";
    toggle.hidden = still.matches;
  };
  return { button: toggle, pause, draw, plays: () => timer !== 0 };
}
