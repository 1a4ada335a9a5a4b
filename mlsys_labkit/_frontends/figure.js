// Draws a figure where the page has plotly.js, in the ink of the page; its table stays where it has not.
const draw = () => {
  const { Plotly } = window,
    home = document.getElementById(homeId),
    plot = home?.querySelector("div"),
    table = home?.querySelector("details");
  if (!Plotly || !home || !plot || !table || home.dataset.alive) return;
  home.dataset.alive = "yes";
  const ink = () => getComputedStyle(home).color;
  plot.hidden = false;
  table.open = false;
  const layout = figure.layout || {};
  layout.font = { color: ink(), ...layout.font };
  Plotly.newPlot(plot, figure.data, layout, { responsive: true, displaylogo: false });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    Plotly.relayout(plot, { "font.color": ink() }),
  );
};
draw();
addEventListener("load", draw);
