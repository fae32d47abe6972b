package frontend

import (
	"net"
	"net/http"

	"github.com/dynago/dynago/selection"
)

// selectionPath is where the operations of the router as a service are, on a
// server that routes for itself.
const selectionPath = "/admin/router/select"

// adminRoutes are the routes for operators, besides the metrics page and the
// profiler.
func (s *Server) adminRoutes() []route {
	table := append(s.busyRoutes(), s.decisionRoutes()...)
	table = append(table, s.workerRoutes()...)
	table = append(table, s.kvAdminRoutes()...)
	table = append(table, s.kvListRoutes()...)
	table = append(table, s.peerRoutes()...)
	if s.Selection != nil {
		for _, o := range s.Selection.Operations() {
			table = append(table, selectionRoute(s, o))
		}
	}
	return table
}

func selectionRoute(s *Server, o selection.Operation) route {
	serve := o.Serve
	if o.Changes {
		serve = s.changing(serve)
	}
	return route{o.Method, "", selectionPath + o.Path, serve}
}

// changing guards a route that changes something: it is for operators, who have a
// listener of their own, or a key, or sit at this machine.
func (s *Server) changing(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.SeparateAdmin || s.Keys != nil || atLoopback(r) {
			h(w, r)
			return
		}
		s.refuse(w, refusal(http.StatusForbidden, "This route changes the server, which listens to other machines too: start it with --admin-port or --api-keys-file to use it"))
	}
}

// atLoopback says whether a request came to a listener that only this machine can
// reach.
func atLoopback(r *http.Request) bool {
	addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if back, ok := r.Context().Value(returnsKey{}).(*returns); ok {
		addr = back.Addr() // of the listener, which may be wider
	}
	switch a := addr.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}
