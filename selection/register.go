package selection

import "net/http"

// mostRegistration bounds the body that registers a worker, in bytes. Its record
// is kept.
const mostRegistration = 128 << 10

// listWorkers tells of all workers, or of those of one partition.
func (s *Service) listWorkers(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusOK, s.catalog.list(filters(r)))
}

// upsertWorker registers a worker, or gives it other details.
func (s *Service) upsertWorker(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ID *workerID `json:"worker_id"`
		modelOf
		details
	}
	err := read(w, r, mostRegistration, &in)
	if err == nil && in.ID == nil {
		err = bad("worker_id is required")
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	p := in.partition()
	out, err := s.catalog.upsert(r.Context(), worker{ID: *in.ID, Model: p.model, Group: p.group, details: in.details})
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	answer(w, http.StatusCreated, out)
}

// patchWorker changes details of a worker.
func (s *Service) patchWorker(w http.ResponseWriter, r *http.Request) {
	id, err := parseID(r.PathValue("worker_id"))
	if err != nil {
		s.refuse(w, r, bad("worker_id: %v", err))
		return
	}
	var in details
	if err := read(w, r, mostRegistration, &in); err != nil {
		s.refuse(w, r, err)
		return
	}
	out, err := s.catalog.patch(r.Context(), id, &in)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	answer(w, http.StatusOK, out)
}

// deleteWorker lets a worker leave.
func (s *Service) deleteWorker(w http.ResponseWriter, r *http.Request) {
	id, err := parseID(r.PathValue("worker_id"))
	if err != nil {
		s.refuse(w, r, bad("worker_id: %v", err))
		return
	}
	out, err := s.catalog.remove(id)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	answer(w, http.StatusOK, out)
}
