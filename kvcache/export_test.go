package kvcache

// Plain reports whether nothing has been asked of any block so far.
func (p *Pool) Plain() bool { return p.plain }
