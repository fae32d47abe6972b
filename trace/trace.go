// Package trace tells what every request of every agent did: the records of the
// schema dynamo.request.trace.v1, the bus that carries them away from requests, and
// the sinks that keep them, of which those that need no library of others are here.
//
// The one idea: a request only ever puts a pointer into a ring. Each sink has a ring
// and a goroutine of its own, so that one which is slow, full or dead loses its
// oldest records, and says how many, while requests and other sinks go on.
package trace
