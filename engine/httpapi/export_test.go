package httpapi

import (
	"context"
	"net"
)

// DialWith makes the connections of c, in place of the network.
func DialWith(c *Client, dial func() net.Conn) {
	c.http.DialContext = func(context.Context, string, string) (net.Conn, error) { return dial(), nil }
	if c.direct != nil {
		c.direct.dial = func(context.Context) (net.Conn, error) { return dial(), nil }
	}
}

// ByNetHTTP lets all requests of c go by the transport of net/http.
func ByNetHTTP(c *Client) { c.direct = nil }
