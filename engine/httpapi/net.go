package httpapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"syscall"
	"time"
)

// connection is what a request went over.
type connection struct {
	idle     time.Duration // unused before; 0 for a new one
	taken    time.Time
	again    bool // a request that was read may be sent again
	kept     bool
	answered atomic.Bool // a byte of an answer has come
}

func (c *connection) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			c.kept, c.idle, c.taken = i.Reused, i.IdleTime, time.Now()
		},
		GotFirstResponseByte: func() { c.answered.Store(true) },
	})
}

// An engine closes what was idle for some time. Its word of that and a request may
// cross on their way; then the request comes back within one round trip.
const (
	leastIdle = 500 * time.Millisecond
	roundTrip = time.Second
)

// missed says whether the engine had closed the connection when the request came.
// What ends otherwise may have been read, and be running.
func (c *connection) missed(err error) bool {
	if !c.kept || c.answered.Load() || time.Since(c.taken) > roundTrip {
		return false
	}
	// A reset is the answer to what was never read; a plain end is no answer at all.
	return isReset(err) || (c.again || c.idle >= leastIdle) && (errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed))
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// isTLS says whether the two sides did not agree on how to talk in secret.
func isTLS(err error) bool {
	var record tls.RecordHeaderError
	var authority x509.UnknownAuthorityError
	var verify *tls.CertificateVerificationError
	return errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &record) || errors.As(err, &authority) || errors.As(err, &verify)
}
