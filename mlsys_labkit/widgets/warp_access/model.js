// Twin of model.py. A request is 32 byte offsets, null where a lane is inactive, and the bytes a lane.
const WARP = 32,
  BANKS = 32,
  SECTOR = 32,
  WORD = 4,
  MOST = 2 ** 31 - 1,
  LONGEST = 80;
function units(lanes, size, bytes) {
  const found = new Set();
  for (const at of lanes) {
    if (at === null) continue;
    for (let unit = Math.floor(at / bytes); unit <= Math.floor((at + size - 1) / bytes); unit += 1) found.add(unit);
  }
  return found;
}
export const sectors = (lanes, size) => [...units(lanes, size, SECTOR)].sort((a, b) => a - b);
export const distinctBytes = (lanes, size) => units(lanes, size, 1).size;
export const idealSectors = (lanes, size) => Math.ceil(distinctBytes(lanes, size) / SECTOR);
export function efficiency(lanes, size) {
  const fetched = SECTOR * sectors(lanes, size).length;
  return fetched ? distinctBytes(lanes, size) / fetched : 0;
}
const inPairs = (lanes, distance) =>
  lanes.every((at, lane) => at === null || lanes[lane ^ distance] === null || at === lanes[lane ^ distance]);
export function phaseLanes(lanes, size, loads = false) {
  const width = size <= WORD ? WARP : size <= 2 * WORD ? WARP / 2 : WARP / 4;
  return width < WARP && loads && (inPairs(lanes, 1) || inPairs(lanes, 2)) ? 2 * width : width;
}
export function phase(lanes, size, which, loads = false) {
  const width = phaseLanes(lanes, size, loads);
  return lanes.slice(which * width, (which + 1) * width);
}
export function bankDepths(lanes, size, which = 0, loads = false) {
  const depths = Array(BANKS).fill(0);
  for (const word of units(phase(lanes, size, which, loads), size, WORD)) depths[((word % BANKS) + BANKS) % BANKS] += 1;
  return depths;
}
export function sameAddress(lanes) {
  const counts = new Map();
  lanes.forEach((at) => {
    if (at !== null) counts.set(at, (counts.get(at) || 0) + 1);
  });
  return Math.max(0, ...counts.values());
}
export const wavefronts = (lanes, size, atomic = false, loads = false) =>
  Array.from({ length: WARP / phaseLanes(lanes, size, loads) }, (_, which) =>
    Math.max(...bankDepths(lanes, size, which, loads), atomic ? sameAddress(phase(lanes, size, which, loads)) : 0),
  );

const LEVEL = { "|": 1, "^": 2, "&": 3, "<<": 4, ">>": 4, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6 };
const TOKEN = /\d+|[A-Za-z_]\w*|<<|>>|[-+*/%&|^()]/g;
const DO = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "/": (a, b) => Math.trunc(a / b),
  "%": (a, b) => a % b,
  "<<": (a, b) => a * 2 ** b,
  ">>": (a, b) => Math.floor(a / 2 ** b),
  "&": (a, b) => a & b,
  "^": (a, b) => a ^ b,
  "|": (a, b) => a | b,
};
const stop = (words) => {
  throw new Error(words);
};
function apply(operator, a, b) {
  if ("/%".includes(operator) && b === 0) stop("division by zero");
  if (["<<", ">>"].includes(operator) && !(b >= 0 && b < 32)) stop("a shift is by 0 to 31");
  const value = DO[operator](a, b);
  if (Math.abs(value) > MOST) stop("the value leaves the range of int");
  return value + 0;
}
function atom(left, names) {
  if (!left.length) stop("the formula ends too soon");
  const token = left.shift();
  if (token === "-") return apply("-", 0, atom(left, names));
  if (token === "(") {
    const value = expression(left, names, 1);
    if (left.shift() !== ")") stop("a bracket is not closed");
    return value;
  }
  if (/^\d/.test(token)) return apply("+", Number(token), 0);
  if (!Object.hasOwn(names, token))
    stop(`unexpected ${token}; the names here are ${Object.keys(names).sort().join(", ")}`);
  return names[token];
}
function expression(left, names, level) {
  let value = atom(left, names);
  while (left.length && (LEVEL[left[0]] || 0) >= level) {
    const operator = left.shift();
    value = apply(operator, value, expression(left, names, LEVEL[operator] + 1));
  }
  return value;
}
export function evaluate(formula, names) {
  if (formula.length > LONGEST) stop(`a formula has at most ${LONGEST} characters`);
  const strange = formula.replace(TOKEN, "").replace(/\s/g, "");
  if (strange) stop(`unexpected ${strange[0]}`);
  const left = formula.match(TOKEN) || [];
  const value = expression(left, names, 1);
  if (left.length) stop(`unexpected ${left[0]}`);
  return value;
}
export const places = (formula, names) =>
  Array.from({ length: WARP }, (_, lane) => evaluate(formula, { ...names, lane }));
