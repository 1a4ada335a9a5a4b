"""The frame, the parts and the one stylesheet of the graders' pages, and Markdown of a lab as HTML."""
