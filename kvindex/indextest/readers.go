package indextest

import "testing"

func readers(t *testing.T, open func() Index) {}
