/** The module that a live widget saves in its notebook: `packed` holds the widget's own module and styles, deflated. */
const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
const { name, esm, css } = await new Response(unpacked).json();
const url = URL.createObjectURL(new Blob([esm], { type: "text/javascript" }));
const { default: widget } = await import(url);
URL.revokeObjectURL(url);
const id = `lk-style-${name}`;
document.getElementById(id)?.remove(); // of an older version of the kit, in a page that has seen a restart
document.head.append(Object.assign(document.createElement("style"), { id, textContent: css }));
export default widget;
