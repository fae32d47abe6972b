//go:build unix

package main

import (
	"testing"
)

// surfaceRows are what the object itself promises, and its fields of sampling and
// prompt.
var surfaceRows = []row{
	{
		field: "greed_sampling", nvext: `{"greed_sampling":true}`, more: `"temperature":1.5,"top_p":0.5`,
		check: func(t *testing.T, c *crossing) {
			s := &c.only(t).Sampling
			if s.Temperature == nil || *s.Temperature != 0 {
				t.Errorf("temperature %v at the worker", s.Temperature)
			}
		},
	},
	{
		field: "greed_sampling that is false", nvext: `{"greed_sampling":false}`, more: `"temperature":1.5,"top_p":0.5`,
		check: func(t *testing.T, c *crossing) {
			s := &c.only(t).Sampling
			if s.Temperature == nil || *s.Temperature != 1.5 || s.TopP == nil || *s.TopP != 0.5 {
				t.Errorf("temperature %v, top_p %v at the worker", s.Temperature, s.TopP)
			}
		},
	},
}

// routingRows are what is promised about where a request runs.
var routingRows = []row{
	{
		field: "backend_instance_id", nvext: `{"backend_instance_id":{other}}`,
		check: func(t *testing.T, c *crossing) {
			if w := c.only(t).worker; w != 1 {
				t.Errorf("on worker %d", w)
			}
		},
	},
}
