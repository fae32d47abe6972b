// Package wire is what the protocols over HTTP and JSON have in common: a reader
// of documents, a writer of strings, and the error that a client is told. The
// protocols themselves are in packages of their own.
//
// The one idea: lenient about bytes, exact about types. Bad UTF-8, lone
// surrogates, NULs and raw control characters do not end a session, and look the
// same on every turn and in every protocol; a value of the wrong type is refused
// with its path, such as messages[2].content.
package wire
