// Twin of model.py.
const HOURS_A_YEAR = 8766,
  IDLE = 0.3;
export const payment = (price, years, interest) =>
  interest === 0 ? price / years : (price * interest) / (1 - (1 + interest) ** -years);
const drawn = (b) => b.utilisation + IDLE * (1 - b.utilisation);
export function hour(b) {
  const sold = HOURS_A_YEAR * b.utilisation,
    power = (b.watts / 1000) * b.pue * drawn(b) * HOURS_A_YEAR;
  const yearly = payment(b.price, b.years, b.interest),
    capital = b.price / b.years;
  return {
    machine: capital / sold,
    interest: (yearly - capital) / sold,
    power: (power * b.usd_per_kwh) / sold,
    people: b.staff / sold,
  };
}
export const million = (b) =>
  (Object.values(hour(b)).reduce((sum, v) => sum + v, 0) / (3600 * b.tokens_per_second)) * 1e6;
export const energy = (b) =>
  (((b.watts / 1000) * b.pue * drawn(b)) / b.utilisation / (3600 * b.tokens_per_second)) * 1e6;
export const carbon = (b) => energy(b) * b.grams_per_kwh;
