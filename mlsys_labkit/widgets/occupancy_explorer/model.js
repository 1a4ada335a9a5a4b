// Twin of mlsys_labkit.cuda.nvidia.occupancy; `limits` is its table's row of one architecture.
const LIMITS = ["warps", "blocks", "registers", "shared"];
const roundUp = (value, unit) => Math.ceil(value / unit) * unit;
export function blocksBy(limits, threads, registers, sharedBytes) {
  const warps = Math.ceil(threads / 32), perWarp = roundUp(registers * 32, limits.register_unit);
  const tooMany = registers > limits.registers_per_thread || perWarp * roundUp(warps, limits.partitions) > limits.registers_per_block;
  const room = Math.floor(limits.registers_per_sm / limits.partitions / perWarp) * limits.partitions;
  const shared = roundUp(sharedBytes + limits.shared_reserved, limits.shared_unit);
  return {
    warps: threads > limits.threads_per_block ? 0 : Math.floor(limits.warps_per_sm / warps),
    blocks: limits.blocks_per_sm,
    registers: tooMany ? 0 : perWarp ? Math.floor(room / warps) : null,
    shared: sharedBytes > limits.shared_per_block ? 0 : shared ? Math.floor(limits.shared_per_sm / shared) : null,
  };
}
export function occupancy(limits, threads, registers, sharedBytes) {
  const by = blocksBy(limits, threads, registers, sharedBytes), known = LIMITS.filter((name) => by[name] !== null);
  const blocks = Math.min(...known.map((name) => by[name]));
  return { blocks, warps: blocks * Math.ceil(threads / 32), limit: known.find((name) => by[name] === blocks) };
}
