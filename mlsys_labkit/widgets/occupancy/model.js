// Twin of mlsys_labkit.cuda.nvidia.occupancy for a kernel with one barrier; `limits` is the row of an architecture in
// its table.
const WARP = 32;
const roundUp = (amount, unit) => Math.ceil(amount / unit) * unit;
function byRegisters(limits, warps, registers) {
  const perWarp = roundUp(registers * WARP, limits.register_unit),
    perBlock = perWarp * roundUp(warps, limits.warp_unit);
  if (registers > limits.registers_per_thread || perBlock > limits.registers_per_block) return 0;
  return Math.floor((Math.floor(limits.registers_per_sm / limits.warp_unit / perWarp) * limits.warp_unit) / warps);
}
export function blocksAllowed(limits, threads, registers, sharedBytes) {
  const warps = Math.ceil(threads / WARP),
    shared = roundUp(sharedBytes + limits.shared_reserved, limits.shared_unit);
  const allowed = {
    warps: threads <= limits.threads_per_block ? Math.floor(limits.warps_per_sm / warps) : 0,
    blocks: limits.blocks_per_sm,
  };
  if (registers) allowed.registers = byRegisters(limits, warps, registers);
  if (shared)
    allowed["shared memory"] =
      shared <= limits.shared_per_block + limits.shared_reserved ? Math.floor(limits.shared_per_sm / shared) : 0;
  if (limits.barriers_per_sm) allowed.barriers = limits.barriers_per_sm;
  return allowed;
}
export function occupancy(limits, threads, registers, sharedBytes) {
  const allowed = blocksAllowed(limits, threads, registers, sharedBytes),
    blocks = Math.min(...Object.values(allowed));
  return {
    blocks,
    warps: blocks * Math.ceil(threads / WARP),
    allowed,
    limits: Object.keys(allowed).filter((name) => allowed[name] === blocks),
  };
}
