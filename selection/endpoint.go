package selection

import (
	"fmt"
	"net"
	"strconv"

	"github.com/dynago/dynago/kvevent/zmtp"
)

// dialled returns an address to connect to: the given one for the first rank of a
// worker, and for those after it with the port raised.
func dialled(address string, after uint32) (string, error) {
	e, err := zmtp.ParseEndpoint(address)
	switch {
	case err != nil:
		return "", err
	case e.Network == "unix" && after > 0:
		return "", fmt.Errorf("endpoint %q is a path, which is of one rank alone; several need a TCP port each", address)
	case e.Network == "unix":
		return address, nil
	}
	host, text, err := net.SplitHostPort(e.Address)
	if err != nil {
		return "", fmt.Errorf("endpoint %q: %w", address, err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	switch port += uint64(after); {
	case err != nil, host == "", port == uint64(after):
		return "", fmt.Errorf("endpoint %q: want an address to connect to, such as tcp://10.0.0.7:5557", address)
	case port > 65535:
		return "", fmt.Errorf("endpoint %q: rank %d after the first would have port %d, and 65535 is the last", address, after, port)
	}
	return "tcp://" + net.JoinHostPort(host, strconv.FormatUint(port, 10)), nil
}
