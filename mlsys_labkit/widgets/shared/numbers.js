/** Numbers as text. `si` returns the same text as mlsys_labkit/_base/units.py. */
const PREFIXES = {
  "-12": "p",
  "-9": "n",
  "-6": "µ",
  "-3": "m",
  0: "",
  3: "k",
  6: "M",
  9: "G",
  12: "T",
  15: "P",
  18: "E",
};
const DIVISIBLE = ["s", "J", "W"];

/**
 * Three significant digits, an SI prefix and the unit. Only times, energies and powers take prefixes below one.
 * @param {number} value
 */
export function si(value, unit = "") {
  const [mantissa, exponent] = value.toExponential(2).split("e");
  const least = DIVISIBLE.includes(unit) && value ? -12 : 0;
  const power = Math.min(Math.max(3 * Math.floor(Number(exponent) / 3), least), 18);
  const shift = Number(exponent) - power;
  const text = shift < -3 && value ? `${Number(mantissa)}e${shift}` : String(Number(`${mantissa}e${shift}`));
  return `${text} ${PREFIXES[power]}${unit}`.trimEnd();
}

/** Three significant digits; from ten thousand on with an SI prefix. */
export const plain = (/** @type {number} */ value) =>
  Math.abs(value) >= 1e4 ? si(value) : String(Number(value.toPrecision(3)));

/** All digits of a whole number, in groups of three. */
export const whole = (/** @type {number} */ value) => value.toLocaleString("en").replaceAll(",", "\u202f");
