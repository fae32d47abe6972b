package frontend

import "reflect"

// DecodePrefetch opens the reading of bodies to tests.
var DecodePrefetch = (*Server).decodePrefetch

// PrefetchFields are the members that it reads besides those of prompts.
var PrefetchFields = reflect.TypeFor[prefetchFields]()
