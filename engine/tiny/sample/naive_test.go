package sample_test

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/tiny/sample"
)

// naive is the distribution that a token is drawn from, step by step as it is
// defined. Ids that may not come have none.
func naive(p engine.Sampling, logits []float32, prompt, answer []uint32, mask []uint64, hold []uint32) map[uint32]float64 {
	x := map[uint32]float64{}
	for id, l := range logits {
		i := uint32(id)
		if mask != nil && mask[id/64]>>(id%64)&1 == 0 || p.AllowedIDs != nil && !slices.Contains(p.AllowedIDs, i) {
			continue
		}
		bad := false
		for _, w := range p.BadWords {
			before := w[:len(w)-1]
			bad = bad || w[len(w)-1] == i && len(answer) >= len(before) && slices.Equal(answer[len(answer)-len(before):], before)
		}
		if !bad {
			x[i] = float64(l)
		}
	}
	free := false
	for i := range x {
		free = free || !slices.Contains(hold, i)
	}
	for _, i := range hold {
		if free {
			delete(x, i)
		}
	}
	for i := range x {
		x[i] += p.LogitBias[i]
		if slices.Contains(prompt, i) || slices.Contains(answer, i) {
			if x[i] > 0 {
				x[i] /= *p.RepetitionPenalty
			} else {
				x[i] *= *p.RepetitionPenalty
			}
		}
		n := 0
		for _, a := range answer {
			if a == i {
				n++
			}
		}
		if n > 0 {
			x[i] -= float64(n)**p.FrequencyPenalty + *p.PresencePenalty
		}
	}
	order := make([]uint32, 0, len(x))
	for i := range x {
		order = append(order, i)
	}
	slices.SortFunc(order, func(a, b uint32) int { return cmp.Or(cmp.Compare(x[b], x[a]), cmp.Compare(a, b)) })
	if len(order) == 0 {
		return nil
	}
	if *p.Temperature == 0 {
		return map[uint32]float64{order[0]: 1}
	}
	weigh := func() (w map[uint32]float64) {
		w, sum := map[uint32]float64{}, 0.0
		for _, i := range order {
			w[i] = math.Exp((x[i] - x[order[0]]) / *p.Temperature)
			sum += w[i]
		}
		for i := range w {
			w[i] /= sum
		}
		return w
	}
	w := weigh()
	order = slices.DeleteFunc(order, func(i uint32) bool { return w[i] < *p.MinP*w[order[0]]*(1-1e-12) })
	if *p.TopK > 0 {
		order = order[:min(*p.TopK, len(order))]
	}
	w = weigh()
	above := 0.0
	for n, i := range order {
		if above >= *p.TopP-1e-12 && *p.TopP < 1 {
			order = order[:n]
			break
		}
		above += w[i]
	}
	return weigh()
}

func drawn(t *rapid.T) (p engine.Sampling, vocab int) {
	vocab = rapid.IntRange(1, 80).Draw(t, "vocab")
	id := rapid.Uint32Range(0, uint32(vocab-1))
	number := func(name string, values ...float64) *float64 { return ptr(rapid.SampledFrom(values).Draw(t, name)) }
	p = engine.Sampling{
		Temperature: number("temperature", 0, 0.3, 1, 2.5), TopP: number("top_p", 1, 0.9, 0.5, 0.01), MinP: number("min_p", 0, 0.1, 0.7, 1),
		TopK:             ptr(rapid.SampledFrom([]int{-1, 0, 1, 3, 20, 1000}).Draw(t, "top_k")),
		FrequencyPenalty: number("frequency", 0, 0.5, -1), PresencePenalty: number("presence", 0, 1.5, -0.5), RepetitionPenalty: number("repetition", 1, 1.3, 0.5),
		LogitBias: rapid.MapOfN(id, rapid.Float64Range(-5, 5), 0, 4).Draw(t, "bias"),
		Seed:      ptr(rapid.Int64().Draw(t, "seed")),
		BadWords:  rapid.SliceOfN(rapid.SliceOfN(id, 1, 3), 0, 4).Draw(t, "bad"),
	}
	if rapid.Bool().Draw(t, "some are allowed") {
		p.AllowedIDs = rapid.SliceOfN(id, 0, vocab).Draw(t, "allowed")
		if p.AllowedIDs == nil {
			p.AllowedIDs = []uint32{}
		}
	}
	return p, vocab
}

// What is drawn has the likelihood that the definitions give it, and the share of a
// number of draws that it should have.
func TestDrawsAreThoseOfTheDefinitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, vocab := drawn(t)
		id := rapid.Uint32Range(0, uint32(vocab-1))
		prompt := rapid.SliceOfN(id, 0, 10).Draw(t, "prompt")
		answer := rapid.SliceOfN(id, 0, 10).Draw(t, "answer")
		hold := rapid.SliceOfN(id, 0, 3).Draw(t, "hold")
		logits := rapid.SliceOfN(rapid.Float32Range(-6, 6), vocab, vocab).Draw(t, "logits")
		var mask []uint64
		if rapid.Bool().Draw(t, "masked") {
			mask = rapid.SliceOfN(rapid.Uint64(), 2, 2).Draw(t, "mask")
		}
		params, err := sample.Default().With(&p, vocab)
		if err != nil {
			t.Fatal(err)
		}
		s := sample.New(params, prompt, vocab)
		for _, a := range answer {
			s.Accept(a)
		}
		want := naive(p, logits, prompt, answer, mask, hold)
		before := slices.Clone(logits)
		count := map[uint32]int{}
		const draws = 400
		for position := range draws {
			got, err := s.Next(sample.Step{Logits: logits, Position: position, Mask: mask, Hold: hold})
			if want == nil {
				if !errors.Is(err, sample.ErrNothing) {
					t.Fatalf("got %d, %v; want %v", got, err, sample.ErrNothing)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want[got] == 0 {
				t.Fatalf("%d was drawn, which is not among %v", got, want)
			}
			count[got]++
		}
		for i, share := range want {
			// Six standard deviations: one in 10⁹ for each id.
			if far := math.Abs(float64(count[i])/draws - share); far > 6*math.Sqrt(share*(1-share)/draws)+1/float64(draws) {
				t.Fatalf("%d was drawn %d times of %d; its share is %v", i, count[i], draws, share)
			}
		}
		if !slices.Equal(before, logits) {
			t.Fatal("logits were written to")
		}
	})
}

// chi returns the statistic of Pearson's test.
func chi(count []int, share []float64) float64 {
	n, x := 0, 0.0
	for _, c := range count {
		n += c
	}
	for i, c := range count {
		want := share[i] * float64(n)
		x += (float64(c) - want) * (float64(c) - want) / want
	}
	return x
}

// Over positions of one seed, and over seeds at one position, draws are like chance.
// The bounds are those of one in 10⁶, for seeds that do not change.
func TestDrawsAreLikeChance(t *testing.T) {
	const vocab, draws = 16, 200_000
	const most = 66 // chi-square with 15 degrees of freedom
	r := rand.New(rand.NewPCG(5, 5))
	logits := make([]float32, vocab)
	share, sum := make([]float64, vocab), 0.0
	for i := range logits {
		logits[i] = float32(2 * r.NormFloat64())
		share[i] = math.Exp(float64(logits[i]))
		sum += share[i]
	}
	for i := range share {
		share[i] /= sum
	}
	draw := func(seed int64, position int, s *sample.Sampler) uint32 {
		id, err := s.Next(sample.Step{Logits: logits, Position: position})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	seeded := func(seed int64) *sample.Sampler {
		return sample.New(params(t, engine.Sampling{Seed: &seed}, vocab), nil, vocab)
	}
	one := seeded(7)
	positions, seeds, pairs := make([]int, vocab), make([]int, vocab), make([]int, vocab*vocab)
	last := uint32(0)
	for i := range draws {
		id := draw(7, i, one)
		positions[id]++
		if i%2 == 1 {
			pairs[last*vocab+id]++
		}
		last = id
		seeds[draw(int64(i), 100, seeded(int64(i)))]++
	}
	if x := chi(positions, share); x > most {
		t.Errorf("over positions: chi-square %v", x)
	}
	if x := chi(seeds, share); x > most {
		t.Errorf("over seeds: chi-square %v", x)
	}
	both := make([]float64, vocab*vocab)
	for i := range both {
		both[i] = share[i/vocab] * share[i%vocab]
	}
	if x := chi(pairs, both); x > 400 { // 255 degrees of freedom
		t.Errorf("over neighbours: chi-square %v", x)
	}
}

// A draw depends on nothing but logits, seed and position.
func TestDrawsDoNotDependOnTheWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, vocab := drawn(t)
		p.AllowedIDs, p.BadWords = nil, nil
		params, err := sample.Default().With(&p, vocab)
		if err != nil {
			t.Fatal(err)
		}
		id := rapid.Uint32Range(0, uint32(vocab-1))
		answer := rapid.SliceOfN(id, 1, 12).Draw(t, "answer")
		rows := make([][]float32, len(answer)+1)
		for i := range rows {
			rows[i] = rapid.SliceOfN(rapid.Float32Range(-6, 6), vocab, vocab).Draw(t, "row")
		}
		whole := sample.New(params, nil, vocab)
		for i, row := range rows {
			a, err := whole.Next(sample.Step{Logits: row, Position: i})
			if err != nil {
				t.Fatal(err)
			}
			moved := sample.New(params, nil, vocab)
			for _, id := range answer[:i] {
				moved.Accept(id)
			}
			if b, err := moved.Next(sample.Step{Logits: row, Position: i}); a != b || err != nil {
				t.Fatalf("token %d is %d, and %d after a move, %v", i, a, b, err)
			}
			if i < len(answer) {
				whole.Accept(answer[i])
			}
		}
	})
}

func TestLogprob(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logits := rapid.SliceOfN(rapid.SampledFrom([]float32{-1e30, -80, -3, -1, 0, 0.5, 1, 2, 90, 1000}), 1, 30).Draw(t, "logits")
		id := rapid.Uint32Range(0, uint32(len(logits)-1)).Draw(t, "id")
		top := rapid.IntRange(0, 40).Draw(t, "top")
		got := sample.Logprob(logits, id, top)
		order := make([]uint32, len(logits))
		for i := range order {
			order[i] = uint32(i)
		}
		slices.SortStableFunc(order, func(a, b uint32) int { return cmp.Compare(logits[b], logits[a]) })
		high, sum := float64(logits[order[0]]), 0.0
		for _, l := range logits {
			sum += math.Exp(float64(l) - high)
		}
		want := func(id uint32) float64 { return float64(logits[id]) - high - math.Log(sum) }
		near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-12*max(1, math.Abs(b)) }
		if got.ID != id || got.Rank != slices.Index(order, id)+1 || !near(got.Logprob, want(id)) {
			t.Fatalf("%v: %+v; want %v at %d", logits, got, want(id), slices.Index(order, id)+1)
		}
		if len(got.Top) != min(top, len(logits)) {
			t.Fatalf("%d alternatives; want %d of %d", len(got.Top), top, len(logits))
		}
		for i, a := range got.Top {
			if a.ID != order[i] || a.Rank != i+1 || !near(a.Logprob, want(order[i])) {
				t.Fatalf("alternative %d is %+v; want %d", i, a, order[i])
			}
		}
	})
}

func TestParamsRefused(t *testing.T) {
	for field, s := range map[string]engine.Sampling{
		"temperature":        {Temperature: ptr(-1.0)},
		"top_p":              {TopP: ptr(0.0)},
		"min_p":              {MinP: ptr(1.5)},
		"repetition_penalty": {RepetitionPenalty: ptr(0.0)},
		"frequency_penalty":  {FrequencyPenalty: ptr(2.5)},
		"presence_penalty":   {PresencePenalty: ptr(math.NaN())},
		"logit_bias":         {LogitBias: map[uint32]float64{10: 1}},
		"allowed_token_ids":  {AllowedIDs: []uint32{3, 10}},
		"bad_words":          {BadWords: [][]uint32{{}}},
	} {
		_, err := sample.Default().With(&s, 10)
		var e *engine.Error
		if !errors.As(err, &e) || e.Kind != engine.InvalidArgument || e.Param != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := sample.Default().With(&engine.Sampling{LogitBias: map[uint32]float64{1: math.Inf(-1)}}, 10); err != nil {
		t.Errorf("a bias that forbids: %v", err)
	}
}

func BenchmarkNext(b *testing.B) {
	for _, vocab := range []int{2048, 150_000} {
		r := rand.New(rand.NewPCG(1, 1))
		logits := make([]float32, vocab)
		for i := range logits {
			logits[i] = float32(3 * r.NormFloat64())
		}
		for name, s := range map[string]engine.Sampling{
			"greedy": {Temperature: ptr(0.0)},
			"plain":  {},
			"top-p":  {Temperature: ptr(0.7), TopP: ptr(0.9)},
			"top-k":  {TopK: ptr(40)},
		} {
			b.Run(name+"/"+map[int]string{2048: "2k", 150_000: "150k"}[vocab], func(b *testing.B) {
				p, err := sample.Default().With(&s, vocab)
				if err != nil {
					b.Fatal(err)
				}
				sampler := sample.New(p, nil, vocab)
				b.ReportAllocs()
				for position := 0; b.Loop(); position++ {
					if _, err := sampler.Next(sample.Step{Logits: logits, Position: position}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkLogprob(b *testing.B) {
	logits := make([]float32, 2048)
	for i := range logits {
		logits[i] = float32(i * 7919 % 2048)
	}
	for b.Loop() {
		sample.Logprob(logits, 5, 5)
	}
}
