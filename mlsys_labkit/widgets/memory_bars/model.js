// Twin of model.py: the planner's memory with fused kernels and FlashAttention, 2 + 2 + 12 bytes per parameter, and
// sequence parallelism everywhere.
const weights = (m, l, first, last) => {
  const d = m.width,
    t = l.tensor,
    bias = m.biased ? 1 : 0,
    q = m.heads * m.head_width,
    kv = m.kv_heads * m.head_width,
    into = m.gated ? 2 : 1;
  const single = m.kv_heads === 1 ? 2 * d * kv : 0,
    stay = d * bias,
    norm = d * (bias ? 2 : 1);
  const attention = (d * (2 * q + 2 * kv) + (q + 2 * kv) * bias - single) / t + stay + single;
  const mlp = (d * m.hidden * (into + 1) + into * m.hidden * bias) / t + stay;
  const layer = attention + m.experts * mlp + (m.parallel ? 1 : 2) * norm + (m.experts > 1 ? d * m.experts : 0);
  const table = (m.vocabulary * d) / t,
    tables = table * (first + last - (m.tied && first && last ? 1 : 0));
  return {
    layer,
    table,
    tables,
    all: (m.layers / l.pipeline) * layer + tables + (first ? m.positions * d : 0) + (last ? norm : 0),
  };
};
const saved = (m, l) => {
  const tokens = l.micro_batch * l.sequence,
    t = l.tensor,
    x = (2 * tokens * m.width) / t,
    norm = x + ((m.biased ? 8 : 4) * tokens) / t;
  const query = (2 * tokens * m.heads * m.head_width) / t,
    kv = (2 * tokens * m.kv_heads * m.head_width) / (m.kv_heads > 1 ? t : 1),
    hidden = (2 * tokens * m.active_experts * m.hidden) / t;
  const routed = m.experts > 1 ? (4 * tokens * m.experts) / t + 2 * x * m.active_experts : 0;
  const layer =
    (m.parallel ? 1 : 2) * (norm + x) +
    2 * query +
    2 * kv +
    (4 * tokens * m.heads) / t +
    (m.biased ? x : 0) +
    routed +
    (m.gated ? 3 : 2) * hidden;
  return {
    layer,
    x,
    input: 8 * tokens + (m.biased ? x / 2 : 0),
    head: norm + x + (4 * tokens * m.vocabulary) / t + 8 * tokens,
    logits: (tokens * m.vocabulary) / t,
  };
};
export function stage(m, l, index) {
  const first = index === 0 ? 1 : 0,
    last = index === l.pipeline - 1 ? 1 : 0,
    w = weights(m, l, first, last),
    a = saved(m, l),
    full = l.recompute === "full";
  const share = (from) => (l.zero >= from ? l.data : 1),
    parameters = (2 * w.all) / share(3),
    gradients = (2 * w.all) / share(2),
    optimizer = (12 * w.all) / share(1);
  const held =
    Math.min(l.pipeline - index, l.micro_batches) *
      ((m.layers / l.pipeline) * (full ? a.x : a.layer) + first * a.input) +
    last * a.head;
  const again = full ? a.layer : 0,
    cut = l.zero > 1 && l.data > 1;
  // Buffers: two boundaries of the pipeline; under ZeRO a gathered layer, two whole gradients, and the tables.
  const one = (w.all - w.tables) / (m.layers / l.pipeline),
    always = (l.pipeline > 1 ? 2 * a.x : 0) + (cut && l.zero === 3 ? 2 * w.tables : 0);
  const work = again + (cut ? 4 * one + 2 * last * w.table + (l.zero === 3 ? 2 * one : 0) : 0);
  const ends = cut ? 2 * (2 * w.tables + first * w.table + (l.micro_batches > 1 ? w.tables / l.data : 0)) : 0;
  const buffers = always + Math.max(last * 2 * a.logits, work),
    begins = held + buffers + (l.micro_batches > 1 ? gradients : 0);
  // The last layer's experts: the loss is gone; gradients of their rows, weighted and not, of its input and output.
  const rows = m.experts > 1 ? (2 * m.active_experts + 2) * a.x : 0,
    stays = l.micro_batches > 1 ? gradients : last * 2 * w.table,
    inside = rows && held - last * a.head + always + work + rows + stays;
  return [
    parameters,
    gradients,
    optimizer,
    held,
    buffers,
    parameters + optimizer + Math.max(begins, inside, gradients + Math.max(always + work - again, ends)),
  ];
}
export function fullest(m, l) {
  let best = 0,
    most = -1;
  for (let i = 0; i < l.pipeline; i += 1) {
    const peak = stage(m, l, i)[5];
    if (peak > most) [best, most] = [i, peak];
  }
  return best;
}
export const tensorSizes = (m) =>
  [1, 2, 4, 8, 16].filter((t) => m.heads % t === 0 && (m.kv_heads === 1 || m.kv_heads % t === 0) && m.hidden % t === 0);
export const pipelineSizes = (m) => Array.from({ length: m.layers }, (_, i) => i + 1).filter((p) => m.layers % p === 0);
