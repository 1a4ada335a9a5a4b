"""The notebook's side of a launch: arguments, the worker process, and ``kernel[grid](...)`` itself."""
