"""A notebook as one HTML page that is interactive without kernel and network: ``jupyter nbconvert --to labkit_html``.

JupyterLab offers it under File, Save and Export Notebook As. nbconvert's own page asks four content networks for
require.js, MathJax, Mermaid and the widget manager, and without them shows blank widgets and bare TeX.
"""
