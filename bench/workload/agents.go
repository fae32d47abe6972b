package workload

// Agents describes the history of agents that talk for many turns. Each agent
// has one of a few system prompts; a turn adds blocks of prompt, which come in
// one store, and blocks of answer, which are stored one by one as they are
// generated. Turns go to the agent's last worker mostly, and nothing is evicted.
type Agents struct {
	Sessions, Turns, Workers int
	Keys                     Keys
}

// The shape of a conversation, in blocks.
const (
	systemPrompts = 8
	systemBlocks  = 40
	promptBlocks  = 15 // a turn adds to the prompt
	answerBlocks  = 5  // and generates
	turnBlocks    = promptBlocks + answerBlocks
)

const (
	sticky     = 0.8 // of the turns go where the last one went
	concurrent = 64  // turns run beside each other
)

// Corpus lets all agents take a turn, in an order that is drawn anew each time,
// then the next. Of the turns that run beside each other the prompts come first
// and then the blocks of the answers, one of each in turn.
func (a Agents) Corpus() *Corpus {
	ids := systemPrompts*systemBlocks + a.Sessions*a.Turns*turnBlocks
	r := newRecorder(a.Workers, ids, a.Keys)
	random := newRand()
	agents := make([]agent, a.Sessions)
	for i := range agents {
		agents[i] = agent{system: random.IntN(systemPrompts), first: systemPrompts*systemBlocks + i*a.Turns*turnBlocks, held: make([]int32, a.Workers), worker: random.IntN(a.Workers)}
	}
	seen := make([][systemPrompts]bool, a.Workers) // system prompts that a worker holds
	var chain []uint32
	for turn := range a.Turns {
		now := uint32(turn) * 10_000
		order := random.Perm(a.Sessions)
		for len(order) > 0 {
			batch := order[:min(concurrent, len(order))]
			order = order[len(batch):]
			for _, i := range batch {
				g := &agents[i]
				if turn > 0 && random.Float64() >= sticky {
					g.worker = random.IntN(a.Workers)
				}
				chain = g.chain(chain[:0], turn*turnBlocks+promptBlocks)
				r.name(chain)
				r.query(now, g.worker, chain)
				held := int(g.held[g.worker])
				if held == 0 && seen[g.worker][g.system] {
					held = systemBlocks
				}
				r.store(now, g.worker, chain, held)
				g.held[g.worker] = int32(len(chain))
				seen[g.worker][g.system] = true
			}
			for answered := range answerBlocks {
				for _, i := range batch {
					g := &agents[i]
					chain = g.chain(chain[:0], turn*turnBlocks+promptBlocks+answered+1)
					r.name(chain)
					r.store(now, g.worker, chain, len(chain)-1)
					g.held[g.worker] = int32(len(chain))
				}
			}
		}
	}
	return &r.corpus
}

// agent is one conversation.
type agent struct {
	system, first, worker int
	held                  []int32 // leading blocks that each worker holds
}

// chain appends the ids of the system prompt and the n blocks after it.
func (g *agent) chain(ids []uint32, n int) []uint32 {
	for i := range systemBlocks {
		ids = append(ids, uint32(g.system*systemBlocks+i))
	}
	for i := range n {
		ids = append(ids, uint32(g.first+i))
	}
	return ids
}
