package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dynago/dynago/router"
)

// waitingSettings say when a request waits for a worker instead of going to a
// busy one, and how long what was sent somewhere counts there.
type waitingSettings struct {
	Threshold    optional      `name:"router-queue-threshold" env:"DYN_ROUTER_QUEUE_THRESHOLD" default:"None" placeholder:"X" help:"Let requests wait while every worker has more prompt tokens to compute than X times those of one pass; None lets nobody wait."`
	Order        string        `name:"router-queue-policy" env:"DYN_ROUTER_QUEUE_POLICY" default:"fcfs" choice:"fcfs,lcfs,wspt" help:"Who of them goes first: first come, last come, or most important for the work that it is."`
	Timeout      time.Duration `name:"router-queue-timeout" env:"DYN_ROUTER_QUEUE_TIMEOUT" default:"240s" unit:"s" placeholder:"TIME" help:"How long a request may wait before it is refused; 0 is for ever."`
	Expiry       time.Duration `name:"router-active-request-expiry-secs" env:"DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS" default:"300s" unit:"s" placeholder:"TIME" help:"How long a request counts on its worker of which nothing is heard."`
	PrefillModel string        `name:"router-prefill-load-model" env:"DYN_ROUTER_PREFILL_LOAD_MODEL" default:"none" choice:"none,polynomial,aic" help:"How prompts that are being computed shrink in the books: not at all, or as a formula predicts that needs no measurements. aic, an outside model, is not in this version."`
}

// optional is a number, or none at all.
type optional struct{ value *float64 }

// UnmarshalText reads a number that is not negative, or None.
func (o *optional) UnmarshalText(text []byte) error {
	switch strings.ToLower(string(text)) {
	case "", "none", "null":
		o.value = nil
		return nil
	}
	x, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(x >= 0 && x <= math.MaxFloat64) {
		return fmt.Errorf("%s: want a number from 0 on, or None", text)
	}
	o.value = &x
	return nil
}

func (o optional) String() string {
	if o.value == nil {
		return "None"
	}
	return strconv.FormatFloat(*o.value, 'g', -1, 64)
}

// apply puts the settings into a router's configuration.
func (s *waitingSettings) apply(c *router.Config) error {
	order, err := router.ParseQueueOrder(s.Order)
	if err != nil {
		return fmt.Errorf("--router-queue-policy: %w", err)
	}
	c.QueueThreshold, c.QueueOrder, c.QueueTimeout = s.Threshold.value, order, s.Timeout
	if s.Expiry <= 0 {
		return fmt.Errorf("--router-active-request-expiry-secs: got %v, want more than 0", s.Expiry.Seconds())
	}
	c.Expiry = s.Expiry
	switch s.PrefillModel {
	case "polynomial":
		c.PrefillModel = router.PolynomialPrefill{}
	case "aic":
		return fmt.Errorf("--router-prefill-load-model: aic: this version cannot ask that model; want none or polynomial")
	}
	return nil
}
