"""Pure core: frozen data and functions, with no clock, disk, network or hidden randomness."""
