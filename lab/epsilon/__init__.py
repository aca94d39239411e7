"""`treetap measure-epsilon`: lower bounds of ε by canaries."""
