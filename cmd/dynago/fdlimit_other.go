//go:build !unix

package main

import "log/slog"

// raiseFDLimit does nothing where there is no such limit.
func raiseFDLimit(int, *slog.Logger) {}
