// Twin of model.py.
export function ways(edges, start, end) {
  const found = [],
    waiting = [[start]];
  for (const way of waiting) {
    const last = way[way.length - 1];
    if (last === end) found.push(way);
    else
      edges.forEach(([source, target]) => {
        if (source === last && !way.includes(target)) waiting.push([...way, target]);
      });
  }
  return found;
}
