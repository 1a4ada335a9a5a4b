// Twin of model.py. A format is { name, bits, exponent, mantissa, specials, signed, subnormals }
// or { name, bits, numbers }.
const bias = (f) => 2 ** (f.exponent - 1) - 1;
export function decode(f, code) {
  if (f.numbers) return f.numbers[code];
  const top = 2 ** (f.exponent + f.mantissa),
    negative = f.signed && code >= top,
    rest = negative ? code - top : code;
  const power = Math.floor(rest / 2 ** f.mantissa),
    fraction = rest % 2 ** f.mantissa;
  const normal = power > 0 || !f.subnormals,
    last = power === 2 ** f.exponent - 1;
  let size = (fraction + (normal ? 2 ** f.mantissa : 0)) * 2 ** ((normal ? power : 1) - bias(f) - f.mantissa);
  if (last && f.specials === "ieee") size = fraction ? NaN : Infinity;
  if (last && f.specials === "nan" && fraction === 2 ** f.mantissa - 1) size = NaN;
  return negative ? -size : size;
}
// The code of the largest number.
export function largest(f) {
  if (f.numbers) return f.numbers.length - 1;
  return 2 ** (f.exponent + f.mantissa) - 1 - { ieee: 2 ** f.mantissa, nan: 1, none: 0 }[f.specials];
}
// The code of the nearest number; of two equally near ones the even code, beyond the largest the largest.
export function nearest(f, value) {
  const size = f.numbers || !f.signed ? value : Math.abs(value);
  let low = 0,
    high = largest(f);
  if (size <= decode(f, low)) high = low;
  if (size >= decode(f, high)) low = high;
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (decode(f, middle) <= size) low = middle;
    else high = middle;
  }
  const below = size - decode(f, low),
    above = decode(f, high) - size;
  let code = low;
  if (above < below || (above === below && !f.numbers && low % 2 === 1)) code = high;
  return f.signed && !f.numbers && (value < 0 || Object.is(value, -0)) ? code + 2 ** (f.exponent + f.mantissa) : code;
}
// The next smaller and the next larger number, each the number itself at the end of the range.
export function neighbours(f, value) {
  const ends = f.numbers
    ? [f.numbers[0], f.numbers[largest(f)]]
    : [f.signed ? -decode(f, largest(f)) : decode(f, 0), decode(f, largest(f))];
  const walk = (sign) => {
    const here = decode(f, nearest(f, value));
    if (sign * (here - value) > 0) return here;
    if (sign > 0 ? here >= ends[1] : here <= ends[0]) return here;
    if (f.numbers) return f.numbers[nearest(f, value) + sign];
    if (here === 0) return sign * decode(f, 1);
    return Math.sign(here) * decode(f, nearest(f, Math.abs(here)) + sign * Math.sign(here));
  };
  return [walk(-1), walk(1)];
}
