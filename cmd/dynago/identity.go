package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// identity is the certificate of a server, read from files, and those that it wants
// of its clients.
type identity struct {
	cert, key, ca string
	now           atomic.Pointer[tls.Certificate]
	clients       atomic.Pointer[x509.CertPool] // nil: anybody may come
}

// newIdentity reads a certificate; without files there is none.
func newIdentity(cert, key, ca string) (*identity, error) {
	switch {
	case cert == "" && key == "" && ca == "":
		return nil, nil
	case cert == "" || key == "":
		return nil, errors.New("--tcp-tls-cert-path and --tcp-tls-key-path: want both, or neither")
	}
	id := &identity{cert: cert, key: key, ca: ca}
	return id, id.reload()
}

// reload reads the files again. With an error all stays as it was.
func (id *identity) reload() error {
	pair, err := tls.LoadX509KeyPair(id.cert, id.key)
	if err != nil {
		return fmt.Errorf("--tcp-tls-cert-path: %s: want a certificate in PEM, and its key in --tcp-tls-key-path: %w", id.cert, err)
	}
	var pool *x509.CertPool
	if id.ca != "" {
		text, err := os.ReadFile(id.ca)
		if err != nil {
			return fmt.Errorf("--tcp-tls-ca-cert-path: %s: %w", id.ca, reason(err))
		}
		if pool = x509.NewCertPool(); !pool.AppendCertsFromPEM(text) {
			return fmt.Errorf("--tcp-tls-ca-cert-path: %s: want certificates in PEM", id.ca)
		}
	}
	id.now.Store(&pair)
	id.clients.Store(pool)
	return nil
}

// server is how a server shows the certificate that holds when a client comes.
func (id *identity) server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{*id.now.Load()}}
			if pool := id.clients.Load(); pool != nil {
				c.ClientCAs, c.ClientAuth = pool, tls.RequireAndVerifyClientCert
			}
			return c, nil
		},
	}
}
