// Twin of model.py.
const GPUS_A_NODE = 8,
  USABLE = 0.92,
  INTERFERENCE = 0.4,
  STREAM = 0.7;
export function memory(p) {
  const own = p.parameters / p.tensor / p.pipeline,
    shared = [3, 2, 1].map((stage) => (p.zero >= stage ? 1 / p.data : 1));
  const alive = Math.min(p.micro_batches, p.pipeline),
    tokens = p.micro_batch * p.sequence,
    layers = p.layers / p.pipeline,
    kept = p.recompute ? 2 * p.width : p.saved;
  const activations = ((alive * layers * kept + (p.recompute ? p.saved : 0)) * tokens) / p.tensor;
  const parts = {
    parameters: 2 * own * shared[0],
    gradients: 2 * own * shared[1],
    optimizer: 12 * own * shared[2],
    activations,
    buffers: (p.pipeline === 1 ? (6 * tokens * p.vocabulary) / p.tensor : 0) + (p.zero === 3 ? (12 * own) / layers : 0),
  };
  return { ...parts, free: USABLE * p.memory - Object.values(parts).reduce((sum, v) => sum + v, 0) };
}
const reached = (p) => p.efficiency * p.halving ** Math.log2(p.tensor);
export function seconds(p) {
  const tokens = p.micro_batch * p.sequence,
    speed = p.tensor * p.pipeline * reached(p) * p.peak,
    compute = (p.flops * tokens * p.micro_batches) / speed;
  const recompute = p.recompute ? compute / 3 : 0,
    bubble = ((compute + recompute) * (p.pipeline - 1)) / p.micro_batches,
    t = p.tensor,
    d = p.data;
  const sent = ((2 * (t - 1)) / t) * 2 * p.width * tokens,
    link = t <= GPUS_A_NODE ? p.intra : p.inter;
  const tensor = (((p.recompute ? 6 : 4) * sent * p.layers) / p.pipeline) * (p.micro_batches / link),
    own = (2 * p.parameters) / t / p.pipeline;
  const ports = Math.max(1, Math.floor(GPUS_A_NODE / t)),
    wire = t * d * p.pipeline <= GPUS_A_NODE ? p.intra : Math.min(p.intra, ports * p.inter),
    many = p.micro_batches;
  const times = p.zero === 3 ? 3 * many : p.zero === 2 ? many + 1 : 2,
    sending = (times * ((d - 1) / d) * own) / wire;
  const behind = p.zero >= 2 ? compute + recompute : (compute + recompute) / many,
    copied = ((p.zero === 3 ? 8 : 0) * (own / 2) * many) / (STREAM * p.bandwidth);
  const data = Math.max(0, sending - behind) + INTERFERENCE * Math.min(sending, behind) + copied;
  return { compute, recompute, bubble, tensor, data };
}
const total = (times) => Object.values(times).reduce((sum, v) => sum + v, 0);
export function utilisation(p) {
  const times = seconds(p);
  return (times.compute * reached(p)) / total(times);
}
export const tokensPerSecond = (p) => (p.data * p.micro_batch * p.micro_batches * p.sequence) / total(seconds(p));
