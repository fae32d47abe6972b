package httpapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptrace"
	"syscall"
)

// traceReuse tells whether a request went over a connection that was used
// before.
func traceReuse(ctx context.Context, reused *bool) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { *reused = info.Reused },
	})
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
