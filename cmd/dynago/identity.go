package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
)

// identity is the certificate of a server, read from files, and those that its clients'
// are signed with. A worker shows and wants the same ones where it is the client of
// another.
type identity struct {
	flags         string // what the names of the settings begin with
	cert, key, ca string
	now           atomic.Pointer[tls.Certificate]
	clients       atomic.Pointer[x509.CertPool] // nil: anybody may come
}

// newIdentity reads a certificate; without files there is none.
func newIdentity(flags, cert, key, ca string) (*identity, error) {
	switch {
	case cert == "" && key == "" && ca == "":
		return nil, nil
	case cert == "" || key == "":
		return nil, fmt.Errorf("%[1]s-cert-path and %[1]s-key-path: want both, or neither", flags)
	}
	id := &identity{flags: flags, cert: cert, key: key, ca: ca}
	return id, id.reload()
}

// reload reads the files again. With an error all stays as it was.
func (id *identity) reload() error {
	pair, err := tls.LoadX509KeyPair(id.cert, id.key)
	if err != nil {
		return fmt.Errorf("%[1]s-cert-path: %[2]s: want a certificate in PEM, and its key in %[1]s-key-path: %[3]w", id.flags, id.cert, err)
	}
	var pool *x509.CertPool
	if id.ca != "" {
		text, err := os.ReadFile(id.ca)
		if err != nil {
			return fmt.Errorf("%s-ca-cert-path: %s: %w", id.flags, id.ca, reason(err))
		}
		if pool = x509.NewCertPool(); !pool.AppendCertsFromPEM(text) {
			return fmt.Errorf("%s-ca-cert-path: %s: want certificates in PEM", id.flags, id.ca)
		}
	}
	id.now.Store(&pair)
	id.clients.Store(pool)
	return nil
}

// again reads the files again, if there are any, and logs what came of it.
func (id *identity) again(log *slog.Logger) {
	if id == nil {
		return
	}
	if err := id.reload(); err != nil {
		log.Error("the certificate stays as it was", "error", err)
		return
	}
	log.Info("the certificate was read again")
}

// server is how a server shows the certificate that holds when a client comes, and
// which protocols it speaks, the ones that it likes best first.
func (id *identity) server(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, Certificates: []tls.Certificate{*id.now.Load()}}
			if pool := id.clients.Load(); pool != nil {
				c.ClientCAs, c.ClientAuth = pool, tls.RequireAndVerifyClientCert
			}
			return c, nil
		},
	}
}

// client is how the certificate is shown to servers that have theirs from the same hands:
// those of the clients, or, if anybody may come, those that the system trusts. Name is
// what stands in theirs, if that is not where they are reached.
func (id *identity) client(name string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: name, RootCAs: id.clients.Load(),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return id.now.Load(), nil },
	}
}

// secure is a listener behind which all is encrypted.
type secure struct{ net.Listener }

// over returns a listener that speaks HTTP over TLS on the connections of another one;
// without a certificate it returns that one.
func (id *identity) over(l net.Listener) net.Listener {
	if id == nil {
		return l
	}
	return secure{tls.NewListener(l, id.server("h2", "http/1.1"))}
}
