// Twin of model.py. A model m carries the fields of mlsys_labkit.planner.Transformer under their own names.
export const ruleParameters = (m) => 12 * m.layers * m.width ** 2 + m.vocabulary * m.width;
export function parts(m) {
  const d = m.width,
    q = m.heads * m.head_width,
    kv = m.kv_heads * m.head_width,
    into = m.gated ? 2 : 1,
    bias = m.biased ? 1 : 0;
  const attention = m.layers * (d * (2 * q + 2 * kv) + (q + 2 * kv + d) * bias);
  const mlp = m.layers * m.experts * (d * m.hidden * (into + 1) + (into * m.hidden + d) * bias);
  const norm = d * (bias ? 2 : 1),
    router = m.experts > 1 ? d * m.experts : 0;
  return [
    attention,
    mlp,
    m.layers * ((m.parallel ? 1 : 2) * norm + router) + norm,
    (m.vocabulary + m.positions) * d,
    m.tied ? 0 : m.vocabulary * d,
  ];
}
const sum = (list) => list.reduce((a, b) => a + b, 0);
export const activeParameters = (m) => sum(parts(m)) - (parts(m)[1] / m.experts) * (m.experts - m.active_experts);
export const ruleActivations = (m, batch, length) => 9 * batch * length * m.width + 2 * batch * m.heads * length ** 2;
export function activations(m, batch, length, flash) {
  const tokens = batch * length,
    x = 2 * tokens * m.width,
    mask = m.biased ? tokens * m.width : 0,
    scores = tokens * length * m.heads;
  const norm = x + (m.biased ? 8 : 4) * tokens,
    hidden = 2 * tokens * m.active_experts * m.hidden;
  const routed = m.experts > 1 ? 4 * tokens * m.experts + 2 * x * m.active_experts : 0;
  const core = flash ? 4 * tokens * m.heads : 2 * scores + (m.biased ? 3 * scores : 0);
  const heads = 2 * tokens * m.head_width * (2 * m.heads + 2 * m.kv_heads);
  return ((m.parallel ? 1 : 2) * (norm + x) + heads + core + 2 * mask + routed + (m.gated ? 3 : 2) * hidden) / 2;
}
export function trainingFlops(m, length) {
  const q = m.heads * m.head_width,
    kv = m.kv_heads * m.head_width,
    router = m.experts > 1 ? m.width * m.experts : 0;
  const mlp = m.active_experts * (m.gated ? 3 : 2) * m.width * m.hidden + router;
  return 3 * (m.layers * (2 * m.width * 2 * (q + kv) + 4 * length * q + 2 * mlp) + 2 * m.width * m.vocabulary);
}
export const kvBytes = (m) => 4 * m.layers * m.kv_heads * m.head_width;
