package frontend

// DecodePrefetch opens the reading of bodies to tests.
var DecodePrefetch = (*Server).decodePrefetch
