package httpapi

import (
	"context"
	"net"
	"net/http"
)

// DialWith makes the connections of c, in place of the network.
func DialWith(c *Client, dial func() net.Conn) {
	c.http.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) { return dial(), nil }
}
