package router

// BookedTargets returns how many targets the books know.
func (r *Router) BookedTargets() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.books.loads)
}
