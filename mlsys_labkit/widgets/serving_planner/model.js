// Twin of model.py.
const HOP_SECONDS = 5e-6,
  USABLE = 0.9;
export function memory(q) {
  const weights = (q.parameters * q.bits) / 8 / q.gpus,
    cache = (q.users * q.context * q.cache) / Math.min(q.gpus, q.cuts);
  return { weights, cache, free: USABLE * q.memory - weights - cache };
}
export const touched = (q, tokens) => q.parameters * (1 - (1 - q.active / q.parameters) ** tokens);
const copies = (q) => Math.max(1, q.gpus / q.cuts);
const hops = (q) => (q.gpus > 1 ? 2 * q.layers * HOP_SECONDS : 0);
export function decodeSeconds(q) {
  const read = (touched(q, q.users) * q.bits) / 8 + q.users * q.context * q.cache * copies(q),
    speed = q.gpus * q.efficiency;
  return Math.max(read / (speed * q.bandwidth), (2 * q.active * q.users) / (speed * q.peak)) + hops(q);
}
export function prefillSeconds(q) {
  const speed = q.gpus * q.efficiency;
  return (
    Math.max(
      (2 * q.active * q.context) / (speed * q.peak),
      (touched(q, q.context) * q.bits) / 8 / (speed * q.bandwidth),
    ) + hops(q)
  );
}
export const usdPerMillion = (q) => ((q.price * q.gpus) / 3600 / (q.users / decodeSeconds(q))) * 1e6;
export function mostUsers(q) {
  const room = USABLE * q.memory * q.gpus - (q.parameters * q.bits) / 8;
  return Math.max(0, Math.floor(room / (q.context * q.cache * copies(q))));
}
