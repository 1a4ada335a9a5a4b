// Twin of model.py.
export function ways(edges, start, end) {
  const found = [],
    waiting = [[start]];
  while (waiting.length) {
    const way = waiting.shift(),
      last = way[way.length - 1];
    if (last === end) found.push(way);
    else
      edges.forEach(([source, target]) => {
        if (source === last && !way.includes(target)) waiting.push([...way, target]);
      });
  }
  return found;
}
