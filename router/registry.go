package router

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
)

// Quick is a [Policy] that may be asked under the router's lock, one request at
// a time: of two requests at the same moment the second then sees what became of
// the first. It must neither wait for anything nor call the router.
type Quick interface {
	Policy
	Quick() bool // whether it is; it does not change
}

func isQuick(p Policy) bool {
	q, ok := p.(Quick)
	return ok && q.Quick()
}

// ModePolicy returns the policy of a mode, for use within others. Unlike that of
// a router it may be asked from any goroutine. Seed 0 takes a random one.
func ModePolicy(m Mode, temperature float64, seed uint64) Policy {
	if seed == 0 {
		seed = rand.Uint64()
	}
	return &oneAtATime{policy: builtin(m, temperature, rand.New(rand.NewPCG(seed, 0)))}
}

type oneAtATime struct {
	mu     sync.Mutex
	policy Policy
}

func (*oneAtATime) Quick() bool { return true }

func (p *oneAtATime) Pick(ctx context.Context, q *Query, c []Candidate) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.policy.Pick(ctx, q, c)
}

// Roles is a [Policy] that leaves the choice of workers of each role to another
// one. There must be one for each role that is asked for.
type Roles map[engine.Role]Policy

// Pick asks the policy of the role.
func (r Roles) Pick(ctx context.Context, q *Query, c []Candidate) (int, error) {
	p := r[q.Role]
	if p == nil {
		return 0, engine.Errorf(engine.Internal, "no policy for role %q", q.Role)
	}
	return p.Pick(ctx, q, c)
}

// Learn tells the policy of the role, if it learns.
func (r Roles) Learn(o Outcome) {
	if l, ok := r[o.Role].(Learner); ok {
		l.Learn(o)
	}
}

// Quick says whether all are.
func (r Roles) Quick() bool {
	for _, p := range r {
		if !isQuick(p) {
			return false
		}
	}
	return true
}

// Recipe is what a policy is made of.
type Recipe struct {
	Parameters map[string]any // as in the policy file
	Role       engine.Role    // of the workers that it will pick
	// Mode and Temperature are those of the built-in policy.
	Mode        Mode
	Temperature float64
	Seed        uint64           // 0: a random one
	Now         func() time.Time // nil: time.Now
	Logger      *slog.Logger     // nil discards
	// Other makes another policy by its name, for one that is made of others.
	Other func(name string) (Policy, error)
}

// Read puts the parameters into a struct by the names of its fields in JSON. What
// they do not mention stays as it is; what is not in the struct is an error.
func (r *Recipe) Read(into any) error {
	text, err := json.Marshal(r.Parameters, json.FormatNilMapAsNull(false))
	if err != nil {
		return fmt.Errorf("parameters: %w", err)
	}
	if err := json.Unmarshal(text, into, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("parameters: %w", err)
	}
	return nil
}

// Constructor makes a policy, or says what is wrong with its parameters.
type Constructor func(r *Recipe) (Policy, error)

// Registry knows types of policies by their names.
type Registry struct{ types map[string]Constructor }

// NewRegistry returns a registry with the modes, and least-busy: the fewest
// requests, whatever is cached.
func NewRegistry() *Registry {
	g := &Registry{types: make(map[string]Constructor)}
	for _, m := range Modes {
		g.types[string(m)] = func(r *Recipe) (Policy, error) {
			return ModePolicy(m, r.Temperature, r.Seed), r.Read(&struct{}{})
		}
	}
	g.types["least-busy"] = func(r *Recipe) (Policy, error) {
		return Compose(Parts{Scorers: []Scorer{ActiveRequests{}}, Seed: r.Seed}), r.Read(&struct{}{})
	}
	return g
}

var typeName = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

// Register adds a type.
func (g *Registry) Register(name string, c Constructor) error {
	switch {
	case !typeName.MatchString(name):
		return fmt.Errorf("policy type %q: want a name of letters, digits, dots, dashes and underscores", name)
	case name == DefaultInstance:
		return fmt.Errorf("policy type %q is the built-in one, want another name", name)
	case g.types[name] != nil:
		return fmt.Errorf("policy type %q is there already, want another name", name)
	case c == nil:
		return fmt.Errorf("policy type %q has no constructor", name)
	}
	g.types[name] = c
	return nil
}

// Types returns the names of all types, in order.
func (g *Registry) Types() []string { return slices.Sorted(maps.Keys(g.types)) }

// RemoteType is the type that an address stands for where a name is wanted: its
// parameter url is the address.
const RemoteType = "remote"

// Choice says which policies are wanted. A name is that of an instance in the
// file, of a type without parameters, or an address. The empty string is no
// choice, and [DefaultInstance] the built-in policy.
type Choice struct {
	Policy          string     // for all roles
	Prefill, Decode string     // for these instead
	File            *Selection // for roles that none of the above chooses for; or nil
}

// roles are those that policies are chosen for.
var roles = []engine.Role{engine.Aggregated, engine.Prefill, engine.Decode, engine.Encode}

// name returns what is chosen for a role.
func (c *Choice) name(role engine.Role) string {
	switch {
	case role == engine.Prefill && c.Prefill != "":
		return c.Prefill
	case role == engine.Decode && c.Decode != "":
		return c.Decode
	case c.Policy != "":
		return c.Policy
	case c.File != nil && c.File.Roles[role] != "":
		return c.File.Roles[role]
	}
	return DefaultInstance
}

// Choose makes the policies that were chosen, one of its own for each role. It
// returns nil if that is the built-in one for all. base has what they have in
// common.
func (g *Registry) Choose(c Choice, base Recipe) (Roles, error) {
	chosen, asked := make(Roles), false
	for _, role := range roles {
		name := c.name(role)
		recipe := base
		recipe.Role = role
		p, err := g.named(name, c.File, recipe, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", roleName(role), err)
		}
		chosen[role] = p
		asked = asked || name != DefaultInstance
	}
	if !asked {
		return nil, nil
	}
	return chosen, nil
}

// named makes the policy of a name, which is wanted for those that it is to be a
// part of.
func (g *Registry) named(name string, file *Selection, r Recipe, within []string) (Policy, error) {
	if slices.Contains(within, name) {
		return nil, fmt.Errorf("policy %s is made of itself (%s → %s)", name, strings.Join(within, " → "), name)
	}
	within = append(slices.Clip(within), name)
	r.Other = func(name string) (Policy, error) { return g.named(name, file, r, within) }
	kind := name
	r.Parameters = nil
	switch {
	case name == DefaultInstance:
		return ModePolicy(r.Mode, r.Temperature, r.Seed), nil
	case strings.Contains(name, "://"):
		kind, r.Parameters = RemoteType, map[string]any{"url": name}
	case file != nil:
		if i := slices.IndexFunc(file.Instances, func(i Instance) bool { return i.Name == name }); i >= 0 {
			kind, r.Parameters = file.Instances[i].Type, file.Instances[i].Parameters
		}
	}
	construct := g.types[kind]
	if construct == nil {
		return nil, fmt.Errorf("unknown policy type %q: want %s, or one of %s", kind, DefaultInstance, strings.Join(g.Types(), ", "))
	}
	p, err := construct(&r)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, err)
	}
	return p, nil
}

func roleName(r engine.Role) string {
	for _, of := range roleKeys {
		if of.role == r {
			return of.key
		}
	}
	return string(r)
}
