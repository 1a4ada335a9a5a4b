// Colours %%cuda and %%cu cells as C++ in JupyterLab and Notebook 7, which colour every cell in the kernel's language:
// https://github.com/jupyterlab/jupyterlab/issues/2143. JupyterLab loads a prebuilt extension as a webpack container.
// This one is written by hand, without webpack, because it uses no module of JupyterLab.
(() => {
  const CPP = "text/x-c++src",
    MAGIC = /^%%cu(da)?(\s|$)/,
    followed = new WeakSet();

  /** Give a code cell the language of its first line, now and after each change. */
  function follow(cell, usual) {
    if (cell.type !== "code" || followed.has(cell)) return;
    followed.add(cell);
    const update = () => {
      if (MAGIC.test(cell.sharedModel.getSource())) cell.mimeType = CPP;
      else if (cell.mimeType === CPP) cell.mimeType = usual();
    };
    cell.sharedModel.changed.connect(update);
    cell.mimeTypeChanged.connect(update); // a kernel that starts sets the language of all cells
    update();
  }

  const plugin = {
    id: "mlsys-labkit:cells",
    description: "Colours %%cuda and %%cu cells as C++.",
    autoStart: true,
    activate(app) {
      app.docRegistry.addWidgetExtension("Notebook", {
        createNew(panel, context) {
          const { cells } = context.model;
          const all = () => {
            for (const cell of cells) follow(cell, () => panel.content.codeMimetype);
          };
          cells.changed.connect(all);
          all();
        },
      });
    },
  };

  const containers = (globalThis["_JUPYTERLAB"] ??= {});
  containers["mlsys-labkit"] = { init: async () => {}, get: async () => () => ({ __esModule: true, default: plugin }) };
})();
