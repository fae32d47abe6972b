package rpc

import (
	"context"
	"errors"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynago/dynago/internal/wire"
)

// statusOf returns the status that tells of an error: of one that a client may be
// told, as the frontend and the protocol give them, or of one that has a status already.
func statusOf(err error) error {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		if _, has := status.FromError(err); has {
			return err
		}
		e = wire.ErrorOf(err, overload)
	}
	return status.Error(codeOf(e.Status), e.Message)
}

// overload is the status of "all busy" in errors for this wire, where nobody sees it.
const overload = wire.StatusOverloaded

// codeOf returns the code of gRPC that means what a status of HTTP means.
func codeOf(status int) codes.Code {
	switch status {
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusNotFound:
		return codes.NotFound
	case overload, http.StatusTooManyRequests:
		return codes.ResourceExhausted
	case wire.StatusClientClosedRequest:
		return codes.Canceled
	case http.StatusNotImplemented:
		return codes.Unimplemented
	case http.StatusServiceUnavailable:
		return codes.Unavailable
	case http.StatusGatewayTimeout:
		return codes.DeadlineExceeded
	}
	if status >= 500 {
		return codes.Internal
	}
	return codes.InvalidArgument
}

// ended returns the status of a call whose client has not waited for its answer.
func ended(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() }
