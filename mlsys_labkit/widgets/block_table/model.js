// Twin of model.py. A step is [changes, turned], a change [owner, held, kept, ...blocks].
export function tables(steps, at) {
  const now = new Map();
  for (const [changes] of steps.slice(0, at + 1)) {
    for (const [owner, held, kept, ...blocks] of changes)
      now.set(owner, [held, [...(now.get(owner)?.[1] || []).slice(0, kept), ...blocks]]);
  }
  return [...now]
    .filter(([, [, blocks]]) => blocks.length)
    .map(([owner, [held, blocks]]) => [owner, held, blocks])
    .sort((a, b) => a[0] - b[0]);
}
export function cached(steps, at) {
  const found = new Set();
  for (const [, turned] of steps.slice(0, at + 1))
    for (const block of turned) if (!found.delete(block)) found.add(block);
  return [...found].sort((a, b) => a - b);
}
export function pool(now, blockSize) {
  const found = {};
  for (const [owner, held, blocks] of now) {
    blocks.forEach((block, at) => {
      const entry = (found[block] ||= [0, 0, owner]);
      entry[0] += 1;
      entry[1] = Math.max(entry[1], Math.min(blockSize, Math.max(0, held - at * blockSize)));
    });
  }
  return found;
}
export function counts(used, blockSize) {
  const all = Object.values(used),
    slots = all.length * blockSize;
  return [
    all.length,
    all.filter(([references]) => references > 1).length,
    slots,
    slots - all.reduce((sum, [, filled]) => sum + filled, 0),
  ];
}
