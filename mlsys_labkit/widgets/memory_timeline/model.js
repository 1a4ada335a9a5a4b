// Twin of model.py. An event is [tensor, bytes, category, line].
export function live(events, categories) {
  const now = Array(categories).fill(0);
  return events.map(([, size, category]) => {
    now[category] += size;
    return [...now];
  });
}
export function peak(events) {
  let total = 0,
    best = [0, 0];
  events.forEach(([, size], at) => {
    total += size;
    if (total > best[1]) best = [at, total];
  });
  return best;
}
export function alive(events, at) {
  const held = new Map();
  for (const event of events.slice(0, at + 1)) {
    held.delete(event[0]);
    if (event[1] >= 0) held.set(event[0], event);
  }
  return [...held.values()].sort((a, b) => b[1] - a[1]);
}
