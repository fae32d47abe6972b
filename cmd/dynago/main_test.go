package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// asProgram makes the test binary be dynago, for tests that start it as a
// process of its own.
const asProgram = "DYNAGO_TEST_AS_PROGRAM"

// engineOfTests is a setting in the environment of all tests that say nothing else:
// they are about what stands before the engines, and want some that say what a script
// does, in the time that they are told.
var engineOfTests = [2]string{"DYN_DEMO", "mock"}

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	if _, said := os.LookupEnv(engineOfTests[0]); !said { // as a script does
		os.Setenv(engineOfTests[0], engineOfTests[1])
	}
	testscript.Main(m, map[string]func(){"dynago": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata", Setup: func(e *testscript.Env) error {
		e.Setenv(engineOfTests[0], engineOfTests[1])
		return nil
	}})
}
