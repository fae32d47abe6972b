package frontend

// V2Path tells what a path below /v2/models/ names.
func V2Path(escaped string, known func(model string) bool) (model, version, verb string, ok bool) {
	p, ok := v2PathOf(escaped, known)
	return p.model, p.version, string(p.verb), ok
}
