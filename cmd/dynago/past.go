package main

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/dynago/dynago/router"
)

// pastSettings of routers change nothing here: they let launch lines that were
// made for other systems work. What cannot be together there cannot be here.
type pastSettings struct {
	EventThreads  *int     `name:"router-event-threads" env:"DYN_ROUTER_EVENT_THREADS" range:"1.." placeholder:"N" help:"No effect: events are applied by who hears them."`
	MaxTreeSize   *int     `name:"router-max-tree-size" env:"DYN_ROUTER_MAX_TREE_SIZE" range:"0.." placeholder:"N" help:"No effect: what is routed to a worker that tells nothing is bounded by what it can hold."`
	PruneRatio    *float64 `name:"router-prune-target-ratio" env:"DYN_ROUTER_PRUNE_TARGET_RATIO" range:"0..1" placeholder:"X" help:"No effect, as above."`
	ReplicaSync   bool     `name:"router-replica-sync" env:"DYN_ROUTER_REPLICA_SYNC" negatable:"" help:"No effect: there is one router."`
	Refresh       *string  `name:"router-overlap-refresh-after-secs" env:"DYN_ROUTER_OVERLAP_REFRESH_AFTER_SECS" placeholder:"TIME" help:"No effect: what is cached is looked up anew for every request that has waited."`
	RemoteIndexer bool     `name:"use-remote-indexer" env:"DYN_USE_REMOTE_INDEXER" negatable:"" help:"No effect: the index is in this process."`
	ServeIndexer  bool     `name:"serve-indexer" env:"DYN_SERVE_INDEXER" negatable:"" help:"No effect, as above."`
	EnforceDisagg bool     `name:"enforce-disagg" env:"DYN_ENFORCE_DISAGG" negatable:"" help:"No effect: which workers a request needs is said by their cards."`
	DurableEvents bool     `name:"durable-kv-events" env:"DYN_DURABLE_KV_EVENTS" negatable:"" hidden:"" help:"Refused: what was missed is asked for again where it was told."`
	AICBackend    *string  `name:"aic-backend" env:"DYN_AIC_BACKEND" hidden:"" help:"No effect: --router-prefill-load-model aic is not in this version."`
	AICSystem     *string  `name:"aic-system" env:"DYN_AIC_SYSTEM" hidden:"" help:"No effect, as above."`
	AICVersion    *string  `name:"aic-backend-version" env:"DYN_AIC_BACKEND_VERSION" hidden:"" help:"No effect, as above."`
	AICModel      *string  `name:"aic-model-path" env:"DYN_AIC_MODEL_PATH" hidden:"" help:"No effect, as above."`
	AICTP         *int     `name:"aic-tp-size" env:"DYN_AIC_TP_SIZE" range:"1.." hidden:"" help:"No effect, as above."`
	AICMoETP      *int     `name:"aic-moe-tp-size" env:"DYN_AIC_MOE_TP_SIZE" range:"1.." hidden:"" help:"No effect, as above."`
	AICMoEEP      *int     `name:"aic-moe-ep-size" env:"DYN_AIC_MOE_EP_SIZE" range:"1.." hidden:"" help:"No effect, as above."`
	AICDP         *int     `name:"aic-attention-dp-size" env:"DYN_AIC_ATTENTION_DP_SIZE" range:"1.." hidden:"" help:"No effect, as above."`
	AICNextN      *int     `name:"aic-nextn" env:"DYN_AIC_NEXTN" range:"0.." hidden:"" help:"No effect, as above."`
	AICAccepted   *string  `name:"aic-nextn-accept-rates" env:"DYN_AIC_NEXTN_ACCEPT_RATES" hidden:"" help:"No effect, as above."`
	AICSeed       *uint64  `name:"aic-mtp-seed" env:"DYN_AIC_MTP_SEED" hidden:"" help:"No effect, as above."`
}

// pastVariables are those of them that have never been flags.
var pastVariables = []string{
	"DYN_ROUTER_ACTIVE_SEQUENCE_DIRECT_ZMQ", "DYN_ROUTER_ACTIVE_SEQUENCE_DIRECT_ZMQ_RCVHWM",
	"DYN_ROUTER_MODEL_CARD_WAIT_SECS", "DYN_ROUTER_POSITIONAL_SEARCH_MODE",
	"DYN_ENGINE_REQUEST_LIMIT", "DYN_DYNAMO_REQUEST_QUEUE_LIMIT",
}

// check refuses what makes no sense beside the router's configuration, and names
// the settings that were given for nothing.
func (s *pastSettings) check(c router.Config, env func(string) (string, bool), log *slog.Logger) error {
	switch {
	case s.DurableEvents:
		return errors.New("--durable-kv-events: events are kept where they come from, and asked for again if they were missed; leave it out")
	case s.RemoteIndexer && s.ServeIndexer:
		return errors.New("--use-remote-indexer and --serve-indexer: one index cannot be both here and elsewhere; leave one of them out")
	case s.ServeIndexer && (c.Mode != router.KV || c.Tuning.OverlapScoreCredit == 0):
		return fmt.Errorf("--serve-indexer: there is no index in mode %s with a credit of %v; want --router-mode kv and --router-kv-overlap-score-credit above 0", c.Mode, c.Tuning.OverlapScoreCredit)
	}
	for _, past := range []struct {
		name  string
		given bool
	}{
		{"router-event-threads", s.EventThreads != nil},
		{"router-max-tree-size", s.MaxTreeSize != nil},
		{"router-prune-target-ratio", s.PruneRatio != nil},
		{"router-replica-sync", s.ReplicaSync},
		{"router-overlap-refresh-after-secs", s.Refresh != nil},
		{"use-remote-indexer", s.RemoteIndexer},
		{"serve-indexer", s.ServeIndexer},
		{"enforce-disagg", s.EnforceDisagg},
		{"aic-backend", s.AICBackend != nil},
		{"aic-system", s.AICSystem != nil},
		{"aic-backend-version", s.AICVersion != nil},
		{"aic-model-path", s.AICModel != nil},
		{"aic-tp-size", s.AICTP != nil},
		{"aic-moe-tp-size", s.AICMoETP != nil},
		{"aic-moe-ep-size", s.AICMoEEP != nil},
		{"aic-attention-dp-size", s.AICDP != nil},
		{"aic-nextn", s.AICNextN != nil},
		{"aic-nextn-accept-rates", s.AICAccepted != nil},
		{"aic-mtp-seed", s.AICSeed != nil},
	} {
		if past.given {
			log.Warn("setting has no effect", "setting", "--"+past.name)
		}
	}
	for _, name := range pastVariables {
		if v, _ := env(name); v != "" {
			log.Warn("setting has no effect", "setting", name)
		}
	}
	return nil
}
