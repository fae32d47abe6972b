//go:build !linux && !darwin

package janitor

import (
	"errors"
	"os"
)

// setAttribute is for systems that have no attributes.
func setAttribute(*os.File, []byte) error { return errors.ErrUnsupported }

// getAttribute is for systems that have no attributes.
func getAttribute(*os.File) ([]byte, error) { return nil, errors.ErrUnsupported }
