"""Campaign for an NVIDIA GPU without a network: ``make wheelhouse`` on another machine, then ``make gpu``."""
