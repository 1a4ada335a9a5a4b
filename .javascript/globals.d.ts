/** The deflated text of shared/unpack.js and shared/unpack_mount.js, declared by the script around them. */
declare const packed: string;
/** Set by every bundle, declared by the script around it. */
declare let widget: unknown;
/** reveal.js and its plugin for speaker's notes, loaded by the page of a deck. */
declare const Reveal: {
  next(): void;
  prev(): void;
  on(event: string, call: () => void): void;
  initialize(options: object): void;
};
declare const RevealNotes: unknown;
/** A figure of plotly and the id of its element, declared by the script around figure.js. */
declare const figure: { data: object[]; layout?: { font?: object } };
declare const homeId: string;
interface Window {
  Plotly?: {
    newPlot(plot: Element, data: object[], layout: object, config: object): void;
    relayout(plot: Element, change: object): void;
  };
}
