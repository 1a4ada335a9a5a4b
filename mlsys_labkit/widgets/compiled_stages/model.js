// Twin of model.py: run = [indices of source lines, texts, how many lines more].
const rows = ([, texts, hidden]) => texts.length + (hidden > 0);
export function lit(runs, source) {
  const found = [];
  let at = 0;
  for (const run of runs) {
    if (run[0].includes(source)) for (let row = at; row < at + rows(run); row += 1) found.push(row);
    at += rows(run);
  }
  return found;
}
export function amount(runs, source) {
  return runs.reduce(
    (sum, [sources, texts, hidden]) => sum + (sources.includes(source) ? texts.length + hidden : 0),
    0,
  );
}
export function origin(runs, row) {
  for (const run of runs) {
    if (row < rows(run)) return run[0].length ? run[0][0] : null;
    row -= rows(run);
  }
  return null;
}
