/**
 * The script of a saved notebook's fragment: `packed` holds the widget's bundle, deflated. The bundle goes into an
 * inline script again, so that a page's policy has to allow nothing else.
 */
widget = {
  /** @param {[string, object]} what the arguments of mount.js after `render` */
  async mount(...what) {
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const text = await new Response(unpacked).text();
    const textContent = `${text}widget.mount(...${JSON.stringify(what)});`;
    const script = Object.assign(document.createElement("script"), { type: "module", textContent });
    document.getElementById(what[0])?.append(script);
  },
};
