package main

import (
	"context"
	"fmt"
	"io"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// page is a read metrics page: each family's samples added up.
type page map[string]float64

// metrics reads the server's metrics.
func (s *server) metrics(ctx context.Context) (page, error) {
	body, err := get(ctx, s.admin+"/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return parsePage(body)
}

func parsePage(r io.Reader) (page, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, fmt.Errorf("metrics page: %w", err)
	}
	p := page{}
	for name, family := range families {
		for _, m := range family.Metric {
			p[name] += m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return p, nil
}

// value returns a family that must be on the page.
func (p page) value(name string) (float64, error) {
	v, ok := p[name]
	if !ok {
		return 0, fmt.Errorf("metrics page: no family %s", name)
	}
	return v, nil
}

// collect makes the server run a full garbage collection.
func (s *server) collect(ctx context.Context) error {
	body, err := get(ctx, s.admin+"/debug/pprof/heap?gc=1")
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(io.Discard, body)
	return err
}
