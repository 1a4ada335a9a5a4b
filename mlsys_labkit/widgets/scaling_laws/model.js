// Twin of model.py.
export const loss = (law, parameters, tokens) =>
  law.floor + law.a / parameters ** law.alpha + law.b / tokens ** law.beta;
export function bestParameters(law, flops) {
  const exponent = law.alpha + law.beta;
  return ((law.alpha * law.a) / (law.beta * law.b)) ** (1 / exponent) * (flops / 6) ** (law.beta / exponent);
}
export const lifetime = (parameters, tokens, served) => 6 * parameters * tokens + 2 * parameters * served;
export function tokensFor(law, parameters, target) {
  const left = target - law.floor - law.a / parameters ** law.alpha;
  return left > 0 ? (law.b / left) ** (1 / law.beta) : null;
}
