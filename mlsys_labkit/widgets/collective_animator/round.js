// One round of a collective, as the picture and the words beside it show it.
import { range, rounds, pieces, held } from "./model.js";

/**
 * @typedef {object} Round
 * @property {string} collective
 * @property {string} algorithm
 * @property {number} ranks
 * @property {number} step rounds that are over
 * @property {number} count rounds in all
 * @property {number[][]} has of each rank and chunk, a bit mask of the contributions in it
 * @property {[number, number, number[], boolean][]} messages of the last round that is over
 * @property {boolean} uncut a message is the whole tensor
 * @property {boolean} swaps each rank has a part for each other
 */

/** @returns {Round} */
export function roundOf(collective, algorithm, ranks, step) {
  const all = rounds(collective, algorithm, ranks);
  return {
    collective,
    algorithm,
    ranks,
    step,
    count: all.length,
    has: held(collective, algorithm, ranks, step),
    messages: step ? all[step - 1] : [],
    uncut: pieces(collective, algorithm, ranks) === 1,
    swaps: collective === "all_to_all",
  };
}

/** The rows of a rank's box: its chunks, or its parts by the ranks that they come from, each with its bit mask. */
export const rows = (/** @type {Round} */ { ranks: p, has, swaps }, /** @type {number} */ r) =>
  swaps ? range(p).map((from) => [from, has[r][p * from + r]]) : has[r].map((mask, c) => [c, mask]);

/** The rank and the row that the last round's messages wrote to. */
export const written = (/** @type {Round} */ { messages, swaps }) =>
  new Set(messages.flatMap(([from, to, chunks]) => chunks.map((c) => `${to} ${swaps ? from : c}`)));

/** A message in a word or two. */
export const label = (/** @type {Round} */ { swaps, uncut }, [, to, chunks, adds]) =>
  `${adds ? "+" : ""}` +
  (swaps ? `for ${to}` : uncut ? "all" : chunks.length > 2 ? `${chunks.length} chunks` : chunks.join(", "));

function ready(/** @type {Round} */ round, /** @type {number} */ r) {
  const { collective, ranks, has } = round;
  const all = (mask) => mask === (1 << ranks) - 1;
  if (collective === "reduce_scatter") return all(has[r][r]);
  if (collective === "reduce") return r === 0 && has[r].every(all);
  if (collective === "all_reduce") return has[r].every(all);
  return rows(round, r).every(([, mask]) => mask);
}

export function sentence(/** @type {Round} */ round) {
  const { collective, ranks, step, count, messages, uncut } = round;
  const done = range(ranks).filter((r) => ready(round, r)).length,
    goal = collective === "reduce" ? 1 : ranks;
  const state = `${done} of ${goal} ranks ${goal > 1 ? "have their" : "has its"} result.`;
  if (!step)
    return (
      `Before round 1 of ${count}: ` +
      (collective === "broadcast" ? "rank 0 holds the tensor" : "each rank holds its own contribution") +
      "."
    );
  const chunks = messages[0][2].length,
    what = uncut ? "the whole tensor" : `${chunks} chunk${chunks > 1 ? "s" : ""}`;
  return (
    `Round ${step} of ${count}: ${messages.length} message${messages.length > 1 ? "s" : ""} of ` +
    `${what}, ` +
    (messages[0][3] ? "added to what is there" : "kept as they come") +
    `; ${state}`
  );
}

/** What one rank holds, in words. */
export function holding(/** @type {Round} */ round, /** @type {number} */ r) {
  const { ranks, uncut, swaps } = round;
  const parts = rows(round, r).map(([c, mask]) => {
    const from = range(ranks).filter((i) => mask & (1 << i));
    return (
      (uncut ? "tensor" : swaps ? `part from ${c}` : `chunk ${c}`) +
      " " +
      (from.length ? (swaps ? "there" : `= ${from.join(" + ")}`) : "missing")
    );
  });
  return `rank ${r}: ${parts.join("; ")}`;
}
