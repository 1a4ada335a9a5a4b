// Draws a figure where the page has plotly.js, in the ink of the page; its table stays where it has not.
const home = document.getElementById(homeId);
const draw = () => {
  if (!window.Plotly || home.dataset.alive) return;
  home.dataset.alive = "yes";
  const plot = home.querySelector("div"),
    ink = () => getComputedStyle(home).color;
  plot.hidden = false;
  home.querySelector("details").open = false;
  const layout = figure.layout || {};
  layout.font = { color: ink(), ...layout.font };
  window.Plotly.newPlot(plot, figure.data, layout, { responsive: true, displaylogo: false });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    window.Plotly.relayout(plot, { "font.color": ink() }),
  );
};
draw();
addEventListener("load", draw);
