"""Steps of the campaign, one module each, with a function ``cases`` that returns what a worker can run."""
